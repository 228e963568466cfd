//! The information in mantissa bits, the gain of dropping some, and the resulting error.

use half::f16;
use half::slice::HalfFloatSliceExt;
use hsipack_format::{Codec, CubeShape, Opt, Shuffle};
use hsipack_pack::convert::stats::{Band, BandStats, Gatherer, all_finite};
use hsipack_pack::precision::{Counts, Information, SHARE};
use hsipack_store::threads::{self, Pool};
use serde::Serialize;

use super::candidates::Candidate;
use super::figures::{Measured, Rate};
use super::measure::Bench;
use super::sample::{Piece, Sample};
use crate::Result;

/// The larger share of information that is shown beside the usual one.
const MORE: f64 = 0.999;
/// Number of spectra that are shown.
const SPECTRA: usize = 3;

/// The information in mantissa bits, and the effect of dropping some.
#[derive(Clone, Debug, Serialize)]
pub struct Precision {
    /// Information of each bit.
    pub information: Information,
    /// Share of the information that 1, 2, … 10 mantissa bits keep.
    pub shares: Vec<f64>,
    /// The smallest number of mantissa bits that keeps 99 % of the information.
    pub keep_99: u8,
    /// The smallest number that keeps 99.9 %.
    pub keep_99_9: u8,
    /// The codec chosen with all bits; the variants are compared with it.
    pub codec: String,
    /// Codecs and numbers of bits that were tried in the same rounds. The first one is the chosen
    /// codec with all bits.
    pub variants: Vec<Variant>,
    /// Index of the variant to use for `keep_99` bits; `null` if these are all bits.
    pub best: Option<usize>,
    /// Errors of each band with `keep_99` bits, over the cubes with the shape of the first one.
    pub bands: BandErrors,
    /// Spectra of some pixels with `keep_99` bits.
    pub spectra: Vec<Spectrum>,
}

/// A codec with a number of bits.
#[derive(Clone, Debug, Serialize)]
pub struct Variant {
    /// Codec, level and filter.
    pub codec: String,
    /// Mantissa bits kept; 10 are all bits of float16.
    pub keep_bits: u8,
    /// Share of the information that they keep.
    pub share: f64,
    /// Uncompressed bytes divided by stored bytes.
    pub ratio: f64,
    /// Decoding, for each number of threads.
    pub decode: Vec<Rate>,
    /// Encoding.
    pub write: Rate,
    /// Ratio, relative to all bits with the same codec in the same rounds.
    pub smaller: f64,
    /// Decoding speed, relative to all bits with the same codec in the same rounds, with the most
    /// threads.
    pub faster: f64,
    /// Ratio, relative to all bits with the chosen codec.
    pub smaller_than_chosen: f64,
    /// Decoding speed, relative to all bits with the chosen codec in the same rounds, with the most
    /// threads.
    pub faster_than_chosen: f64,
    /// Largest relative error of a value, compared with the value before the cast. For numbers
    /// below 2^-14, where float16 has fewer bits, it may be 1.
    pub max_rel: f64,
    /// Largest possible relative error of N bits for numbers of at least 2^-14: 2^-(N+1).
    pub bound_rel: f64,
    /// Mean relative error.
    pub mean_rel: f64,
    /// Largest absolute error, in stored units.
    pub max_abs: f64,
}

/// Errors of each band; all lists have one entry per band.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BandErrors {
    /// Shape of the cubes.
    pub shape: String,
    /// Mantissa bits kept.
    pub keep_bits: u8,
    /// Band centres in nm, if known.
    pub wavelength: Option<Vec<f64>>,
    /// Largest relative error. `None` for a band without a value, also in the lists below.
    pub max_rel: Vec<Option<f64>>,
    /// Mean relative error.
    pub mean_rel: Vec<Option<f64>>,
    /// Mean relative error of float16 with all its bits.
    pub plain_mean_rel: Vec<Option<f64>>,
    /// Largest absolute error, in stored units.
    pub max_abs: Vec<Option<f64>>,
}

