//! Rectangles, and pixels with a label: copies of whole elements of any type.

use hsipack_format::{Error, Result};

use crate::array::ElementType;
use crate::operation::{Cut, Rectangle, Transplanting};

/// The byte ranges of a rectangle's rows in one sample, for bytes of (samples, rows, columns,
/// pixels of this size).
pub(super) fn lines(
    rectangle: Rectangle,
    sample: usize,
    [_, rows, columns, _]: [usize; 4],
    pixel: usize,
) -> impl Iterator<Item = std::ops::Range<usize>> {
    let Rectangle { x, y, width, height } = rectangle;
    (y..y + height).map(move |row| {
        let start = ((sample * rows + row) * columns + x) * pixel;
        start..start + width * pixel
    })
}

/// Copies rectangles, with the contents of the bytes before the call.
pub(super) fn paste(bytes: &mut [u8], shape: [usize; 4], pixel: usize, cuts: &[Cut]) -> Result<()> {
    let area = |cut: &Cut| cut.from.width * cut.from.height * pixel;
    let mut taken: Vec<u8> =
        hsipack_store::memory::reserved(cuts.iter().map(area).sum(), "rectangles of a batch")?;
    for cut in cuts {
        lines(cut.from, cut.donor, shape, pixel)
            .for_each(|line| taken.extend_from_slice(&bytes[line]));
    }
    let mut taken = taken.as_slice();
    for cut in cuts {
        for line in lines(cut.to, cut.sample, shape, pixel) {
            let (line_taken, remaining) = taken.split_at(line.len());
            bytes[line].copy_from_slice(line_taken);
            taken = remaining;
        }
    }
    Ok(())
}

/// Labels as whole numbers. Unsigned 64-bit labels are read as signed.
pub(super) fn labels(bytes: &[u8], element: ElementType, out: &mut Vec<i64>) -> Result<()> {
    macro_rules! of {
        ($type:ty) => {{
            const SIZE: usize = size_of::<$type>();
            out.extend(bytes.chunks_exact(SIZE).map(|bytes| {
                let mut number = [0; SIZE];
                number.copy_from_slice(bytes);
                <$type>::from_le_bytes(number) as i64
            }));
        }};
    }
    out.clear();
    match element {
        ElementType::Bool => out.extend(bytes.iter().map(|byte| i64::from(*byte != 0))),
        ElementType::U8 => of!(u8),
        ElementType::I8 => of!(i8),
        ElementType::U16 => of!(u16),
        ElementType::I16 => of!(i16),
        ElementType::U32 => of!(u32),
        ElementType::I32 => of!(i32),
        ElementType::U64 => of!(u64),
        ElementType::I64 => of!(i64),
        float => return Err(Error::bug(format!("labels of {float}"))),
    }
    Ok(())
}

/// Labels of one sample's first layer, one per pixel.
pub(super) struct Layer<'a> {
    pub bytes: &'a [u8],
    pub element: ElementType,
    /// Number of layers per pixel.
    pub layers: usize,
}

impl Layer<'_> {
    pub(super) fn first(&self) -> Result<Vec<i64>> {
        let mut all = Vec::new();
        labels(self.bytes, self.element, &mut all)?;
        Ok(all.into_iter().step_by(self.layers).collect())
    }

    /// Whether any pixel is not 0.
    pub(super) fn any(&self) -> Result<bool> {
        Ok(self.first()?.iter().any(|label| *label != 0))
    }
}

/// The pixels that `sample` takes from its donor: those with the picked label.
pub(super) fn chosen(
    what: &Transplanting,
    sample: usize,
    theirs: &Layer<'_>,
    valid: Option<&Layer<'_>>,
) -> Result<Vec<usize>> {
    let theirs_labels = theirs.first()?;
    let pixels = |wanted: &dyn Fn(usize, i64) -> bool| {
        let all = theirs_labels.iter().copied().enumerate();
        all.filter(|(pixel, label)| wanted(*pixel, *label)).map(|(pixel, _)| pixel).collect()
    };
    if let Some(label) = what.fixed[sample] {
        return Ok(pixels(&|_, candidate| candidate == label));
    }
    let valid = valid.map(Layer::first).transpose()?;
    let counts = |pixel: usize, label: i64| {
        valid.as_ref().is_none_or(|valid| valid[pixel] != 0) && !what.excluded.contains(&label)
    };
    let labels = distinct(
        theirs_labels.iter().copied().enumerate().filter(|(pixel, label)| counts(*pixel, *label)),
    );
    // A pick just below 1 may round to 1 in float32.
    let wanted = (what.picks[sample] * labels.len() as f32) as usize;
    let Some(label) = labels.get(wanted.min(labels.len().saturating_sub(1))) else {
        return Ok(Vec::new());
    };
    Ok(pixels(&|pixel, candidate| candidate == *label && counts(pixel, candidate)))
}

/// The different labels of pixels, from the smallest.
fn distinct(pixels: impl Iterator<Item = (usize, i64)>) -> Vec<i64> {
    // Most labels are small. Others are sorted.
    const SMALL: usize = 1 << 16;
    let mut small = vec![false; SMALL];
    let mut labels = Vec::new();
    for (_, label) in pixels {
        match usize::try_from(label).ok().and_then(|label| small.get_mut(label)) {
            Some(present) => *present = true,
            None if labels.last() != Some(&label) => labels.push(label),
            None => {}
        }
    }
    labels.extend((0..).zip(&small).filter(|(_, present)| **present).map(|(label, _)| label));
    labels.sort_unstable();
    labels.dedup();
    labels
}
