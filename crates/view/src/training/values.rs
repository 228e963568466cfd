//! From arrays to the numbers that are sent to the page.

use half::{bf16, f16};
use hsipack_augment::{Array, ElementType};
use hsipack_format::mask::MAX_LAYERS;
use hsipack_format::{Error, MaskValue, Result};
use hsipack_pack::preview::Sampling;
use hsipack_pack::spectra::Spectrum;

/// The values of one item of a batch.
#[derive(Debug)]
pub struct Values {
    /// (1, rows, columns, values), without gaps.
    array: Array,
    /// Rows, columns, values of a pixel.
    pub shape: [usize; 3],
    /// Whether it is a mask of boolean layers.
    pub layered: bool,
}

/// Elements of some type, as numbers.
enum Numbers<'a> {
    F16(&'a [f16]),
    BF16(&'a [bf16]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    U8(&'a [u8]),
    I16(&'a [i16]),
    U16(&'a [u16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
}

impl Numbers<'_> {
    fn get(&self, at: usize) -> f64 {
        match self {
            Self::F16(all) => all[at].into(),
            Self::BF16(all) => all[at].into(),
            Self::F32(all) => all[at].into(),
            Self::F64(all) => all[at],
            Self::U8(all) => all[at].into(),
            Self::I16(all) => all[at].into(),
            Self::U16(all) => all[at].into(),
            Self::I32(all) => all[at].into(),
            Self::I64(all) => all[at] as f64,
        }
    }
}

impl Values {
    /// The values of the item at `position` of an image (samples, bands, rows, columns), or of a
    /// mask. A mask of class ids has no axis of bands.
    ///
    /// # Errors
    /// If the memory has another order, or the values another type, than in batches of a loader.
    pub fn of(array: &Array, position: usize) -> Result<Self> {
        let item = array.narrowed(0, position, 1);
        let (array, shape, layered) = match *item.shape() {
            [_, values, rows, columns] => {
                (item.permuted(&[0, 2, 3, 1]), [rows, columns, values], !item.element().is_float())
            }
            [_, rows, columns] => (item, [rows, columns, 1], false),
            _ => return Err(Error::bug(format!("an array of shape {:?}", array.shape()))),
        };
        let values = Self { array, shape, layered };
        values.numbers()?;
        Ok(values)
    }

    fn numbers(&self) -> Result<Numbers<'_>> {
        let array = &self.array;
        let numbers = match array.element() {
            ElementType::F16 => array.elements().map(Numbers::F16),
            ElementType::BF16 => array.elements().map(Numbers::BF16),
            ElementType::F32 => array.elements().map(Numbers::F32),
            ElementType::F64 => array.elements().map(Numbers::F64),
            ElementType::U8 | ElementType::Bool => array.elements().map(Numbers::U8),
            ElementType::I16 => array.elements().map(Numbers::I16),
            ElementType::U16 => array.elements().map(Numbers::U16),
            ElementType::I32 => array.elements().map(Numbers::I32),
            ElementType::I64 => array.elements().map(Numbers::I64),
            _ => None,
        };
        numbers.ok_or_else(|| Error::bug(format!("{array:?} cannot be shown")))
    }

    /// The place of a pixel's first value.
    fn pixel(&self, [row, column]: [usize; 2]) -> usize {
        (row * self.shape[1] + column) * self.shape[2]
    }

    /// Values of `bands` at the pixels of `shown`, one band after the other.
    ///
    /// # Errors
    /// None that [`of`](Self::of) would not have reported.
    pub fn planes(&self, shown: &Sampling, bands: &[usize]) -> Result<Vec<f32>> {
        let numbers = self.numbers()?;
        let mut planes = Vec::with_capacity(bands.len() * shown.pixels());
        for band in bands {
            planes.extend(pixels(shown).map(|at| numbers.get(self.pixel(at) + band) as f32));
        }
        Ok(planes)
    }

    /// Class ids, or boolean layers as bits, at the pixels of `shown`. Ids that do not fit into 16
    /// bits become the greatest id that does.
    ///
    /// # Errors
    /// None that [`of`](Self::of) would not have reported.
    pub fn labels(&self, shown: &Sampling) -> Result<Vec<MaskValue>> {
        let numbers = self.numbers()?;
        let id = |first: usize| {
            let id = numbers.get(first);
            let greatest = f64::from(u16::MAX);
            if (0.0..=greatest).contains(&id) { id as MaskValue } else { u16::MAX.into() }
        };
        let bits = |first: usize| {
            let layers = 0..self.shape[2].min(MAX_LAYERS);
            let bit = |layer: usize| MaskValue::from(numbers.get(first + layer) != 0.0) << layer;
            layers.map(bit).fold(0, |all, bit| all | bit)
        };
        let label = |first| if self.layered { bits(first) } else { id(first) };
        Ok(pixels(shown).map(|at| label(self.pixel(at))).collect())
    }

    /// The spectrum of one pixel, or the spectra of all pixels.
    ///
    /// # Errors
    /// None that [`of`](Self::of) would not have reported.
    pub fn spectrum(&self, pixel: Option<[usize; 2]>) -> Result<Spectrum> {
        let numbers = self.numbers()?;
        let [rows, columns, bands] = self.shape;
        let mut spectrum = Spectrum::new(bands);
        let mut values = vec![0.0; bands];
        let mut add = |at| {
            let first = self.pixel(at);
            (first..).zip(&mut values).for_each(|(from, to)| *to = numbers.get(from));
            spectrum.add(&values);
        };
        match pixel {
            Some(at) => add(at),
            None => (0..rows * columns).for_each(|at| add([at / columns, at % columns])),
        }
        Ok(spectrum)
    }
}

