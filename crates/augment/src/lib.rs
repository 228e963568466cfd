//! Augmentations of images together with their masks, equal to Kornia's where Kornia has them.
//!
//! A [`Pipeline`] is a list of [`Op`]s. [`draw`](Pipeline::draw) makes the [`Parameters`] of a
//! batch on the host, from (seed, epoch, sample id) alone. [`apply`](Pipeline::apply) applies them
//! with an [`Engine`]: [`Host`] uses our own loops in host memory, [`TensorEngine`] uses the tensor
//! operations of the library that holds the batch. Consecutive geometric augmentations become one
//! warp.
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
//! | `frame.rs`, `drawn.rs` | the size of samples; the parameters drawn for one of them |
//! | `matrix.rs`, `geometry.rs`, `range.rs` | maps of the plane; where pixels come from; numbers drawn from ranges |
//! | `parameters.rs` | the parameters drawn for a batch, to explain or replay it |
//! | `check.rs` | whether a pipeline can be applied to images of a size |
//! | `boxes.rs` | boxes around objects, moved as the pixels are |
//! | `apply.rs` | runs images and masks through a pipeline |
//! | `fusion.rs` | which augmentations are fused, and the operation that follows |
//! | `resample.rs`, `operation.rs` | the operations on a batch, for any engine: moving pixels; everything else |
//! | `mixed.rs` | which samples of a batch were mixed with which |
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
mod boxes;
mod check;
mod drawn;
pub mod engine;
mod frame;
mod fusion;
mod geometry;
pub mod host;
pub mod kernels;
mod library;
mod matrix;
mod mixed;
mod operation;
mod ops;
mod parameters;
mod pipeline;
pub mod prepare;
mod range;
mod resample;
mod rescale;
pub mod tensors;

pub use apply::{Augmented, Images, Mask};
pub use array::{Array, Device, ElementType};
pub use boxes::ObjectBox;
pub use drawn::{Drawn, SampleKey};
pub use engine::Engine;
pub use frame::Frame;
pub use geometry::{Interpolation, KorniaCompat, Padding};
pub use host::Host;
pub use library::Library;
pub use matrix::Matrix;
pub use mixed::Mixed;
pub use ops::*;
pub use parameters::{Parameters, Step};
pub use pipeline::{MaskFill, Pipeline};
pub use range::Range;
pub use tensors::{TensorEngine, Tensors};
