//! Layout of pages: the picture of one cube, and the contact sheet of a dataset.

use hsipack_format::Result;

use super::canvas::Canvas;
use super::chart::Chart;
use super::palette::{INK, MUTED, NODATA};
use super::stretch::Image;
use super::text;

const MARGIN: f32 = 28.0;
const LEAST_WIDTH: f32 = 900.0;
const CHART_HEIGHT: f32 = 330.0;
const BETWEEN: usize = 16;
const TITLE: f32 = 24.0;
const BODY: f32 = 14.0;
/// The longer side of a picture is shown with at least about this many pixels.
const LEAST_SIDE: usize = 480;
/// The shorter side is shown with at least this many pixels, so that even one row is visible.
const LEAST_BREADTH: usize = 36;

/// The text above and below the pictures.
pub struct Words {
    /// The title.
    pub title: String,
    /// The line below it.
    pub subtitle: String,
    /// Descriptions of the pictures, one paragraph each.
    pub captions: Vec<String>,
    /// Whether missing pixels are explained.
    pub nodata: bool,
}

/// A cell of a contact sheet.
pub struct Cell {
    /// The picture.
    pub image: Image,
    /// The sample's name.
    pub name: String,
    /// Further details.
    pub detail: String,
}

/// A page that is filled from top to bottom.
struct Page {
    canvas: Canvas,
    width: f32,
    y: f32,
}

impl Page {
    fn new(width: f32, room: f32, words: &Words, charts: &[Chart]) -> Result<Self> {
        let captions: usize =
            words.captions.iter().map(|text| text::wrap(text, BODY, width).len()).sum();
        let subtitle = text::wrap(&words.subtitle, BODY, width).len();
        let height =
            200.0 + room + subtitle as f32 * 22.0 + captions as f32 * 20.0 + charts_height(charts);
        let canvas = Canvas::new(width + 2.0 * MARGIN, height)?;
        let mut page = Self { canvas, width, y: MARGIN };
        page.y += TITLE * 0.75;
        page.canvas.text(&text::fit(&words.title, TITLE, width), MARGIN, page.y, TITLE, INK);
        for line in text::wrap(&words.subtitle, BODY, width) {
            page.y += 22.0;
            page.canvas.text(&line, MARGIN, page.y, BODY, MUTED);
        }
        page.y += 18.0;
        Ok(page)
    }

    fn captions(&mut self, words: &Words) {
        self.y += 4.0;
        for caption in &words.captions {
            for line in text::wrap(caption, BODY, self.width) {
                self.y += 20.0;
                self.canvas.text(&line, MARGIN, self.y, BODY, INK);
            }
        }
        if words.nodata {
            self.y += 20.0;
            self.canvas.fill(MARGIN, self.y - 10.0, 14.0, 11.0, NODATA, 1.0);
            self.canvas.text(
                "no data (NaN, infinite or the ignore value)",
                MARGIN + 22.0,
                self.y,
                BODY,
                INK,
            );
        }
        self.y += 26.0;
    }

    fn finish(mut self, charts: &[Chart]) -> (Canvas, f32) {
        for chart in charts {
            let height = chart_height(chart);
            chart.draw(&mut self.canvas, MARGIN, self.y, self.width, height);
            self.y += height + BETWEEN as f32;
        }
        (self.canvas, self.y + MARGIN - BETWEEN as f32)
    }
}

fn charts_height(charts: &[Chart]) -> f32 {
    charts.iter().map(|chart| chart_height(chart) + BETWEEN as f32).sum()
}

fn chart_height(chart: &Chart) -> f32 {
    CHART_HEIGHT.max(chart.legend_height() + 40.0)
}

/// The size at which a picture of `width` × `height` pixels is shown. It is enlarged by a whole
/// number; a side of only a few pixels is enlarged more.
pub fn shown_size(width: usize, height: usize) -> (usize, usize) {
    let factor = (LEAST_SIDE / width.max(height)).max(1);
    let side = |length: usize| {
        let scaled = length * factor;
        if scaled >= LEAST_BREADTH { scaled } else { length * LEAST_BREADTH.div_ceil(length) }
    };
    (side(width), side(height))
}