fn pixels(shown: &Sampling) -> impl Iterator<Item = [usize; 2]> + '_ {
    shown.rows.iter().flat_map(|row| shown.columns.iter().map(move |column| [*row, *column]))
}

#[cfg(test)]
mod tests {
    use hsipack_augment::array::Buffer;

    use super::*;

    fn array<T: bytemuck::NoUninit>(values: &[T], shape: &[usize], element: ElementType) -> Array {
        Buffer::of(bytemuck::cast_slice(values)).unwrap().array(shape, element).unwrap()
    }

    #[test]
    fn values_are_those_of_the_item() {
        let numbers: Vec<f32> = (0..2 * 3 * 4 * 5).map(|at| at as f32).collect();
        let image = array(&numbers, &[2, 3, 4, 5], ElementType::F32).permuted(&[0, 3, 1, 2]);
        let values = Values::of(&image, 1).unwrap();
        assert_eq!(values.shape, [3, 4, 5]);
        let shown = Sampling { rows: vec![0, 2], columns: vec![3] };
        let value =
            |row: usize, column: usize, band: usize| numbers[((3 + row) * 4 + column) * 5 + band];
        let wanted = [value(0, 3, 4), value(2, 3, 4), value(0, 3, 1), value(2, 3, 1)];
        assert_eq!(values.planes(&shown, &[4, 1]).unwrap(), wanted);
        let spectrum = values.spectrum(Some([2, 1])).unwrap().curve().mean;
        assert_eq!(spectrum[2], f64::from(value(2, 1, 2)));
        assert_eq!(values.spectrum(None).unwrap().pixels(), 12);
    }

    #[test]
    fn labels_are_ids_or_bits() {
        let ids = array(&[3i64, -1, 70_000, 9], &[1, 2, 2], ElementType::I64);
        let all = Sampling { rows: vec![0, 1], columns: vec![0, 1] };
        let labels = Values::of(&ids, 0).unwrap().labels(&all).unwrap();
        assert_eq!(labels, [3, 65535, 65535, 9]);
        let layers = array(&[1u8, 0, 0, 1, 1, 1, 0, 0], &[1, 2, 2, 2], ElementType::Bool);
        let layers = layers.permuted(&[0, 3, 1, 2]);
        assert_eq!(Values::of(&layers, 0).unwrap().labels(&all).unwrap(), [1, 2, 3, 0]);
    }
}