/// The spectrum of a pixel before and after rounding.
#[derive(Clone, Debug, Serialize)]
pub struct Spectrum {
    /// Name of the cube.
    pub cube: String,
    /// Row of the pixel in the cube.
    pub row: usize,
    /// Column of the pixel in the cube.
    pub column: usize,
    /// Band centres in nm, if known.
    pub wavelength: Option<Vec<f64>>,
    /// Values before the cast; `null` if missing.
    pub before: Vec<Option<f32>>,
    /// Values with `keep_99` bits.
    pub after: Vec<Option<f32>>,
}

impl Precision {
    /// The variant to use for 99 % of the information, if it drops bits.
    pub fn gain(&self) -> Option<&Variant> {
        self.best.map(|at| &self.variants[at])
    }

    /// The gain and cost of a variant, in a sentence.
    pub fn sentence(&self, variant: &Variant) -> String {
        let beside = if variant.codec == self.codec {
            String::new()
        } else {
            format!(
                " (compared with all bits with {}: {:.2}x smaller, {:.2}x as fast)",
                variant.codec, variant.smaller, variant.faster
            )
        };
        format!(
            "{} of 10 mantissa bits hold {:.1} % of the real information; {} with {} stores {:.2}x smaller and decodes {:.2}x as fast as all bits with {}{beside}; the relative error is at most {:.2e} (of normal numbers), {:.2e} on average",
            variant.keep_bits,
            100.0 * variant.share,
            Opt::KeepBits.to(u64::from(variant.keep_bits)),
            variant.codec,
            variant.smaller_than_chosen,
            variant.faster_than_chosen,
            self.codec,
            variant.bound_rel,
            variant.mean_rel
        )
    }

    /// Says why no bits can be dropped.
    pub fn all_needed(&self) -> &'static str {
        if self.information.mantissa().iter().all(|bits| *bits == 0.0) {
            "neighbouring pixels have no mantissa bits in common, as in noise: nothing says which bits can be dropped"
        } else {
            "all 10 mantissa bits are needed to hold 99 % of the real information"
        }
    }
}

/// Measures information, gains and errors on the sample, with the chosen codec and with the same
/// codec and the other filter. `best` picks the best of several candidates.
///
/// # Errors
/// If Blosc refuses a codec, the system cannot start a thread, or the user stopped.
pub fn measure(
    sample: &Sample,
    bench: &mut Bench,
    candidate: &Candidate,
    quick: bool,
    best: &dyn Fn(&[Measured]) -> usize,
) -> Result<Precision> {
    let pool = threads::pool(bench.threads.last().copied().unwrap_or(1), "precision")?;
    let information = information(sample, &pool)?;
    let (keep_99, keep_99_9) = (information.bits_for(SHARE), information.bits_for(MORE));
    let mut bits: Vec<u8> = if quick { vec![keep_99_9, keep_99] } else { (1..10).rev().collect() };
    bits.retain(|bits| *bits < 10);
    bits.dedup();
    let plain = Candidate { keep_bits: None, ..*candidate };
    // With bit shuffle, dropped bits become whole planes of zeros. With byte shuffle, they only make planes sparser.
    let other = match plain.codec.shuffle {
        Shuffle::Bit => Shuffle::Byte,
        Shuffle::Byte | Shuffle::None => Shuffle::Bit,
    };
    let codecs = [plain, Candidate { codec: Codec { shuffle: other, ..plain.codec }, ..plain }];
    // Grouped by bits, so that candidates with the same rounded values are next to each other.
    let numbers = std::iter::once(None).chain(bits.iter().map(|bits| Some(*bits)));
    let candidates: Vec<Candidate> = numbers
        .flat_map(|keep_bits| codecs.map(|codec| Candidate { keep_bits, ..codec }))
        .collect();
    let found = bench.sweep_once(&candidates, &|candidate| {
        sample.chunks(candidate.chunk_bytes, candidate.keep_bits)
    })?;
    let kept: Vec<usize> =
        (0..found.len()).filter(|at| found[*at].candidate.keep_bits == Some(keep_99)).collect();
    let of_kept: Vec<Measured> = kept.iter().map(|at| found[*at].clone()).collect();
    let best = (!kept.is_empty()).then(|| kept[best(&of_kept)]);
    let errors_of = |(): &mut (), candidate: &Candidate| {
        let bits = candidate.keep_bits.unwrap_or(10);
        Ok(sample.pieces.iter().flat_map(|piece| errors(piece, bits).0).collect())
    };
    let all_errors: Vec<Vec<Band>> =
        pool.in_turn(candidates.iter().step_by(codecs.len()), || (), errors_of)?;
    let variants = found
        .iter()
        .enumerate()
        .map(|(at, measured)| {
            let bands = &all_errors[at / codecs.len()];
            variant(measured, &found[at % codecs.len()], &found[0], bands, &information)
        })
        .collect();
    Ok(Precision {
        shares: (1..=10).map(|bits| information.share(bits)).collect(),
        information,
        keep_99,
        keep_99_9,
        codec: plain.name(),
        variants,
        best,
        bands: band_errors(sample, keep_99),
        spectra: spectra(sample, keep_99),
    })
}

