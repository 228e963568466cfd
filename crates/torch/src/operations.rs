//! The operations that augmentations need, on one device.

use std::fmt;
use std::sync::Arc;

use hsipack_augment::array::Stream;
use hsipack_augment::kernels::{self, Kernels, Launcher};
use hsipack_augment::tensors::{Binary, Unary};
use hsipack_augment::{Array, ElementType, Tensors};
use hsipack_format::{Error, Result};
use tch::{Device, Kind, Scalar, TchError};

use crate::shim::{self, Random, run};
use crate::tensor::{Tensor, element_of, kind_of};

/// libtorch's operations on one device. On a GPU they are queued on the calling thread's current
/// stream, together with hsipack's kernels, which do some of the work there.
#[derive(Clone)]
pub struct Operations {
    device: Device,
    launcher: Option<Arc<dyn Launcher>>,
}

impl Operations {
    /// Operations on this device.
    pub fn on(device: Device) -> Self {
        let launcher = match device {
            // Without kernels, libtorch's operations do everything.
            Device::Cuda(number) => kernels::of_device(number).ok(),
            _ => None,
        };
        Self { device, launcher }
    }

    /// For tests: runs kernels with another launcher than the device's driver.
    #[must_use]
    pub fn with_launcher(self, launcher: Option<Arc<dyn Launcher>>) -> Self {
        Self { launcher, ..self }
    }

    fn random(&self, shape: &[usize], random: Random, seed: u64) -> Result<Tensor> {
        let mut tensor = self.empty(shape, ElementType::F32)?;
        shim::fill(&mut tensor.0, random, seed)?;
        Ok(tensor)
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels = self.launcher.is_some();
        formatter
            .debug_struct("Operations")
            .field("device", &self.device)
            .field("kernels", &kernels)
            .finish()
    }
}

fn lengths(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|length| *length as i64).collect()
}

fn made(work: impl FnOnce() -> Result<tch::Tensor, TchError>) -> Result<Tensor> {
    run(work).map(Tensor)
}

/// Passes whole numbers as integers, so that integer tensors stay integers.
fn scalar(number: f64) -> Scalar {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Scalar::int(number as i64)
    } else {
        Scalar::float(number)
    }
}

impl Tensors for Operations {
    type Tensor = Tensor;

    fn shape(&self, tensor: &Tensor) -> Result<Vec<usize>> {
        Ok(tensor.size().into_iter().map(|length| length as usize).collect())
    }

    fn element(&self, tensor: &Tensor) -> Result<ElementType> {
        element_of(tensor)
    }

    fn is_contiguous(&self, tensor: &Tensor) -> Result<bool> {
        Ok(tensor.is_contiguous())
    }

    fn kernels(&self) -> Result<Option<Kernels>> {
        let Some(launcher) = &self.launcher else { return Ok(None) };
        let stream = match self.device {
            Device::Cuda(number) => shim::current_stream(number)?,
            _ => Stream::LEGACY,
        };
        Ok(Some(Kernels { launcher: launcher.clone(), stream }))
    }

    fn address(&self, tensor: &Tensor) -> Result<usize> {
        Ok(tensor.data_ptr() as usize)
    }

    fn empty(&self, shape: &[usize], element: ElementType) -> Result<Tensor> {
        let options = (kind_of(element)?, self.device);
        made(|| tch::Tensor::f_empty(lengths(shape), options))
    }

    fn full(&self, shape: &[usize], number: f64, element: ElementType) -> Result<Tensor> {
        let options = (kind_of(element)?, self.device);
        made(|| tch::Tensor::f_full(lengths(shape), scalar(number), options))
    }

    fn arange(&self, len: usize, element: ElementType) -> Result<Tensor> {
        let options = (kind_of(element)?, self.device);
        made(|| tch::Tensor::f_arange(len as i64, options))
    }

    fn upload(&self, array: &Array) -> Result<Tensor> {
        let kind = kind_of(array.element())?;
        let bytes = array.bytes().ok_or_else(|| Error::bug("numbers with gaps"))?;
        made(|| {
            let numbers = tch::Tensor::f_from_data_size(bytes, &lengths(array.shape()), kind)?;
            match self.device {
                Device::Cpu => Ok(numbers),
                // Use page-locked memory, so that the copy does not block. (`pin_memory` warns about its argument each
                // time.)
                device => {
                    numbers.f_internal_pin_memory(device)?.f_to_device_(device, kind, true, false)
                }
            }
        })
    }

    fn normal(&self, shape: &[usize], seed: u64) -> Result<Tensor> {
        self.random(shape, Random::Normal, seed)
    }

    fn uniform(&self, shape: &[usize], seed: u64) -> Result<Tensor> {
        self.random(shape, Random::Uniform, seed)
    }

