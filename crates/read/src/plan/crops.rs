//! Chooses which window of a sample is read.

use std::sync::Arc;

use super::pad::Pad;
use super::window::Window;
use super::windows::Windows;
use super::{PlanSample, plural};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};
use hsipack_format::random::{Random, Stream, fold};
use hsipack_format::{Opt, remedy};

/// The most windows that are drawn to find one with enough labelled pixels.
pub const ATTEMPTS: u32 = 32;

/// How samples are cropped. All sizes and steps are in pixels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Crop {
    /// The whole cube.
    #[default]
    Whole,
    /// The window in the middle of the cube. If the margin is odd, the extra pixel is at the end.
    Centre {
        /// Rows of the window.
        rows: u32,
        /// Columns of the window.
        columns: u32,
    },
    /// Windows anywhere in the cube, all places equally likely.
    Random {
        /// Rows of a window.
        rows: u32,
        /// Columns of a window.
        columns: u32,
        /// Number of windows of every sample in an epoch (in a round of the sampler). Each window
        /// is a separate item.
        per_sample: u32,
        /// Share of labelled pixels, 0 to 1, that a window should have. Up to [`ATTEMPTS`] windows
        /// are drawn until one has it; otherwise the best of them is taken.
        min_labelled: f64,
    },
    /// All windows of a grid over the cube, row by row. Each window is a separate item. The last
    /// window of an axis is moved back to end with the cube, so that every pixel is covered.
    Grid {
        /// Rows of a window.
        rows: u32,
        /// Columns of a window.
        columns: u32,
        /// Rows from one window to the next, at most `rows`.
        row_step: u32,
        /// Columns from one window to the next, at most `columns`.
        column_step: u32,
        /// The padding if a cube is smaller than the window. The first row or column of the cube is
        /// then also that of the window. If `None`, such cubes are refused.
        pad: Option<Pad>,
    },
    /// Windows around labelled pixels, on regions, or listed. Samples without windows are skipped.
    /// Windows may reach beyond the edge of their cube. Only listed windows can be deserialised.
    #[serde(skip_serializing, deserialize_with = "Windows::deserialized")]
    Windows(Arc<Windows>),
}

/// Knows which pixels are labelled.
pub trait Labelled {
    /// The share (0 to 1) of labelled pixels of a window of the sample with this number in the
    /// dataset.
    ///
    /// # Errors
    /// If the labels cannot be read.
    fn share(&mut self, sample: usize, window: Window) -> Result<f64>;
}

/// The numbers that a window's place is drawn from. They never depend on batch, rank or thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub seed: u64,
    pub epoch: u64,
    pub repeat: u32,
    /// Whether the order draws samples with replacement, so that `repeat` does not count through a
    /// grid.
    pub replacement: bool,
}

impl Draw {
    fn random(self, stream: Stream, sample: &PlanSample) -> Random {
        let parts = [self.seed, self.epoch, sample.sample as u64, u64::from(self.repeat)];
        Random::keyed(stream, parts)
    }

    /// Chooses one of the `windows` of a sample.
    pub(super) fn of(self, windows: u64, sample: &PlanSample) -> u64 {
        if self.replacement {
            return self.random(Stream::GridWindow, sample).below(windows);
        }
        u64::from(self.repeat) % windows
    }
}

impl Crop {
    /// Refuses sizes, steps, counts and shares that are not valid.
    pub(super) fn check(&self) -> Result<()> {
        if matches!(self.fixed_size(), Some((rows, columns)) if rows == 0 || columns == 0) {
            return Err(Error::conflict("crops have an axis of 0 pixels")
                .with_remedy("give a size of at least 1x1"));
        }
        match *self {
            Self::Whole | Self::Centre { .. } | Self::Windows(_) => Ok(()),
            Self::Random { per_sample: 0, .. } => {
                Err(Error::conflict("there are 0 crops per sample")
                    .with_remedy(remedy!["give at least 1 as ", Opt::CropsPerCube]))
            }
            Self::Random { min_labelled, .. } if !(0.0..=1.0).contains(&min_labelled) => {
                Err(Error::conflict(format!("the share of labelled pixels is {min_labelled}"))
                    .with_remedy(remedy!["give ", Opt::MinLabelled, " from 0 to 1"]))
            }
            Self::Random { .. } => Ok(()),
            Self::Grid { rows, columns, row_step, column_step, .. } => {
                check_step("row", row_step, rows)?;
                check_step("column", column_step, columns)
            }
        }
    }

