//! Values and spectra.

use hsipack_format::SpectralNorm;
use tch::{TchError, Tensor};

use super::super::ops::values::gaussian;
use super::super::ops::{Drawn, Frame, GaussianBlur, GaussianNoise, Op, Projection};
use super::super::parameters::Step;
use super::host;
use super::pieces::holds;
use super::sample::to_device;
use super::{Work, sums};
use crate::Result;
use crate::device::spectra;
use crate::torch::{empty, fill_normal, run};

/// (value - shift)·factor + summand for every band.
#[derive(Clone, Debug, PartialEq)]
struct ByBand {
    shift: Vec<f64>,
    factor: Vec<f64>,
    summand: Vec<f64>,
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

impl Work {
    /// Products and sums by band: in place where the image is ours, else on the way into a new one.
    pub(super) fn bands(&mut self, ops: &[Op], steps: &[Step], frame: Frame) -> Result<()> {
        let samples = self.image.size()[0] as usize;
        let nothing = ByBand::nothing(frame.bands);
        let mut by_sample = vec![nothing.clone(); samples];
        for (sample, by_band) in by_sample.iter_mut().enumerate() {
            for (op, step) in ops.iter().zip(steps) {
                if let Some(drawn) = &step.drawn[sample] {
                    by_band.follow(op, drawn, frame.bands)?;
                }
            }
        }
        let before =
            (!self.ours && host::takes_image(&self.image)).then(|| self.image.shallow_clone());
        if let Some(before) = &before {
            self.image = run(|| empty(&before.size(), before.kind(), before.device()))?;
            self.ours = true;
        }
        self.own_image()?;
        for (sample, by_band) in by_sample.iter().enumerate() {
            let part = |image: &Tensor| run(|| image.f_get(sample as i64));
            let before = before.as_ref().map(part).transpose()?;
            match before {
                Some(before) if *by_band == nothing => {
                    let mut place = part(&self.image)?;
                    run(|| place.f_copy_(&before))?;
                }
                None if *by_band == nothing => {}
                before if host::takes_image(&self.image) => {
                    apply_by_band(self.place(sample)?, before.as_ref(), by_band);
                }
                _ => apply_by_band_in_place(&mut part(&self.image)?, by_band)?,
            }
        }
        Ok(())
    }

    /// Linear maps of spectra, multiplied on the host.
    pub(super) fn spectra(&mut self, ops: &[Op], steps: &[Step], frame: Frame) -> Result<()> {
        self.own_image()?;
        for sample in 0..steps[0].drawn.len() {
            let mut map: Option<Vec<Vec<f64>>> = None;
            for (op, step) in ops.iter().zip(steps) {
                let Some(drawn) = &step.drawn[sample] else { continue };
                let next = spectral(op, drawn, frame.bands)?;
                map = Some(match map {
                    None => next,
                    Some(map) => product(&map, &next),
                });
            }
            if let Some(map) = map {
                let mut place = run(|| self.image.f_get(sample as i64))?;
                run(|| {
                    let mapped = mapped(&place, &map)?;
                    place.f_copy_(&mapped).map(drop)
                })?;
            }
        }
        Ok(())
    }

    pub(super) fn project(
        &mut self,
        op: &Projection,
        drawn: &[Option<Drawn>],
        frame: Frame,
    ) -> Result<()> {
        self.own_image()?;
        let offset = op.offset.of("the projection's offset", frame.bands)?;
        let mask = self.mask(op.mask.as_deref());
        for (sample, _) in drawn.iter().enumerate().filter(|(_, drawn)| drawn.is_some()) {
            let mut place = run(|| self.image.f_get(sample as i64))?;
            run(|| {
                let kind = sums(place.kind());
                let offset = Tensor::f_from_slice(&offset)?.f_to_kind(kind)?;
                let offset = to_device(offset, place.device())?;
                let mut mapped =
                    mapped(&place, &op.matrix)?.f_add(&offset)?.f_to_kind(place.kind())?;
                if let (Some(labels), Some(mask)) = (&op.labels, mask) {
                    let there = self.masks[mask].labels.f_get(sample as i64)?.f_narrow(2, 0, 1)?;
                    let none = there.f_ne_tensor(&there)?;
                    let mut possible = labels.iter().filter(|label| holds(there.kind(), **label));
                    let wanted = possible.try_fold(none, |wanted, label| {
                        wanted.f_logical_or(&there.f_eq(*label)?)
                    })?;
                    mapped = mapped.f_where_self(&wanted, &place)?;
                }
                place.f_copy_(&mapped).map(drop)
            })?;
        }
        Ok(())
    }

