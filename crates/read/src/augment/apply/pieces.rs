//! Rectangles, patches, cells, and pixels of a label.

use tch::{Device, Kind, TchError, Tensor};

use super::super::ops::values::Fill;
use super::super::ops::{Drawn, Erase, Frame, HideAndSeek, Jigsaw, Transplant};
use super::sample::to_device;
use super::{Mixed, Work, copied, host, sums};
use crate::torch::{empty, run};
use crate::{Error, Result};

/// Rows and columns of a rectangle.
#[derive(Clone, Copy, Debug)]
struct Rectangle {
    x: i64,
    y: i64,
    width: i64,
    height: i64,
}

impl Rectangle {
    /// # Errors
    /// If it does not lie in the frame, as with parameters that were made by hand.
    fn new([x, y, width, height]: [usize; 4], [rows, columns]: [i64; 2]) -> Result<Self> {
        let inside =
            |first: usize, size: usize, all: i64| first.saturating_add(size) <= all as usize;
        if inside(x, width, columns) && inside(y, height, rows) {
            let [x, y, width, height] = [x, y, width, height].map(|size| size as i64);
            return Ok(Self { x, y, width, height });
        }
        Err(Error::conflict(format!(
            "a rectangle of {height} x {width} at row {y}, column {x} of a frame of {rows} x {columns}"
        ))
        .with_remedy("draw parameters for images of this size"))
    }

    /// A view of the rectangle in one sample of (samples, rows, columns, values).
    fn of(&self, tensor: &Tensor, sample: usize) -> Result<Tensor, TchError> {
        let sample = tensor.f_get(sample as i64)?;
        sample.f_narrow(0, self.y, self.height)?.f_narrow(1, self.x, self.width)
    }
}

impl Work {
    fn plane(&self) -> [i64; 2] {
        let size = self.image.size();
        [size[1], size[2]]
    }