    /// Says whether all windows begin and end at multiples of `step` rows and columns of cubes that
    /// do so themselves, if random and central windows are placed there.
    ///
    /// # Errors
    /// The windows that do not, and what to choose instead.
    pub(crate) fn check_aligned(&self, step: u32) -> std::result::Result<(), (String, String)> {
        let fits = |numbers: [u32; 2]| numbers.iter().all(|number| number.is_multiple_of(step));
        match *self {
            Self::Whole => Ok(()),
            Self::Windows(_) => {
                Err(("patches, regions and listed windows".into(), "crops or a grid".into()))
            }
            Self::Centre { rows, columns }
            | Self::Random { rows, columns, .. }
            | Self::Grid { rows, columns, .. }
                if !fits([rows, columns]) =>
            {
                let what = format!("windows of {rows}x{columns} pixels");
                Err((what, format!("a size that is a multiple of {step}")))
            }
            Self::Grid { row_step, column_step, .. } if !fits([row_step, column_step]) => {
                let what = format!("windows that are {row_step}x{column_step} pixels apart");
                Err((what, format!("steps that are multiples of {step}")))
            }
            Self::Centre { .. } | Self::Random { .. } | Self::Grid { .. } => Ok(()),
        }
    }

    /// The crop as numbers, for a plan's digest. For numbered windows these are not all numbers.
    pub(super) fn parts(&self) -> [u64; 5] {
        let kind = match self {
            Self::Whole => 0,
            Self::Centre { .. } => 1,
            Self::Random { .. } => 2,
            Self::Grid { pad: None, .. } => 3,
            Self::Windows(_) => 4,
            Self::Grid { pad: Some(_), .. } => 5,
        };
        let (rows, columns) = self.fixed_size().unwrap_or_default();
        let (first, second) = match *self {
            Self::Whole | Self::Centre { .. } | Self::Windows(_) => (0, 0),
            Self::Random { per_sample, min_labelled, .. } => {
                (u64::from(per_sample), min_labelled.to_bits())
            }
            Self::Grid { row_step, column_step, pad: None, .. } => {
                (u64::from(row_step), u64::from(column_step))
            }
            Self::Grid { row_step, column_step, pad: Some(pad), .. } => {
                (u64::from(row_step) << 32 | u64::from(column_step), fold(pad.parts()))
            }
        };
        [kind, u64::from(rows), u64::from(columns), first, second]
    }

    /// Rows and columns of every window; `None` if windows are whole cubes.
    fn fixed_size(&self) -> Option<(u32, u32)> {
        match *self {
            Self::Whole => None,
            Self::Centre { rows, columns }
            | Self::Random { rows, columns, .. }
            | Self::Grid { rows, columns, .. } => Some((rows, columns)),
            Self::Windows(ref windows) => Some(windows.size()),
        }
    }

    /// The padding of windows beyond the edge of their cube; `None` if they stay inside.
    pub(crate) fn pad(&self) -> Option<Pad> {
        match self {
            Self::Whole | Self::Centre { .. } | Self::Random { .. } => None,
            Self::Grid { pad, .. } => *pad,
            Self::Windows(windows) => Some(windows.pad()),
        }
    }

    /// Rows and columns of a sample's windows.
    ///
    /// # Errors
    /// If the cube has fewer, and there is no padding.
    pub(super) fn size(&self, sample: &PlanSample) -> Result<(u32, u32)> {
        let (rows, columns) = self.fixed_size().unwrap_or((sample.rows, sample.columns));
        if i32::try_from(sample.rows.max(sample.columns)).is_err() {
            return Err(Error::unsupported(format!(
                "sample {} has an axis of more than 2147483647 pixels",
                sample.sample
            ))
            .with_remedy("pack it in parts"));
        }
        let is_inside = rows <= sample.rows && columns <= sample.columns;
        if is_inside || self.pad().is_some() {
            return Ok((rows, columns));
        }
        let error = Error::conflict(format!(
            "crops of {rows}x{columns} pixels are larger than sample {} of {}x{}",
            sample.sample, sample.rows, sample.columns
        ));
        Err(error.with_remedy(match self {
            Self::Grid { .. } => remedy![
                "choose smaller crops, pad them with ",
                Opt::GridPad,
                ", or choose a ",
                Opt::Split,
                " without that sample"
            ],
            _ => {
                remedy!["choose smaller crops, or a ", Opt::Split, " without that sample"]
            }
        }))
    }

