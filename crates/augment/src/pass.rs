//! What is to be done to a batch once pixels are where they belong: made of what was drawn, for whoever does it.

use hsipack_format::{Error, Result, SpectralNorm};

use crate::apply::Mixed;
use crate::ops::{Drawn, Fill, Frame, Op, gaussian};
use crate::parameters::Step;

/// One thing that is done to all samples of a batch. Lists have an entry for every sample, `None` for those that stay as
/// they are.
#[derive(Clone, Debug)]
pub enum Pass {
    /// Rectangles are set to a spectrum, in masks to their own label.
    Blank(Vec<Blank>),
    /// Rectangles are copied, of the batch as it was before; in masks, too.
    Paste(Vec<Cut>, Option<Mixed>),
    /// Images are mixed.
    Mix(Mixed),
    /// Pixels of one label are copied from other samples.
    Transplant(Transplanting),
    /// Samples that lost all pixels of this mask come back as they were.
    Guard(String),
    /// One product and one sum by band.
    ByBand(Vec<Option<ByBand>>),
    /// A linear map of spectra; of pixels with certain labels only, if there are any of the mask.
    Linear(Vec<Option<Linear>>, Option<(Option<String>, Vec<i64>)>),
    /// Normal noise is added, made from these seeds.
    Noise {
        /// One for each sample.
        seeds: Vec<Option<u64>>,
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Lit from a side: strengths along x and y.
    Ramp(Vec<Option<[f64; 2]>>),
    /// Blurred with these weights along rows (which lie down) and columns.
    Blur(Vec<Option<[Vec<f64>; 2]>>),
    /// Spectra are normalised.
    Normalize(SpectralNorm, Vec<bool>),
}

/// A rectangle of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Rectangle {
    /// # Errors
    /// If it does not lie in the frame, as with parameters that were made by hand.
    fn new([x, y, width, height]: [usize; 4], frame: Frame) -> Result<Self> {
        let inside = |first: usize, size: usize, all: usize| first.saturating_add(size) <= all;
        if inside(x, width, frame.columns) && inside(y, height, frame.rows) {
            return Ok(Self { x, y, width, height });
        }
        let Frame { rows, columns, .. } = frame;
        Err(Error::conflict(format!(
            "a rectangle of {height} x {width} at row {y}, column {x} of a frame of {rows} x {columns}"
        ))
        .with_remedy("draw parameters for images of this size"))
    }
}

/// A rectangle that is set to a spectrum.
#[derive(Clone, Debug)]
pub struct Blank {
    /// Whose.
    pub sample: usize,
    /// Where.
    pub rectangle: Rectangle,
    /// A value for each band.
    pub values: Vec<f64>,
}

/// A rectangle that is copied.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The sample that it goes to.
    pub sample: usize,
    /// Where it goes.
    pub to: Rectangle,
    /// The sample that it comes from.
    pub donor: usize,
    /// Where it comes from; of the same size.
    pub from: Rectangle,
}

/// Which labels are copied from whom.
#[derive(Clone, Debug)]
pub struct Transplanting {
    /// The mask that has the labels; the first one where none is named.
    pub mask: Option<String>,
    /// A mask that is not 0 where labels count.
    pub valid: Option<String>,
    /// Who gives to every sample.
    pub donors: Vec<Option<usize>>,
    /// Which of the donor's labels, as a share of their number.
    pub picks: Vec<f32>,
    /// The label itself, where it was given by hand; it counts wherever it is.
    pub given: Vec<Option<i64>>,
    /// Labels that are never copied.
    pub excluded: Vec<i64>,
}

/// (value - shift)·factor + summand for every band; for factors of 0 the summand alone, whatever the value.
#[derive(Clone, Debug, PartialEq)]
pub struct ByBand {
    /// What is subtracted.
    pub shift: Vec<f64>,
    /// What is multiplied by.
    pub factor: Vec<f64>,
    /// What is added.
    pub summand: Vec<f64>,
}

/// A linear map of spectra.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// bands × bands numbers, one row after the other, that spectra are multiplied by from the right: rows are bands that
    /// go in.
    pub map: Vec<f64>,
    /// What is added then; empty for nothing.
    pub offset: Vec<f64>,
}

impl ByBand {
    fn nothing(bands: usize) -> Self {
        Self { shift: vec![0.0; bands], factor: vec![1.0; bands], summand: vec![0.0; bands] }
    }

