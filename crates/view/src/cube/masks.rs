//! Labels of a window, from masks that are packed with a cube, or from files.

use hsipack_format::{CubeShape, Error, MaskValue, Ratio, Result};
use hsipack_pack::convert::{CubeOfMask, MaskGroup, MaskReader};
use hsipack_pack::input::Input;
use hsipack_pack::preview::{Meaning, Sampling, packed_values};
use hsipack_source::RowBuffer;
use hsipack_store::dataset::ChunkArray;

use super::grid;
use crate::subject::{Opened, Origin};

/// A mask of one cube.
pub enum Mask<'a> {
    /// A mask of the dataset.
    Packed {
        /// The masks of all samples of the stack.
        array: &'a ChunkArray,
        /// The sample's place among them.
        index: usize,
    },
    /// A mask in files.
    File {
        /// The name that the user gave it.
        name: &'a str,
        /// The open files.
        reader: Box<MaskReader>,
    },
}

impl<'a> Mask<'a> {
    /// The mask `name` of a cube; `groups` are the masks in files.
    ///
    /// # Errors
    /// If there is no such mask, or its file cannot be opened.
    pub fn open(opened: &Opened<'a>, groups: &'a [MaskGroup], name: &str) -> Result<Self> {
        if let Some(group) = groups.iter().find(|group| group.name == name) {
            return Self::of_files(opened, group);
        }
        if let Origin::Sample { sample, stack: Some(stack) } = &opened.origin
            && let Some(array) = stack.mask(name)
        {
            return Ok(Self::Packed { array, index: sample.index });
        }
        Err(Error::conflict(format!("the cube has no mask '{name}'")))
    }

    /// A mask in files, whose paths `group` gives relative to the cube or to the source of the
    /// sample.
    ///
    /// # Errors
    /// If it cannot be opened, or has another shape.
    pub fn of_files(opened: &Opened<'a>, group: &'a MaskGroup) -> Result<Self> {
        let (input, geo) = match &opened.origin {
            Origin::Sample { sample, .. } => (Input::of_sample(sample), sample.geo.as_ref()),
            Origin::File { input, source } => ((*input).clone(), source.info().geo.as_ref()),
        };
        let (rows, columns) = (opened.image.rows, opened.image.columns);
        let cube = CubeOfMask { input: &input, rows, columns, geo };
        let reader = MaskReader::open(group, cube, false)?;
        let reader = reader.ok_or_else(|| {
            Error::conflict(format!("the cube has no file of mask {}", group.name))
        })?;
        Ok(Self::File { name: &group.name, reader: Box::new(reader) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Packed { array, .. } => array.name(),
            Self::File { name, .. } => name,
        }
    }

    /// The meaning of its labels.
    pub fn meaning(&self) -> Meaning {
        match self {
            Self::Packed { array, .. } => array.meta().mask_meaning().into(),
            Self::File { reader, .. } if reader.layer_names.is_empty() => Meaning::Ids {
                names: reader.class_names.clone(),
                colours: reader.class_colors.clone(),
            },
            Self::File { reader, .. } => Meaning::Layers { names: reader.layer_names.clone() },
        }
    }

    /// Its values at the pixels of `shown`.
    ///
    /// # Errors
    /// If the mask cannot be read.
    pub fn read(&self, shown: &Sampling, columns: usize) -> Result<Vec<MaskValue>> {
        let reader = match self {
            Self::Packed { array, index } => return packed_values(array, *index, shown),
            Self::File { reader, .. } => reader,
        };
        let mut values = vec![0; shown.pixels()];
        let (mut buffer, mut all) = (RowBuffer::new(), Vec::new());
        for rows in shown.reads(ROWS) {
            reader.read_rows(rows.clone(), &mut buffer, &mut all)?;
            for (row, all) in rows.zip(all.chunks_exact(columns)) {
                for (pixel, column) in shown.hits(row, 0, columns) {
                    values[pixel] = all[column];
                }
            }
        }
        Ok(values)
    }

    /// Its values under the centres of the pixels `shown` of an array of this ratio to the cube,
    /// which has the shape `image`.
    ///
    /// # Errors
    /// If the mask cannot be read.
    pub fn read_under(
        &self,
        shown: &Sampling,
        ratio: Ratio,
        image: CubeShape,
    ) -> Result<Vec<MaskValue>> {
        if ratio.is_same() {
            return self.read(shown, image.columns);
        }
        let rows = grid::of_image(ratio, &shown.rows, image.rows);
        let columns = grid::of_image(ratio, &shown.columns, image.columns);
        let different = |numbers: &[usize]| {
            let mut numbers = numbers.to_vec();
            numbers.dedup();
            numbers
        };
        let under = Sampling { rows: different(&rows), columns: different(&columns) };
        let values = self.read(&under, image.columns)?;
        let at = |all: &[usize], number: usize| all.partition_point(|other| *other < number);
        let value = |row: usize, column: usize| {
            values[at(&under.rows, row) * under.columns.len() + at(&under.columns, column)]
        };
        let of_row = |row: &usize| columns.iter().map(|column| value(*row, *column)).collect();
        Ok(rows.iter().flat_map(|row| -> Vec<MaskValue> { of_row(row) }).collect())
    }
}

/// Number of rows of a file to read at once.
const ROWS: usize = 256;