    pub(super) fn erase(
        &mut self,
        op: &Erase,
        drawn: &[Option<Drawn>],
        frame: Frame,
    ) -> Result<()> {
        for (sample, drawn) in drawn.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let Drawn::Erase { x, y, width, height, spectrum } = drawn else {
                return Err(drawn.misfit("erase"));
            };
            let values = match (&op.value, spectrum) {
                (_, Some(spectrum)) => spectrum.clone(),
                (Fill::Value(value), None) => value.of("the value of erase", frame.bands)?,
                (Fill::RandomL1, None) => return Err(drawn.misfit("erase")),
            };
            let rectangle = Rectangle::new([*x, *y, *width, *height], self.plane())?;
            self.blank(sample, rectangle, &values)?;
        }
        Ok(())
    }

    pub(super) fn hide(
        &mut self,
        op: &HideAndSeek,
        drawn: &[Option<Drawn>],
        frame: Frame,
    ) -> Result<()> {
        let values = vec![op.fill; frame.bands];
        for (sample, drawn) in drawn.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let Drawn::Patches { size, hidden } = drawn else {
                return Err(drawn.misfit("hide_and_seek"));
            };
            let [high, wide] = size.map(|size| size.max(1));
            let across = frame.columns.div_ceil(wide);
            for patch in hidden {
                let y = (patch / across).saturating_mul(high);
                let x = patch % across * wide;
                if y >= frame.rows {
                    return Err(Drawn::Patches { size: *size, hidden: hidden.clone() }
                        .misfit("hide_and_seek"));
                }
                let (width, height) = (wide.min(frame.columns - x), high.min(frame.rows - y));
                let rectangle = Rectangle::new([x, y, width, height], self.plane())?;
                self.blank(sample, rectangle, &values)?;
            }
        }
        Ok(())
    }

    /// Sets a rectangle to a spectrum, and to the masks' own label.
    fn blank(&mut self, sample: usize, rectangle: Rectangle, values: &[f64]) -> Result<()> {
        self.own_image()?;
        let image = &self.image;
        run(|| {
            let mut place = rectangle.of(image, sample)?;
            if values.windows(2).all(|pair| pair[0] == pair[1]) {
                return place.f_fill_(values[0]).map(drop);
            }
            let spectrum = Tensor::f_from_slice(values)?.f_to_kind(image.kind())?;
            place.f_copy_(&to_device(spectrum, image.device())?).map(drop)
        })?;
        for mask in &mut self.masks {
            mask.own()?;
            let (labels, fill) = (&mask.labels, mask.fill);
            run(|| rectangle.of(labels, sample)?.f_fill_(fill).map(drop))?;
        }
        Ok(())
    }

    pub(super) fn cut_and_mix(&mut self, drawn: &[Option<Drawn>]) -> Result<()> {
        let samples = drawn.len();
        let mut mixed = Mixed::nobody(samples);
        let mut cuts = Vec::new();
        for (sample, drawn) in drawn.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let Drawn::CutMix { donor, x, y, width, height, lambda } = drawn else {
                return Err(drawn.misfit("cutmix_rect"));
            };
            check_donor(*donor, samples)?;
            (mixed.partners[sample], mixed.shares[sample]) = (*donor, *lambda);
            cuts.push((sample, *donor, Rectangle::new([*x, *y, *width, *height], self.plane())?));
        }
        self.own_image()?;
        paste(&self.image, &cuts)?;
        for mask in &mut self.masks {
            mask.own()?;
            paste(&mask.labels, &cuts)?;
        }
        self.mixed.push(mixed);
        Ok(())
    }

    pub(super) fn jigsaw(
        &mut self,
        op: &Jigsaw,
        drawn: &[Option<Drawn>],
        frame: Frame,
    ) -> Result<()> {
        let [down, across] = op.grid;
        let (height, width) = (frame.rows / down, frame.columns / across);
        let plane = self.plane();
        let cell = |row: usize, column: usize| {
            Rectangle::new([column * width, row * height, width, height], plane)
        };
        let mut cuts = Vec::new();
        for (sample, drawn) in drawn.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let mut sorted = match drawn {
                Drawn::Jigsaw { order } => order.clone(),
                _ => Vec::new(),
            };
            sorted.sort_unstable();
            let (Drawn::Jigsaw { order }, true) = (drawn, sorted.into_iter().eq(0..down * across))
            else {
                return Err(drawn.misfit("jigsaw"));
            };
            for (to, from) in order.iter().enumerate() {
                // As Kornia counts: cells that are filled by columns, those that are taken by rows.
                let to = cell(to % down, to / down)?;
                cuts.push((sample, to, cell(from / across, from % across)?));
            }
        }
        self.own_image()?;
        exchange(&self.image, &cuts)?;
        for mask in &mut self.masks {
            mask.own()?;
            exchange(&mask.labels, &cuts)?;
        }
        Ok(())
    }

    pub(super) fn mix_up(&mut self, drawn: &[Option<Drawn>]) -> Result<()> {
        let samples = drawn.len();
        let mut mixed = Mixed::nobody(samples);
        for (sample, drawn) in drawn.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let Drawn::MixUp { donor, lambda } = drawn else { return Err(drawn.misfit("mixup")) };
            check_donor(*donor, samples)?;
            (mixed.partners[sample], mixed.shares[sample]) = (*donor, *lambda);
        }
        let before = std::mem::replace(&mut self.image, Tensor::new());
        self.image = run(|| empty(&before.size(), before.kind(), before.device()))?;
        self.ours = true;
        let kind = sums(before.kind());
        for (sample, (partner, share)) in mixed.partners.iter().zip(&mixed.shares).enumerate() {
            let own = run(|| before.f_get(sample as i64))?;
            let mut place = run(|| self.image.f_get(sample as i64))?;
            if *share == 0.0 || *partner == sample {
                run(|| place.f_copy_(&own))?;
                continue;
            }
            let other = run(|| before.f_get(*partner as i64))?;
            if host::takes_image(&before) {
                host::mix(self.place(sample)?, &own, &other, *share as f32);
                continue;
            }
            run(|| {
                let other = other.f_to_kind(kind)?;
                let own = own.f_to_kind(kind)?.f_mul_scalar(1.0 - share)?;
                place.f_copy_(&own.f_add(&other.f_mul_scalar(*share)?)?)
            })?;
        }
        self.mixed.push(mixed);
        Ok(())
    }

    pub(super) fn transplant(&mut self, op: &Transplant, drawn: &[Option<Drawn>]) -> Result<()> {
        let samples = drawn.len();
        let mut donors: Vec<i64> = (0..samples as i64).collect();
        let mut picks = vec![0.0f32; samples];
        let mut given: Vec<Option<i64>> = vec![None; samples];
        for (sample, drawn) in drawn.iter().enumerate() {
            let Some(drawn) = drawn else { continue };
            let Drawn::Transplant { donor, pick, label } = drawn else {
                return Err(drawn.misfit("transplant"));
            };
            check_donor(*donor, samples)?;
            (donors[sample], picks[sample], given[sample]) = (*donor as i64, *pick as f32, *label);
        }
        let Some(mask) = self.mask(op.mask.as_deref()) else { return Ok(()) };
        let valid = op.valid.as_deref().and_then(|name| self.mask(Some(name)));
        let takes: Vec<bool> = drawn.iter().map(Option::is_some).collect();
        let chosen = {
            let labels = &self.masks[mask].labels;
            let valid = valid.map(|valid| &self.masks[valid].labels);
            run(|| chosen(op, labels, valid, &donors, &picks, &given, &takes))?
        };
        let arrays = std::iter::once((&mut self.image, &mut self.ours))
            .chain(self.masks.iter_mut().map(|mask| (&mut mask.labels, &mut mask.ours)));
        for (array, ours) in arrays {
            *array = run(|| {
                let out = copied(array)?;
                for (sample, donor) in
                    donors.iter().enumerate().filter(|(sample, _)| takes[*sample])
                {
                    let mut place = out.f_get(sample as i64)?;
                    let theirs = array.f_get(*donor)?;
                    let taken = chosen.f_get(sample as i64)?;
                    if array.device() == Device::Cpu {
                        // Few pixels of many, and nobody waits for the host.
                        let places = taken.f_view([-1])?.f_nonzero()?.f_view([-1])?;
                        let values = *array.size().last().unwrap_or(&1);
                        let theirs = theirs.f_view([-1, values])?.f_index_select(0, &places)?;
                        let _ = place.f_view([-1, values])?.f_index_copy_(0, &places, &theirs)?;
                    } else {
                        let merged = theirs.f_where_self(&taken, &place)?;
                        place.f_copy_(&merged)?;
                    }
                }
                Ok(out)
            })?;
            *ours = true;
        }
        Ok(())
    }

    /// Gives samples back as they came, of which nothing of the mask is left.
    pub(super) fn guard(&mut self, mask: &str, before: &[Tensor]) -> Result<()> {
        let Some(mask) = self.mask(Some(mask)) else { return Ok(()) };
        let same = self.image.size() == before[0].size();
        if !same {
            return Err(Error::conflict(
                "valid_guard cannot give samples back once their size has changed",
            )
            .with_remedy("put it before crops and resizing"));
        }
        // Only the first layer counts, as in HTC.
        let labels = &self.masks[mask].labels;
        let keep = run(|| {
            let layer = labels.f_narrow(3, 0, 1)?.f_ne(0)?;
            layer.f_flatten(1, -1)?.f_any_dim(1, false)?.f_view([-1, 1, 1, 1])
        })?;
        let arrays = std::iter::once((&mut self.image, &mut self.ours))
            .chain(self.masks.iter_mut().map(|mask| (&mut mask.labels, &mut mask.ours)));
        for ((array, ours), before) in arrays.zip(before) {
            if array.device() == Device::Cpu {
                let keep: Vec<bool> = run(|| Vec::try_from(&keep.f_view([-1])?))?;
                if keep.iter().all(|keep| *keep) {
                    continue;
                }
                *array = run(|| {
                    let out = if *ours { array.shallow_clone() } else { copied(array)? };
                    for (sample, _) in keep.iter().enumerate().filter(|(_, keep)| !**keep) {
                        out.f_get(sample as i64)?.f_copy_(&before.f_get(sample as i64)?)?;
                    }
                    Ok(out)
                })?;
            } else {
                *array = run(|| array.f_where_self(&keep, before))?;
            }
            *ours = true;
        }
        Ok(())
    }
}

