//! Boxes of YOLO: `class x_center y_center width height` in each line, as fractions of the picture.
//! The names of the classes are in a file beside the labels or in a folder above, as far as there
//! is one.

use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::{bounded_read, mirror};

use super::{Boxes, CubeOfBoxes, Label, wrong};

/// Texts of many boxes have some KB.
const MAX_BYTES: u64 = 64 << 20;
const MAX_NAMES_BYTES: u64 = 4 << 20;
/// Files with the names of classes.
const NAMES: [&str; 5] = ["classes.txt", "obj.names", "data.yaml", "data.yml", "dataset.yaml"];
/// Labels are in folders such as `labels/train`.
const FOLDERS_ABOVE: usize = 2;

/// Reads the boxes of a picture.
///
/// # Errors
/// As [`super::read`].
pub(super) fn read(path: &Path, cube: CubeOfBoxes<'_>) -> Result<Boxes> {
    let bytes = bounded_read::read(path, MAX_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Error::unsupported("the file is neither COCO, Pascal VOC, YOLO nor CSV")
            .with_remedy("give boxes in one of these formats")
    })?;
    of_text(&text, &names_beside(path)?, cube.size)
}

fn of_text(text: &str, names: &[String], [rows, columns]: [usize; 2]) -> Result<Boxes> {
    let mut boxes = Boxes::default();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let wrong = |what: String| wrong(format_args!("line {number}"), what);
        // A sixth number is how certain a network is.
        if ![5, 6].contains(&words.len()) {
            return Err(wrong(format!(
                "it has {} words, not the five of a box (class, center x and y, width, height)",
                words.len()
            )));
        }
        let class: usize = words[0]
            .parse()
            .map_err(|_| wrong(format!("{:?} is not the number of a class", words[0])))?;
        let mut fractions = [0.0; 4];
        for (fraction, word) in fractions.iter_mut().zip(&words[1..]) {
            *fraction = word.parse().map_err(|_| wrong(format!("{word:?} is not a number")))?;
        }
        let [x, y, width, height] = fractions;
        if fractions.iter().any(|fraction: &f64| fraction.abs() > MAX_FRACTION) {
            return Err(wrong("the box is in pixels, not in fractions of the picture".to_owned()));
        }
        let label = match names.get(class) {
            Some(name) => Label::Name(name.clone()),
            None if names.is_empty() => Label::Id(class as i64),
            None => {
                return Err(wrong(format!(
                    "there is no name for the class {class}; there are {}",
                    names.len()
                )));
            }
        };
        let (columns_f, rows_f) = (columns as f64, rows as f64);
        let corners = [
            (x - width / 2.0) * columns_f,
            (y - height / 2.0) * rows_f,
            (x + width / 2.0) * columns_f,
            (y + height / 2.0) * rows_f,
        ];
        boxes.add(corners, label, [rows, columns]).map_err(wrong)?;
    }
    Ok(boxes)
}

/// Fractions may be slightly outside of the picture. Numbers of pixels are larger.
const MAX_FRACTION: f64 = 2.0;

/// The names of classes in the nearest file that has some.
fn names_beside(path: &Path) -> Result<Vec<String>> {
    let folders = path.ancestors().skip(1).take(FOLDERS_ABOVE + 1);
    for file in folders.flat_map(|folder| NAMES.map(|name| folder.join(name))) {
        if file == path || mirror::look(&file).is_err() || !file.is_file() {
            continue;
        }
        let text = bounded_read::read(&file, MAX_NAMES_BYTES)?;
        let text = String::from_utf8_lossy(&text);
        let is_yaml = file.extension().is_some_and(|ending| ending != "txt" && ending != "names");
        let names = match is_yaml {
            false => text.lines().map(|line| line.trim().to_owned()).collect(),
            true => of_yaml(&text).ok_or_else(|| {
                Error::malformed("its names of classes cannot be read")
                    .at(&file)
                    .with_remedy("write them as a list: names: [leaf, stem]; or into classes.txt")
            })?,
        };
        let mut names: Vec<String> = names;
        while names.last().is_some_and(String::is_empty) {
            names.pop();
        }
        if !names.is_empty() {
            return Ok(names);
        }
    }
    Ok(Vec::new())
}

