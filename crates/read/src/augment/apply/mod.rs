//! Doing what was drawn, on tensors.
//!
//! Images are (sample, row, column, band) inside, whatever they are called outside; so are masks, with their layers in
//! the place of bands. Nothing here waits for a device: what depends on pixels is computed there, what does not on the
//! host.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | from list to stages, one after the other |
//! | `batch.rs` | batches of a device loader |
//! | `stages.rs` | which augmentations are done together |
//! | `geometry.rs` | where pixels come from; the fields of elastic warps |
//! | `sample.rs` | warps as tensor operations, for every device and element type |
//! | `host/` | warps, and sums and products by band, as loops over the host's memory |
//! | `pieces.rs` | rectangles, patches, cells and labelled pixels |
//! | `values.rs` | values and spectra |

mod batch;
mod geometry;
mod host;
mod pieces;
mod sample;
mod stages;
mod values;

use tch::{Kind, TchError, Tensor};

use super::ops::{Drawn, Frame, Op};
use super::{Parameters, Pipeline, SampleKey};
use crate::torch::{empty, run};
use crate::{Error, Result};
#[doc(hidden)]
pub use geometry::elastic_noise;
use stages::Stage;

/// Images and masks of a batch.
#[derive(Debug)]
pub struct Images {
    /// (samples, bands, rows, columns); float16, bfloat16, float32 or float64. Best a view of memory in the order
    /// (sample, row, column, band), which others are brought into.
    pub image: Tensor,
    /// Masks of the same samples, rows and columns.
    pub masks: Vec<Mask>,
    /// Whether memory of images and masks may be written to. What is left there then means nothing, and nobody else may
    /// read or write it, through whatever tensor, until it is done.
    pub overwrite: bool,
}

/// Labels of a batch.
#[derive(Debug)]
pub struct Mask {
    /// Its name.
    pub name: String,
    /// (samples, rows, columns), or (samples, layers, rows, columns); integers or booleans.
    pub labels: Tensor,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Augmented {
    /// (samples, bands, rows, columns), a view of memory in the order (sample, row, column, band); the element type
    /// that went in.
    pub image: Tensor,
    /// The masks that went in, in their order, shapes and element types.
    pub masks: Vec<Mask>,
    /// Whose images were mixed in, for every mixing augmentation of the list.
    pub mixed: Vec<Mixed>,
}

/// Who was mixed with whom: class labels are to be mixed alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixed {
    /// For every sample the other one's place in the batch; its own where it was not mixed.
    pub partners: Vec<usize>,
    /// For every sample the other one's share, from 0 to 1.
    pub shares: Vec<f64>,
}

impl Mixed {
    fn nobody(samples: usize) -> Self {
        Self { partners: (0..samples).collect(), shares: vec![0.0; samples] }
    }

    /// Mixes labels (samples, classes) as the images were: one-hot ones, or probabilities.
    ///
    /// # Errors
    /// If there are not as many samples.
    pub fn labels(&self, labels: &Tensor) -> Result<Tensor> {
        let samples = self.partners.len() as i64;
        if labels.dim() != 2 || labels.size()[0] != samples {
            return Err(Error::conflict(format!("labels of shape {:?}", labels.size()))
                .with_remedy(format!("give ({samples}, classes)")));
        }
        run(|| {
            let partners: Vec<i64> = self.partners.iter().map(|place| *place as i64).collect();
            let partners = Tensor::f_from_slice(&partners)?.f_to_device(labels.device())?;
            let shares = Tensor::f_from_slice(&self.shares)?.f_to_device(labels.device())?;
            let shares = shares.f_to_kind(labels.kind())?.f_unsqueeze(1)?;
            let theirs = labels.f_index_select(0, &partners)?;
            labels.f_add(&theirs.f_subtract(labels)?.f_mul(&shares)?)
        })
    }
}

/// A batch on its way through the stages.
#[derive(Debug)]
struct Work {
    /// (samples, rows, columns, bands), contiguous.
    image: Tensor,
    /// Whether the image's memory may be written to.
    ours: bool,
    masks: Vec<Layers>,
    mixed: Vec<Mixed>,
}

/// A mask on its way.
#[derive(Debug)]
struct Layers {
    name: String,
    /// What is put where there is nothing.
    fill: i64,
    /// (samples, rows, columns, layers), contiguous.
    labels: Tensor,
    ours: bool,
    /// Whether it came with an axis of layers.
    layered: bool,
}

impl Pipeline {
    /// Draws for a batch and applies it.
    ///
    /// # Errors
    /// As [`draw`](Self::draw) and [`apply`](Self::apply).
    pub fn augment(
        &self,
        images: Images,
        epoch: u64,
        samples: &[SampleKey],
    ) -> Result<(Augmented, Parameters)> {
        let parameters = self.draw(frame_of(&images.image)?, epoch, samples)?;
        let augmented = self.apply(images, &parameters)?;
        Ok((augmented, parameters))
    }

