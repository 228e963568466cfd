//! Counting what decoded chunks hold, fast enough not to slow decoding down.
//!
//! fp16 values are looked at as bit patterns, sixteen bands at a time: a magnitude of 0x7C00 is
//! infinity, above it NaN, and flipping the magnitude bits of negative numbers makes the order of the
//! patterns the order of the values.

use hsipack_format::DType;

/// What one band holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// Values that are not NaN or infinite.
    pub finite: u64,
    /// NaN values.
    pub nan: u64,
    /// Infinite values.
    pub inf: u64,
    /// Least finite value.
    pub min: f64,
    /// Greatest finite value.
    pub max: f64,
}

impl Counts {
    /// Nothing.
    pub const EMPTY: Counts =
        Counts { finite: 0, nan: 0, inf: 0, min: f64::INFINITY, max: f64::NEG_INFINITY };

    /// Adds what `other` holds.
    pub fn merge(&mut self, other: &Counts) {
        self.finite += other.finite;
        self.nan += other.nan;
        self.inf += other.inf;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// Adds whole pixels of `counts.len()` bands, as stored.
pub fn add(values: &[u8], dtype: DType, counts: &mut [Counts]) {
    match dtype {
        DType::F16 => add_half(bytemuck::cast_slice(values), counts),
        _ => add_single(bytemuck::cast_slice(values), counts),
    }
}

const LANES: usize = 16;
/// Pixels a pass: few enough for 16-bit counters, and for the tile to stay in the first-level cache.
const TILE_VALUES: usize = 16 << 10;

fn add_half(values: &[u16], counts: &mut [Counts]) {
    let bands = counts.len();
    let tile = (TILE_VALUES / bands).max(1) * bands;
    for tile in values.chunks(tile) {
        let mut band = 0;
        while band + LANES <= bands {
            let lanes: &mut [Counts; LANES] =
                (&mut counts[band..band + LANES]).try_into().expect("as many lanes");
            add_lanes(tile, bands, band, lanes);
            band += LANES;
        }
        for (band, counts) in counts.iter_mut().enumerate().skip(band) {
            for bits in tile.iter().skip(band).step_by(bands) {
                add_one(half::f16::from_bits(*bits).to_f64(), counts);
            }
        }
    }
}

/// Sixteen bands of a tile; plain arrays that the compiler keeps in registers.
fn add_lanes(tile: &[u16], bands: usize, band: usize, counts: &mut [Counts; LANES]) {
    const INFINITY: u16 = 0x7C00;
    let mut nan = [0u16; LANES];
    let mut special = [0u16; LANES];
    let mut min = [i16::MAX; LANES];
    let mut max = [i16::MIN; LANES];
    for pixel in tile.chunks_exact(bands) {
        let pixel: &[u16; LANES] = pixel[band..][..LANES].try_into().expect("sixteen lanes");
        for lane in 0..LANES {
            let bits = pixel[lane];
            let magnitude = bits & 0x7FFF;
            let order = (bits ^ (((bits as i16) >> 15) as u16 & 0x7FFF)) as i16;
            let is_special = magnitude >= INFINITY;
            nan[lane] += u16::from(magnitude > INFINITY);
            special[lane] += u16::from(is_special);
            min[lane] = min[lane].min(if is_special { i16::MAX } else { order });
            max[lane] = max[lane].max(if is_special { i16::MIN } else { order });
        }
    }
    let pixels = (tile.len() / bands) as u64;
    let value =
        |order: i16| half::f16::from_bits(order as u16 ^ ((order >> 15) as u16 & 0x7FFF)).to_f64();
    for (lane, counts) in counts.iter_mut().enumerate() {
        let finite = pixels - u64::from(special[lane]);
        counts.finite += finite;
        counts.nan += u64::from(nan[lane]);
        counts.inf += u64::from(special[lane] - nan[lane]);
        if finite > 0 {
            counts.min = counts.min.min(value(min[lane]));
            counts.max = counts.max.max(value(max[lane]));
        }
    }
}

fn add_single(values: &[f32], counts: &mut [Counts]) {
    for pixel in values.chunks_exact(counts.len()) {
        for (value, counts) in pixel.iter().zip(&mut *counts) {
            add_one((*value).into(), counts);
        }
    }
}

fn add_one(value: f64, counts: &mut Counts) {
    if value.is_nan() {
        counts.nan += 1;
    } else if value.is_infinite() {
        counts.inf += 1;
    } else {
        counts.finite += 1;
        counts.min = counts.min.min(value);
        counts.max = counts.max.max(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lanes_count_as_one_value_at_a_time_does(bands in 1usize..40, bits in prop::collection::vec(any::<u16>(), 0..4000)) {
            let bits = &bits[..bits.len() / bands * bands];
            let mut got = vec![Counts::EMPTY; bands];
            add(bytemuck::cast_slice(bits), DType::F16, &mut got);
            let mut want = vec![Counts::EMPTY; bands];
            for (at, bits) in bits.iter().enumerate() {
                add_one(half::f16::from_bits(*bits).to_f64(), &mut want[at % bands]);
            }
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn many_pixels_do_not_overflow_the_counters() {
        let bits = vec![0x7E00u16; 16 * 200_000];
        let mut counts = vec![Counts::EMPTY; 16];
        add(bytemuck::cast_slice(&bits), DType::F16, &mut counts);
        assert!(counts.iter().all(|band| band.nan == 200_000 && band.finite == 0));
    }
}