    pub(super) fn noise(&mut self, op: &GaussianNoise, drawn: &[Option<Drawn>]) -> Result<()> {
        self.own_image()?;
        for (sample, drawn) in drawn.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let Drawn::Seed { seed } = drawn else { return Err(drawn.misfit("gaussian_noise")) };
            if host::takes_image(&self.image) {
                host::noise(self.place(sample)?, *seed, op.mean as f32, op.std as f32)?;
                continue;
            }
            let mut place = run(|| self.image.f_get(sample as i64))?;
            let kind = sums(place.kind());
            let mut noise = run(|| Tensor::f_empty(place.size(), (kind, place.device())))?;
            fill_normal(&mut noise, *seed)?;
            run(|| {
                let noise = noise.f_mul_scalar_(op.std)?.f_add_scalar_(op.mean)?;
                place.f_add_(&noise).map(drop)
            })?;
        }
        Ok(())
    }

    pub(super) fn ramp(&mut self, drawn: &[Option<Drawn>], frame: Frame) -> Result<()> {
        self.own_image()?;
        for (sample, drawn) in drawn.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let Drawn::Ramp { strength, direction } = drawn else {
                return Err(drawn.misfit("illumination_ramp"));
            };
            let mut place = run(|| self.image.f_get(sample as i64))?;
            run(|| {
                let options = (sums(place.kind()), place.device());
                let axis = |size: usize, part: f64| -> Result<Tensor, TchError> {
                    let size = size as i64;
                    // The outermost pixels' centres lie at -1 and 1; a single one in the middle.
                    let ends = if size > 1 { (-1.0, 1.0) } else { (0.0, 0.0) };
                    let along = Tensor::f_linspace(ends.0, ends.1, size, options)?;
                    along.f_mul_scalar(strength * part)
                };
                let across = axis(frame.columns, direction.cos())?.f_view([1, -1, 1])?;
                let down = axis(frame.rows, direction.sin())?.f_view([-1, 1, 1])?;
                place.f_mul_(&across.f_add(&down)?.f_add_scalar(1.0)?).map(drop)
            })?;
        }
        Ok(())
    }

    pub(super) fn blur(&mut self, op: &GaussianBlur, drawn: &[Option<Drawn>]) -> Result<()> {
        self.own_image()?;
        for (sample, drawn) in drawn.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let Drawn::Number { value: sigma } = drawn else {
                return Err(drawn.misfit("gaussian_blur"));
            };
            let weights = op.kernel.map(|size| {
                let weights = gaussian(*sigma, size / 2);
                weights.into_iter().map(|weight| weight as f32).collect::<Vec<_>>()
            });
            let mut place = run(|| self.image.f_get(sample as i64))?;
            let blurred = if host::takes_image(&place) {
                host::blur(&place, &weights[0], &weights[1], host::Around::Mirrored)?
            } else {
                run(|| blurred(&place, &weights))?
            };
            run(|| place.f_copy_(&blurred).map(drop))?;
        }
        Ok(())
    }

    pub(super) fn normalize(&mut self, op: &Op, drawn: &[Option<Drawn>]) -> Result<()> {
        self.own_image()?;
        let norm = match op {
            Op::L1Normalize(_) => SpectralNorm::L1,
            Op::L2Normalize(_) => SpectralNorm::L2,
            _ => SpectralNorm::Snv,
        };
        for (sample, _) in drawn.iter().enumerate().filter(|(_, drawn)| drawn.is_some()) {
            if host::takes_image(&self.image) {
                host::normalize(self.place(sample)?, norm);
            } else {
                let mut place = run(|| self.image.f_get(sample as i64))?;
                run(|| place.f_copy_(&normalized(&place, norm)?).map(drop))?;
            }
        }
        Ok(())
    }
}

/// Does it to one sample with the host's loops, from `before` if it is not done in place.
fn apply_by_band(place: host::Place<'_>, before: Option<&Tensor>, by: &ByBand) {
    let single = |values: &[f64]| values.iter().map(|value| *value as f32).collect::<Vec<_>>();
    let (shift, factor, summand) = (single(&by.shift), single(&by.factor), single(&by.summand));
    let by = host::Bands { shift: &shift, factor: &factor, summand: &summand };
    host::bands(place, before, by);
}

