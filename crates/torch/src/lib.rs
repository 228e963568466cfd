//! libtorch for Rust programs: its tensors over memory that batches lie in, and its operations to augment them on GPUs.
//!
//! [`Libtorch`] is a [`Library`](hsipack_augment::Library): on the CPU everything is computed by
//! [`Host`](hsipack_augment::Host) and tensors share its memory, on a GPU by libtorch's own operations. It is libtorch
//! 2.11.0, and no other. Python programs need no libtorch of this crate: there the torch of the process does it.
//!
//! ```
//! use hsipack_augment::{Flip, Images, Library, Op, Pipeline, SampleKey};
//! use hsipack_torch::{Libtorch, Tensor};
//!
//! let libtorch = Libtorch::default();
//! let image = Tensor(tch::Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([1, 1, 2, 2]));
//! let pipeline = Pipeline::new(vec![Op::Hflip(Flip { p: 1.0 })]);
//! let frame = hsipack_augment::Frame { rows: 2, columns: 2, bands: 1 };
//! let parameters = pipeline.draw(frame, 0, &[SampleKey { sample: 0, repeat: 0 }])?;
//! let flipped = libtorch.apply(&pipeline, Images::new(image, Vec::new()), &parameters)?;
//! assert_eq!(flipped.image.0, tch::Tensor::from_slice(&[2f32, 1.0, 4.0, 3.0]).view([1, 1, 2, 2]));
//! # Ok::<(), hsipack_format::Error>(())
//! ```
//!
//! | file | part |
//! |---|---|
//! | `library.rs` | tensors over arrays and arrays over tensors; devices |
//! | `operations.rs` | the operations that augmentations need |
//! | `shim.rs`, `shim.cpp` | what `tch` does not offer |
#![deny(missing_docs)]

mod library;
mod operations;
mod shim;

pub use library::{
    Libtorch, Tensor, best_device, cuda_is_available, device_of, element_of, kind_of,
};
pub use operations::Operations;
#[doc(no_inline)]
pub use tch;