    /// Number of windows of a sample in a round, unless windows are numbered. The sample has passed
    /// [`Crop::size`].
    pub(super) fn windows(&self, sample: &PlanSample) -> u64 {
        match *self {
            Self::Whole | Self::Centre { .. } => 1,
            Self::Random { per_sample, .. } => u64::from(per_sample),
            Self::Grid { rows, columns, row_step, column_step, .. } => {
                steps(sample.rows, rows, row_step) * steps(sample.columns, columns, column_step)
            }
            // Numbered windows are counted elsewhere.
            Self::Windows(_) => 0,
        }
    }

    /// The window of one item, unless windows are numbered.
    ///
    /// # Errors
    /// If labels are needed and none are given, or they cannot be read.
    pub(super) fn window(
        &self,
        sample: &PlanSample,
        draw: Draw,
        align: u32,
        labelled: Option<&mut (dyn Labelled + '_)>,
    ) -> Result<Window> {
        match *self {
            Self::Whole => {
                Ok(Window { row: 0, column: 0, rows: sample.rows, columns: sample.columns })
            }
            Self::Centre { rows, columns } => {
                let middle = |length: u32, size: u32| (length - size) / 2 / align * align;
                let (row, column) = (middle(sample.rows, rows), middle(sample.columns, columns));
                Ok(Window::at(row, column, rows, columns))
            }
            Self::Random { rows, columns, min_labelled, .. } => {
                let mut random = draw.random(Stream::Window, sample);
                let windows = std::iter::repeat_with(|| {
                    anywhere(sample, [rows, columns], align, &mut random)
                });
                choose(windows, sample, min_labelled, labelled)
            }
            Self::Grid { rows, columns, row_step, column_step, .. } => {
                let index = draw.of(self.windows(sample), sample);
                let across = steps(sample.columns, columns, column_step);
                let row = step_start(index / across, sample.rows, rows, row_step);
                let column = step_start(index % across, sample.columns, columns, column_step);
                Ok(Window::at(row, column, rows, columns))
            }
            Self::Windows(_) => {
                Err(Error::bug("windows are numbered, but were asked for otherwise"))
            }
        }
    }
}

fn check_step(axis: &str, step: u32, size: u32) -> Result<()> {
    if (1..=size).contains(&step) {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "the {axis} step is {step}, but windows have {}",
        plural(size, axis)
    ))
    .with_remedy(remedy![
        "give ",
        Opt::GridStep,
        format!(" from 1 to {size}, so that every pixel is covered")
    ]))
}

/// Number of windows along an axis of `length` pixels.
fn steps(length: u32, size: u32, step: u32) -> u64 {
    u64::from(length.saturating_sub(size).div_ceil(step)) + 1
}

/// The first pixel of window `index` along an axis.
fn step_start(index: u64, length: u32, size: u32, step: u32) -> u32 {
    // The index is at most length / step rounded up, so the product fits.
    (index * u64::from(step)).min(u64::from(length.saturating_sub(size))) as u32
}

/// A window of this size at any place that is a multiple of `align`.
fn anywhere(
    sample: &PlanSample,
    [rows, columns]: [u32; 2],
    align: u32,
    random: &mut Random,
) -> Window {
    let mut start = |length: u32, size: u32| {
        random.below(u64::from((length - size) / align) + 1) as u32 * align
    };
    let row = start(sample.rows, rows);
    Window::at(row, start(sample.columns, columns), rows, columns)
}

