//! Contact sheets of given pictures, such as augmented samples beside their originals.

use std::path::{Path, PathBuf};

use hsipack_format::{MaskValue, Result};
use hsipack_store::Stack;
use hsipack_store::dataset::ChunkArray;

use super::bands::{self, Composite};
use super::classes::ClassMap;
use super::page::{self, Cell, Words};
use super::sampling::Sampling;
use super::stretch::stretch_like;
use super::{Previewed, canvas, palette};

/// A picture for a sheet.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The text below it.
    pub name: String,
    /// A second line of text below the name.
    pub detail: String,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Red, green and blue of every pixel, row by row, in the data's units.
    pub rgb: Vec<[f32; 3]>,
    /// The mask's values, row by row.
    pub mask: Option<Vec<MaskValue>>,
    /// The place on the sheet of the picture that defines which values are black and white here. It
    /// may be this picture's own.
    pub stretched_like: usize,
}

/// A sheet of pictures.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The PNG file to write.
    pub output: PathBuf,
    /// Whether to overwrite a file that is not a preview.
    pub force: bool,
    /// The title.
    pub title: String,
    /// The line below it.
    pub subtitle: String,
    /// Descriptions of the pictures, one paragraph each.
    pub captions: Vec<String>,
}

/// The bands that show a stack's cubes in colour, and a description of them.
pub fn colour_bands(stack: &Stack) -> ([usize; 3], String) {
    let good = stack.image.meta().band_notes().good_bands;
    let bands = stack.image.shape().bands;
    let Composite { bands, caption } =
        bands::choose(bands, stack.wavelength.as_deref(), good.as_deref());
    (bands, caption)
}

/// Checks that the picture may be written, before any work is done.
///
/// # Errors
/// If the file exists and is not a preview, or its name is not that of a PNG file.
pub fn check_output(output: &Path, force: bool) -> Result<()> {
    canvas::check_output(output, force)
}

/// Draws the sheet. `mask` gives the meaning of the labels.
///
/// # Errors
/// If the memory cannot be allocated, or the file cannot be written.
pub fn draw(sheet: Sheet, pictures: &[Picture], mask: Option<&ChunkArray>) -> Result<Previewed> {
    let small: Vec<Small> = pictures.iter().map(Small::of).collect();
    let cells: Vec<Cell> = (pictures.iter().zip(&small))
        .map(|(picture, Small { width, height, rgb, mask: labels })| {
            let mut image = stretch_like(*width, *height, rgb, &small[picture.stretched_like].rgb);
            if let (Some(labels), Some(mask)) = (labels, mask) {
                image = ClassMap::of_values(mask, labels.clone()).overlay(&image);
            }
            Cell { image, name: picture.name.clone(), detail: picture.detail.clone() }
        })
        .collect();
    let Sheet { output, title, subtitle, captions, .. } = sheet;
    let nodata = cells.iter().any(|cell| cell.image.pixels.contains(&palette::NODATA));
    let words = Words { title, subtitle, captions, nodata };
    let (canvas, height) = page::sheet(&cells, &words, &[])?;
    canvas.save(&output, height)?;
    let cubes = pictures.iter().map(|picture| picture.name.clone()).collect();
    Ok(Previewed { output, cubes, captions: words.captions })
}

/// The pixels of a picture that fit into its cell.
struct Small {
    width: usize,
    height: usize,
    rgb: Vec<[f32; 3]>,
    mask: Option<Vec<MaskValue>>,
}

impl Small {
    fn of(picture: &Picture) -> Self {
        let sampling = Sampling::new(picture.rows, picture.columns, page::CELL.0);
        let places = || {
            let row = |row: &usize| row * picture.columns;
            let columns = &sampling.columns;
            sampling.rows.iter().flat_map(move |r| columns.iter().map(move |c| row(r) + c))
        };
        Self {
            width: sampling.columns.len(),
            height: sampling.rows.len(),
            rgb: places().map(|pixel| picture.rgb[pixel]).collect(),
            mask: picture.mask.as_ref().map(|mask| places().map(|pixel| mask[pixel]).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_thinned_out_evenly_with_their_masks() {
        let (rows, columns) = (600, 300);
        let rgb = (0..rows * columns).map(|pixel| [pixel as f32; 3]).collect();
        let mask = Some((0..rows * columns).map(|pixel| (pixel % 7) as MaskValue).collect());
        let (name, detail) = (String::new(), String::new());
        let small =
            Small::of(&Picture { name, detail, rows, columns, rgb, mask, stretched_like: 0 });
        assert!(small.height <= page::CELL.0 && small.width == small.height / 2);
        let mask = small.mask.unwrap();
        assert_eq!((small.rgb.len(), mask.len()), (small.width * small.height, small.rgb.len()));
        for (rgb, label) in small.rgb.iter().zip(mask) {
            assert_eq!(rgb[0] as usize % 7, label as usize);
        }
    }
}
