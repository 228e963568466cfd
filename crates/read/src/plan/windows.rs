//! Windows that lie where they are wanted: around labelled pixels, or listed one by one.

use std::collections::{HashMap, HashSet};

use hsipack_format::random::{Random, Stream, fold};
use hsipack_format::{Opt, remedy};
use serde::{Deserialize, Serialize};

use super::PlanSample;
use super::crops::Window;
use super::index_set::IndexSet;
use super::permutation::Network;
use crate::{Error, Result};

/// What a window has where it lies beyond the edge of its cube.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Pad {
    /// The cube mirrored, its outermost pixels not repeated, as NumPy's `reflect`.
    Reflect,
    /// The outermost pixels again, as NumPy's `edge`.
    Edge,
    /// This value in images, as it is stored (before a scale factor, normalisation and the like), and 0 in masks.
    Value(f64),
}

impl Pad {
    pub(super) fn parts(self) -> [u64; 2] {
        match self {
            Self::Reflect => [0, 0],
            Self::Edge => [1, 0],
            Self::Value(value) => [2, value.to_bits()],
        }
    }

    /// The pixel of an axis of `length` that stands at `place`; none where the value does.
    pub(crate) fn pixel(self, place: i64, length: usize) -> Option<usize> {
        let length = length as i64;
        if (0..length).contains(&place) {
            return Some(place as usize);
        }
        let pixel = match self {
            Self::Value(_) => return None,
            Self::Edge => place.clamp(0, length - 1),
            Self::Reflect if length == 1 => 0,
            Self::Reflect => {
                let there_and_back = 2 * (length - 1);
                let place = place.rem_euclid(there_and_back);
                place.min(there_and_back - place)
            }
        };
        Some(pixel as usize)
    }
}

impl std::fmt::Display for Pad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reflect => f.write_str("reflect"),
            Self::Edge => f.write_str("edge"),
            Self::Value(value) => write!(f, "{value}"),
        }
    }
}

/// As [`Display`](std::fmt::Display) has it: JSON has no NaN.
impl From<Pad> for String {
    fn from(pad: Pad) -> Self {
        pad.to_string()
    }
}

impl TryFrom<String> for Pad {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl std::str::FromStr for Pad {
    type Err = Error;

    /// `reflect`, `edge` or a number.
    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text == "reflect" => Ok(Self::Reflect),
            _ if text == "edge" => Ok(Self::Edge),
            Ok(value) => Ok(Self::Value(value)),
            Err(_) => Err(Error::conflict(format!("there is no padding {text:?}"))
                .with_remedy("give reflect, edge or a number")),
        }
    }
}

/// Which labelled pixels get a window around them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Patches {
    /// Rows of a window.
    pub rows: u32,
    /// Columns of a window. Of an even number the labelled pixel is the first one after the middle.
    pub columns: u32,
    /// What lies beyond the cube's edge.
    pub pad: Pad,
    /// Only pixels of these class ids; of all if `None`.
    pub classes: Option<Vec<u32>>,
    /// No pixels of these class ids; 0 is what unlabelled pixels have.
    pub ignore: Vec<u32>,
    /// As many pixels of each class, drawn once by the seed; all of a class that has fewer. All pixels if `None`.
    pub per_class: Option<usize>,
}

impl Patches {
    /// Windows of `rows` × `columns` around all pixels that are not 0, mirrored beyond the edge.
    pub fn new(rows: u32, columns: u32) -> Self {
        let (classes, per_class) = (None, None);
        Self { rows, columns, pad: Pad::Reflect, classes, ignore: vec![0], per_class }
    }

    fn takes(&self, class: u32) -> bool {
        !self.ignore.contains(&class)
            && self.classes.as_ref().is_none_or(|classes| classes.contains(&class))
    }
}

/// Which regions of a mask (superpixels, instances) get a window each.
#[derive(Clone, Debug, PartialEq)]
pub struct Regions {
    /// Rows of a window. The middle of the region's bounding box lies in its middle; larger regions are cut.
    pub rows: u32,
    /// Columns of a window.
    pub columns: u32,
    /// What lies beyond the cube's edge, in images; masks have 0 there.
    pub pad: Pad,
    /// No regions of these ids; 0 never is one.
    pub ignore: Vec<u32>,
    /// Only regions of so many pixels at least.
    pub min_pixels: usize,
    /// The mask whose most frequent class id in a region is its label, 0 not counting; the region's id is, if `None`.
    pub labels: Option<String>,
}