    /// Does to a batch what was drawn for it. Samples for which nothing was drawn keep their values bit for bit, and
    /// flips, quarter turns and crops move values without touching them.
    ///
    /// # Errors
    /// If the parameters were drawn for another pipeline, frame or number of samples, a mask is missing, shapes or
    /// element types are not those of images and masks, or the device has not enough memory.
    pub fn apply(&self, images: Images, parameters: &Parameters) -> Result<Augmented> {
        let frame = frame_of(&images.image)?;
        let samples = images.image.size()[0] as usize;
        if parameters.frame != frame {
            return Err(Error::conflict(format!(
                "images of {frame}, but parameters were drawn for {}",
                parameters.frame
            ))
            .with_remedy("draw for images of this size"));
        }
        let frames = parameters.frames(self, samples)?;
        let mut work = self.work(images)?;
        let guards = self.ops.iter().any(|op| matches!(op, Op::ValidGuard(_)));
        let before = guards.then(|| work.kept());
        for stage in stages::of(self) {
            work.stage(self, parameters, &frames, &stage, before.as_ref())?;
        }
        work.done()
    }

    /// As [`apply`](Self::apply), but on the host, too, with the tensor operations that other devices use: so that
    /// they can be tested without one.
    #[doc(hidden)]
    pub fn apply_with_tensor_operations(
        &self,
        images: Images,
        parameters: &Parameters,
    ) -> Result<Augmented> {
        host::avoided(|| self.apply(images, parameters))
    }

    /// Checks the batch and brings it into the inner order.
    fn work(&self, images: Images) -> Result<Work> {
        let Images { image, masks, overwrite } = images;
        let size = image.size();
        let (inner, moved) = inner_order(&image)?;
        let masks = masks.into_iter().map(|mask| {
            let Mask { name, labels } = mask;
            let layered = labels.dim() == 4;
            let wanted = [size[0], size[2], size[3]];
            let fits = match labels.size()[..] {
                [b, h, w] | [b, _, h, w] => [b, h, w] == wanted,
                _ => false,
            };
            let whole = !labels.is_floating_point() && !labels.is_complex();
            if !fits || !whole {
                return Err(Error::conflict(format!(
                    "mask {name} of shape {:?} and type {:?} beside images of {size:?}",
                    labels.size(),
                    labels.kind()
                ))
                .with_remedy("give masks as integers or booleans (samples, rows, columns)"));
            }
            let labels = if layered { labels } else { run(|| labels.f_unsqueeze(1))? };
            let (labels, moved) = inner_order(&labels)?;
            let fill = self.mask_fill.of(&name);
            if labels.kind() != Kind::Bool && !pieces::holds(labels.kind(), fill) {
                return Err(Error::conflict(format!(
                    "mask_fill {fill} for mask {name}, whose labels are {:?}",
                    labels.kind()
                ))
                .with_remedy(
                    "give mask_fill a label that the mask can hold, or one for each mask",
                ));
            }
            Ok(Layers { name, fill, labels, ours: overwrite || moved, layered })
        });
        let masks = masks.collect::<Result<Vec<_>>>()?;
        for op in &self.ops {
            let missing = op.masks().find(|name| masks.iter().all(|mask| mask.name != *name));
            if missing.is_some() || (op.needs_mask() && masks.is_empty()) {
                let name = missing.map_or(String::new(), |name| format!(" {name}"));
                return Err(Error::conflict(format!(
                    "{} needs the mask{name}, which the batch does not have",
                    op.name()
                ))
                .with_remedy("have the loader read it, or name another one"));
            }
        }
        Ok(Work { image: inner, ours: overwrite || moved, masks, mixed: Vec::new() })
    }
}

/// Rows, columns and bands of images (samples, bands, rows, columns).
fn frame_of(image: &Tensor) -> Result<Frame> {
    let kinds = [Kind::Half, Kind::BFloat16, Kind::Float, Kind::Double];
    match image.size()[..] {
        [samples, bands, rows, columns]
            if samples.min(bands).min(rows).min(columns) > 0 && kinds.contains(&image.kind()) =>
        {
            Ok(Frame { rows: rows as usize, columns: columns as usize, bands: bands as usize })
        }
        _ => Err(Error::conflict(format!(
            "images of shape {:?} and type {:?}",
            image.size(),
            image.kind()
        ))
        .with_remedy("give floating-point images (samples, bands, rows, columns), none of them 0")),
    }
}

/// (samples, rows, columns, bands) of (samples, bands, rows, columns), contiguous; whether it was copied.
fn inner_order(tensor: &Tensor) -> Result<(Tensor, bool)> {
    run(|| {
        let inner = tensor.f_permute([0, 2, 3, 1])?;
        if inner.is_contiguous() {
            return Ok((inner, false));
        }
        Ok((inner.f_contiguous()?, true))
    })
}

