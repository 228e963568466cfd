//! libtorch for Rust programs: tensors over the memory of batches, and operations that augment them
//! on GPUs.
//!
//! [`Libtorch`] is a [`Library`](hsipack_augment::Library). On the CPU,
//! [`Host`](hsipack_augment::Host) computes everything, and tensors share its memory. On a GPU,
//! libtorch's own operations are used. The version must be libtorch 2.11.0. Python programs do not
//! need the libtorch of this crate, because they use the torch of their process.
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
//! | `tensor.rs` | tensors: devices, types of elements |
//! | `library.rs` | tensors over arrays and arrays over tensors |
//! | `operations.rs` | the operations that augmentations need |
//! | `shim.rs`, `shim.cpp` | functions of libtorch that `tch` does not offer |
#![deny(missing_docs)]

mod library;
mod operations;
mod shim;
mod tensor;

pub use library::{Libtorch, best_device, cuda_is_available};
pub use operations::Operations;
#[doc(no_inline)]
pub use tch;
pub use tensor::{Tensor, device_of, element_of, kind_of};
