//! Runs a batch of images and masks through the stages of a pipeline, with any engine.

use hsipack_format::{Error, Ratio, Result};

use crate::array::ElementType;
use crate::drawn::SampleKey;
use crate::engine::{BatchArray, Engine};
use crate::frame::Frame;
use crate::fusion::{self, Stage, Task, task};
use crate::geometry::Interpolation;
use crate::mixed::Mixed;
use crate::operation::{self, Blank, Operation};
use crate::ops::Op;
use crate::parameters::Parameters;
use crate::pipeline::{IMAGE, Pipeline};
use crate::resample::{ResampleJob, ResampleOptions, Resampling};
use crate::rescale;

/// Images, masks, targets and further images of a batch.
#[derive(Clone, Debug)]
pub struct Images<A> {
    /// (samples, bands, rows, columns); float16, bfloat16, float32 or float64. Fastest as a view of
    /// memory in the order (sample, row, column, band); other layouts are copied into this order.
    pub image: A,
    /// Masks and targets with the same samples, rows and columns, and further images.
    pub masks: Vec<Mask<A>>,
    /// Names of the further images among them.
    further: Vec<String>,
    overwrite: bool,
}

/// Labels of a batch, a target, or a further image.
///
/// A target has floats for each pixel. Geometric augmentations interpolate targets as they
/// interpolate images. A pixel of a target stays missing (NaN) where the nearest pixel is missing;
/// elsewhere, missing pixels have no weight.
///
/// A further image ([`Images::with_further`]) has bands of its own, and may have a whole number of
/// times as many rows and columns, or as few. Geometric augmentations move it over the same ground
/// as the image, with the same interpolation and padding. Mixing and pasting mix and paste it, too.
/// Augmentations of values leave it as it is.
#[derive(Clone, Debug)]
pub struct Mask<A> {
    /// Its name.
    pub name: String,
    /// (samples, rows, columns), or (samples, layers, rows, columns); integers or booleans, or for
    /// a target floats. For a further image, (samples, bands, rows, columns) of floats.
    pub labels: A,
}

/// An augmented batch.
#[derive(Clone, Debug)]
pub struct Augmented<A> {
    /// (samples, bands, rows, columns), a view of memory in the order (sample, row, column, band),
    /// with the element type of the input.
    pub image: A,
    /// The masks, in the order and with the shapes and element types of the input.
    pub masks: Vec<Mask<A>>,
    /// For every mixing augmentation of the list, which images were mixed in.
    pub mixed: Vec<Mixed>,
}

impl<A> Images<A> {
    /// Images and masks that stay unchanged: results get their own memory.
    pub fn new(image: A, masks: Vec<Mask<A>>) -> Self {
        Self { image, masks, further: Vec::new(), overwrite: false }
    }

    /// Says which of the masks are further images, by their names.
    pub fn with_further(self, further: Vec<String>) -> Self {
        Self { further, ..self }
    }

    /// Allows the pipeline to overwrite the memory of images and masks. Their contents are
    /// undefined afterwards.
    ///
    /// # Safety
    /// The memory must be writable, and nobody else may read or write it, through any array or
    /// tensor, until the pipeline is done with it.
    pub unsafe fn overwriting(self) -> Self {
        Self { overwrite: true, ..self }
    }

    /// Converts all arrays with `with`.
    ///
    /// # Errors
    /// The first error of `with`.
    pub fn of<B>(self, mut with: impl FnMut(A) -> Result<B>) -> Result<Images<B>> {
        let masks = self.masks.into_iter();
        let masks = masks.map(|mask| Ok(Mask { name: mask.name, labels: with(mask.labels)? }));
        let masks = masks.collect::<Result<_>>()?;
        let Self { further, overwrite, .. } = self;
        Ok(Images { image: with(self.image)?, masks, further, overwrite })
    }
}

impl<A> Augmented<A> {
    /// Converts all arrays with `with`.
    ///
    /// # Errors
    /// The first error of `with`.
    pub fn of<B>(self, mut with: impl FnMut(A) -> Result<B>) -> Result<Augmented<B>> {
        let masks = self.masks.into_iter();
        let masks = masks.map(|mask| Ok(Mask { name: mask.name, labels: with(mask.labels)? }));
        let masks = masks.collect::<Result<_>>()?;
        Ok(Augmented { image: with(self.image)?, masks, mixed: self.mixed })
    }
}

