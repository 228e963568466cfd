//! Labelled pixels that get a window around them: collected from masks and chosen by class.

use std::collections::HashMap;

use hsipack_format::random::{Random, Stream};
use hsipack_format::{Opt, remedy};
use serde::{Deserialize, Serialize};

use super::index_set::IndexSet;
use super::pad::Pad;
use super::permutation::Network;
use super::pixels::{MAX_LISTED_PIXELS, Numbers, Pixels};
use super::windows::Windows;
use crate::{Error, Result};

/// Which labelled pixels get a window around them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Patches {
    /// Rows of a window.
    pub rows: u32,
    /// Columns of a window. If this is even, the labelled pixel is the first one after the middle.
    pub columns: u32,
    /// The values beyond the cube's edge.
    pub pad: Pad,
    /// Only pixels of these class ids; of all classes if `None`.
    pub classes: Option<Vec<u32>>,
    /// No pixels of these class ids. Unlabelled pixels have 0.
    pub ignore: Vec<u32>,
    /// This many pixels of each class, drawn once with the seed. If a class has fewer, all of them.
    /// All pixels if `None`.
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

/// Collects the labelled pixels of one sample after another.
#[derive(Debug)]
pub struct LabelledPixels {
    patches: Patches,
    samples: Vec<(usize, Pixels)>,
    /// Ids of the classes, in the order in which they were found.
    classes: Vec<u32>,
    /// The number of each class. Masks of instances have thousands.
    numbers: HashMap<u32, u32>,
    /// Pixels that are held in lists.
    listed: usize,
}

impl LabelledPixels {
    /// Creates an empty collection.
    pub fn new(patches: Patches) -> Self {
        let (samples, classes, numbers) = (Vec::new(), Vec::new(), HashMap::new());
        Self { patches, samples, classes, numbers, listed: 0 }
    }

    /// Adds the next sample: its id, its rows and columns, and the class ids of its pixels row by
    /// row.
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
            // Neighbouring pixels often have the same label.
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
        if self.listed > MAX_LISTED_PIXELS {
            self.samples.iter_mut().for_each(|(_, pixels)| pixels.set.shrink(pixels.end as usize));
            self.listed = 0;
        }
        Ok(())
    }

    /// The number of a class. A class that was not seen yet gets a new number.
    fn number(&mut self, class: u32) -> u32 {
        *self.numbers.entry(class).or_insert_with(|| {
            self.classes.push(class);
            self.classes.len() as u32 - 1
        })
    }

    /// The windows around the pixels. If a class has more pixels than asked for, `seed` decides
    /// which are taken.
    ///
    /// # Errors
    /// If there are no pixels, or more than 2^32.
    pub fn windows(self, seed: u64) -> Result<Windows> {
        let Self { patches, mut samples, classes, .. } = self;
        if let Some(most) = patches.per_class {
            draw_per_class(&mut samples, &classes, most, seed);
        }
        samples.retain(|(_, pixels)| pixels.set.len() > 0);
        if samples.is_empty() {
            return Err(Error::conflict("no pixel has one of the requested labels").with_remedy(
                remedy![
                    "check the mask, ",
                    Opt::OnlyClasses,
                    ", ",
                    Opt::Ignore,
                    " and ",
                    Opt::PerClass
                ],
            ));
        }
        let Patches { rows, columns, pad, .. } = patches;
        Windows::around((rows, columns), pad, samples, classes)
    }
}

/// Keeps `most` pixels of each class, from all samples together.
fn draw_per_class(samples: &mut [(usize, Pixels)], classes: &[u32], most: usize, seed: u64) {
    let mut counts = vec![0usize; classes.len()];
    for (_, pixels) in &*samples {
        (0..pixels.set.len()).for_each(|index| counts[pixels.class.get(index) as usize] += 1);
    }
    // For each class, which of its pixels are kept, ascending.
    let chosen = |(class, count): (&u32, &usize)| {
        let mut random = Random::keyed(Stream::PerClass, [seed, u64::from(*class)]);
        let order = Network::new((*count).max(1) as u64, &mut random);
        let mut chosen: Vec<u64> =
            (0..most.min(*count) as u64).map(|position| order.at(position)).collect();
        chosen.sort_unstable();
        chosen.into_iter().peekable()
    };
    let mut chosen: Vec<_> = classes.iter().zip(&counts).map(chosen).collect();
    let mut visited = vec![0u64; classes.len()];
    for (_, pixels) in samples {
        let (mut kept, mut numbers) = (Vec::new(), Vec::new());
        for (index, pixel) in pixels.set.iter().enumerate() {
            let number = pixels.class.get(index);
            let class = number as usize;
            if chosen[class].next_if_eq(&visited[class]).is_some() {
                kept.push(pixel);
                numbers.push(number);
            }
            visited[class] += 1;
        }
        (pixels.set, pixels.class) = (IndexSet::Listed(kept), Numbers::new(numbers));
    }
}