impl Regions {
    /// Windows of `rows` × `columns` for all regions, mirrored beyond the edge, labelled by their ids.
    pub fn new(rows: u32, columns: u32) -> Self {
        let (pad, ignore) = (Pad::Reflect, Vec::new());
        Self { rows, columns, pad, ignore, min_pixels: 1, labels: None }
    }
}

/// A region of a mask, and the window that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Id of the sample in the dataset.
    pub sample: usize,
    /// First row of the window.
    pub row: i32,
    /// First column of the window.
    pub column: i32,
    /// What its pixels have in the mask.
    pub id: u32,
    /// Its class id.
    pub label: u32,
    /// Whether it is higher or wider than its window.
    pub cut: bool,
}

/// Windows of one size, planned by [`Crop::Windows`](super::Crop::Windows).
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    rows: u32,
    columns: u32,
    pad: Pad,
    /// Ids of the samples that have windows, in the order of their windows.
    samples: Vec<usize>,
    /// Windows of the samples before each, and of all.
    starts: Vec<u32>,
    places: Places,
}

#[derive(Clone, Debug, PartialEq)]
enum Places {
    Pixels {
        /// Of every sample.
        pixels: Vec<Pixels>,
        /// Ids of all classes.
        classes: Vec<u32>,
    },
    Listed {
        /// First row and column, sample by sample, row by row.
        corners: Vec<[i32; 2]>,
        /// Numbers of the windows in the order in which they were listed.
        order: Vec<u32>,
        /// The regions of a mask that they show, if they do.
        regions: Option<RegionIds>,
    },
}

/// The regions that windows show, in the order of these.
#[derive(Clone, Debug, PartialEq)]
struct RegionIds {
    /// What their pixels have in the mask.
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
    /// The class id of its centre, or of its region.
    pub label: Option<u32>,
    /// The region that it shows.
    pub region: Option<u32>,
}

/// The pixels of one sample that have a window.
#[derive(Clone, Debug, PartialEq)]
struct Pixels {
    /// Columns of the cube.
    columns: u32,
    /// Pixels of the cube.
    end: u32,
    /// Row by row.
    set: IndexSet,
    /// The class of each, as a number among all classes.
    class: Numbers,
}

/// Pixels, of all samples together, that are held in lists, which are quicker: 16 MB.
const MOST_LISTED: usize = 1 << 22;

/// Small numbers.
#[derive(Clone, Debug, PartialEq)]
enum Numbers {
    Narrow(Vec<u8>),
    Wide(Vec<u32>),
}

impl Numbers {
    fn new(numbers: Vec<u32>) -> Self {
        let narrow: Option<Vec<u8>> =
            numbers.iter().map(|number| u8::try_from(*number).ok()).collect();
        narrow.map_or(Self::Wide(numbers), Self::Narrow)
    }

    fn get(&self, place: usize) -> u32 {
        match self {
            Self::Narrow(numbers) => u32::from(numbers[place]),
            Self::Wide(numbers) => numbers[place],
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Narrow(numbers) => size_of_val(&numbers[..]),
            Self::Wide(numbers) => size_of_val(&numbers[..]),
        }
    }
}

/// Gathers the labelled pixels of sample after sample.
#[derive(Debug)]
pub struct LabelledPixels {
    patches: Patches,
    samples: Vec<(usize, Pixels)>,
    /// Ids of the classes, in the order in which they came.
    classes: Vec<u32>,
    /// The number of each; masks of instances have thousands.
    numbers: HashMap<u32, u32>,
    /// Pixels that are held in lists.
    listed: usize,
}

impl LabelledPixels {
    /// None yet.
    pub fn new(patches: Patches) -> Self {
        let (samples, classes, numbers) = (Vec::new(), Vec::new(), HashMap::new());
        Self { patches, samples, classes, numbers, listed: 0 }
    }

