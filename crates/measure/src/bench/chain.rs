//! How batches are augmented: by the workers of strategies 0 to 2 cube by cube, by the others as
//! whole batches.
//!
//! Workers apply the published chain one augmentation after the other, and each augmentation reads
//! and writes the whole cube, as is usual. All strategies draw the same random numbers.

use hsipack_read::augment::{Array, Frame, Host, Images, Library, Parameters, Pipeline, SampleKey};

use super::augment::Augment;
use crate::{Error, Result};

/// The augmentations that a worker applies to one cube at a time; `None` if there are none.
pub fn of_workers(augment: &Augment, seed: u64) -> Option<Pipeline> {
    let fuse = !matches!(augment, Augment::Published);
    let pipeline = augment.pipeline(seed)?;
    Some(Pipeline { fuse: fuse && pipeline.fuse, ..pipeline })
}

/// Augments a cube (rows, columns, bands).
///
/// # Errors
/// If the augmentations do not fit it, or there is no memory.
pub fn cube(
    host: &Host,
    pipeline: &Pipeline,
    cube: &Array,
    epoch: u64,
    key: SampleKey,
) -> Result<Array> {
    let [rows, columns, bands] = cube.shape()[..] else {
        return Err(Error::bug(format!("a cube of shape {:?}", cube.shape())));
    };
    let image = cube.reshaped(&[1, rows, columns, bands])?.permuted(&[0, 3, 1, 2]);
    let parameters = drawn(pipeline, image.shape(), epoch, &[key])?;
    let augmented = pipeline.apply(host, &Images::new(image, Vec::new()), &parameters)?.image;
    let augmented = augmented.permuted(&[0, 2, 3, 1]);
    augmented.reshaped(&augmented.shape()[1..])
}

/// Augments images (B, C, H, W) in place.
///
/// # Errors
/// If the augmentations do not fit them, or there is no memory.
pub fn batch<L: Library>(
    library: &L,
    pipeline: &Pipeline,
    image: L::Tensor,
    epoch: u64,
    keys: &[SampleKey],
) -> Result<L::Tensor> {
    let parameters = drawn(pipeline, &library.look_at(&image)?.0, epoch, keys)?;
    Ok(library.apply(pipeline, Images::new(image, Vec::new()), &parameters)?.image)
}

/// The parameters drawn for images of this shape (B, C, H, W).
fn drawn(
    pipeline: &Pipeline,
    shape: &[usize],
    epoch: u64,
    keys: &[SampleKey],
) -> Result<Parameters> {
    match *shape {
        [_, bands, rows, columns] => pipeline.draw(Frame { rows, columns, bands }, epoch, keys),
        _ => Err(Error::bug(format!("images of shape {shape:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use hsipack_read::augment::ElementType;
    use hsipack_read::augment::array::Buffer;

    use super::*;
    use crate::random::{GAMMA, mix};

    /// Cubes (rows, columns, bands) with values from 0 to 1.
    fn cubes(count: usize) -> Vec<f32> {
        let number = |index: u64| (mix(GAMMA.wrapping_mul(index)) >> 40) as f32;
        (0..(count * 24 * 32 * 6) as u64).map(|index| number(index) / (1u64 << 24) as f32).collect()
    }

    fn single(values: &[f32]) -> Buffer {
        Buffer::of(bytemuck::cast_slice(values)).unwrap()
    }

    fn half(values: &[f32]) -> Buffer {
        let values: Vec<f16> = values.iter().copied().map(f16::from_f32).collect();
        Buffer::of(bytemuck::cast_slice(&values)).unwrap()
    }

    fn widened(array: &Array) -> Vec<f32> {
        match array.element() {
            ElementType::F16 => {
                array.elements::<f16>().unwrap().iter().map(|value| value.to_f32()).collect()
            }
            _ => array.elements::<f32>().unwrap().to_vec(),
        }
    }

    #[test]
    fn cube_by_cube_and_in_turn_is_what_batches_get_fused() {
        let (worker, host) = (Host::new(1), Host::new(2));
        let chain = of_workers(&Augment::Published, 5).unwrap();
        let fused = Augment::Published.pipeline(5).unwrap();
        assert!(!chain.fuse && fused.fuse);
        let values = cubes(16);
        let keys: Vec<SampleKey> = (0..16).map(|sample| SampleKey { sample, repeat: 0 }).collect();
        let each = 24 * 32 * 6;
        for (element, most) in [(ElementType::F32, 2e-5), (ElementType::F16, 2e-3)] {
            let stored = if element == ElementType::F16 { half } else { single };
            let all = stored(&values).array(&[16, 24, 32, 6], element).unwrap();
            let all = batch(&host, &fused, all.permuted(&[0, 3, 1, 2]), 2, &keys).unwrap();
            let all = widened(&all.permuted(&[0, 2, 3, 1]));
            let mut moved = 0;
            for (index, key) in keys.iter().enumerate() {
                let values = &values[index * each..][..each];
                let plain = stored(values).array(&[24, 32, 6], element).unwrap();
                let augmented = cube(&worker, &chain, &plain, 2, *key).unwrap();
                assert_eq!((augmented.shape(), augmented.element()), (plain.shape(), element));
                let (augmented, plain) = (widened(&augmented), widened(&plain));
                let batch = &all[index * each..][..each];
                let off = augmented.iter().zip(batch).map(|(a, b)| (a - b).abs());
                let off = off.fold(0.0, f32::max);
                assert!(off <= most, "{element} sample {index}: {off}");
                moved += usize::from(augmented != plain);
            }
            assert!((4..16).contains(&moved), "{moved} of 16 were augmented");
        }
    }
}