/// Whether labels of that type can be `label`: libtorch would compare them with its lowest bits.
pub(super) fn holds(kind: Kind, label: i64) -> bool {
    match kind {
        Kind::Bool => (0..2).contains(&label),
        Kind::Uint8 => u8::try_from(label).is_ok(),
        Kind::Int8 => i8::try_from(label).is_ok(),
        Kind::Int16 => i16::try_from(label).is_ok(),
        Kind::Int => i32::try_from(label).is_ok(),
        _ => true,
    }
}

fn check_donor(donor: usize, samples: usize) -> Result<()> {
    if donor < samples {
        return Ok(());
    }
    Err(Error::conflict(format!("sample {donor} of a batch of {samples} is to give"))
        .with_remedy("replay parameters with a batch of the size that they were drawn for"))
}

/// Copies rectangles of other samples, as they were before.
fn paste(array: &Tensor, cuts: &[(usize, usize, Rectangle)]) -> Result<()> {
    run(|| {
        let copies = cuts.iter().map(|(_, donor, cut)| copied(&cut.of(array, *donor)?));
        let copies = copies.collect::<Result<Vec<_>, TchError>>()?;
        for ((sample, _, cut), copy) in cuts.iter().zip(copies) {
            cut.of(array, *sample)?.f_copy_(&copy)?;
        }
        Ok(())
    })
}

