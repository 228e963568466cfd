//! The files of the page. They are part of the program, so nothing else needs to be installed.

use crate::answer::Answer;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($name:literal: $content_type:expr,)+) => {
        /// Names, types and contents.
        const FILES: &[(&str, &str, &[u8])] =
            &[$(($name, $content_type, include_bytes!(concat!("../page/", $name)))),+];
    };
}

files! {
    "api.js": SCRIPT,
    "app.js": SCRIPT,
    "arrays.js": SCRIPT,
    "axes.js": SCRIPT,
    "boxes.js": SCRIPT,
    "chart.js": SCRIPT,
    "classes.js": SCRIPT,
    "compare.js": SCRIPT,
    "confusion.js": SCRIPT,
    "cube.js": SCRIPT,
    "cubekeys.js": SCRIPT,
    "display.js": SCRIPT,
    "dom.js": SCRIPT,
    "exports.js": SCRIPT,
    "facts.js": SCRIPT,
    "favicon.svg": SVG,
    "geo.js": SCRIPT,
    "gestures.js": SCRIPT,
    "grid.js": SCRIPT,
    "histogram.js": SCRIPT,
    "image.js": SCRIPT,
    "index.html": HTML,
    "keyboard.js": SCRIPT,
    "maps.js": SCRIPT,
    "masks.js": SCRIPT,
    "overview.js": SCRIPT,
    "pair.js": SCRIPT,
    "palette.js": SCRIPT,
    "picture.js": SCRIPT,
    "precision.js": SCRIPT,
    "scale.js": SCRIPT,
    "shown.js": SCRIPT,
    "side.js": SCRIPT,
    "spectra.js": SCRIPT,
    "state.js": SCRIPT,
    "stretch.js": SCRIPT,
    "style.css": CSS,
    "theme.js": SCRIPT,
    "thumbnails.js": SCRIPT,
    "ticks.js": SCRIPT,
    "tiles.js": SCRIPT,
    "toolbar.js": SCRIPT,
    "training.js": SCRIPT,
    "trainingcards.js": SCRIPT,
    "trainingform.js": SCRIPT,
    "trainingitem.js": SCRIPT,
    "traininglooks.js": SCRIPT,
    "windows.js": SCRIPT,
}

/// The file `name`; if the name is empty, the page itself.
pub fn file(name: &str) -> Option<Answer> {
    let name = if name.is_empty() { "index.html" } else { name };
    let (_, content_type, body) = FILES.iter().find(|(path, ..)| *path == name)?;
    Some(Answer::file(content_type, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_part_of_the_page() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        let mut listed: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        listed.sort_unstable();
        assert_eq!(names, listed);
    }

    #[test]
    fn imports_name_existing_files() {
        for (name, _, body) in FILES {
            let text = std::str::from_utf8(body).unwrap();
            for (_, import) in
                text.match_indices("from './").map(|(at, found)| (at, &text[at + found.len()..]))
            {
                let wanted = &import[..import.find('\'').unwrap()];
                assert!(file(wanted).is_some(), "{name} imports {wanted}");
            }
        }
        assert!(file("").is_some() && file("../Cargo.toml").is_none());
    }
}