    fn permute(&self, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
        made(|| tensor.f_permute(lengths(axes)))
    }

    fn reshape(&self, tensor: &Tensor, shape: &[usize]) -> Result<Tensor> {
        made(|| tensor.f_reshape(lengths(shape)))
    }

    fn narrow(&self, tensor: &Tensor, axis: usize, first: usize, len: usize) -> Result<Tensor> {
        made(|| tensor.f_narrow(axis as i64, first as i64, len as i64))
    }

    fn flip(&self, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
        made(|| tensor.f_flip(lengths(axes)))
    }

    fn contiguous(&self, tensor: &Tensor) -> Result<Tensor> {
        made(|| tensor.f_contiguous())
    }

    fn stack(&self, tensors: &[Tensor], axis: usize) -> Result<Tensor> {
        let tensors: Vec<&tch::Tensor> = tensors.iter().map(|tensor| &tensor.0).collect();
        made(|| tch::Tensor::f_stack(&tensors, axis as i64))
    }

    fn to(&self, tensor: &Tensor, element: ElementType) -> Result<Tensor> {
        let kind = kind_of(element)?;
        made(|| tensor.f_to_kind(kind))
    }

    fn unary(&self, op: Unary, tensor: &Tensor) -> Result<Tensor> {
        made(|| match op {
            Unary::Abs => tensor.f_abs(),
            Unary::Floor => tensor.f_floor(),
            Unary::Isnan => tensor.f_isnan(),
            Unary::LogicalNot => tensor.f_logical_not(),
            Unary::Neg => tensor.f_neg(),
            Unary::Round => tensor.f_round(),
            Unary::Sqrt => tensor.f_sqrt(),
            Unary::Square => tensor.f_square(),
        })
    }

    fn binary(&self, op: Binary, tensor: &Tensor, other: &Tensor) -> Result<Tensor> {
        made(|| match op {
            Binary::Add => tensor.f_add(other),
            Binary::BitwiseAnd => tensor.f_bitwise_and_tensor(other),
            Binary::Div => tensor.f_div(other),
            Binary::Eq => tensor.f_eq_tensor(other),
            Binary::FloorDivide => tensor.f_floor_divide(other),
            Binary::Fmod => tensor.f_fmod_tensor(other),
            Binary::Ge => tensor.f_ge_tensor(other),
            Binary::Gt => tensor.f_gt_tensor(other),
            Binary::Le => tensor.f_le_tensor(other),
            Binary::LogicalAnd => tensor.f_logical_and(other),
            Binary::LogicalOr => tensor.f_logical_or(other),
            Binary::Lt => tensor.f_lt_tensor(other),
            Binary::Maximum => tensor.f_maximum(other),
            Binary::Minimum => tensor.f_minimum(other),
            Binary::Mul => tensor.f_mul(other),
            Binary::Ne => tensor.f_ne_tensor(other),
            Binary::Sub => tensor.f_sub(other),
        })
    }

    fn with(&self, op: Binary, tensor: &Tensor, number: f64) -> Result<Tensor> {
        let number = scalar(number);
        made(|| match op {
            Binary::Add => tensor.f_add_scalar(number),
            Binary::BitwiseAnd => tensor.f_bitwise_and(number),
            Binary::Div => tensor.f_div_scalar(number),
            Binary::Eq => tensor.f_eq(number),
            Binary::FloorDivide => tensor.f_floor_divide_scalar(number),
            Binary::Fmod => tensor.f_fmod(number),
            Binary::Ge => tensor.f_ge(number),
            Binary::Gt => tensor.f_gt(number),
            Binary::Le => tensor.f_le(number),
            Binary::LogicalAnd | Binary::LogicalOr => {
                Err(TchError::Torch("logic of a tensor and a number".to_owned()))
            }
            Binary::Lt => tensor.f_lt(number),
            Binary::Maximum => tensor.f_clamp_min(number),
            Binary::Minimum => tensor.f_clamp_max(number),
            Binary::Mul => tensor.f_mul_scalar(number),
            Binary::Ne => tensor.f_ne(number),
            Binary::Sub => tensor.f_sub_scalar(number),
        })
    }

