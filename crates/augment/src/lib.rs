//! Augmentations of images and masks together, equal to Kornia's where Kornia has them.
//!
//! A [`Pipeline`] is a list of [`Op`]s. [`draw`](Pipeline::draw) makes the [`Parameters`] of a batch, on the host and
//! from (seed, epoch, sample id) alone; [`apply`](Pipeline::apply) does what they say, by an [`Engine`]: in the host's
//! memory by loops of our own ([`Host`]), elsewhere by the tensor operations of whatever library has the batch
//! ([`Through`]). Consecutive geometric augmentations are one warp.
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
//! | `ops/` | the augmentations: options, what they draw, and what is to be done then |
//! | `matrix.rs`, `range.rs` | maps of the plane; numbers drawn from ranges |
//! | `parameters.rs` | what was drawn for a batch, to be explained and replayed |
//! | `apply.rs` | images and masks on their way through a pipeline |
//! | `stages.rs` | which augmentations are done together |
//! | `moves.rs`, `pass.rs` | what is to be done to a batch, whoever does it: where pixels come from; everything else |
//! | `engine.rs` | what whoever does it has to be able to do |
//! | `host/` | loops of our own over the host's memory |
//! | `tensors/` | tensor operations of another library |
//! | `kernels/` | kernels for NVIDIA GPUs, which take the place of some of these operations there |
//! | `prepare.rs` | from what is stored to images and masks: physical values, normalised, of another type |
//! | `library.rs` | libraries whose tensors batches can be |
//! | `array/` | arrays that belong to no library |
#![deny(missing_docs)]

mod apply;
pub mod array;
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
