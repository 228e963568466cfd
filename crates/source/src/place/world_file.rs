//! World files: where the pixels of a raster lie, as six numbers in a file beside it, such as
//! `x.tfw` beside `x.tif`. They are the two parts of the width of a pixel, the two of its height,
//! and the position of the centre of the first pixel.

use std::path::{Path, PathBuf};

use hsipack_store::{bounded_read, mirror};

use crate::text::decode;

/// Six numbers take far less.
const LARGEST: u64 = 4096;

/// The world file of the raster at `path` and its transform; `None` if there is none. Adds a note
/// if it cannot be used.
pub(crate) fn transform(path: &Path, notes: &mut Vec<String>) -> Option<(PathBuf, [f64; 6])> {
    // A file that a server does not report counts as missing.
    let is_there = |name: &PathBuf| mirror::look(name).is_ok() && name.is_file();
    let name = names(path).into_iter().find(is_there)?;
    let text = bounded_read::read(&name, LARGEST).map(|bytes| decode(&bytes));
    match text.ok().as_deref().and_then(parse) {
        Some(transform) => Some((name, transform)),
        None => {
            let file = name.file_name().unwrap_or_default().to_string_lossy();
            notes.push(format!("{file} is not used: it does not hold six numbers"));
            None
        }
    }
}

/// The names that the world file of a raster may have.
fn names(path: &Path) -> Vec<PathBuf> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let (Some(first), Some(last)) = (ending.chars().next(), ending.chars().last()) else {
        return Vec::new();
    };
    let endings = [format!("{first}{last}w"), format!("{ending}w"), "wld".to_owned()];
    let both = endings.iter().flat_map(|ending| [ending.to_lowercase(), ending.to_uppercase()]);
    both.map(|ending| path.with_extension(ending)).collect()
}

fn parse(text: &str) -> Option<[f64; 6]> {
    let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    let [a, d, b, e, x, y] = numbers?[..] else { return None };
    Some([x - (a + b) / 2.0, a, b, y - (d + e) / 2.0, d, e])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_give_the_corner_of_the_first_pixel() {
        let north_up = parse("30.0\n0\n0\n-30\r\n600015\n5299985.0\n");
        assert_eq!(north_up, Some([600_000.0, 30.0, 0.0, 5_300_000.0, 0.0, -30.0]));
        for text in ["", "1 2 3 4 5", "1 2 3 4 5 6 7", "1 2 3 4 5 x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_follow_the_ending_of_the_raster() {
        let names = names(Path::new("a.b/x.TIF"));
        for name in ["x.tfw", "x.TFW", "x.tifw", "x.wld"] {
            assert!(names.contains(&Path::new("a.b").join(name)), "{names:?}");
        }
    }
}
