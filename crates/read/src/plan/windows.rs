//! Windows at chosen places: around labelled pixels, on regions, or listed one by one.

use std::collections::HashSet;
use std::sync::Arc;

use hsipack_format::random::fold;
use serde::Deserialize;
use serde::de::Error as _;

use super::PlanSample;
use super::index_set::IndexSet;
use super::pad::Pad;
use super::pixels::{MAX_LISTED_PIXELS, Numbers, Pixels};
use super::regions::Region;
use super::window::Window;
use crate::packed;
use crate::{Error, Result};

/// Windows of one size, planned by [`Crop::Windows`](super::Crop::Windows).
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    rows: u32,
    columns: u32,
    pad: Pad,
    /// Ids of the samples that have windows, in the order of their windows.
    samples: Vec<usize>,
    /// Number of windows of the samples before each sample, and of all.
    starts: Vec<u32>,
    places: Places,
}

#[derive(Clone, Debug, PartialEq)]
enum Places {
    Pixels {
        /// The pixels of every sample.
        pixels: Vec<Pixels>,
        /// Ids of all classes.
        classes: Vec<u32>,
    },
    Listed {
        /// First row and column, sample by sample, row by row.
        corners: Vec<[i32; 2]>,
        /// Numbers of the windows in the order in which they were listed.
        order: Vec<u32>,
        /// The regions of a mask, if the windows show regions.
        regions: Option<RegionIds>,
    },
}

/// The regions that windows show, in the order of the windows.
#[derive(Clone, Debug, PartialEq)]
struct RegionIds {
    /// The ids of their pixels in the mask.
    ids: Vec<u32>,
    /// Their classes, as numbers among all classes.
    class: Numbers,
    /// Ids of all classes.
    classes: Vec<u32>,
    /// Numbers of the windows that are smaller than their regions, ascending.
    cut: Vec<u32>,
}

/// A window, and what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub window: Window,
    /// The class id of its centre pixel, or of its region.
    pub label: Option<u32>,
    /// The region that it shows.
    pub region: Option<u32>,
}

/// Running sums from 0, which must fit into 32 bits.
fn running(counts: impl Iterator<Item = usize>) -> Result<Vec<u32>> {
    let mut sums = vec![0u32];
    for count in counts {
        let sum = sums[sums.len() - 1] as usize + count;
        sums.push(u32::try_from(sum).map_err(|_| super::too_many())?);
    }
    Ok(sums)
}

/// One of the windows, as orders refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowNumber {
    /// The sample's place among those that have windows.
    pub sample: u32,
    /// Which of the sample's windows.
    pub window: u32,
}

/// Listed windows in serialised data.
#[derive(Deserialize)]
struct ListedWindows {
    rows: u32,
    columns: u32,
    pad: Pad,
    /// Sample, row and column of each window, one window after another.
    #[serde(deserialize_with = "packed::deserialize")]
    windows: Vec<i64>,
}

impl Windows {
    /// Listed windows from serialised data.
    pub(super) fn deserialized<'de, D>(from: D) -> std::result::Result<Arc<Self>, D::Error>
    where
        D: serde::Deserializer<'de>,
    {
        let ListedWindows { rows, columns, pad, windows } = Deserialize::deserialize(from)?;
        let window = |&[sample, row, column]: &[i64; 3]| {
            Some((sample.try_into().ok()?, row.try_into().ok()?, column.try_into().ok()?))
        };
        let windows: Option<Vec<_>> = windows.as_chunks().0.iter().map(window).collect();
        let windows = windows.ok_or_else(|| D::Error::custom("windows that no cube has"))?;
        let listed = Self::listed((rows, columns), pad, &windows);
        listed.map(Arc::new).map_err(D::Error::custom)
    }

