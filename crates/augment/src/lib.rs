//! Augmentations of images together with their masks, equal to Kornia's where Kornia has them.
//!
//! A [`Pipeline`] is a list of [`Op`]s. [`draw`](Pipeline::draw) makes the [`Parameters`] of a batch on the host, from
//! (seed, epoch, sample id) alone. [`apply`](Pipeline::apply) applies them with an [`Engine`]: [`Host`] uses our own
//! loops in host memory, [`Through`] uses the tensor operations of the library that holds the batch. Consecutive
//! geometric augmentations become one warp.
//!
//! ```
//! use hsipack_augment::{Affine, Frame, Flip, Op, Padding, Pipeline, Range, SampleKey};
//!
//! let pipeline = Pipeline::new(vec![
//!     Op::Affine(Affine {
//!         degrees: Range::around_zero(45.0),
//!         translate: [0.0625, 0.0625],
//!         scale: Range::new(0.9, 1.1),
//!         padding: Padding::Reflection,
//!         ..Affine::default()
//!     }),
//!     Op::Hflip(Flip::default()),
//! ]);
//! assert_eq!(pipeline, Pipeline::from_json(
//!     r#"{"ops": [
//!         {"op": "affine", "degrees": 45, "translate": [0.0625, 0.0625], "scale": [0.9, 1.1], "padding": "reflection"},
//!         {"op": "hflip"}
//!     ]}"#,
//! )?);
//! let frame = Frame { rows: 480, columns: 640, bands: 100 };
//! let parameters = pipeline.draw(frame, 0, &[SampleKey { sample: 17, repeat: 0 }])?;
//! assert_eq!(parameters.steps.len(), 2);
//! # Ok::<(), hsipack_format::Error>(())
//! ```
//!
//! | file | part |
//! |---|---|
//! | `pipeline.rs` | a list of augmentations; drawing for a batch |
//! | `ops/` | the augmentations: options, what they draw, and which operations follow |
//! | `matrix.rs`, `range.rs` | maps of the plane; numbers drawn from ranges |
//! | `parameters.rs` | the parameters drawn for a batch, to explain or replay it |
//! | `check.rs` | whether a pipeline can be applied to images of a size |
//! | `apply.rs` | runs images and masks through a pipeline |
//! | `stages.rs` | which augmentations are done together |
//! | `moves.rs`, `pass.rs` | the operations on a batch, for any engine: where pixels come from; everything else |
//! | `engine.rs` | the operations that an engine must have |
//! | `host/` | our own loops over host memory |
//! | `tensors/` | tensor operations of another library |
//! | `kernels/` | kernels for NVIDIA GPUs, which replace some of these operations |
//! | `prepare.rs` | from stored data to images and masks: physical values, normalised, of another type |
//! | `library.rs` | libraries whose tensors batches can be |
//! | `array/` | arrays independent of any library |
#![deny(missing_docs)]

mod apply;
pub mod array;
mod check;
pub mod engine;
pub mod host;
pub mod kernels;
mod library;
mod matrix;
mod moves;
mod ops;
mod parameters;
mod pass;
mod pipeline;
pub mod prepare;
mod range;
mod stages;
pub mod tensors;

pub use apply::{Augmented, Images, Mask, Mixed};
pub use array::{Array, Device, ElementType};
pub use engine::Engine;
pub use host::Host;
pub use library::Library;
pub use matrix::Matrix;
pub use ops::{
    Affine, BandDropout, BandNoise, CenterCrop, Count, CutMix, Direction, Drawn, Elastic, Erase,
    Fill, Flip, Frame, GaussianBlur, GaussianNoise, HideAndSeek, IlluminationRamp, Interpolation,
    Jigsaw, KorniaCompat, MixUp, Normalize, Op, PadTo, Padding, PerBand, Perspective, Projection,
    RandomCrop, Resize, ResizedCrop, Rot90, Rotate, SampleKey, Scalar, SpectralShift,
    SpectralSmooth, Standardize, Transplant, ValidGuard,
};
pub use parameters::{Parameters, Step};
pub use pipeline::{MaskFill, Pipeline};
pub use range::Range;
pub use tensors::{Tensors, Through};