/// A batch on its way through the stages.
struct Work<'e, E: Engine> {
    engine: &'e E,
    image: BatchArray<E::Array>,
    masks: Vec<Layers<E::Array>>,
    mixed: Vec<Mixed>,
}

/// A mask on its way through the stages.
struct Layers<A> {
    name: String,
    /// The label for pixels without a source. In targets, they are NaN.
    fill: i64,
    held: BatchArray<A>,
    /// Whether the mask was given with an axis of layers.
    layered: bool,
    /// Whether it is a further image.
    is_image: bool,
    /// Its resolution. Only further images may have another one than the image.
    ratio: Ratio,
}

/// The batch before all stages, for samples that are restored.
struct Before<A> {
    image: BatchArray<A>,
    masks: Vec<BatchArray<A>>,
}

impl<A> Layers<A> {
    fn is_target(&self) -> bool {
        self.held.element.is_float() && !self.is_image
    }

    fn is_label(&self) -> bool {
        !self.held.element.is_float()
    }
}

impl Pipeline {
    /// Draws parameters for a batch and applies them.
    ///
    /// # Errors
    /// As [`draw`](Self::draw) and [`apply`](Self::apply).
    pub fn augment<E: Engine>(
        &self,
        engine: &E,
        images: &Images<E::Array>,
        epoch: u64,
        samples: &[SampleKey],
    ) -> Result<(Augmented<E::Array>, Parameters)> {
        let parameters = self.draw(frame_of(engine, &images.image)?.0, epoch, samples)?;
        let augmented = self.apply(engine, images, &parameters)?;
        Ok((augmented, parameters))
    }

    /// Applies drawn parameters to a batch. Samples for which nothing was drawn keep their values
    /// bit for bit, and flips, quarter turns and crops move values without changing them.
    ///
    /// # Errors
    /// If the parameters were drawn for another pipeline, frame or number of samples, a mask is
    /// missing, shapes or element types do not fit, or there is not enough memory.
    pub fn apply<E: Engine>(
        &self,
        engine: &E,
        images: &Images<E::Array>,
        parameters: &Parameters,
    ) -> Result<Augmented<E::Array>> {
        let (frame, samples) = frame_of(engine, &images.image)?;
        if parameters.frame != frame {
            return Err(Error::conflict(format!(
                "the images are {frame}, but the parameters were drawn for {}",
                parameters.frame
            ))
            .with_remedy("draw parameters for images of this size"));
        }
        let frames = parameters.frames(self, samples)?;
        let mut work = Work::new(engine, self, images)?;
        let guards = self.ops.iter().any(|op| matches!(op, Op::ValidGuard(_)));
        let before = guards.then(|| work.kept());
        for stage in fusion::stages(self) {
            work.stage(self, parameters, &frames, &stage, before.as_ref())?;
        }
        work.done()
    }
}

/// Moves the pixels of a target as those of the image, which `image` moves. Missing pixels do not
/// spread: interpolated values are means of the pixels that are there, and missing only where the
/// nearest pixel is.
fn move_target<E: Engine>(
    engine: &E,
    target: &mut BatchArray<E::Array>,
    image: &ResampleJob<'_>,
    fields: &E::Fields,
) -> Result<()> {
    let interpolation = Some(Interpolation::Nearest);
    let together = ResampleOptions { interpolation, ..image.together };
    let nearest = ResampleJob { fill: f64::NAN, together, ..*image };
    let is_whole = |step: &Resampling| !matches!(step, Resampling::Sample(_));
    if image.nearest() || image.moves.iter().all(is_whole) {
        return engine.place(target, &nearest, fields);
    }
    let between = ResampleJob { fill: 0.0, ..*image };
    let [mut values, mut weights] = engine.weighted(target)?;
    engine.place(target, &nearest, fields)?;
    engine.place(&mut values, &between, fields)?;
    engine.place(&mut weights, &between, fields)?;
    engine.means(target, &values, &weights)
}