    /// Windows of this size, each listed by its sample's id and its first row and column. Windows
    /// may begin before the cube and end behind it.
    ///
    /// # Errors
    /// If there are none, or more than 2^32.
    pub fn listed(size: (u32, u32), pad: Pad, windows: &[(usize, i32, i32)]) -> Result<Self> {
        Ok(Self::sorted(size, pad, windows)?.0)
    }

    /// Windows around labelled pixels of samples (by id). The classes of the pixels are places in
    /// `classes`.
    ///
    /// # Errors
    /// If there are more than 2^32.
    pub(super) fn around(
        (rows, columns): (u32, u32),
        pad: Pad,
        samples: Vec<(usize, Pixels)>,
        classes: Vec<u32>,
    ) -> Result<Self> {
        let starts = running(samples.iter().map(|(_, pixels)| pixels.set.len()))?;
        let (samples, pixels) = samples.into_iter().unzip();
        let places = Places::Pixels { pixels, classes };
        Ok(Self { rows, columns, pad, samples, starts, places })
    }

    /// Windows of `size`, each of which shows a region.
    ///
    /// # Errors
    /// As [`listed`](Self::listed).
    pub fn of_regions(size: (u32, u32), pad: Pad, shown: &[Region]) -> Result<Self> {
        let windows: Vec<_> =
            shown.iter().map(|region| (region.sample, region.row, region.column)).collect();
        let (mut windows, sorted) = Self::sorted(size, pad, &windows)?;
        let mut classes: Vec<u32> = shown.iter().map(|region| region.label).collect();
        classes.sort_unstable();
        classes.dedup();
        let of = |listed: &u32| &shown[*listed as usize];
        let class =
            |listed: &u32| classes.partition_point(|class| *class < of(listed).label) as u32;
        let found = RegionIds {
            ids: sorted.iter().map(|listed| of(listed).id).collect(),
            class: Numbers::new(sorted.iter().map(class).collect()),
            classes,
            cut: (0..)
                .zip(&sorted)
                .filter(|(_, listed)| of(listed).cut)
                .map(|(at, _)| at)
                .collect(),
        };
        if let Places::Listed { regions, .. } = &mut windows.places {
            *regions = Some(found);
        }
        Ok(windows)
    }

    /// Listed windows, and the place in the list that each comes from.
    fn sorted(
        (rows, columns): (u32, u32),
        pad: Pad,
        windows: &[(usize, i32, i32)],
    ) -> Result<(Self, Vec<u32>)> {
        if windows.is_empty() {
            return Err(Error::conflict("the list of windows is empty")
                .with_remedy("list at least one window"));
        }
        let mut samples: Vec<usize> = windows.iter().map(|window| window.0).collect();
        samples.sort_unstable();
        samples.dedup();
        let index = |window: &(usize, i32, i32)| samples.partition_point(|id| *id < window.0);
        let mut counts = vec![0usize; samples.len()];
        windows.iter().for_each(|window| counts[index(window)] += 1);
        let starts = running(counts.into_iter())?;
        // Row by row, as for pixels, whatever the order in which they were listed.
        let mut sorted: Vec<u32> = (0..starts[samples.len()]).collect();
        sorted.sort_by_key(|listed| windows[*listed as usize]);
        let corner = |listed: &u32| {
            let (_, row, column) = windows[*listed as usize];
            [row, column]
        };
        let corners = sorted.iter().map(corner).collect();
        let mut order = vec![0; sorted.len()];
        (0..).zip(&sorted).for_each(|(number, listed)| order[*listed as usize] = number);
        let places = Places::Listed { corners, order, regions: None };
        Ok((Self { rows, columns, pad, samples, starts, places }, sorted))
    }

    /// Rows and columns of every window.
    pub fn size(&self) -> (u32, u32) {
        (self.rows, self.columns)
    }