/// The page of one cube: its pictures (of one size), side by side or one below the other, and its
/// spectra. Returns the page and its height.
///
/// # Errors
/// If the memory cannot be allocated.
pub fn single(images: &[Image], words: &Words, charts: &[Chart]) -> Result<(Canvas, f32)> {
    let Some(first) = images.first() else { return sheet(&[], words, charts) };
    let (width, height) = shown_size(first.width, first.height);
    let beside = (width * images.len() + BETWEEN * (images.len() - 1)) <= 1360;
    let (across, down) = if beside { (images.len(), 1) } else { (1, images.len()) };
    let total = (width * across + BETWEEN * (across - 1)) as f32;
    let room = (height + BETWEEN) as f32 * down as f32;
    let mut page = Page::new(total.max(LEAST_WIDTH), room, words, charts)?;
    let top = page.y as usize;
    for (index, image) in images.iter().enumerate() {
        let x = MARGIN as usize + index % across * (width + BETWEEN);
        let y = top + index / across * (height + BETWEEN);
        page.canvas.picture(image, x, y, width, height);
        page.canvas.frame(x as f32, y as f32, width as f32, height as f32);
    }
    page.y = (top + down * (height + BETWEEN) - BETWEEN) as f32;
    page.captions(words);
    Ok(page.finish(charts))
}

/// The greatest width and height of a picture in a cell.
pub const CELL: (usize, usize) = (252, 200);

/// The contact sheet of a dataset. Returns the page and its height.
///
/// # Errors
/// If the memory cannot be allocated.
pub fn sheet(cells: &[Cell], words: &Words, charts: &[Chart]) -> Result<(Canvas, f32)> {
    const ACROSS: usize = 4;
    let width = ACROSS * (CELL.0 + BETWEEN) - BETWEEN;
    let sizes: Vec<(usize, usize)> = cells.iter().map(|cell| cell_size(&cell.image)).collect();
    let tallest = |row: &[(usize, usize)]| row.iter().map(|size| size.1).max().unwrap_or(0) + 54;
    let room: usize = sizes.chunks(ACROSS).map(tallest).sum();
    let mut page = Page::new(width as f32, room as f32, words, charts)?;
    for (row, sizes) in cells.chunks(ACROSS).zip(sizes.chunks(ACROSS)) {
        let top = page.y as usize;
        let tallest = tallest(sizes);
        for (column, (cell, (width, height))) in row.iter().zip(sizes).enumerate() {
            let x = MARGIN as usize + column * (CELL.0 + BETWEEN);
            page.canvas.picture(&cell.image, x, top, *width, *height);
            page.canvas.frame(x as f32, top as f32, *width as f32, *height as f32);
            let (x, y) = (x as f32, (top + tallest - 54) as f32);
            let room = CELL.0 as f32;
            page.canvas.text(&text::fit(&cell.name, BODY, room), x, y + 18.0, BODY, INK);
            page.canvas.text(&text::fit(&cell.detail, 12.5, room), x, y + 35.0, 12.5, MUTED);
        }
        page.y = (top + tallest) as f32;
    }
    page.y -= 8.0;
    page.captions(words);
    Ok(page.finish(charts))
}

/// The size at which a picture fits its cell. It keeps its proportions, unless a side has only a
/// few pixels.
fn cell_size(image: &Image) -> (usize, usize) {
    let scale = (CELL.0 as f64 / image.width as f64).min(CELL.1 as f64 / image.height as f64);
    let side =
        |length: usize, most: usize| ((length as f64 * scale).round() as usize).clamp(24, most);
    (side(image.width, CELL.0), side(image.height, CELL.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pictures_are_enlarged_to_be_seen() {
        assert_eq!(shown_size(10, 8), (480, 384));
        assert_eq!(shown_size(1, 1), (480, 480));
        assert_eq!(shown_size(1024, 300), (1024, 300));
        assert_eq!(shown_size(1024, 1), (1024, 36));
        assert_eq!(shown_size(3, 100), (36, 400));
    }
}