    fn r#where(&self, condition: &Tensor, one: &Tensor, other: &Tensor) -> Result<Tensor> {
        made(|| one.f_where_self(condition, other))
    }

    fn nan_to_num(
        &self,
        tensor: &Tensor,
        nan: f64,
        infinity: f64,
        negative: f64,
    ) -> Result<Tensor> {
        made(|| tensor.f_nan_to_num(nan, infinity, negative))
    }

    fn sum(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|| tensor.f_sum_dim_intlist([axis as i64].as_slice(), true, None::<Kind>))
    }

    fn amax(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|| tensor.f_amax([axis as i64].as_slice(), true))
    }

    fn any(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|| tensor.f_any_dim(axis as i64, true))
    }

    fn argmax(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|| tensor.f_argmax(axis as i64, true))
    }

    fn sort(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|| tensor.f_sort(axis as i64, false).map(|(values, _)| values))
    }

    fn cumsum(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|| tensor.f_cumsum(axis as i64, None::<Kind>))
    }

    fn index_select(&self, tensor: &Tensor, index: &Tensor) -> Result<Tensor> {
        made(|| tensor.f_index_select(0, index))
    }

    fn scatter(&self, tensor: &Tensor, axis: usize, index: &Tensor, number: f64) -> Result<Tensor> {
        made(|| tensor.f_scatter_value(axis as i64, index, scalar(number)))
    }

    fn embedding_bag(&self, table: &Tensor, indices: &Tensor, weights: &Tensor) -> Result<Tensor> {
        made(|| {
            let [bags, rows] = indices.size()[..] else {
                return Err(TchError::Torch("bags of another shape".to_owned()));
            };
            let options = (Kind::Int64, self.device);
            let offsets = tch::Tensor::f_arange_start_step(0, bags * rows, rows.max(1), options)?;
            let (out, ..) = tch::Tensor::f_embedding_bag(
                table,
                &indices.f_reshape([-1])?,
                &offsets,
                false,
                0, // sum
                false,
                Some(&weights.f_reshape([-1])?),
                false,
            )?;
            Ok(out)
        })
    }

    fn matmul(&self, tensor: &Tensor, other: &Tensor) -> Result<Tensor> {
        made(|| tensor.f_matmul(other))
    }

    fn copy_(&self, into: &Tensor, from: &Tensor) -> Result<()> {
        run(|| into.shallow_clone().f_copy_(from))
    }

    fn index_copy_(&self, into: &Tensor, index: &Tensor, from: &Tensor) -> Result<()> {
        run(|| into.shallow_clone().f_index_copy_(0, index, from).map(drop))
    }

    fn binary_out(&self, op: Binary, into: &Tensor, tensor: &Tensor, other: &Tensor) -> Result<()> {
        run(|| match op {
            Binary::Add => tensor.f_add_out(into, other),
            Binary::Sub => tensor.f_sub_out(into, other),
            Binary::Mul => tensor.f_mul_out(into, other),
            Binary::Div => tensor.f_divide_out(into, other),
            other => Err(TchError::Torch(format!("{other:?} is not done with out="))),
        })
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_depend_on_the_seed_alone() {
        let operations = Operations::on(Device::Cpu);
        let numbers = |seed| {
            let tensor = operations.normal(&[100], seed).unwrap();
            Vec::<f32>::try_from(&tensor.0).unwrap()
        };
        tch::manual_seed(1);
        let first = numbers(7);
        let global = || f64::try_from(tch::Tensor::rand([1], (Kind::Float, Device::Cpu))).unwrap();
        let after = global();
        tch::manual_seed(1);
        assert_eq!(global(), after);
        assert_eq!(first, numbers(7));
        assert_ne!(first, numbers(8));
        let uniform = operations.uniform(&[1000], 3).unwrap();
        assert!(f64::try_from(uniform.abs().max()).unwrap() < 1.0);
        assert!(f64::try_from(uniform.min()).unwrap() < -0.9);
    }

    #[test]
    fn exceptions_of_libtorch_become_errors() {
        let operations = Operations::on(Device::Cpu);
        let tensor = operations.full(&[3], 1.0, ElementType::F32).unwrap();
        let error = operations.matmul(&tensor, &operations.reshape(&tensor, &[1, 3]).unwrap());
        assert!(error.unwrap_err().to_string().starts_with("libtorch: "));
        let mut whole = tch::Tensor::zeros([3], (Kind::Int, Device::Cpu));
        let error = shim::fill(&mut whole, Random::Normal, 1).unwrap_err();
        assert!(error.to_string().starts_with("libtorch: "), "{error}");
    }

    #[test]
    fn results_with_out_are_rounded_once() {
        let operations = Operations::on(Device::Cpu);
        let half = operations.full(&[2], 1.0, ElementType::F16).unwrap();
        let parts = Array::of_numbers(&[4e-4, 1e-3], &[2], ElementType::F32).unwrap();
        let parts = operations.upload(&parts).unwrap();
        operations.binary_out(Binary::Add, &half, &half, &parts).unwrap();
        assert_eq!(half.kind(), Kind::Half);
        assert_eq!(Vec::<f64>::try_from(half.to_kind(Kind::Double)).unwrap(), [1.0, 1.0009765625]);
    }
}