    /// The windows of some of the samples, in the order that they have among all windows; `None` if
    /// there are none.
    pub fn of_samples(&self, ids: &[usize]) -> Option<Self> {
        let ids: HashSet<usize> = ids.iter().copied().collect();
        let indices = (0..self.samples.len()).filter(|index| ids.contains(&self.samples[*index]));
        let indices: Vec<usize> = indices.collect();
        let counts = indices.iter().map(|index| self.of_sample(*index) as usize);
        let starts = running(counts).ok().filter(|starts| starts.len() > 1)?;
        let numbers_of = |index: usize| self.starts[index]..self.starts[index + 1];
        let kept = match &self.places {
            Places::Pixels { pixels, classes } => Places::Pixels {
                pixels: indices.iter().map(|index| pixels[*index].clone()).collect(),
                classes: classes.clone(),
            },
            Places::Listed { corners, order, regions } => {
                let numbers: Vec<u32> =
                    indices.iter().flat_map(|index| numbers_of(*index)).collect();
                let corners = numbers.iter().map(|number| corners[*number as usize]).collect();
                // Ascending, so the position of a number is its new number.
                let new = |number: &u32| numbers.binary_search(number).ok();
                let order = order.iter().filter_map(new).map(|number| number as u32).collect();
                let regions = regions.as_ref().map(|RegionIds { ids, class, classes, cut }| {
                    let of = |number: &u32| (ids[*number as usize], class.get(*number as usize));
                    let (ids, class) = numbers.iter().map(of).unzip();
                    let cut = cut.iter().filter_map(new).map(|number| number as u32).collect();
                    RegionIds { ids, class: Numbers::new(class), classes: classes.clone(), cut }
                });
                Places::Listed { corners, order, regions }
            }
        };
        let samples = indices.iter().map(|index| self.samples[*index]).collect();
        let Self { rows, columns, pad, .. } = *self;
        Some(Self { rows, columns, pad, samples, starts, places: kept })
    }

    /// The values beyond the edges.
    pub fn pad(&self) -> Pad {
        self.pad
    }

    /// How many windows there are.
    pub fn len(&self) -> usize {
        self.starts[self.samples.len()] as usize
    }

    /// Whether there are no windows, which is never the case.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ids of the samples that have windows.
    pub fn samples(&self) -> &[usize] {
        &self.samples
    }

    /// Ids of the classes of the centre pixels, or of the regions, ascending, and how many windows
    /// have each. Empty if the windows were listed.
    pub fn classes(&self) -> Vec<(u32, usize)> {
        let classes = match &self.places {
            Places::Pixels { classes, .. } => classes,
            Places::Listed { regions: Some(regions), .. } => &regions.classes,
            Places::Listed { .. } => return Vec::new(),
        };
        let mut counts: Vec<(u32, usize)> = classes.iter().map(|class| (*class, 0)).collect();
        self.each_class(&mut |class, _| counts[class as usize].1 += 1);
        counts.retain(|(_, count)| *count > 0);
        counts.sort_unstable();
        counts
    }

    /// Calls `tell` with the class of every window, as a number among all classes, and the window's
    /// number (see [`place`](Self::place)).
    fn each_class(&self, tell: &mut impl FnMut(u32, u32)) {
        match &self.places {
            Places::Pixels { pixels, .. } => {
                for (start, Pixels { set, class, .. }) in self.starts.iter().zip(pixels) {
                    (0..set.len()).for_each(|index| tell(class.get(index), start + index as u32));
                }
            }
            // By their numbers in the list (see `place`).
            Places::Listed { order, regions: Some(RegionIds { class, .. }), .. } => {
                (0..)
                    .zip(order)
                    .for_each(|(number, position)| tell(class.get(*position as usize), number));
            }
            Places::Listed { .. } => {}
        }
    }

    /// Whether the windows have labels: whether they lie around labelled pixels, or show regions.
    pub fn are_labelled(&self) -> bool {
        matches!(self.places, Places::Pixels { .. }) || self.are_regions()
    }

    /// Whether each window shows a region of a mask.
    pub fn are_regions(&self) -> bool {
        matches!(self.places, Places::Listed { regions: Some(_), .. })
    }