    fn then_scale(&mut self, factors: impl Iterator<Item = f64>) {
        for ((factor, summand), by) in self.factor.iter_mut().zip(&mut self.summand).zip(factors) {
            *factor *= by;
            *summand *= by;
        }
    }

    fn then_add(&mut self, summands: impl Iterator<Item = f64>) {
        for (summand, by) in self.summand.iter_mut().zip(summands) {
            *summand += by;
        }
    }

    /// Standardises; where nothing was done before, by subtracting first, which loses fewer digits. Bands without
    /// statistics stay.
    fn then_standardize(&mut self, mean: &[f64], std: &[f64]) {
        let known = |(mean, std): (&f64, &f64)| {
            if mean.is_nan() || std.is_nan() { (0.0, 1.0) } else { (*mean, *std) }
        };
        let (mean, std): (Vec<f64>, Vec<f64>) = mean.iter().zip(std).map(known).unzip();
        if *self == Self::nothing(mean.len()) {
            self.shift = mean;
        } else {
            self.then_add(mean.iter().map(|mean| -mean));
        }
        self.then_scale(std.iter().map(|std| 1.0 / std));
    }

    fn then_replace(&mut self, bands: &[usize], values: &[f64]) {
        for band in bands {
            (self.factor[*band], self.summand[*band]) = (0.0, values[*band]);
        }
    }

    fn follow(&mut self, op: &Op, drawn: &Drawn, bands: usize) -> Result<()> {
        match (op, drawn) {
            (Op::Gain(_), Drawn::Number { value }) => self.then_scale((0..bands).map(|_| *value)),
            (Op::Offset(_), Drawn::Number { value }) => self.then_add((0..bands).map(|_| *value)),
            (Op::BandJitter(_), Drawn::Numbers { values }) if values.len() == bands => {
                self.then_scale(values.iter().map(|value| 1.0 + value));
            }
            (Op::BandOffset(_), Drawn::Numbers { values }) if values.len() == bands => {
                self.then_add(values.iter().copied());
            }
            (Op::BandDropout(op), Drawn::Bands { bands: dropped })
                if dropped.iter().all(|band| *band < bands) =>
            {
                self.then_replace(dropped, &op.fill.of("the fill of band_dropout", bands)?);
            }
            (Op::Standardize(op), Drawn::Plain) => {
                self.then_standardize(
                    &op.mean.of("the mean", bands)?,
                    &op.std.of("the std", bands)?,
                );
            }
            (op, drawn) => return Err(drawn.misfit(op.name())),
        }
        Ok(())
    }
}

/// The products and sums of augmentations that follow one another.
pub(crate) fn by_band(ops: &[Op], steps: &[Step], frame: Frame) -> Result<Pass> {
    let nothing = ByBand::nothing(frame.bands);
    let samples = steps.first().map_or(0, |step| step.drawn.len());
    let by_sample = (0..samples).map(|sample| {
        let mut by = nothing.clone();
        for (op, step) in ops.iter().zip(steps) {
            if let Some(drawn) = &step.drawn[sample] {
                by.follow(op, drawn, frame.bands)?;
            }
        }
        Ok((by != nothing).then_some(by))
    });
    Ok(Pass::ByBand(by_sample.collect::<Result<_>>()?))
}

/// The linear maps of augmentations that follow one another.
pub(crate) fn spectral(ops: &[Op], steps: &[Step], frame: Frame) -> Result<Pass> {
    let samples = steps.first().map_or(0, |step| step.drawn.len());
    let by_sample = (0..samples).map(|sample| {
        let mut map: Option<Vec<f64>> = None;
        for (op, step) in ops.iter().zip(steps) {
            let Some(drawn) = &step.drawn[sample] else { continue };
            let next = spectral_map(op, drawn, frame.bands)?;
            map = Some(match map {
                None => next,
                Some(map) => product(&map, &next, frame.bands),
            });
        }
        Ok(map.map(|map| Linear { map, offset: Vec::new() }))
    });
    Ok(Pass::Linear(by_sample.collect::<Result<_>>()?, None))
}

