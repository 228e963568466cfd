//! Exact medians: every value of a region is kept until all have been read.
//!
//! A cube's values take 8 bytes for each pixel of a region and each band. If they do not fit into
//! [`ROOM`], the bands are processed in several passes over the cube's chunks.

use std::ops::Range;

use hsipack_format::Result;
use hsipack_store::memory;

/// Bytes of values that a thread keeps. If one band of a cube needs more, it uses more.
const ROOM: usize = 256 << 20;

/// The values of some bands of all regions of a cube.
pub(super) struct Gathered {
    bands: Range<usize>,
    /// Ordered by region, then band, then pixel.
    values: Vec<f64>,
    regions: Vec<Region>,
}

struct Region {
    /// Where the values of the region begin.
    start: usize,
    pixels: usize,
    /// Number of pixels that have been added.
    added: usize,
}

/// The bands of each pass over a cube. `pixels` are the numbers of pixels of its regions.
pub(super) fn passes(pixels: &[u64], bands: usize) -> impl Iterator<Item = Range<usize>> {
    passes_within(ROOM, pixels, bands)
}

fn passes_within(room: usize, pixels: &[u64], bands: usize) -> impl Iterator<Item = Range<usize>> {
    let band_bytes = pixels.iter().sum::<u64>() as usize * size_of::<f64>();
    let step = (room / band_bytes.max(1)).clamp(1, bands.max(1));
    (0..bands).step_by(step).map(move |start| start..bands.min(start + step))
}

impl Gathered {
    /// Allocates memory for these bands of regions with these numbers of pixels.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub(super) fn new(pixels: &[u64], bands: Range<usize>) -> Result<Self> {
        let mut start = 0;
        let region = |pixels: &u64| {
            let region = Region { start, pixels: *pixels as usize, added: 0 };
            start += region.pixels * bands.len();
            region
        };
        let regions = pixels.iter().map(region).collect();
        Ok(Self {
            values: memory::zeroed(start, "the values of a cube's regions")?,
            bands,
            regions,
        })
    }

    /// Adds a pixel to a region. `pixel` has the values of all bands.
    pub(super) fn add(&mut self, region: usize, pixel: &[f64]) {
        let Region { start, pixels, added } = &mut self.regions[region];
        for (band, value) in pixel[self.bands.clone()].iter().enumerate() {
            self.values[*start + band * *pixels + *added] = *value;
        }
        *added += 1;
    }

    /// The medians of each region's bands, after all pixels were added. NaN if no value is finite.
    pub(super) fn medians(mut self) -> Vec<Vec<f64>> {
        let bands = self.bands.len();
        let of = |region: &Region| {
            let all = &mut self.values[region.start..][..region.pixels * bands];
            all.chunks_exact_mut(region.pixels).map(median).collect()
        };
        self.regions.iter().map(of).collect()
    }
}

/// The median of the finite values. Reorders `values`.
fn median(values: &mut [f64]) -> f64 {
    let mut count = 0;
    for index in 0..values.len() {
        if values[index].is_finite() {
            values.swap(index, count);
            count += 1;
        }
    }
    if count == 0 {
        return f64::NAN;
    }
    let (below, middle, _) = values[..count].select_nth_unstable_by(count / 2, f64::total_cmp);
    let below = below.iter().copied().max_by(f64::total_cmp);
    match below {
        Some(below) if count.is_multiple_of(2) => (below + *middle) / 2.0,
        _ => *middle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computes the median by sorting.
    fn oracle(values: &[f64]) -> f64 {
        let mut finite: Vec<f64> =
            values.iter().copied().filter(|value| value.is_finite()).collect();
        finite.sort_by(f64::total_cmp);
        match finite.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => finite[count / 2],
            count => (finite[count / 2 - 1] + finite[count / 2]) / 2.0,
        }
    }

    proptest! {
        #[test]
        fn medians_are_those_of_sorted_values(
            regions in prop::collection::vec(1u64..9, 1..4), bands in 1usize..6, room in 1usize..400,
            numbers in prop::collection::vec(-5i32..6, 160..161),
        ) {
            let mut numbers = numbers.into_iter().cycle().map(|number| match number {
                -5 => f64::NAN,
                5 => f64::INFINITY,
                number => f64::from(number) / 3.0,
            });
            let pixels: Vec<(usize, Vec<f64>)> = (0..regions.len())
                .flat_map(|region| (0..regions[region]).map(move |_| region))
                .map(|region| (region, numbers.by_ref().take(bands).collect()))
                .collect();
            let mut got = vec![Vec::new(); regions.len()];
            for part in passes_within(room, &regions, bands) {
                let mut gathered = Gathered::new(&regions, part).unwrap();
                // Regions alternate, as they do along a row.
                for (region, pixel) in pixels.iter().rev() {
                    gathered.add(*region, pixel);
                }
                for (got, medians) in got.iter_mut().zip(gathered.medians()) {
                    got.extend(medians);
                }
            }
            for (region, got) in got.iter().enumerate() {
                prop_assert_eq!(got.len(), bands);
                for (band, got) in got.iter().enumerate() {
                    let of: Vec<f64> =
                        pixels.iter().filter(|(of, _)| *of == region).map(|(_, pixel)| pixel[band]).collect();
                    prop_assert_eq!(got.to_bits(), oracle(&of).to_bits());
                }
            }
        }
    }
}