/// Does it to one sample with tensor operations.
fn apply_by_band_in_place(place: &mut Tensor, by: &ByBand) -> Result<()> {
    run(|| {
        let (kind, device) = (sums(place.kind()), place.device());
        let numbers = |values: &[f64]| -> Result<Tensor, TchError> {
            to_device(Tensor::f_from_slice(values)?.f_to_kind(kind)?, device)
        };
        if by.shift.iter().any(|shift| *shift != 0.0) {
            let _ = place.f_sub_(&numbers(&by.shift)?)?;
        }
        if by.factor.iter().any(|factor| *factor != 1.0) {
            let _ = place.f_mul_(&numbers(&by.factor)?)?;
        }
        if by.summand.iter().any(|summand| *summand != 0.0) {
            let _ = place.f_add_(&numbers(&by.summand)?)?;
        }
        // Replaced bands are what they are, also where NaN · 0 would be NaN.
        for (band, _) in by.factor.iter().enumerate().filter(|(_, factor)| **factor == 0.0) {
            let _ = place.f_narrow(2, band as i64, 1)?.f_fill_(by.summand[band])?;
        }
        Ok(())
    })
}

/// The matrix that a spectral augmentation multiplies spectra by from the right: rows are bands that go in.
fn spectral(op: &Op, drawn: &Drawn, bands: usize) -> Result<Vec<Vec<f64>>> {
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
    let mut map = vec![vec![0.0; bands]; bands];
    (0..bands).for_each(|band| {
        for (place, weight) in taken(band as f64) {
            map[place.clamp(0.0, last) as usize][band] += weight;
        }
    });
    Ok(map)
}

fn product(one: &[Vec<f64>], other: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let columns = other.first().map_or(0, Vec::len);
    let row = |row: &Vec<f64>| {
        (0..columns)
            .map(|column| row.iter().zip(other).map(|(value, line)| value * line[column]).sum())
            .collect()
    };
    one.iter().map(row).collect()
}

/// Spectra (rows, columns, bands) multiplied by a matrix.
fn mapped(place: &Tensor, map: &[Vec<f64>]) -> Result<Tensor, TchError> {
    let kind = sums(place.kind());
    let flat: Vec<f64> = map.iter().flatten().copied().collect();
    let map = Tensor::f_from_slice(&flat)?.f_view([map.len() as i64, -1])?.f_to_kind(kind)?;
    place.f_to_kind(kind)?.f_matmul(&to_device(map, place.device())?)
}

/// (rows, columns, bands), blurred along rows and columns, mirrored at the edges.
fn blurred(place: &Tensor, [down, across]: &[Vec<f32>; 2]) -> Result<Tensor, TchError> {
    let kind = sums(place.kind());
    let planes = place.f_to_kind(kind)?.f_permute([2, 0, 1])?.f_unsqueeze(1)?;
    let (high, wide) = (down.len() as i64 / 2, across.len() as i64 / 2);
    let planes = planes.f_reflection_pad2d([wide, wide, high, high])?;
    let weights = |weights: &[f32], shape: [i64; 4]| -> Result<Tensor, TchError> {
        let weights = Tensor::f_from_slice(weights)?.f_to_kind(kind)?.f_view(shape)?;
        to_device(weights, place.device())
    };
    let none = None::<&Tensor>;
    let (across, down) = (weights(across, [1, 1, 1, -1])?, weights(down, [1, 1, -1, 1])?);
    let planes = planes.f_conv2d(&across, none, [1, 1], [0, 0], [1, 1], 1)?;
    let planes = planes.f_conv2d(&down, none, [1, 1], [0, 0], [1, 1], 1)?;
    planes.f_squeeze_dim(1)?.f_permute([1, 2, 0])
}

/// One sample (rows, columns, bands).
fn normalized(place: &Tensor, norm: SpectralNorm) -> Result<Tensor, TchError> {
    let image = place.f_permute([2, 0, 1])?.f_unsqueeze(0)?;
    let image = spectra::normalized_by_tensor_operations(&image, norm)?;
    image.f_squeeze_dim(0)?.f_permute([1, 2, 0])
}
