//! Arguments of the kernel that gathers windows, with the memory layout of `gather.cu`.

use hsipack_format::{CubeShape, DType, Error, Result};

use crate::plan::{Pad, Window};

/// Bytes of a [`GatherWindow`] in memory.
pub const WINDOW_BYTES: usize = size_of::<GatherWindow>();
/// The most blocks of threads for each window. Each thread has one load of 16 bytes under way, so
/// that whole cubes need thousands of blocks to keep a GPU's memory busy.
const MAX_SLOTS: u32 = 1024;

/// A window: the cube that it is taken from, and where in the batch it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct GatherWindow {
    from: u64,
    into: u64,
    fill: u64,
    row: i32,
    column: i32,
    rows: u32,
    columns: u32,
    cube_rows: u32,
    cube_columns: u32,
    pixel: u32,
    element: u32,
    bands: u32,
    pad: u32,
}

/// The work of the kernel `gather_windows`. Its other arguments are addresses: the windows, the
/// list of bands, the cubes, the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Gather {
    windows: u32,
    slots: u32,
}

impl GatherWindow {
    /// A window of a cube of this shape and type, whose first byte is `from`. It has all bands, or
    /// as many of the list as `bands` says. `fill` holds the value for [`Pad::Value`] in its first
    /// bytes. `into` is the place of the window's first byte in the batch.
    ///
    /// # Errors
    /// If a number is too large for the kernel.
    pub fn new(
        (shape, dtype): (CubeShape, DType),
        bands: Option<usize>,
        window: Window,
        (pad, fill): (Pad, [u8; 8]),
        from: u64,
        into: u64,
    ) -> Result<Self> {
        let number = |number: usize| {
            u32::try_from(number).map_err(|_| Error::bug(format!("{number} is too large here")))
        };
        let element = dtype.size();
        Ok(Self {
            from,
            into,
            fill: u64::from_le_bytes(fill),
            row: window.row,
            column: window.column,
            rows: window.rows,
            columns: window.columns,
            cube_rows: number(shape.rows)?,
            cube_columns: number(shape.columns)?,
            pixel: number(shape.bands * element)?,
            element: number(element)?,
            bands: number(bands.unwrap_or(0))?,
            pad: match pad {
                Pad::Reflect => 0,
                Pad::Edge => 1,
                Pad::Value(_) => 2,
            },
        })
    }

    /// The window as the kernel reads it.
    pub fn to_bytes(&self) -> [u8; WINDOW_BYTES] {
        let mut bytes = [0; WINDOW_BYTES];
        let (long, short) = bytes.split_at_mut(3 * size_of::<u64>());
        let numbers = [self.from, self.into, self.fill];
        long.as_chunks_mut()
            .0
            .iter_mut()
            .zip(numbers)
            .for_each(|(to, number)| *to = number.to_le_bytes());
        let numbers = [
            self.row as u32,
            self.column as u32,
            self.rows,
            self.columns,
            self.cube_rows,
            self.cube_columns,
            self.pixel,
            self.element,
            self.bands,
            self.pad,
        ];
        short
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(numbers)
            .for_each(|(to, number)| *to = number.to_le_bytes());
        bytes
    }

    /// Each row of a window that is inside its cube and has all bands: where it is in the cubes and
    /// in the batch, and its bytes.
    #[cfg(test)]
    pub(super) fn inner_rows(&self) -> impl Iterator<Item = (u64, u64, usize)> {
        let Self { from, into, row, column, cube_columns, columns, .. } = *self;
        let pixel = u64::from(self.pixel);
        (0..u64::from(self.rows)).map(move |down| {
            let first = (row as u64 + down) * u64::from(cube_columns) + column as u64;
            let bytes = u64::from(columns) * pixel;
            (from + first * pixel, into + down * bytes, bytes as usize)
        })
    }

