//! Augmenting one cube at a time on the CPU, as the workers of strategies 0 to 2 do.
//!
//! The published chain is done by libtorch's operations, one after the other: `affine_grid` and `grid_sample`, then
//! `flip`. Cubes stay in the order (row, column, band), in which they are stored: with bands in planes, `grid_sample`
//! takes twice as long and collating five times. What is drawn is the same as for strategies 3 and 4.

use hsipack_read::augment::{
    Frame, Images, Matrix, Op, Parameters, Pipeline, SampleKey, Step as Drawing,
};
use tch::{Device, Kind, TchError, Tensor};

use super::options::Augment;
use crate::device::run;
use crate::{Error, Result};

/// `bilinear` and `reflection` in libtorch's numbers.
const BILINEAR: i64 = 0;
const REFLECTION: i64 = 2;

/// How a worker augments.
#[derive(Clone, Debug)]
pub struct Chain {
    pipeline: Pipeline,
    /// By libtorch's operations; else by the pipeline, of one cube.
    plain: bool,
}

impl Chain {
    /// The chain of these augmentations; `None` if there are none.
    pub fn of(augment: &Augment, seed: u64) -> Option<Self> {
        let plain = matches!(augment, Augment::Published);
        augment.pipeline(seed).map(|pipeline| Self { pipeline, plain })
    }

    /// Augments a cube (rows, columns, bands), which may be written to.
    ///
    /// # Errors
    /// If the augmentations do not fit it, or there is no memory.
    pub fn augment(&self, cube: Tensor, epoch: u64, key: SampleKey) -> Result<Tensor> {
        if !self.plain {
            return self.by_pipeline(cube, epoch, key);
        }
        let size = cube.size();
        let frame =
            Frame { rows: size[0] as usize, columns: size[1] as usize, bands: size[2] as usize };
        let drawn = self.pipeline.draw(frame, epoch, &[key])?;
        let mut cube = cube;
        for (op, step) in self.pipeline.ops.iter().zip(&drawn.steps) {
            if step.drawn.first().is_some_and(Option::is_some) {
                cube = self.applied(op, step, &cube, frame)?;
            }
        }
        Ok(cube)
    }

    fn by_pipeline(&self, cube: Tensor, epoch: u64, key: SampleKey) -> Result<Tensor> {
        let image = run(|| cube.f_permute([2, 0, 1])?.f_unsqueeze(0))?;
        let images = Images { image, masks: Vec::new(), overwrite: true };
        let (augmented, _) = self.pipeline.augment(images, epoch, &[key])?;
        run(|| augmented.image.f_squeeze_dim(0)?.f_permute([1, 2, 0])?.f_contiguous())
    }

    fn applied(&self, op: &Op, step: &Drawing, cube: &Tensor, frame: Frame) -> Result<Tensor> {
        match op {
            Op::Hflip(_) => run(|| cube.f_flip([1])),
            Op::Vflip(_) => run(|| cube.f_flip([0])),
            Op::Affine(_) => {
                let alone = Pipeline {
                    ops: vec![op.clone()],
                    kornia: self.pipeline.kornia,
                    ..Pipeline::new(Vec::new())
                };
                let drawn = Parameters { frame, steps: vec![step.clone()] };
                let forward = drawn.matrices(&alone)?.pop().flatten();
                let back = forward.and_then(|forward| forward.inverse()).ok_or_else(|| {
                    Error::conflict("an affine map that cannot be undone was drawn")
                })?;
                run(|| warp(cube, &back))
            }
            other => Err(Error::unsupported(format!("the plain chain has no {}", other.name()))),
        }
    }
}

/// Pixels of the result from those of the cube; `back` maps pixels of the result to them. float16 is warped in
/// float32 and rounded once: libtorch's own kernel for it is slower on CPUs, and positions in float16 are a quarter of a
/// pixel off.
fn warp(cube: &Tensor, back: &Matrix) -> Result<Tensor, TchError> {
    let size = cube.size();
    let (rows, columns, bands) = (size[0], size[1], size[2]);
    let kind = cube.kind();
    let wide = if kind == Kind::Half { cube.f_to_kind(Kind::Float)? } else { cube.shallow_clone() };
    let image = wide.f_permute([2, 0, 1])?.f_unsqueeze(0)?;
    let theta = Tensor::f_from_slice(&normalised(back, rows as f64, columns as f64))?;
    let theta = theta.f_view([1, 2, 3])?;
    let grid = Tensor::f_affine_grid_generator(&theta, [1, bands, rows, columns], false)?;
    let warped = image.f_grid_sampler(&grid, BILINEAR, REFLECTION, false)?;
    drop((image, wide));
    // One pass turns the order and casts.
    let mut out = Tensor::f_empty([rows, columns, bands], (kind, Device::Cpu))?;
    out.f_copy_(&warped.f_squeeze_dim(0)?.f_permute([1, 2, 0])?)?;
    Ok(out)
}

/// The map in libtorch's units: −1 to 1 from edge to edge of the frame.
fn normalised(back: &Matrix, rows: f64, columns: f64) -> [f32; 6] {
    let axes = |a: f64, b: f64, c: f64, d: f64| Matrix([[a, 0.0, b], [0.0, c, d], [0.0, 0.0, 1.0]]);
    let pixels = axes(columns / 2.0, (columns - 1.0) / 2.0, rows / 2.0, (rows - 1.0) / 2.0);
    let units = axes(2.0 / columns, (1.0 - columns) / columns, 2.0 / rows, (1.0 - rows) / rows);
    let [[a, b, c], [d, e, f], _] = units.after(back).after(&pixels).0;
    [a, b, c, d, e, f].map(|value| value as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_go_from_edge_to_edge() {
        let near = |map: Matrix, want: [f32; 6]| {
            let got = normalised(&map, 4.0, 6.0);
            assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-6), "{got:?}");
        };
        near(Matrix::IDENTITY, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        let right = Matrix([[1.0, 0.0, 3.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
        near(right, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn torch_operations_do_what_the_pipeline_does() {
        let chain = Chain::of(&Augment::Published, 5).unwrap();
        let frame = Frame { rows: 24, columns: 32, bands: 6 };
        for kind in [Kind::Float, Kind::Half] {
            let mut moved = 0;
            for sample in 0..24 {
                let cube = Tensor::rand([24, 32, 6], (Kind::Float, Device::Cpu)).to_kind(kind);
                let key = SampleKey { sample, repeat: 0 };
                let ours = chain.by_pipeline(cube.copy(), 2, key).unwrap();
                let plain = chain.augment(cube.copy(), 2, key).unwrap();
                let off = f64::try_from((&ours - &plain).to_kind(Kind::Float).abs().max()).unwrap();
                let least = if kind == Kind::Half { 2e-3 } else { 2e-5 };
                assert!(off < least, "{kind:?} sample {sample}: {off}");
                assert_eq!((plain.kind(), plain.is_contiguous()), (kind, true));
                let drawn = chain.pipeline.draw(frame, 2, &[key]).unwrap();
                moved += usize::from(drawn.steps[0].drawn[0].is_some());
            }
            assert!((4..=20).contains(&moved), "{moved}");
        }
    }
}