fn spectral_map(op: &Op, drawn: &Drawn, bands: usize) -> Result<Vec<f64>> {
    let Drawn::Number { value } = drawn else { return Err(drawn.misfit(op.name())) };
    if !(-1e6..=1e6).contains(value) {
        return Err(drawn.misfit(op.name()));
    }
    let last = bands as f64 - 1.0;
    // Which bands go into one that comes out, and with what weights.
    let taken = |band: f64| -> Vec<(f64, f64)> {
        if matches!(op, Op::SpectralShift(_)) {
            let place = (band + value).clamp(0.0, last);
            return vec![
                (place.floor(), 1.0 - place.fract()),
                (place.floor() + 1.0, place.fract()),
            ];
        }
        let reach = (4.0 * value).ceil() as usize;
        let weights = gaussian(*value, reach).into_iter().enumerate();
        weights.map(|(tap, weight)| (band + tap as f64 - reach as f64, weight)).collect()
    };
    let mut map = vec![0.0; bands * bands];
    for band in 0..bands {
        for (place, weight) in taken(band as f64) {
            map[place.clamp(0.0, last) as usize * bands + band] += weight;
        }
    }
    Ok(map)
}

fn product(one: &[f64], other: &[f64], bands: usize) -> Vec<f64> {
    let mut product = vec![0.0; bands * bands];
    for (line, row) in product.chunks_exact_mut(bands).zip(one.chunks_exact(bands)) {
        for (value, other) in row.iter().zip(other.chunks_exact(bands)) {
            line.iter_mut().zip(other).for_each(|(sum, other)| *sum += value * other);
        }
    }
    product
}