    /// How many of the regions are higher or wider than their windows; `None` if windows show no
    /// regions.
    pub fn cut_regions(&self) -> Option<usize> {
        match &self.places {
            Places::Listed { regions: Some(regions), .. } => Some(regions.cut.len()),
            _ => None,
        }
    }

    /// Number of windows of the sample at a place.
    #[inline]
    pub(super) fn of_sample(&self, sample: usize) -> u32 {
        self.starts[sample + 1] - self.starts[sample]
    }

    /// A window by its number. Listed windows are numbered in the order of the list; windows around
    /// pixels sample by sample, row by row.
    #[inline]
    pub(super) fn place(&self, number: usize) -> WindowNumber {
        let number = match &self.places {
            Places::Pixels { .. } => number as u32,
            Places::Listed { order, .. } => order[number],
        };
        let sample = self.starts.partition_point(|start| *start <= number) - 1;
        WindowNumber { sample: sample as u32, window: number - self.starts[sample] }
    }

    /// How many windows of the sample at a place begin before this row and column, counted row by
    /// row.
    pub(super) fn before(&self, sample: usize, row: i64, column: i64) -> u32 {
        let range = self.starts[sample] as usize..self.starts[sample + 1] as usize;
        match &self.places {
            Places::Pixels { pixels, .. } => {
                let Pixels { columns, end, set, .. } = &pixels[sample];
                let across = i64::from(*columns);
                let row = row.saturating_add(i64::from(self.rows / 2));
                let column = column.saturating_add(i64::from(self.columns / 2)).clamp(0, across);
                // Windows lie around pixels of the cube, so there is none before its first row or after its last row.
                let rows = i64::from(*end) / across.max(1);
                let pixel = match row {
                    row if row < 0 => 0,
                    row if row >= rows => i64::from(*end),
                    row => row * across + column,
                };
                set.rank(pixel as u32) as u32
            }
            Places::Listed { corners, .. } => {
                let at = (row, column);
                let before = |[row, column]: &[i32; 2]| (i64::from(*row), i64::from(*column)) < at;
                corners[range].partition_point(before) as u32
            }
        }
    }

    /// Number of the first window of the sample at a place.
    pub(super) fn first(&self, sample: usize) -> u32 {
        self.starts[sample]
    }

    /// The window, and what it shows.
    #[inline]
    pub(super) fn get(&self, window_number: WindowNumber) -> Shown {
        let WindowNumber { sample, window } = window_number;
        let (sample, number) = (sample as usize, window as usize);
        let (row, column, label, region) = match &self.places {
            Places::Pixels { pixels, classes } => {
                let Pixels { columns, set, class, .. } = &pixels[sample];
                let pixel = set.get(number);
                let corner = |at: u32, size: u32| (i64::from(at) - i64::from(size / 2)) as i32;
                (
                    corner(pixel / columns, self.rows),
                    corner(pixel % columns, self.columns),
                    Some(classes[class.get(number) as usize]),
                    None,
                )
            }
            Places::Listed { corners, regions, .. } => {
                let index = self.starts[sample] as usize + number;
                let [row, column] = corners[index];
                let label =
                    |regions: &RegionIds| regions.classes[regions.class.get(index) as usize];
                let region = |regions: &RegionIds| regions.ids[index];
                (row, column, regions.as_ref().map(label), regions.as_ref().map(region))
            }
        };
        let window = Window { row, column, rows: self.rows, columns: self.columns };
        Shown { window, label, region }
    }