/// The information in each bit of the sample as float16.
fn information(sample: &Sample, pool: &Pool) -> Result<Information> {
    let count = |(): &mut (), piece: &Piece| {
        let mut counts = Counts::new(16);
        let packed = bytemuck::cast_slice(&piece.packed);
        counts.add_f16(packed, piece.shape.columns, piece.shape.bands);
        Ok(counts)
    };
    let mut all = Counts::new(16);
    let parts = pool.in_turn(sample.pieces.iter(), || (), count)?;
    parts.iter().for_each(|counts| all.merge(counts));
    Ok(all.information())
}

/// The results of a variant; `same` is its codec with all bits, `chosen` the chosen codec with all
/// bits.
fn variant(
    measured: &Measured,
    same: &Measured,
    chosen: &Measured,
    bands: &[Band],
    information: &Information,
) -> Variant {
    let bits = measured.candidate.keep_bits.unwrap_or(10);
    let faster = |other: &Measured| measured.decode_at_most() / other.decode_at_most().max(1e-9);
    let count: u64 = bands.iter().map(|band| band.count).sum();
    let sum: f64 = bands.iter().map(|band| band.sum_rel_error).sum();
    Variant {
        codec: measured.name.clone(),
        keep_bits: bits,
        share: information.share(bits),
        ratio: measured.ratio,
        decode: measured.decode.clone(),
        write: measured.write,
        smaller: measured.ratio / same.ratio,
        faster: faster(same),
        smaller_than_chosen: measured.ratio / chosen.ratio,
        faster_than_chosen: faster(chosen),
        max_rel: bands.iter().map(|band| band.max_rel_error).fold(0.0, f64::max),
        bound_rel: 2f64.powi(-i32::from(bits) - 1),
        mean_rel: sum / count.max(1) as f64,
        max_abs: bands.iter().map(|band| band.max_abs_error).fold(0.0, f64::max),
    }
}

/// Errors of the values of a piece with `bits` mantissa bits, for each band.
fn errors(piece: &Piece, bits: u8) -> BandStats {
    let packed = piece.rounded(bits);
    let bands = piece.shape.bands;
    let mut gatherer = Gatherer::new(bands);
    let mut wide = Vec::new();
    // A few pixels at a time, so that the widened values stay in the cache.
    let step = (4096 / bands).max(1) * bands;
    for (values, packed) in piece.values.chunks(step).zip(packed.chunks(step)) {
        wide.resize(packed.len(), 0.0);
        packed.convert_to_f32_slice(&mut wide);
        gatherer.add(values, &wide, all_finite(packed));
    }
    gatherer.take()
}