    /// The next sample, by its id, its rows and columns, and the class ids of its pixels row by row.
    ///
    /// # Errors
    /// If it has more than 2^32 pixels.
    pub fn add(
        &mut self,
        sample: usize,
        (rows, columns): (u32, u32),
        labels: impl IntoIterator<Item = u32>,
    ) -> Result<()> {
        let end = u64::from(rows) * u64::from(columns);
        if u32::try_from(end).is_err() {
            return Err(Error::unsupported(format!(
                "sample {sample} of {rows}x{columns} has more than 4294967295 pixels"
            ))
            .with_remedy("list its windows, or pack it in parts"));
        }
        let (mut pixels, mut numbers) = (Vec::new(), Vec::new());
        let mut run = None;
        for (pixel, class) in (0..).zip(labels) {
            // Labels come in runs.
            let number = match run {
                Some((last, number)) if last == class => number,
                _ if !self.patches.takes(class) => None,
                _ => Some(self.number(class)),
            };
            run = Some((class, number));
            if let Some(number) = number {
                pixels.push(pixel);
                numbers.push(number);
            }
        }
        self.listed += pixels.len();
        let set = IndexSet::Listed(pixels);
        let class = Numbers::new(numbers);
        self.samples.push((sample, Pixels { columns, end: end as u32, set, class }));
        if self.listed > MOST_LISTED {
            self.samples.iter_mut().for_each(|(_, pixels)| pixels.set.shrink(pixels.end as usize));
            self.listed = 0;
        }
        Ok(())
    }

    /// The number of a class, a new one if it was not seen yet.
    fn number(&mut self, class: u32) -> u32 {
        *self.numbers.entry(class).or_insert_with(|| {
            self.classes.push(class);
            self.classes.len() as u32 - 1
        })
    }

    /// The windows around them. `seed` decides which pixels are taken of a class that has more than asked for.
    ///
    /// # Errors
    /// If there are none, or more than 2^32.
    pub fn windows(self, seed: u64) -> Result<Windows> {
        let Self { patches, mut samples, classes, .. } = self;
        if let Some(most) = patches.per_class {
            draw_per_class(&mut samples, &classes, most, seed);
        }
        samples.retain(|(_, pixels)| pixels.set.len() > 0);
        if samples.is_empty() {
            return Err(Error::conflict("no pixel has a label that is asked for").with_remedy(
                remedy![
                    "check the mask, ",
                    Opt::Classes,
                    ", ",
                    Opt::Ignore,
                    " and ",
                    Opt::PerClass
                ],
            ));
        }
        let starts = running(samples.iter().map(|(_, pixels)| pixels.set.len()))?;
        let (samples, pixels) = samples.into_iter().unzip();
        let Patches { rows, columns, pad, .. } = patches;
        let places = Places::Pixels { pixels, classes };
        Ok(Windows { rows, columns, pad, samples, starts, places })
    }
}

/// Keeps `most` pixels of each class, those of all samples together.
fn draw_per_class(samples: &mut [(usize, Pixels)], classes: &[u32], most: usize, seed: u64) {
    let mut counts = vec![0usize; classes.len()];
    for (_, pixels) in &*samples {
        (0..pixels.set.len()).for_each(|place| counts[pixels.class.get(place) as usize] += 1);
    }
    // Of each class which of its pixels, ascending.
    let chosen = |(class, count): (&u32, &usize)| {
        let mut random = Random::keyed(Stream::PerClass, [seed, u64::from(*class)]);
        let order = Network::new((*count).max(1) as u64, &mut random);
        let mut chosen: Vec<u64> =
            (0..most.min(*count) as u64).map(|place| order.at(place)).collect();
        chosen.sort_unstable();
        chosen.into_iter().peekable()
    };
    let mut chosen: Vec<_> = classes.iter().zip(&counts).map(chosen).collect();
    let mut seen = vec![0u64; classes.len()];
    for (_, pixels) in samples {
        let (mut kept, mut numbers) = (Vec::new(), Vec::new());
        for (place, pixel) in pixels.set.iter().enumerate() {
            let number = pixels.class.get(place);
            let class = number as usize;
            if chosen[class].next_if_eq(&seen[class]).is_some() {
                kept.push(pixel);
                numbers.push(number);
            }
            seen[class] += 1;
        }
        (pixels.set, pixels.class) = (IndexSet::Listed(kept), Numbers::new(numbers));
    }
}

/// Running sums from 0, which 32 bits count.
fn running(counts: impl Iterator<Item = usize>) -> Result<Vec<u32>> {
    let mut sums = vec![0u32];
    for count in counts {
        let sum = sums[sums.len() - 1] as usize + count;
        sums.push(u32::try_from(sum).map_err(|_| super::too_many())?);
    }
    Ok(sums)
}