/// The other way, without copying.
fn outer_order(tensor: &Tensor) -> Result<Tensor> {
    run(|| tensor.f_permute([0, 3, 1, 2]))
}

impl Work {
    /// A second look at what is there now; nobody may write to it from now on.
    fn kept(&mut self) -> Vec<Tensor> {
        self.ours = false;
        let masks = self.masks.iter_mut().map(|mask| {
            mask.ours = false;
            mask.labels.shallow_clone()
        });
        std::iter::once(self.image.shallow_clone()).chain(masks).collect()
    }

    fn stage(
        &mut self,
        pipeline: &Pipeline,
        parameters: &Parameters,
        frames: &[Frame],
        stage: &Stage,
        before: Option<&Vec<Tensor>>,
    ) -> Result<()> {
        let ops = &pipeline.ops[stage.ops.clone()];
        let steps = &parameters.steps[stage.ops.clone()];
        let nothing = steps.iter().all(|step| step.drawn.iter().all(Option::is_none));
        if nothing {
            if matches!(ops[0], Op::Mixup(_) | Op::CutmixRect(_)) {
                self.mixed.push(Mixed::nobody(steps[0].drawn.len()));
            }
            return Ok(());
        }
        let frames = &frames[stage.ops.start..=stage.ops.end];
        match &stage.kind {
            stages::Kind::Geometry(together) => {
                let moves = geometry::moves(ops, steps, frames, pipeline.kornia)?;
                self.r#move(&moves, frames[frames.len() - 1], together)
            }
            stages::Kind::Bands => self.bands(ops, steps, frames[0]),
            stages::Kind::Spectra => self.spectra(ops, steps, frames[0]),
            stages::Kind::Single => self.single(&ops[0], &steps[0].drawn, frames[0], before),
        }
    }

    fn single(
        &mut self,
        op: &Op,
        drawn: &[Option<Drawn>],
        frame: Frame,
        before: Option<&Vec<Tensor>>,
    ) -> Result<()> {
        match op {
            Op::Erase(op) => self.erase(op, drawn, frame),
            Op::HideAndSeek(op) => self.hide(op, drawn, frame),
            Op::CutmixRect(_) => self.cut_and_mix(drawn),
            Op::Jigsaw(op) => self.jigsaw(op, drawn, frame),
            Op::Transplant(op) => self.transplant(op, drawn),
            Op::Mixup(_) => self.mix_up(drawn),
            Op::ValidGuard(op) => self.guard(&op.mask, before.unwrap_or(&Vec::new())),
            Op::Projection(op) => self.project(op, drawn, frame),
            Op::GaussianNoise(op) => self.noise(op, drawn),
            Op::IlluminationRamp(_) => self.ramp(drawn, frame),
            Op::GaussianBlur(op) => self.blur(op, drawn),
            Op::L1Normalize(_) | Op::L2Normalize(_) | Op::Snv(_) => self.normalize(op, drawn),
            other => unreachable!("{} is done together with others", other.name()),
        }
    }

    /// Makes sure that the image may be written to.
    fn own_image(&mut self) -> Result<()> {
        if !self.ours {
            self.image = run(|| copied(&self.image))?;
            self.ours = true;
        }
        Ok(())
    }

    /// One sample of the image, for the host's loops to write to.
    fn place(&mut self, sample: usize) -> Result<host::Place<'_>> {
        self.own_image()?;
        // SAFETY: the image's memory was made here, or given to be overwritten, which nobody else looks at then; what
        // is kept of it is kept as a reason for a copy (`kept`).
        unsafe { host::Place::of(&mut self.image, sample) }
    }

    /// The mask of that name, or the first one.
    fn mask(&self, name: Option<&str>) -> Option<usize> {
        match name {
            None => (!self.masks.is_empty()).then_some(0),
            Some(name) => self.masks.iter().position(|mask| mask.name == name),
        }
    }

    fn done(self) -> Result<Augmented> {
        let masks = self.masks.into_iter().map(|mask| {
            let labels = outer_order(&mask.labels)?;
            let labels = if mask.layered { labels } else { run(|| labels.f_squeeze_dim(1))? };
            Ok(Mask { name: mask.name, labels })
        });
        let masks = masks.collect::<Result<Vec<_>>>()?;
        Ok(Augmented { image: outer_order(&self.image)?, masks, mixed: self.mixed })
    }
}

impl Layers {
    fn own(&mut self) -> Result<()> {
        if !self.ours {
            self.labels = run(|| copied(&self.labels))?;
            self.ours = true;
        }
        Ok(())
    }
}

/// A copy in memory of its own.
fn copied(tensor: &Tensor) -> Result<Tensor, TchError> {
    let mut copy = empty(&tensor.size(), tensor.kind(), tensor.device())?;
    copy.f_copy_(tensor)?;
    Ok(copy)
}

/// The element type that sums are made in.
fn sums(kind: Kind) -> Kind {
    if kind == Kind::Double { kind } else { Kind::Float }
}