    /// The end of the cube, and that of the window in the batch; `None` if there are no such
    /// numbers.
    fn ends(&self) -> Option<[u64; 2]> {
        let pixels = |rows: u32, columns: u32| u64::from(rows).checked_mul(columns.into());
        let kept = match self.bands {
            0 => self.pixel.into(),
            bands => u64::from(bands).checked_mul(self.element.into())?,
        };
        let cube = pixels(self.cube_rows, self.cube_columns)?.checked_mul(self.pixel.into())?;
        let window = pixels(self.rows, self.columns)?.checked_mul(kept)?;
        Some([self.from.checked_add(cube)?, self.into.checked_add(window)?])
    }
}

impl Gather {
    /// Gathers windows, with this list of bands, from cubes in `cubes` bytes into a batch of
    /// `batch` bytes.
    ///
    /// # Errors
    /// If a cube or a window is not in that memory, or has no pixel; if a cube has not as many
    /// bands as the list says; if there are no windows, or too many.
    pub fn new(windows: &[GatherWindow], bands: &[u32], cubes: u64, batch: u64) -> Result<Self> {
        let last = bands.iter().max();
        for window in windows {
            let fits = window.ends().is_some_and(|[cube, end]| cube <= cubes && end <= batch);
            let has_pixels = ![window.pixel, window.element, window.cube_rows, window.cube_columns]
                .contains(&0)
                && window.pixel.is_multiple_of(window.element.max(1))
                && window.element <= 8;
            let has_bands = match window.bands {
                0 => true,
                count => {
                    count as usize == bands.len()
                        && last.is_some_and(|last| *last < window.pixel / window.element.max(1))
                }
            };
            if !fits || !has_pixels || !has_bands {
                return Err(Error::bug(format!(
                    "{window:?} with bands {bands:?} is not within {cubes} bytes of cubes and {batch} of a batch"
                )));
            }
        }
        let rows = windows.iter().map(|window| window.rows).max().unwrap_or(0);
        let slots = rows.clamp(1, MAX_SLOTS);
        match u32::try_from(windows.len())
            .ok()
            .filter(|count| count.checked_mul(slots).is_some_and(|all| (1..1 << 31).contains(&all)))
        {
            Some(windows) => Ok(Self { windows, slots }),
            None => Err(Error::bug(format!("{} windows to gather", windows.len()))),
        }
    }

    /// Number of windows.
    #[cfg(test)]
    pub(crate) fn windows(&self) -> usize {
        self.windows as usize
    }

    /// Blocks of threads: the length of the grid, which has one axis.
    pub fn blocks(&self) -> u32 {
        self.windows * self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The PTX that the driver would get.
    const PTX: &str = include_str!("gather.ptx");

    #[test]
    fn ptx_matches_source() {
        let source = include_str!("gather.cu");
        let source = source.replace("#include \"threads.h\"\n", include_str!("threads.h"));
        let source = hsipack_format::checksums::sha256(source.as_bytes());
        let line = format!("// gather.cu: {source}");
        assert_eq!(PTX.lines().next(), Some(&*line), "run scripts/dev/make_kernels.py");
        assert!(PTX.contains(".entry gather_windows("));
    }

    #[test]
    fn windows_outside_their_memory_are_refused() {
        let cube = (CubeShape { rows: 4, columns: 5, bands: 3 }, DType::F16);
        let window = Window { row: -1, column: 2, rows: 3, columns: 4 };
        let new =
            |bands| GatherWindow::new(cube, bands, window, (Pad::Edge, [0; 8]), 10, 100).unwrap();
        let (cubes, batch) = (10 + 4 * 5 * 3 * 2, 100 + 3 * 4 * 3 * 2);
        let all = Gather::new(&[new(None)], &[], cubes, batch).unwrap();
        assert_eq!(all.blocks(), 3);
        assert!(Gather::new(&[new(None)], &[], cubes - 1, batch).is_err());
        assert!(Gather::new(&[new(None)], &[], cubes, batch - 1).is_err());
        assert!(Gather::new(&[], &[], cubes, batch).is_err());
        let some = 100 + 3 * 4 * 2 * 2;
        assert!(Gather::new(&[new(Some(2))], &[2, 0], cubes, some).is_ok());
        assert!(Gather::new(&[new(Some(2))], &[3, 0], cubes, some).is_err());
        assert!(Gather::new(&[new(Some(2))], &[0], cubes, some).is_err());
    }
}