/// One of the windows, as an order takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The sample's place among those that have windows.
    pub sample: u32,
    /// Which of the sample's windows.
    pub window: u32,
}

impl Windows {
    /// Windows of `rows` × `columns` of samples (by id), whose first rows and columns are listed; these may lie before
    /// the cube, as their ends may lie behind it.
    ///
    /// # Errors
    /// If there are none, or more than 2^32.
    pub fn listed(size: (u32, u32), pad: Pad, windows: &[(usize, i32, i32)]) -> Result<Self> {
        Ok(Self::sorted(size, pad, windows)?.0)
    }

    /// Windows of `size` that show regions, one each.
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

    /// Listed windows, and which place of the list each comes from.
    fn sorted(
        (rows, columns): (u32, u32),
        pad: Pad,
        windows: &[(usize, i32, i32)],
    ) -> Result<(Self, Vec<u32>)> {
        if windows.is_empty() {
            return Err(Error::conflict("a list of no windows").with_remedy("list at least one"));
        }
        let mut samples: Vec<usize> = windows.iter().map(|window| window.0).collect();
        samples.sort_unstable();
        samples.dedup();
        let place = |window: &(usize, i32, i32)| samples.partition_point(|id| *id < window.0);
        let mut counts = vec![0usize; samples.len()];
        windows.iter().for_each(|window| counts[place(window)] += 1);
        let starts = running(counts.into_iter())?;
        // Row by row, as pixels are, whatever the order in which they were listed.
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

    /// Those of some of the samples, in the order that they have among all; `None` if these have none.
    pub fn of_samples(&self, ids: &[usize]) -> Option<Self> {
        let ids: HashSet<usize> = ids.iter().copied().collect();
        let places = (0..self.samples.len()).filter(|place| ids.contains(&self.samples[*place]));
        let places: Vec<usize> = places.collect();
        let counts = places.iter().map(|place| self.of_sample(*place) as usize);
        let starts = running(counts).ok().filter(|starts| starts.len() > 1)?;
        let own = |place: usize| self.starts[place]..self.starts[place + 1];
        let kept = match &self.places {
            Places::Pixels { pixels, classes } => Places::Pixels {
                pixels: places.iter().map(|place| pixels[*place].clone()).collect(),
                classes: classes.clone(),
            },
            Places::Listed { corners, order, regions } => {
                let numbers: Vec<u32> = places.iter().flat_map(|place| own(*place)).collect();
                let corners = numbers.iter().map(|number| corners[*number as usize]).collect();
                // Ascending: the place of a number is its new one.
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
        let samples = places.iter().map(|place| self.samples[*place]).collect();
        let Self { rows, columns, pad, .. } = *self;
        Some(Self { rows, columns, pad, samples, starts, places: kept })
    }

    /// What they have beyond the edges.
    pub fn pad(&self) -> Pad {
        self.pad
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.starts[self.samples.len()] as usize
    }

    /// Whether there are none; never so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ids of the samples that have some.
    pub fn samples(&self) -> &[usize] {
        &self.samples
    }

    /// Ids of the classes of the pixels around which they lie, or of the regions that they show, ascending, and how many of
    /// each there are; none if they were listed.
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

    /// Tells every window's class, as a number among all classes, and its number (see [`place`](Self::place)).
    fn each_class(&self, tell: &mut impl FnMut(u32, u32)) {
        match &self.places {
            Places::Pixels { pixels, .. } => {
                for (start, Pixels { set, class, .. }) in self.starts.iter().zip(pixels) {
                    (0..set.len()).for_each(|place| tell(class.get(place), start + place as u32));
                }
            }
            // By the numbers that they have in the list (see `place`).
            Places::Listed { order, regions: Some(RegionIds { class, .. }), .. } => {
                (0..)
                    .zip(order)
                    .for_each(|(number, place)| tell(class.get(*place as usize), number));
            }
            Places::Listed { .. } => {}
        }
    }

    /// Whether they lie around labelled pixels, or show regions, which have labels, too.
    pub fn are_labelled(&self) -> bool {
        matches!(self.places, Places::Pixels { .. }) || self.are_regions()
    }

    /// Whether each shows a region of a mask.
    pub fn are_regions(&self) -> bool {
        matches!(self.places, Places::Listed { regions: Some(_), .. })
    }

    /// How many of the regions that they show are higher or wider than they are; `None` where they show none.
    pub fn cut_regions(&self) -> Option<usize> {
        match &self.places {
            Places::Listed { regions: Some(regions), .. } => Some(regions.cut.len()),
            _ => None,
        }
    }

    /// Windows of the sample at a place.
    pub(super) fn of_sample(&self, sample: usize) -> u32 {
        self.starts[sample + 1] - self.starts[sample]
    }

    /// A window by its number, in the order in which they were listed; pixels sample by sample, row by row.
    pub(super) fn place(&self, number: usize) -> Place {
        let number = match &self.places {
            Places::Pixels { .. } => number as u32,
            Places::Listed { order, .. } => order[number],
        };
        let sample = self.starts.partition_point(|start| *start <= number) - 1;
        Place { sample: sample as u32, window: number - self.starts[sample] }
    }

    /// How many windows of the sample at a place begin before this row and column, row by row.
    pub(super) fn before(&self, sample: usize, row: i64, column: i64) -> u32 {
        let own = self.starts[sample] as usize..self.starts[sample + 1] as usize;
        match &self.places {
            Places::Pixels { pixels, .. } => {
                let Pixels { columns, end, set, .. } = &pixels[sample];
                let across = i64::from(*columns);
                let row = row.saturating_add(i64::from(self.rows / 2));
                let column = column.saturating_add(i64::from(self.columns / 2)).clamp(0, across);
                // Windows lie around pixels of the cube, so that none begins before its first or after its last row.
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
                corners[own].partition_point(before) as u32
            }
        }
    }

    /// Number of the first window of the sample at a place.
    pub(super) fn first(&self, sample: usize) -> u32 {
        self.starts[sample]
    }

    /// The window, and what it shows.
    pub(super) fn get(&self, place: Place) -> Shown {
        let Place { sample, window } = place;
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
                let place = self.starts[sample] as usize + number;
                let [row, column] = corners[place];
                let label =
                    |regions: &RegionIds| regions.classes[regions.class.get(place) as usize];
                let region = |regions: &RegionIds| regions.ids[place];
                (row, column, regions.as_ref().map(label), regions.as_ref().map(region))
            }
        };
        let window = Window { row, column, rows: self.rows, columns: self.columns };
        Shown { window, label, region }
    }

    /// For every class the numbers of its windows.
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
        if self.len() > MOST_LISTED {
            sets.iter_mut().for_each(|set| set.shrink(self.len()));
        }
        sets
    }