/// Changes the values of an array. `labels` is the mask that the operation names, if it names one.
fn change_values<E: Engine>(
    engine: &E,
    array: &mut BatchArray<E::Array>,
    pass: Operation,
    labels: Option<&BatchArray<E::Array>>,
) -> Result<()> {
    match pass {
        Operation::ByBand(by) => engine.by_band(array, &by),
        Operation::Linear(maps, classes) => {
            let classes = classes.as_ref().map(|(_, classes)| &classes[..]);
            engine.linear(array, &maps, labels.zip(classes))
        }
        Operation::Noise { seeds, mean, std } => engine.noise(array, &seeds, mean, std),
        Operation::Ramp(ramps) => engine.ramp(array, &ramps),
        Operation::Blur(mut weights) => {
            let element = array.element;
            let all = weights.iter_mut().flatten().flatten();
            all.for_each(|weights| operation::trim(weights, element));
            engine.blur(array, &weights)
        }
        Operation::Normalize(norm, which) => engine.normalize(array, norm, &which),
        _ => Err(Error::bug("an operation on values that moves pixels")),
    }
}

/// Rows, columns and bands of images (samples, bands, rows, columns), and the number of samples.
fn frame_of<E: Engine>(engine: &E, image: &E::Array) -> Result<(Frame, usize)> {
    let (shape, element) = engine.look(image)?;
    match shape[..] {
        [samples, bands, rows, columns] if element.is_float() && !shape.contains(&0) => {
            Ok((Frame { rows, columns, bands }, samples))
        }
        _ => Err(Error::conflict(format!(
            "images of shape {shape:?} and type {element} cannot be augmented"
        ))
        .with_remedy(
            "give floating-point images (samples, bands, rows, columns) with no axis of length 0",
        )),
    }
}

/// Checks that a mask can be filled, and returns the label for pixels without a source.
pub(crate) fn fill_of(pipeline: &Pipeline, name: &str, element: ElementType) -> Result<i64> {
    if element.is_float() {
        return match pipeline.mask_fill.names(name) {
            false => Ok(0),
            true => Err(Error::conflict(format!("mask_fill names {name}, which is a target"))
                .with_remedy("leave it out: pixels without a source are NaN in targets")),
        };
    }
    let fill = pipeline.mask_fill.of(name);
    if element == ElementType::Bool || element.holds(fill) {
        return Ok(fill);
    }
    Err(Error::conflict(format!("mask {name} is {element}, which cannot hold mask_fill {fill}"))
        .with_remedy("give mask_fill a label that the mask can hold, or one for each mask"))
}

/// Checks that all masks that augmentations need are among these masks and targets.
pub(crate) fn need_masks(pipeline: &Pipeline, arrays: &[(&str, ElementType)]) -> Result<()> {
    let named = |is_float: bool| {
        let arrays = arrays.iter().filter(move |(_, element)| element.is_float() == is_float);
        arrays.map(|(name, _)| *name).collect::<Vec<&str>>()
    };
    let (targets, masks) = (named(true), named(false));
    for op in &pipeline.ops {
        if let Some(name) = op.masks().find(|name| targets.contains(name)) {
            return Err(Error::conflict(format!(
                "{} needs a mask, but {name} is a target: floats, not class ids",
                op.name()
            ))
            .with_remedy("name a mask"));
        }
        let missing = op.masks().find(|name| !masks.contains(name));
        if missing.is_some() || (op.needs_mask() && masks.is_empty()) {
            let what = missing.map_or("a mask, but the batch has none".into(), |name| {
                format!("the mask {name}, but the batch does not have it")
            });
            return Err(Error::conflict(format!("{} needs {what}", op.name()))
                .with_remedy("let the loader read the mask, or name another one"));
        }
    }
    Ok(())
}

/// The error if samples cannot be restored.
pub(crate) fn too_late_to_restore() -> Error {
    Error::conflict("valid_guard cannot restore samples whose size has changed")
        .with_remedy("put it before crops and resizing")
}