/// The first window with enough labelled pixels; otherwise the best of [`ATTEMPTS`] windows.
fn choose(
    mut windows: impl Iterator<Item = Window>,
    sample: &PlanSample,
    min_labelled: f64,
    labelled: Option<&mut (dyn Labelled + '_)>,
) -> Result<Window> {
    let mut best = windows.next().expect("windows are drawn without end");
    if min_labelled <= 0.0 {
        return Ok(best);
    }
    let labelled = labelled.ok_or_else(|| {
        Error::conflict("crops should have labelled pixels, but no mask gives labels").with_remedy(
            remedy![
                "name the mask that holds the labels with ",
                Opt::Masks,
                ", or leave out ",
                Opt::MinLabelled
            ],
        )
    })?;
    let mut most = labelled.share(sample.sample, best)?;
    for window in windows.take(ATTEMPTS as usize - 1) {
        if most >= min_labelled {
            break;
        }
        let share = labelled.share(sample.sample, window)?;
        if share > most {
            (most, best) = (share, window);
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::super::test::sample;
    use super::*;
    use proptest::prelude::*;

    fn draw(repeat: u32) -> Draw {
        Draw { seed: 7, epoch: 0, repeat, replacement: false }
    }

    /// Size and step along both axes.
    fn grid(
        (rows, row_step): (u32, u32),
        (columns, column_step): (u32, u32),
        pad: Option<Pad>,
    ) -> Crop {
        Crop::Grid { rows, columns, row_step, column_step, pad }
    }

    fn window(crop: &Crop, sample: &PlanSample, repeat: u32) -> Window {
        crop.window(sample, draw(repeat), 1, None).unwrap()
    }

    /// Pixels from column `from` on are labelled.
    struct RightOf {
        from: u32,
        calls: u32,
    }

    impl Labelled for RightOf {
        fn share(&mut self, _: usize, window: Window) -> Result<f64> {
            self.calls += 1;
            let right = (window.column as u32 + window.columns).saturating_sub(self.from);
            Ok(f64::from(right.min(window.columns)) / f64::from(window.columns))
        }
    }

    #[test]
    fn the_centre_is_in_the_middle() {
        let crop = Crop::Centre { rows: 2, columns: 3 };
        let cube = sample(0, 5, 7, 1);
        assert_eq!(window(&crop, &cube, 0), Window { row: 1, column: 2, rows: 2, columns: 3 });
    }

    #[test]
    fn crops_larger_than_a_cube_name_the_sample() {
        let crop = Crop::Centre { rows: 4, columns: 9 };
        let error = crop.size(&sample(12, 5, 7, 1)).unwrap_err().to_string();
        assert!(error.contains("4x9") && error.contains("sample 12 of 5x7"), "{error}");
    }

    #[test]
    fn a_padded_grid_is_the_plain_one_but_where_cubes_are_smaller() {
        let [plain, padded] = [None, Some(Pad::Reflect)].map(|pad| grid((4, 3), (6, 5), pad));
        let cube = sample(0, 9, 13, 1);
        assert_eq!(plain.windows(&cube), padded.windows(&cube));
        for index in 0..plain.windows(&cube) as u32 {
            assert_eq!(window(&plain, &cube, index), window(&padded, &cube, index));
        }
        let low = sample(1, 2, 13, 1);
        let error = plain.size(&low).unwrap_err();
        assert!(error.to_string().contains("larger than sample 1 of 2x13"), "{error}");
        assert_eq!(padded.size(&low).unwrap(), (4, 6));
        let columns: Vec<i32> = (0..padded.windows(&low) as u32)
            .map(|index| window(&padded, &low, index))
            .inspect(|window| assert_eq!((window.row, window.rows, window.columns), (0, 4, 6)))
            .map(|window| window.column)
            .collect();
        assert_eq!(columns, [0, 5, 7]);
    }

    #[test]
    fn padding_is_part_of_the_digest_only_if_there_is_some() {
        assert_eq!(grid((4, 3), (6, 5), None).parts(), [3, 4, 6, 3, 5]);
        let pads = [Pad::Reflect, Pad::Edge, Pad::Value(0.0), Pad::Value(1.0)];
        let parts = pads.map(|pad| grid((4, 3), (6, 5), Some(pad)).parts());
        let different: std::collections::HashSet<_> = parts.iter().collect();
        assert_eq!(different.len(), pads.len());
        assert_ne!(parts[0], grid((4, 2), (6, 5), Some(Pad::Reflect)).parts());
    }

    #[test]
    fn meaningless_crops_are_refused() {
        let random = |rows, per_sample, min_labelled| Crop::Random {
            rows,
            columns: 2,
            per_sample,
            min_labelled,
        };
        let grid = |row_step, column_step| grid((4, row_step), (4, column_step), None);
        assert!(random(2, 1, 1.0).check().is_ok() && grid(4, 1).check().is_ok());
        for crop in [
            Crop::Centre { rows: 3, columns: 0 },
            random(0, 1, 0.0),
            random(2, 0, 0.0),
            random(2, 1, -0.1),
            random(2, 1, 1.1),
            random(2, 1, f64::NAN),
            grid(0, 1),
            grid(1, 0),
            grid(5, 1),
        ] {
            assert_eq!(crop.check().unwrap_err().kind(), crate::ErrorKind::Conflict, "{crop:?}");
        }
    }

    #[test]
    fn random_windows_are_uniform() {
        let crop = Crop::Random { rows: 3, columns: 2, per_sample: 1, min_labelled: 0.0 };
        let cube = sample(3, 5, 6, 1); // 3 x 5 places
        let mut counts = [0u32; 15];
        for repeat in 0..15_000 {
            let window = window(&crop, &cube, repeat);
            counts[(window.row * 5 + window.column) as usize] += 1;
        }
        let chi_square: f64 =
            counts.iter().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi_square < 36.1, "{chi_square}: {counts:?}"); // p = 0.001 at 14 degrees of freedom
    }

    #[test]
    fn windows_are_pinned() {
        let crop = Crop::Random { rows: 3, columns: 2, per_sample: 1, min_labelled: 0.0 };
        let cube = sample(3, 500, 600, 1);
        let places: Vec<(u32, u32)> = (0..3)
            .map(|repeat| window(&crop, &cube, repeat))
            .map(|window| (window.row as u32, window.column as u32))
            .collect();
        assert_eq!(places, PINNED_WINDOWS);
    }

    // Computed by an independent implementation in Python; never to be changed.
    const PINNED_WINDOWS: [(u32, u32); 3] = [(19, 386), (397, 24), (233, 73)];

    #[test]
    fn labelled_windows_are_looked_for() {
        let crop = Crop::Random { rows: 2, columns: 4, per_sample: 1, min_labelled: 0.5 };
        let cube = sample(0, 10, 40, 1);
        let mut labels = RightOf { from: 30, calls: 0 };
        for repeat in 0..50 {
            let window = crop.window(&cube, draw(repeat), 1, Some(&mut labels)).unwrap();
            assert!(window.column >= 28, "{window:?}");
        }
        assert!((51..50 * ATTEMPTS).contains(&labels.calls), "{}", labels.calls);
    }

    #[test]
    fn the_best_window_serves_where_none_is_good_enough() {
        let crop = Crop::Random { rows: 2, columns: 4, per_sample: 1, min_labelled: 0.9 };
        let cube = sample(0, 2, 7, 1); // columns 0 to 3: at most half of the pixels are labelled
        let mut labels = RightOf { from: 5, calls: 0 };
        let window = crop.window(&cube, draw(0), 1, Some(&mut labels)).unwrap();
        assert_eq!((window.column, labels.calls), (3, ATTEMPTS));
    }

    #[test]
    fn labels_are_needed_only_where_asked_for() {
        let cube = sample(0, 10, 40, 1);
        let crop = |min_labelled| Crop::Random { rows: 2, columns: 4, per_sample: 1, min_labelled };
        let error = crop(0.1).window(&cube, draw(0), 1, None).unwrap_err();
        assert!(error.to_string().contains("no mask gives labels"), "{error}");
        let mut labels = RightOf { from: 0, calls: 0 };
        crop(0.0).window(&cube, draw(0), 1, Some(&mut labels)).unwrap();
        assert_eq!(labels.calls, 0);
    }

    proptest! {
        #[test]
        fn grids_cover_every_pixel_and_stay_inside(
            (height, rows, row_step) in axis(), (width, columns, column_step) in axis()
        ) {
            let crop = grid((rows, row_step), (columns, column_step), None);
            let cube = sample(0, height, width, 1);
            let mut covered = vec![false; (height * width) as usize];
            let mut places = std::collections::HashSet::new();
            for index in 0..crop.windows(&cube) {
                let window = window(&crop, &cube, index as u32);
                prop_assert!(window.is_inside(height as usize, width as usize));
                prop_assert!(places.insert((window.row, window.column)), "a window comes twice");
                for row in window.row_range() {
                    for column in window.column_range() {
                        covered[row * width as usize + column] = true;
                    }
                }
            }
            prop_assert!(covered.into_iter().all(|pixel| pixel));
        }

        #[test]
        fn random_windows_stay_inside(
            (height, rows, _) in axis(), (width, columns, _) in axis(), repeat: u32
        ) {
            let crop = Crop::Random { rows, columns, per_sample: 1, min_labelled: 0.0 };
            let window = window(&crop, &sample(0, height, width, 1), repeat);
            prop_assert_eq!((window.rows, window.columns), (rows, columns));
            prop_assert!(window.is_inside(height as usize, width as usize));
        }
    }

    /// Length of an axis, of a window along it, and a step.
    fn axis() -> impl Strategy<Value = (u32, u32, u32)> {
        (1u32..40)
            .prop_flat_map(|length| (Just(length), 1..=length))
            .prop_flat_map(|(length, size)| (Just(length), Just(size), 1..=size))
    }
}