/// What one augmentation does that is done by itself.
pub(crate) fn single(op: &Op, drawn: &[Option<Drawn>], frame: Frame) -> Result<Pass> {
    let misfit = |drawn: &Drawn| drawn.misfit(op.name());
    Ok(match op {
        Op::Erase(erase) => {
            let mut blanks = Vec::new();
            for (sample, drawn) in applied(drawn) {
                let Drawn::Erase { x, y, width, height, spectrum } = drawn else {
                    return Err(misfit(drawn));
                };
                let values = match (&erase.value, spectrum) {
                    (_, Some(spectrum)) if spectrum.len() == frame.bands => spectrum.clone(),
                    (Fill::Value(value), None) => value.of("the value of erase", frame.bands)?,
                    _ => return Err(misfit(drawn)),
                };
                let rectangle = Rectangle::new([*x, *y, *width, *height], frame)?;
                blanks.push(Blank { sample, rectangle, values });
            }
            Pass::Blank(blanks)
        }
        Op::HideAndSeek(hide) => {
            let mut blanks = Vec::new();
            for (sample, drawn) in applied(drawn) {
                let Drawn::Patches { size, hidden } = drawn else { return Err(misfit(drawn)) };
                let [high, wide] = size.map(|size| size.max(1));
                let across = frame.columns.div_ceil(wide);
                for patch in hidden {
                    let y = (patch / across).saturating_mul(high);
                    let x = patch % across * wide;
                    if y >= frame.rows {
                        return Err(misfit(drawn));
                    }
                    let size = [wide.min(frame.columns - x), high.min(frame.rows - y)];
                    let rectangle = Rectangle::new([x, y, size[0], size[1]], frame)?;
                    blanks.push(Blank { sample, rectangle, values: vec![hide.fill; frame.bands] });
                }
            }
            Pass::Blank(blanks)
        }
        Op::CutmixRect(_) => {
            let mut mixed = Mixed::nobody(drawn.len());
            let mut cuts = Vec::new();
            for (sample, one) in applied(drawn) {
                let Drawn::CutMix { donor, x, y, width, height, lambda } = one else {
                    return Err(misfit(one));
                };
                check_donor(*donor, drawn.len())?;
                (mixed.partners[sample], mixed.shares[sample]) = (*donor, *lambda);
                let to = Rectangle::new([*x, *y, *width, *height], frame)?;
                cuts.push(Cut { sample, to, donor: *donor, from: to });
            }
            Pass::Paste(cuts, Some(mixed))
        }
        Op::Jigsaw(jigsaw) => {
            let [down, across] = jigsaw.grid;
            let (height, width) = (frame.rows / down, frame.columns / across);
            let cell = |row: usize, column: usize| {
                Rectangle::new([column * width, row * height, width, height], frame)
            };
            let mut cuts = Vec::new();
            for (sample, drawn) in applied(drawn) {
                let Drawn::Jigsaw { order } = drawn else { return Err(misfit(drawn)) };
                let mut sorted = order.clone();
                sorted.sort_unstable();
                if !sorted.into_iter().eq(0..down * across) {
                    return Err(misfit(drawn));
                }
                for (to, from) in order.iter().enumerate() {
                    // As Kornia counts: cells that are filled by columns, those that are taken by rows.
                    let to = cell(to % down, to / down)?;
                    let from = cell(from / across, from % across)?;
                    cuts.push(Cut { sample, to, donor: sample, from });
                }
            }
            Pass::Paste(cuts, None)
        }
        Op::Mixup(_) => {
            let mut mixed = Mixed::nobody(drawn.len());
            for (sample, one) in applied(drawn) {
                let Drawn::MixUp { donor, lambda } = one else { return Err(misfit(one)) };
                check_donor(*donor, drawn.len())?;
                (mixed.partners[sample], mixed.shares[sample]) = (*donor, *lambda);
            }
            Pass::Mix(mixed)
        }
        Op::Transplant(transplant) => {
            let samples = drawn.len();
            let mut transplanting = Transplanting {
                mask: transplant.mask.clone(),
                valid: transplant.valid.clone(),
                donors: vec![None; samples],
                picks: vec![0.0; samples],
                given: vec![None; samples],
                excluded: transplant.excluded_labels.clone(),
            };
            for (sample, one) in applied(drawn) {
                let Drawn::Transplant { donor, pick, label } = one else { return Err(misfit(one)) };
                check_donor(*donor, samples)?;
                transplanting.donors[sample] = Some(*donor);
                transplanting.picks[sample] = *pick as f32;
                transplanting.given[sample] = *label;
            }
            Pass::Transplant(transplanting)
        }
        Op::ValidGuard(guard) => Pass::Guard(guard.mask.clone()),
        Op::Projection(projection) => {
            let map: Vec<f64> = projection.matrix.iter().flatten().copied().collect();
            let offset = projection.offset.of("the projection's offset", frame.bands)?;
            let linear = Linear { map, offset };
            let maps = drawn.iter().map(|drawn| drawn.as_ref().map(|_| linear.clone())).collect();
            let labels = projection.labels.clone();
            Pass::Linear(maps, labels.map(|labels| (projection.mask.clone(), labels)))
        }
        Op::GaussianNoise(noise) => {
            let seeds = each(drawn, |drawn| match drawn {
                Drawn::Seed { seed } => Ok(*seed),
                _ => Err(misfit(drawn)),
            })?;
            Pass::Noise { seeds, mean: noise.mean, std: noise.std }
        }
        Op::IlluminationRamp(_) => Pass::Ramp(each(drawn, |drawn| match drawn {
            Drawn::Ramp { strength, direction } => {
                Ok([strength * direction.cos(), strength * direction.sin()])
            }
            _ => Err(misfit(drawn)),
        })?),
        Op::GaussianBlur(blur) => Pass::Blur(each(drawn, |drawn| match drawn {
            Drawn::Number { value } => Ok(blur.kernel.map(|size| gaussian(*value, size / 2))),
            _ => Err(misfit(drawn)),
        })?),
        Op::L1Normalize(_) => Pass::Normalize(SpectralNorm::L1, which(drawn)),
        Op::L2Normalize(_) => Pass::Normalize(SpectralNorm::L2, which(drawn)),
        Op::Snv(_) => Pass::Normalize(SpectralNorm::Snv, which(drawn)),
        other => {
            return Err(Error::bug(format!("{} is done together with others", other.name())));
        }
    })
}

/// Samples for which something was drawn.
fn applied(drawn: &[Option<Drawn>]) -> impl Iterator<Item = (usize, &Drawn)> {
    drawn.iter().enumerate().filter_map(|(sample, drawn)| Some((sample, drawn.as_ref()?)))
}

fn each<T>(drawn: &[Option<Drawn>], of: impl Fn(&Drawn) -> Result<T>) -> Result<Vec<Option<T>>> {
    drawn.iter().map(|drawn| drawn.as_ref().map(&of).transpose()).collect()
}

fn which(drawn: &[Option<Drawn>]) -> Vec<bool> {
    drawn.iter().map(Option::is_some).collect()
}

fn check_donor(donor: usize, samples: usize) -> Result<()> {
    if donor < samples {
        return Ok(());
    }
    Err(Error::conflict(format!("sample {donor} of a batch of {samples} is to give"))
        .with_remedy("replay parameters with a batch of the size that they were drawn for"))
}