impl<'e, E: Engine> Work<'e, E> {
    /// Checks the batch and converts it to the internal order.
    fn new(engine: &'e E, pipeline: &Pipeline, images: &Images<E::Array>) -> Result<Self> {
        let (size, _) = engine.look(&images.image)?;
        let masks = images.masks.iter().map(|Mask { name, labels }| {
            let (shape, element) = engine.look(labels)?;
            let is_image = images.further.iter().any(|further| further == name);
            if is_image && !(element.is_float() && shape.len() == 4) {
                let what = format!("the further image {name} has shape {shape:?} and type {element}");
                return Err(Error::conflict(what)
                    .with_remedy("give floats (samples, bands, rows, columns)"));
            }
            let ratio = match shape[..] {
                [samples, rows, columns] | [samples, _, rows, columns] if samples == size[0] => {
                    Ratio::of([rows, columns], [size[2], size[3]])
                }
                _ => None,
            };
            let Some(ratio) = ratio.filter(|ratio| is_image || ratio.is_same()) else {
                return Err(Error::conflict(format!(
                    "{name} has shape {shape:?} and type {element}, which does not fit images of shape {size:?}"
                ))
                .with_remedy("give masks and targets as (samples, rows, columns) or (samples, layers, rows, columns)"));
            };
            let fill = fill_of(pipeline, name, element)?;
            let held = engine.hold(labels, images.overwrite)?;
            let layered = shape.len() == 4;
            Ok(Layers { name: name.clone(), fill, held, layered, is_image, ratio })
        });
        let masks = masks.collect::<Result<Vec<_>>>()?;
        let arrays = masks.iter().map(|mask| (mask.name.as_str(), mask.held.element));
        need_masks(pipeline, &arrays.collect::<Vec<_>>())?;
        rescale::check_arrays(pipeline, images.further.iter().map(String::as_str))?;
        let image = engine.hold(&images.image, images.overwrite)?;
        Ok(Self { engine, image, masks, mixed: Vec::new() })
    }

    /// A copy that shares the current memory. From now on, nobody may write to that memory.
    fn kept(&mut self) -> Before<E::Array> {
        self.image.ours = false;
        self.masks.iter_mut().for_each(|mask| mask.held.ours = false);
        let masks = self.masks.iter().map(|mask| mask.held.clone()).collect();
        Before { image: self.image.clone(), masks }
    }

    fn stage(
        &mut self,
        pipeline: &Pipeline,
        parameters: &Parameters,
        frames: &[Frame],
        stage: &Stage,
        before: Option<&Before<E::Array>>,
    ) -> Result<()> {
        let ops = &pipeline.ops[stage.ops.clone()];
        let steps = &parameters.steps[stage.ops.clone()];
        let nothing = steps.iter().all(|step| step.drawn.iter().all(Option::is_none));
        if nothing {
            if ops[0].mixes_images() {
                self.mixed.push(Mixed::nobody(steps[0].drawn.len()));
            }
            return Ok(());
        }
        let frames = &frames[stage.ops.start..=stage.ops.end];
        match task(pipeline, stage, steps, frames)? {
            Task::Resampling(moves, together) => {
                self.r#move(&moves, frames[frames.len() - 1], together)
            }
            Task::Operation(pass) if pass.changes_values() => {
                if pipeline.arrays.iter().any(|name| name == IMAGE) {
                    self.pass(pass, before)?;
                }
                let further = pipeline.arrays.iter().filter(|name| *name != IMAGE);
                for number in further.filter_map(|name| self.mask(Some(name))).collect::<Vec<_>>() {
                    let Layers { name, ratio, held, .. } = &mut self.masks[number];
                    let bands = held.shape[3];
                    let pass =
                        rescale::values(pipeline, stage, steps, frames, (name, *ratio, bands))?;
                    change_values(self.engine, held, pass, None)?;
                }
                Ok(())
            }
            Task::Operation(pass) => self.pass(pass, before),
        }
    }

