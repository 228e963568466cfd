//! Which pages of a TIFF file make up the cube.
//!
//! Pages that the file marks as reduced copies or as masks are skipped. So are directories within
//! directories, which hold a pyramid's smaller copies. If all pages are marked as reduced copies,
//! the cube is the image of which they are copies. The remaining pages must be alike. A picture (3
//! or 4 samples of a byte) beside other pages is their preview. In all other cases the user
//! chooses: `scene.tif::1-12`, or `::1.2` for the second directory within the first.

use std::ops::RangeInclusive;
use std::path::Path;

use hsipack_format::{Error, Result};

use super::directory::{Directories, Page};
use super::gdal_metadata::mask_is_not_read;

/// NewSubfileType: a reduced copy, a transparency mask.
const REDUCED: u64 = 0b001;
const MASK: u64 = 0b100;

/// One image of a file.
#[derive(Clone)]
pub(super) struct Image {
    /// Its number, from 1; `1.2` is the second directory within the first.
    pub name: String,
    pub page: Page,
}

impl Image {
    /// Properties that must be the same in all pages of a cube.
    fn kind(&self) -> (u64, u64, u64, u64, u64, bool) {
        let page = &self.page;
        (page.width, page.height, page.samples, page.bits, page.sample_format, page.planar)
    }

    fn is_picture(&self) -> bool {
        let page = &self.page;
        [3, 4].contains(&page.samples) && page.bits == 8 && page.sample_format == 1
    }

    fn is_whole(&self) -> bool {
        self.page.subfile_type & (REDUCED | MASK) == 0
    }

    fn bits(&self) -> u64 {
        let page = &self.page;
        [page.height, page.samples, page.bits].iter().fold(page.width, |n, m| n.saturating_mul(*m))
    }

    fn text(&self) -> String {
        let page = &self.page;
        let letter = match page.sample_format {
            2 => "int",
            3 => "float",
            _ => "uint",
        };
        format!("{}x{}x{} {letter}{}", page.height, page.width, page.samples, page.bits)
    }
}

fn numbered(pages: Vec<Page>) -> Vec<Image> {
    let name = |(index, page)| Image { name: format!("{}", index + 1), page };
    pages.into_iter().enumerate().map(name).collect()
}

/// The images in the directories within the directory of `image`.
fn within(directories: &Directories<'_>, image: &Image) -> Vec<Image> {
    let name = |(index, page)| Image { name: format!("{}.{}", image.name, index + 1), page };
    directories.sub_pages(&image.page).into_iter().enumerate().map(name).collect()
}

/// The pages of the file at `path` that make up the cube: the pages that the user names (`wanted`),
/// otherwise the pages that may be the cube. At least one, all alike.
///
/// # Errors
/// If there are no such pages, or several kinds of them.
pub(super) fn cube_pages(
    directories: &Directories<'_>,
    pages: Vec<Page>,
    path: &Path,
    wanted: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Vec<Image>> {
    let all = numbered(pages);
    let images = match wanted {
        Some(wanted) => named(directories, all, wanted)?,
        None => meant(directories, all, path, notes)?,
    };
    let [first, others @ ..] = &images[..] else {
        return Err(Error::malformed("the TIFF file holds no image"));
    };
    if others.iter().any(|image| image.kind() != first.kind()) {
        return Err(differ(path, "the pages differ", &images));
    }
    if !others.is_empty() && first.page.samples > 1 {
        let samples = first.page.samples;
        return Err(differ(
            path,
            &format!("the pages have {samples} samples per pixel each: several cubes"),
            &images,
        ));
    }
    Ok(images)
}

/// The pages that the user names, as in `2`, `1-12` or `1.2`.
fn named(directories: &Directories<'_>, all: Vec<Image>, wanted: &str) -> Result<Vec<Image>> {
    let unknown = || {
        Error::conflict(format!("there is no page '{wanted}'; the file has {} pages", all.len()))
            .with_remedy(
                "name pages by their numbers, such as 2, 1-12, or 1.2 for one within the first",
            )
    };
    let found = match wanted.split_once('.') {
        Some((outer, _)) => {
            let outer = number_range(outer, all.len()).ok_or_else(unknown)?;
            let image = &all[*outer.start() - 1];
            within(directories, image).into_iter().filter(|inner| inner.name == wanted).collect()
        }
        None => {
            let range = number_range(wanted, all.len()).ok_or_else(unknown)?;
            all[range.start() - 1..*range.end()].to_vec()
        }
    };
    if found.is_empty() { Err(unknown()) } else { Ok(found) }
}

/// The numbers from 1 to `last` that `7` or `7-9` means.
fn number_range(text: &str, last: usize) -> Option<RangeInclusive<usize>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (1 <= from && from <= to && to <= last).then_some(from..=to)
}