fn band_errors(sample: &Sample, bits: u8) -> BandErrors {
    let Some(first) = sample.pieces.first() else { return BandErrors::default() };
    let shape: CubeShape = first.shape;
    let of_shape = || sample.pieces.iter().filter(|piece| piece.shape == shape);
    let merged = |bits: u8| {
        let mut all = BandStats::new(shape.bands);
        of_shape().for_each(|piece| all.merge(&errors(piece, bits)));
        all.0
    };
    let (kept, plain) = (merged(bits), merged(10));
    let per_band = |bands: &[Band], of: fn(&Band) -> f64| -> Vec<Option<f64>> {
        bands.iter().map(|band| (band.count > 0).then(|| of(band))).collect()
    };
    let mean = |band: &Band| band.sum_rel_error / band.count as f64;
    BandErrors {
        shape: shape.to_string(),
        keep_bits: bits,
        wavelength: first.wavelength.clone(),
        max_rel: per_band(&kept, |band| band.max_rel_error),
        mean_rel: per_band(&kept, mean),
        plain_mean_rel: per_band(&plain, mean),
        max_abs: per_band(&kept, |band| band.max_abs_error),
    }
}

/// Pixels from the middle row of some of the pieces.
fn spectra(sample: &Sample, bits: u8) -> Vec<Spectrum> {
    let count = sample.pieces.len().min(SPECTRA);
    let pick = |number: usize| {
        let piece = &sample.pieces[number * sample.pieces.len() / count];
        let (columns, bands) = (piece.shape.columns, piece.shape.bands);
        // With several cubes, take pixels from different columns; with one, from the middle.
        let column = columns * (number + 1) / (count + 1);
        let row = piece.rows.len() / 2;
        let start = (row * columns + column) * bands;
        let before = &piece.values[start..start + bands];
        let pixel = Piece {
            name: String::new(),
            rows: 0..1,
            values: before.to_vec(),
            packed: vec![f16::ZERO; bands],
            wavelength: None,
            integers: Vec::new(),
            ..*piece
        };
        let finite = |value: f32| value.is_finite().then_some(value);
        Spectrum {
            cube: piece.name.clone(),
            row: piece.rows.start + row,
            column,
            wavelength: piece.wavelength.clone(),
            before: before.iter().map(|value| finite(*value)).collect(),
            after: pixel.rounded(bits).iter().map(|value| finite(value.to_f32())).collect(),
        }
    };
    (0..count).map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::of_values;
    use super::*;

    #[test]
    fn errors_stay_within_half_a_step() {
        let shape = CubeShape::new(20, 10, 7);
        let values =
            (0..shape.values()).map(|at| 0.01 + (at * 7919 % 1013) as f32 * 1e-3).collect();
        let sample = of_values(shape, values);
        for bits in 1..=10 {
            let bound = 2f64.powi(-i32::from(bits) - 1);
            let bands = errors(&sample.pieces[0], bits).0;
            assert!(bands.iter().all(|band| band.max_rel_error <= bound && band.count == 200));
            let worst = bands.iter().map(|band| band.max_rel_error).fold(0.0, f64::max);
            assert!(worst > bound / 4.0);
        }
        let mut gaps: Vec<f32> = (0..shape.values()).map(|at| 0.5 + at as f32 * 1e-3).collect();
        gaps.iter_mut().skip(3).step_by(7).for_each(|value| *value = f32::NAN);
        let gaps = of_values(shape, gaps);
        let lists = band_errors(&gaps, 4);
        for list in [&lists.max_rel, &lists.mean_rel, &lists.plain_mean_rel, &lists.max_abs] {
            let present: Vec<usize> = (0..7).filter(|band| list[*band].is_some()).collect();
            assert_eq!(present, [0, 1, 2, 4, 5, 6]);
        }
        assert_eq!(spectra(&gaps, 4)[0].after[3], None);
        let lists = band_errors(&sample, 4);
        assert_eq!((lists.max_rel.len(), lists.shape.as_str()), (7, "20x10x7"));
        let spectra = spectra(&sample, 4);
        assert_eq!((spectra.len(), spectra[0].row, spectra[0].column), (1, 10, 5));
        assert_eq!(spectra[0].before.len(), 7);
    }
}