    /// Refuses windows that mean nothing for these samples, which are those that have windows, in order.
    pub(super) fn check(&self, samples: &[PlanSample]) -> Result<()> {
        for (place, sample) in samples.iter().enumerate() {
            let Places::Listed { corners, .. } = &self.places else { continue };
            let outside = |start: i32, size: u32, length: u32| {
                let start = i64::from(start);
                start >= i64::from(length) || start + i64::from(size) <= 0
            };
            let own = self.starts[place] as usize..self.starts[place + 1] as usize;
            if let Some([row, column]) = corners[own].iter().find(|[row, column]| {
                outside(*row, self.rows, sample.rows)
                    || outside(*column, self.columns, sample.columns)
            }) {
                return Err(Error::conflict(format!(
                    "the window of {}x{} pixels at row {row}, column {column} lies outside sample {} of {}x{}",
                    self.rows, self.columns, sample.sample, sample.rows, sample.columns
                ))
                .with_remedy("list windows that have a pixel of their cube at least"));
            }
        }
        Ok(())
    }

    /// Bytes of memory that they take.
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

    /// All of it in numbers, for a plan's digest.
    pub(super) fn parts(&self) -> [u64; 7] {
        let places = match &self.places {
            Places::Pixels { pixels, classes } => {
                let pixels = pixels.iter().flat_map(|Pixels { columns, set, class, .. }| {
                    let pixels = set
                        .iter()
                        .enumerate()
                        .map(|(place, pixel)| u64::from(pixel) | u64::from(class.get(place)) << 32);
                    std::iter::once(u64::from(*columns)).chain(pixels)
                });
                fold(pixels.chain(classes.iter().map(|class| u64::from(*class))))
            }
            Places::Listed { corners, order, regions } => {
                let regions =
                    regions.iter().flat_map(|RegionIds { ids, class, classes, .. }| {
                        let label = |place: usize| u64::from(classes[class.get(place) as usize]);
                        ids.iter()
                            .enumerate()
                            .map(move |(place, id)| u64::from(*id) << 32 | label(place))
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
