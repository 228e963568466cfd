//! The page: draws shapes, text and pictures on white, and writes a PNG file.

use std::io::BufReader;
use std::path::Path;

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::bounded_read;
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, Rect, Stroke, Transform,
};

use super::palette::{Colour, GRID, PAGE, blend};
use super::stretch::Image;
use super::text;
use crate::staged::Staged;

/// The `Software` entry of the pictures. It marks them as previews, which may be overwritten.
const SOFTWARE: &str = concat!("hsipack ", env!("CARGO_PKG_VERSION"), " preview");

/// A page that is being drawn. Coordinates are pixels from the upper left corner.
pub struct Canvas {
    pixels: Pixmap,
}

impl Canvas {
    /// Creates a white page.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn new(width: f32, height: f32) -> Result<Self> {
        let mut pixels = Pixmap::new(width.ceil() as u32, height.ceil() as u32)
            .ok_or_else(|| Error::unsupported("the picture would be too large"))?;
        pixels.fill(Color::from_rgba8(PAGE[0], PAGE[1], PAGE[2], 255));
        Ok(Self { pixels })
    }

    /// Draws text whose base line starts at (`x`, `y`).
    pub fn text(&mut self, text: &str, x: f32, y: f32, size: f32, colour: Colour) {
        text::rasterise(text, x, y, size, &mut |x, y, coverage| {
            // The font is light, so its stems need more ink on white.
            self.mix(x, y, colour, f64::from(coverage.clamp(0.0, 1.0).powf(0.7)));
        });
    }

    /// Draws text that ends at `x`.
    pub fn text_right(&mut self, text: &str, x: f32, y: f32, size: f32, colour: Colour) {
        self.text(text, x - text::width(text, size), y, size, colour);
    }

    /// Draws text that is centred on `x`.
    pub fn text_centred(&mut self, text: &str, x: f32, y: f32, size: f32, colour: Colour) {
        self.text(text, x - text::width(text, size) / 2.0, y, size, colour);
    }

    fn mix(&mut self, x: i32, y: i32, colour: Colour, opacity: f64) {
        let (width, height) = (self.pixels.width() as i32, self.pixels.height() as i32);
        if (0..width).contains(&x) && (0..height).contains(&y) {
            let at = (y * width + x) as usize * 4;
            let pixel = &mut self.pixels.data_mut()[at..at + 3];
            let mixed = blend([pixel[0], pixel[1], pixel[2]], colour, opacity);
            pixel.copy_from_slice(&mixed);
        }
    }

    /// Draws a filled rectangle.
    pub fn fill(&mut self, x: f32, y: f32, width: f32, height: f32, colour: Colour, opacity: f32) {
        if let Some(rect) = Rect::from_xywh(x, y, width, height) {
            self.pixels.fill_rect(rect, &paint(colour, opacity), Transform::identity(), None);
        }
    }

    /// Draws a hairline frame just outside a rectangle.
    pub fn frame(&mut self, x: f32, y: f32, width: f32, height: f32) {
        self.fill(x - 1.0, y - 1.0, width + 2.0, 1.0, GRID, 1.0);
        self.fill(x - 1.0, y + height, width + 2.0, 1.0, GRID, 1.0);
        self.fill(x - 1.0, y, 1.0, height, GRID, 1.0);
        self.fill(x + width, y, 1.0, height, GRID, 1.0);
    }

    /// Draws a line through `points`. A single point becomes a dot.
    pub fn line(&mut self, points: &[(f32, f32)], colour: Colour, width: f32) {
        let mut path = PathBuilder::new();
        match points {
            [] => return,
            [(x, y)] => path.push_circle(*x, *y, width * 1.2),
            [(x, y), others @ ..] => {
                path.move_to(*x, *y);
                others.iter().for_each(|(x, y)| path.line_to(*x, *y));
            }
        }
        let Some(path) = path.finish() else { return };
        let (paint, transform) = (paint(colour, 1.0), Transform::identity());
        if points.len() == 1 {
            self.pixels.fill_path(&path, &paint, FillRule::Winding, transform, None);
        } else {
            let stroke = Stroke {
                width,
                line_cap: LineCap::Round,
                line_join: LineJoin::Round,
                ..Stroke::default()
            };
            self.pixels.stroke_path(&path, &paint, &stroke, transform, None);
        }
    }

    /// Draws a filled polygon.
    pub fn polygon(&mut self, points: &[(f32, f32)], colour: Colour, opacity: f32) {
        let mut path = PathBuilder::new();
        let [(x, y), others @ ..] = points else { return };
        path.move_to(*x, *y);
        others.iter().for_each(|(x, y)| path.line_to(*x, *y));
        path.close();
        if let Some(path) = path.finish() {
            let paint = paint(colour, opacity);
            self.pixels.fill_path(&path, &paint, FillRule::Winding, Transform::identity(), None);
        }
    }

    /// Draws a picture into the rectangle at (`x`, `y`). Its pixels are enlarged without smoothing.
    pub fn picture(&mut self, image: &Image, x: usize, y: usize, width: usize, height: usize) {
        let across = self.pixels.width() as usize;
        let bottom = (y + height).min(self.pixels.height() as usize);
        let right = (x + width).min(across);
        let data = self.pixels.data_mut();
        for to_y in y..bottom {
            let from_y = (to_y - y) * image.height / height;
            for to_x in x..right {
                let from_x = (to_x - x) * image.width / width;
                let at = (to_y * across + to_x) * 4;
                data[at..at + 3].copy_from_slice(&image.pixels[from_y * image.width + from_x]);
            }
        }
    }

    /// Writes the uppermost `height` rows of the page as a PNG file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path, height: f32) -> Result<()> {
        let (width, height) = (self.pixels.width(), (height as u32).clamp(1, self.pixels.height()));
        let fail = |error: png::EncodingError| Error::io(path, "cannot write", error.into());
        let shown = (width * height) as usize;
        let rgb: Vec<u8> = self
            .pixels
            .data()
            .chunks_exact(4)
            .take(shown)
            .flat_map(|p| [p[0], p[1], p[2]])
            .collect();
        let mut file = Staged::create(path)?;
        let mut encoder = png::Encoder::new(file.writer(), width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.add_text_chunk("Software".to_owned(), SOFTWARE.to_owned()).map_err(fail)?;
        let mut writer = encoder.write_header().map_err(fail)?;
        writer.write_image_data(&rgb).map_err(fail)?;
        writer.finish().map_err(fail)?;
        file.commit()
    }

    /// The colour of a pixel.
    #[cfg(test)]
    pub fn at(&self, x: usize, y: usize) -> Colour {
        let at = (y * self.pixels.width() as usize + x) * 4;
        let pixel = &self.pixels.data()[at..at + 3];
        [pixel[0], pixel[1], pixel[2]]
    }
}

