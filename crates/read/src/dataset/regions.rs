//! Windows that show the regions of masks: superpixels, instances.

use std::collections::{BTreeMap, HashMap};

use hsipack_format::Error;

use super::open::Dataset;
use super::patches::Skipped;
use crate::plan::{Region, Regions, Windows};
use crate::{OnDamage, Result};

/// The extent of a region in one cube.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// First and last row.
    rows: [u32; 2],
    /// First and last column.
    columns: [u32; 2],
    pixels: usize,
}

impl Extent {
    fn add(&mut self, row: u32, column: u32) {
        self.rows = [self.rows[0].min(row), self.rows[1].max(row)];
        self.columns = [self.columns[0].min(column), self.columns[1].max(column)];
        self.pixels += 1;
    }
}

/// The first row or column of a window of `size` that has `first` to `last` in its middle.
fn start([first, last]: [u32; 2], size: u32) -> i32 {
    (first + last).div_ceil(2) as i32 - (size / 2) as i32
}

/// Whether `first` to `last` are more rows or columns than a window of `size` has. If not, all of
/// them lie in the window.
fn longer([first, last]: [u32; 2], size: u32) -> bool {
    last - first >= size
}

impl Dataset {
    /// One window for each region that the mask has in these samples, in the order of the samples,
    /// ascending by id. Also the damage of samples that `on_damage` skips.
    ///
    /// # Errors
    /// If a stack has no such mask, or lacks the mask for the labels; if one of them cannot be
    /// read, is damaged, or holds boolean layers; if no region is left, or there are more than
    /// 2^32.
    pub fn windows_of_regions(
        &self,
        samples: &[usize],
        mask: &str,
        regions: &Regions,
        on_damage: OnDamage,
    ) -> Result<(Windows, Vec<Error>)> {
        let mut shown = Vec::new();
        let mut skipped = Skipped::new(on_damage);
        for sample in samples {
            let read = || {
                let labels = regions.labels.as_ref();
                let labels = labels.map(|mask| self.class_ids(*sample, mask)).transpose()?;
                Ok((self.class_ids(*sample, mask)?, labels))
            };
            let Some((ids, labels)) = skipped.unless_damaged(read())? else { continue };
            if u32::try_from(ids.values.len()).is_err() {
                return Err(Error::unsupported(format!(
                    "sample {sample} of {}x{} has more than 4294967295 pixels",
                    ids.rows, ids.columns
                ))
                .at(self.path())
                .with_remedy("list its windows, or pack it in parts"));
            }
            let columns = ids.columns.max(1);
            let mut found: BTreeMap<u32, Extent> = BTreeMap::new();
            for (pixel, id) in (0..).zip(&ids.values) {
                if *id == 0 || regions.ignore.contains(id) {
                    continue;
                }
                let (row, column) = (pixel / columns, pixel % columns);
                let new = Extent { rows: [row; 2], columns: [column; 2], pixels: 0 };
                found.entry(*id).or_insert(new).add(row, column);
            }
            found.retain(|_, extent| extent.pixels >= regions.min_pixels);
            let labels = labels.map(|labels| votes(&ids.values, &labels.values));
            shown.extend(found.into_iter().map(|(id, extent)| Region {
                sample: *sample,
                row: start(extent.rows, regions.rows),
                column: start(extent.columns, regions.columns),
                id,
                label: match &labels {
                    Some(labels) => labels.get(&id).copied().unwrap_or(0),
                    None => id,
                },
                cut: longer(extent.rows, regions.rows) || longer(extent.columns, regions.columns),
            }));
        }
        let windows = match &*shown {
            [] => Err(Error::conflict(format!("mask {mask} has none of the requested regions"))
                .with_remedy("check the mask, the ignored ids and the minimum number of pixels")),
            shown => Windows::of_regions((regions.rows, regions.columns), regions.pad, shown),
        };
        skipped.beside(windows.map_err(|error| error.at(self.path())))
    }
}

/// The most frequent label of every region, not counting 0. If several are equally frequent, the
/// smallest.
fn votes(ids: &[u32], labels: &[u32]) -> HashMap<u32, u32> {
    let mut counts: HashMap<(u32, u32), usize> = HashMap::new();
    for (id, label) in ids.iter().zip(labels).filter(|(_, label)| **label != 0) {
        *counts.entry((*id, *label)).or_default() += 1;
    }
    let mut best: HashMap<u32, (usize, u32)> = HashMap::new();
    for ((id, label), count) in counts {
        let most = best.entry(id).or_insert((count, label));
        if (count, std::cmp::Reverse(label)) > (most.0, std::cmp::Reverse(most.1)) {
            *most = (count, label);
        }
    }
    best.into_iter().map(|(id, (_, label))| (id, label)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_their_region_in_the_middle() {
        // A region of rows 4 to 6 fills a window of 3 rows. In a window of 5 it has one row on either side.
        assert_eq!((start([4, 6], 3), start([4, 6], 5), start([4, 4], 1)), (4, 3, 4));
        assert_eq!((start([0, 0], 5), start([4, 5], 2), start([4, 5], 4)), (-2, 4, 3));
    }

    #[test]
    fn regions_not_longer_than_their_window_are_inside_it() {
        for (first, last) in (0..6).flat_map(|first| (first..12).map(move |last| (first, last))) {
            for size in 1..9 {
                let start = start([first, last], size);
                let whole = start <= first as i32 && (last as i32) < start + size as i32;
                assert_eq!(whole, !longer([first, last], size), "{first} to {last} in {size}");
            }
        }
    }

    #[test]
    fn the_most_frequent_label_wins_and_0_does_not_vote() {
        let ids = [1, 1, 1, 1, 2, 2, 3, 3, 3];
        let labels = [0, 0, 0, 7, 9, 4, 0, 0, 0];
        let votes = votes(&ids, &labels);
        assert_eq!((votes.get(&1), votes.get(&2), votes.get(&3)), (Some(&7), Some(&4), None));
    }
}