/// The pages that may be the cube if the user names none.
fn meant(
    directories: &Directories<'_>,
    all: Vec<Image>,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<Image>> {
    let count = all.len();
    let whole: Vec<Image> = all.iter().filter(|image| image.is_whole()).cloned().collect();
    if whole.is_empty() {
        let inner = all.iter().flat_map(|image| within(directories, image));
        let inner: Vec<Image> = inner.filter(Image::is_whole).collect();
        if !inner.is_empty() {
            notes.push(
                "the pages are reduced copies of the image within them, which is used".into(),
            );
            return Ok(without_pictures(inner, notes));
        }
        // The file holds only reduced copies.
        return Ok(all);
    }
    if whole.len() < count {
        let skipped = count - whole.len();
        notes.push(format!("{skipped} pages are reduced copies or masks of others; left out"));
        let size = |image: &Image| (image.page.width, image.page.height);
        let is_mask = |image: &Image| {
            image.page.subfile_type & (REDUCED | MASK) == MASK
                && whole.first().is_some_and(|first| size(first) == size(image))
        };
        if all.iter().any(is_mask) {
            notes.push(mask_is_not_read("its mask page"));
        }
    }
    let whole = without_pictures(whole, notes);
    let larger = |inner: &Image| inner.is_whole() && inner.bits() > whole[0].bits();
    let inner: Vec<Image> = within(directories, &whole[0]).into_iter().filter(larger).collect();
    if inner.is_empty() {
        return Ok(whole);
    }
    let what = "the image within a page is larger than the page";
    Err(differ(path, what, &[&whole[..1], &inner].concat()))
}

/// Removes pictures if there are other images, because pictures are their previews.
fn without_pictures(images: Vec<Image>, notes: &mut Vec<String>) -> Vec<Image> {
    let (pictures, others): (Vec<_>, Vec<_>) = images.into_iter().partition(Image::is_picture);
    match (others.is_empty(), &pictures[..]) {
        (true, _) => pictures,
        (false, []) => others,
        (false, [first, ..]) => {
            notes.push(format!("page {} is a picture ({}); left out", first.name, first.text()));
            others
        }
    }
}

/// The error that lists pages, `1-3: 10x20x1 uint8, 4: 5x10x1 uint8`, to choose from.
fn differ(path: &Path, what: &str, images: &[Image]) -> Error {
    const SHOWN: usize = 8;
    let mut runs: Vec<(&Image, &Image)> = Vec::new();
    for image in images {
        match runs.last_mut() {
            Some((first, last)) if first.kind() == image.kind() && image.page.samples == 1 => {
                *last = image;
            }
            _ => runs.push((image, image)),
        }
    }
    let name = |(first, last): &(&Image, &Image)| match first.name == last.name {
        true => first.name.clone(),
        false => format!("{}-{}", first.name, last.name),
    };
    let text = |run: &(&Image, &Image)| format!("{}: {}", name(run), run.0.text());
    let listed: Vec<String> = runs.iter().take(SHOWN).map(text).collect();
    let more = if runs.len() > SHOWN { ", …" } else { "" };
    Error::ambiguous(format!("{what}: {}{more}", listed.join(", "))).with_remedy(format!(
        "name the pages of one cube: '{}::{}'",
        path.display(),
        name(&runs[0])
    ))
}