    /// For every class, the numbers of its windows.
    pub(super) fn by_class(&self) -> Vec<IndexSet> {
        let classes = match &self.places {
            Places::Pixels { classes, .. } => classes.len(),
            Places::Listed { regions, .. } => {
                regions.as_ref().map_or(0, |regions| regions.classes.len())
            }
        };
        let mut numbers = vec![Vec::new(); classes];
        self.each_class(&mut |class, number| numbers[class as usize].push(number));
        let mut sets: Vec<IndexSet> = numbers.into_iter().map(IndexSet::Listed).collect();
        sets.retain(|set| set.len() > 0);
        if self.len() > MAX_LISTED_PIXELS {
            sets.iter_mut().for_each(|set| set.shrink(self.len()));
        }
        sets
    }

    /// Refuses listed windows that lie outside their cube. `samples` are those that have windows,
    /// in order.
    pub(super) fn check(&self, samples: &[PlanSample]) -> Result<()> {
        for (index, sample) in samples.iter().enumerate() {
            let Places::Listed { corners, .. } = &self.places else { continue };
            let outside = |start: i32, size: u32, length: u32| {
                let start = i64::from(start);
                start >= i64::from(length) || start + i64::from(size) <= 0
            };
            let range = self.starts[index] as usize..self.starts[index + 1] as usize;
            if let Some([row, column]) = corners[range].iter().find(|[row, column]| {
                outside(*row, self.rows, sample.rows)
                    || outside(*column, self.columns, sample.columns)
            }) {
                return Err(Error::conflict(format!(
                    "the window of {}x{} pixels at row {row}, column {column} lies outside sample {} of {}x{}",
                    self.rows, self.columns, sample.sample, sample.rows, sample.columns
                ))
                .with_remedy("list windows that contain at least one pixel of their cube"));
            }
        }
        Ok(())
    }

    /// Bytes of memory that the windows take.
    pub fn bytes(&self) -> usize {
        let places = match &self.places {
            Places::Pixels { pixels, .. } => {
                pixels.iter().map(|pixels| pixels.set.bytes() + pixels.class.bytes()).sum()
            }
            Places::Listed { corners, order, regions } => {
                let regions =
                    regions.as_ref().map_or(0, |RegionIds { ids, class, cut, .. }| {
                        size_of_val(&ids[..]) + class.bytes() + size_of_val(&cut[..])
                    });
                size_of_val(&corners[..]) + size_of_val(&order[..]) + regions
            }
        };
        size_of_val(&self.samples[..]) + size_of_val(&self.starts[..]) + places
    }

    /// Everything as numbers, for a plan's digest.
    pub(super) fn parts(&self) -> [u64; 7] {
        let places = match &self.places {
            Places::Pixels { pixels, classes } => {
                let pixels = pixels.iter().flat_map(|Pixels { columns, set, class, .. }| {
                    let pixels = set
                        .iter()
                        .enumerate()
                        .map(|(index, pixel)| u64::from(pixel) | u64::from(class.get(index)) << 32);
                    std::iter::once(u64::from(*columns)).chain(pixels)
                });
                fold(pixels.chain(classes.iter().map(|class| u64::from(*class))))
            }
            Places::Listed { corners, order, regions } => {
                let regions =
                    regions.iter().flat_map(|RegionIds { ids, class, classes, .. }| {
                        let label = |index: usize| u64::from(classes[class.get(index) as usize]);
                        ids.iter()
                            .enumerate()
                            .map(move |(index, id)| u64::from(*id) << 32 | label(index))
                    });
                let corner = |[row, column]: &[i32; 2]| {
                    u64::from(*row as u32) << 32 | u64::from(*column as u32)
                };
                fold(
                    corners
                        .iter()
                        .map(corner)
                        .chain(order.iter().map(|number| u64::from(*number)))
                        .chain(regions),
                )
            }
        };
        let samples = self.samples.iter().map(|sample| *sample as u64);
        let starts = fold(samples.chain(self.starts.iter().map(|start| u64::from(*start))));
        let [pad, value] = self.pad.parts();
        [
            u64::from(self.rows),
            u64::from(self.columns),
            pad,
            value,
            self.samples.len() as u64,
            starts,
            places,
        ]
    }
}