/// The value of `names` in YAML as Ultralytics and others write it: a list in brackets, lines with
/// dashes, or lines with numbers. Empty if there is none; `None` if it is written otherwise.
fn of_yaml(text: &str) -> Option<Vec<String>> {
    let mut lines = text.lines().map(|line| line.split(" #").next().unwrap_or_default().trim_end());
    let Some(first) = lines.find_map(|line| line.strip_prefix("names:")) else {
        return Some(Vec::new());
    };
    let name = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
    let mut inline = first.trim().to_owned();
    if inline.starts_with(['[', '{']) {
        let end = if inline.starts_with('[') { ']' } else { '}' };
        while !inline.ends_with(end) {
            inline.push_str(lines.next()?.trim());
        }
        let items = inline[1..inline.len() - 1].split(',').filter(|item| !item.trim().is_empty());
        return match end {
            ']' => Some(items.map(name).collect()),
            _ => numbered(items.map(|item| item.split_once(':'))),
        };
    }
    if !inline.is_empty() {
        return None;
    }
    let items: Vec<&str> = lines
        .map(str::trim_end)
        .skip_while(|line| line.is_empty())
        .take_while(|line| line.starts_with([' ', '-']) || line.is_empty())
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    match items.iter().all(|line| line.starts_with('-')) {
        true => Some(items.iter().map(|line| name(&line[1..])).collect()),
        false => numbered(items.iter().map(|line| line.split_once(':'))),
    }
}

/// Names behind their numbers.
fn numbered<'a>(items: impl Iterator<Item = Option<(&'a str, &'a str)>>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for item in items {
        let (number, name) = item?;
        let number: usize = number.trim().parse().ok().filter(|number| *number <= 65535)?;
        if names.len() <= number {
            names.resize(number + 1, String::new());
        }
        names[number] = name.trim().trim_matches(['"', '\'']).to_owned();
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_become_pixels() {
        let names = ["leaf", "stem"].map(str::to_owned);
        let text = "1 0.5 0.5 1 1\n\n0 0.25 0.5 0.5 0.2 0.93\n";
        let boxes = of_text(text, &names, [10, 20]).unwrap();
        assert_eq!(boxes.boxes, [[0.0, 0.0, 20.0, 10.0], [0.0, 4.0, 10.0, 6.0]]);
        assert_eq!(boxes.labels[0], Label::Name("stem".to_owned()));
        assert_eq!(of_text(text, &[], [10, 20]).unwrap().labels[1], Label::Id(0));
        assert_eq!(of_text("", &names, [10, 20]).unwrap(), Boxes::default());
        for (wrong, expected) in [
            ("2 0.5 0.5 1 1", "line 1: there is no name for the class 2"),
            ("0 0.5 0.5 1 1\n0 0.1 0.2 0.3 0.4 0.5 0.6", "line 2: it has 7 words"),
            ("0 0.5 nan 1 1", "line 1: a corner"),
            ("0 0.5 x 1 1", "line 1: \"x\" is not a number"),
            ("a 0.5 0.5 1 1", "line 1: \"a\" is not the number of a class"),
            ("0 0.5 0.5 0 1", "no area"),
            ("0 100 50 20 10", "in pixels"),
            ("0 1.5 0.5 0.1 0.1", "outside"),
        ] {
            let error = of_text(wrong, &names, [10, 20]).unwrap_err();
            assert!(error.what().contains(expected) && error.remedy().is_some(), "{error}");
        }
    }

    #[test]
    fn names_are_read_from_yaml() {
        for text in [
            "path: x\nnames: ['leaf', \"stem\"]\nnc: 2\n",
            "names:\n  - leaf\n  - stem # the second\ntrain: a\n",
            "names:\n- leaf\n- stem\nnc: 2",
            "nc: 2\nnames:\n  # of plants\n  0: leaf\n  1: 'stem'\n",
            "names: {0: leaf, 1: stem}\n",
            "names: [leaf,\n  stem]\n",
        ] {
            assert_eq!(of_yaml(text), Some(vec!["leaf".to_owned(), "stem".to_owned()]), "{text}");
        }
        assert_eq!(of_yaml("nc: 2"), Some(Vec::new()));
        for wrong in ["names: leaf", "names: [leaf", "names:\n  leaf", "names:\n  99999999: leaf"] {
            assert_eq!(of_yaml(wrong), None, "{wrong}");
        }
    }
}