fn paint(colour: Colour, opacity: f32) -> Paint<'static> {
    let mut paint = Paint::default();
    let alpha = (opacity * 255.0).round() as u8;
    paint.set_color_rgba8(colour[0], colour[1], colour[2], alpha);
    paint.anti_alias = true;
    paint
}

/// Refuses an output whose name is not that of a PNG file, or an existing file that is not a
/// preview. So a mistyped `-o` cannot overwrite a mask.
///
/// # Errors
/// If the output is refused.
pub fn check_output(path: &Path, force: bool) -> Result<()> {
    if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("png")) {
        return Err(Error::unsupported("previews are PNG files")
            .at(path)
            .with_remedy("choose a name that ends in .png"));
    }
    if force || path.symlink_metadata().is_err() || is_preview(path) {
        return Ok(());
    }
    Err(Error::conflict("the file exists and is not a preview").at(path).with_remedy(remedy![
        "choose another ",
        Opt::Output,
        ", or pass ",
        Opt::Force,
        " to overwrite it"
    ]))
}

fn is_preview(path: &Path) -> bool {
    let Ok((file, _)) = bounded_read::open(path) else { return false };
    let Ok(reader) = png::Decoder::new(BufReader::new(file)).read_info() else { return false };
    let ours = |text: &png::text_metadata::TEXtChunk| {
        text.keyword == "Software"
            && text.text.starts_with("hsipack ")
            && text.text.ends_with(" preview")
    };
    reader.info().uncompressed_latin1_text.iter().any(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_enlarged_pixel_by_pixel() {
        let mut canvas = Canvas::new(10.0, 10.0).unwrap();
        let image = Image { width: 2, height: 1, pixels: vec![[255, 0, 0], [0, 0, 255]] };
        canvas.picture(&image, 1, 2, 8, 4);
        assert_eq!((canvas.at(1, 2), canvas.at(4, 5)), ([255, 0, 0], [255, 0, 0]));
        assert_eq!((canvas.at(5, 2), canvas.at(8, 5)), ([0, 0, 255], [0, 0, 255]));
        assert_eq!((canvas.at(0, 2), canvas.at(9, 2), canvas.at(1, 6)), (PAGE, PAGE, PAGE));
    }

    #[test]
    fn only_previews_are_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        assert!(check_output(&path, false).is_ok());
        Canvas::new(5.0, 5.0).unwrap().save(&path, 3.0).unwrap();
        assert!(check_output(&path, false).is_ok());
        std::fs::write(&path, b"\x89PNG a mask").unwrap();
        assert!(check_output(&path, false).is_err());
        assert!(check_output(&path, true).is_ok());
        assert!(check_output(Path::new("a.jpg"), true).is_err());
    }
}