    /// Moves the pixels of images, masks, targets and further images.
    fn r#move(&mut self, moves: &[Resampling], to: Frame, together: ResampleOptions) -> Result<()> {
        if moves.iter().all(|step| *step == Resampling::Keep) {
            return Ok(());
        }
        let [_, rows, columns, _] = self.image.shape;
        let from = [rows, columns];
        let to = [to.rows, to.columns];
        let fields = self.engine.fields(moves, to)?;
        let fill = together.outside.map_or(0.0, |outside| outside.fill);
        let fill = self.image.element.bounded(fill);
        let job = ResampleJob { to, moves, labels: false, fill, together };
        self.engine.place(&mut self.image, &job, &fields)?;
        for mask in &mut self.masks {
            if mask.is_target() {
                move_target(self.engine, &mut mask.held, &job, &fields)?;
                continue;
            }
            if mask.is_image {
                let (moves, to) = rescale::moves(&mask.name, mask.ratio, moves, from, to)?;
                let fill = mask.held.element.bounded(fill);
                let job = ResampleJob { to, moves: &moves, fill, ..job };
                match mask.ratio.is_same() {
                    true => self.engine.place(&mut mask.held, &job, &fields)?,
                    false => {
                        let fields = self.engine.fields(&moves, to)?;
                        self.engine.place(&mut mask.held, &job, &fields)?;
                    }
                }
                continue;
            }
            let job = ResampleJob { labels: true, fill: mask.fill as f64, ..job };
            self.engine.place(&mut mask.held, &job, &fields)?;
        }
        Ok(())
    }

    fn pass(&mut self, pass: Operation, before: Option<&Before<E::Array>>) -> Result<()> {
        let engine = self.engine;
        match pass {
            Operation::Blank(blanks) => {
                engine.blank(&mut self.image, &blanks, None)?;
                self.masks.iter_mut().try_for_each(|mask| match mask.is_target() {
                    // Erasing changes values of the image.
                    false if mask.is_image => Ok(()),
                    false => engine.blank(&mut mask.held, &blanks, Some(mask.fill)),
                    true => {
                        let values = vec![f64::NAN; mask.held.shape[3]];
                        let nan = |blank: &Blank| Blank { values: values.clone(), ..*blank };
                        let blanks: Vec<Blank> = blanks.iter().map(nan).collect();
                        engine.blank(&mut mask.held, &blanks, None)
                    }
                })
            }
            Operation::Paste(cuts, mixed) => {
                engine.paste(&mut self.image, &cuts)?;
                self.mixed.extend(mixed);
                self.masks.iter_mut().try_for_each(|mask| match mask.ratio.is_same() {
                    true => engine.paste(&mut mask.held, &cuts),
                    false => {
                        let [_, rows, columns, _] = mask.held.shape;
                        let cuts = rescale::cuts(mask.ratio, [rows, columns], &cuts);
                        engine.paste(&mut mask.held, &cuts)
                    }
                })
            }
            Operation::Mix(mixed) => {
                engine.mix(&mut self.image, &mixed.partners, &mixed.shares)?;
                for companion in self.masks.iter_mut().filter(|mask| !mask.is_label()) {
                    engine.mix(&mut companion.held, &mixed.partners, &mixed.shares)?;
                }
                self.mixed.push(mixed);
                Ok(())
            }
            Operation::Transplant(what) => {
                let Some(mask) = self.mask(what.mask.as_deref()) else { return Ok(()) };
                let valid = what.valid.as_deref().and_then(|name| self.mask(Some(name)));
                let valid = valid.map(|valid| &self.masks[valid].held);
                let chosen = engine.choose(&self.masks[mask].held, valid, &what)?;
                if let Some(other) = self.masks.iter().find(|mask| !mask.ratio.is_same()) {
                    return Err(rescale::no_pixels("transplant", &other.name, other.ratio));
                }
                engine.transplant(&mut self.image, &chosen, &what.donors)?;
                let mut masks = self.masks.iter_mut();
                masks.try_for_each(|mask| engine.transplant(&mut mask.held, &chosen, &what.donors))
            }
            Operation::Guard(name) => {
                let (Some(mask), Some(before)) = (self.mask(Some(&name)), before) else {
                    return Ok(());
                };
                if self.image.shape != before.image.shape {
                    return Err(too_late_to_restore());
                }
                let lost = engine.lost(&self.masks[mask].held)?;
                engine.restore(&mut self.image, &before.image, &lost)?;
                let masks = self.masks.iter_mut().zip(&before.masks);
                masks
                    .into_iter()
                    .try_for_each(|(mask, before)| engine.restore(&mut mask.held, before, &lost))
            }
            Operation::Select(bands) => engine.select(&mut self.image, &bands),
            Operation::ResampleBands(response) => engine.resample_bands(&mut self.image, &response),
            Operation::Linear(_, Some((ref name, _))) => {
                let number = self.mask(name.as_deref());
                let labels = number.map(|number| &self.masks[number].held);
                change_values(engine, &mut self.image, pass, labels)
            }
            pass => change_values(engine, &mut self.image, pass, None),
        }
    }

    /// The index of the mask with this name, or of the first mask.
    fn mask(&self, name: Option<&str>) -> Option<usize> {
        match name {
            None => self.masks.iter().position(Layers::is_label),
            Some(name) => self.masks.iter().position(|mask| mask.name == name),
        }
    }

    fn done(self) -> Result<Augmented<E::Array>> {
        let masks = self.masks.iter().map(|mask| {
            let labels = self.engine.give(&mask.held, mask.layered)?;
            Ok(Mask { name: mask.name.clone(), labels })
        });
        let masks = masks.collect::<Result<Vec<_>>>()?;
        Ok(Augmented { image: self.engine.give(&self.image, true)?, masks, mixed: self.mixed })
    }
}