/// Copies rectangles within samples, as they were before.
fn exchange(array: &Tensor, cuts: &[(usize, Rectangle, Rectangle)]) -> Result<()> {
    run(|| {
        for cuts in cuts.chunk_by(|one, other| one.0 == other.0) {
            let before = copied(&array.f_get(cuts[0].0 as i64)?.f_unsqueeze(0)?)?;
            for (sample, to, from) in cuts {
                to.of(array, *sample)?.f_copy_(&from.of(&before, 0)?)?;
            }
        }
        Ok(())
    })
}

/// Which pixels (samples, rows, columns, 1) each sample takes: those of its donor with the label that was picked.
fn chosen(
    op: &Transplant,
    labels: &Tensor,
    valid: Option<&Tensor>,
    donors: &[i64],
    picks: &[f32],
    given: &[Option<i64>],
    takes: &[bool],
) -> Result<Tensor, TchError> {
    let device = labels.device();
    let samples = donors.len() as i64;
    let options = |kind| (kind, device);
    let theirs = to_device(Tensor::f_from_slice(donors)?, device)?;
    // Of several layers the first counts.
    let labels = labels.f_narrow(3, 0, 1)?;
    let theirs_labels = labels.f_index_select(0, &theirs)?;
    let mut counts = theirs_labels.f_ge(0)?;
    if let Some(valid) = valid {
        let valid = valid.f_narrow(3, 0, 1)?.f_index_select(0, &theirs)?.f_ne(0)?;
        counts = counts.f_logical_and(&valid)?;
    }
    for label in op.excluded_labels.iter().filter(|label| holds(theirs_labels.kind(), **label)) {
        counts = counts.f_logical_and(&theirs_labels.f_ne(*label)?)?;
    }
    // Which labels there are: 65536 at most, whatever the element type. Nothing here depends on their number.
    let most = match labels.kind() {
        Kind::Bool => 2,
        Kind::Uint8 | Kind::Int8 => 256,
        _ => 65536,
    };
    let flat = theirs_labels.f_view([samples, -1])?.f_to_kind(Kind::Int64)?;
    let counts = counts.f_view([samples, -1])?.f_logical_and(&flat.f_lt(most)?)?;
    let there = Tensor::f_zeros([samples, most + 1], options(Kind::Int64))?;
    // What does not count is gathered in a place behind the last label.
    let spare = Tensor::f_full([1], most, options(Kind::Int64))?;
    let index = flat.f_where_self(&counts, &spare)?;
    let there = there.f_scatter_value(1, &index, 1)?.f_narrow(1, 0, most)?;
    let number = there.f_sum_dim_intlist([1i64].as_slice(), true, Kind::Int64)?;
    let picks = to_device(Tensor::f_from_slice(picks)?, device)?.f_view([samples, 1])?;
    // A pick next to 1 may be 1 in float32.
    let wanted = picks.f_mul(&number)?.f_floor()?.f_add_scalar(1.0)?.f_minimum(&number)?;
    let rank = there.f_cumsum(1, Kind::Int64)?;
    let label = rank.f_ge_tensor(&wanted)?.f_to_kind(Kind::Int8)?.f_argmax(1, true)?;
    // What was given by hand, or -1.
    let by_hand: Vec<i64> = given.iter().map(|label| label.unwrap_or(-1)).collect();
    let is_given: Vec<bool> = given.iter().map(Option::is_some).collect();
    let by_hand = to_device(Tensor::f_from_slice(&by_hand)?, device)?.f_view([samples, 1])?;
    let is_given = to_device(Tensor::f_from_slice(&is_given)?, device)?.f_view([samples, 1])?;
    let label = by_hand.f_where_self(&is_given, &label)?;
    let takes = to_device(Tensor::f_from_slice(takes)?, device)?.f_view([samples, 1])?;
    let any = number.f_gt(0)?.f_logical_or(&is_given)?.f_logical_and(&takes)?;
    let counts = counts.f_logical_or(&is_given)?;
    let taken = flat.f_eq_tensor(&label)?.f_logical_and(&any)?.f_logical_and(&counts)?;
    taken.f_view_as(&labels.f_contiguous()?)
}
