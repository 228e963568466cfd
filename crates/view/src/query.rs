//! The part of an address after the `?`.

use std::ops::Range;

use hsipack_format::{CubeShape, Error, Result};

/// Names and values, in the order of the address.
#[derive(Debug)]
pub struct Query(Vec<(String, String)>);

/// A part of a cube's image.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Rows.
    pub rows: Range<usize>,
    /// Columns.
    pub columns: Range<usize>,
}

impl Window {
    /// The whole image.
    pub fn whole(shape: CubeShape) -> Self {
        Self { rows: 0..shape.rows, columns: 0..shape.columns }
    }

    /// Number of pixels.
    pub fn pixels(&self) -> usize {
        self.rows.len() * self.columns.len()
    }
}

impl Query {
    /// Reads the text after the `?`.
    pub fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The value of `name`, if it is given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A number that is at most `most`.
    ///
    /// # Errors
    /// If the value is not such a number.
    pub fn number(&self, name: &str, default: usize, most: usize) -> Result<usize> {
        let Some(text) = self.get(name) else { return Ok(default) };
        match text.parse() {
            Ok(number) if number <= most => Ok(number),
            _ => Err(wrong(name, text, &format!("a number up to {most}"))),
        }
    }

    /// The part of the image that `rows` and `columns` name. An axis that is not named is taken as
    /// a whole.
    ///
    /// # Errors
    /// If they are not ranges within the image.
    pub fn window(&self, shape: CubeShape) -> Result<Window> {
        Ok(Window {
            rows: self.range("rows", shape.rows)?,
            columns: self.range("columns", shape.columns)?,
        })
    }

    fn range(&self, name: &str, length: usize) -> Result<Range<usize>> {
        let Some(text) = self.get(name) else { return Ok(0..length) };
        let parsed = text
            .split_once(':')
            .and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?))
            .filter(|range: &Range<usize>| range.start < range.end && range.end <= length);
        parsed.ok_or_else(|| wrong(name, text, &format!("START:END within 0:{length}")))
    }

    /// Up to `most` numbers of bands.
    ///
    /// # Errors
    /// If they are not numbers, or the cube does not have these bands.
    pub fn bands(&self, bands: usize, most: usize) -> Result<Vec<usize>> {
        let text = self.get("bands").unwrap_or_default();
        let parsed: Option<Vec<usize>> = text.split(',').map(|band| band.parse().ok()).collect();
        parsed
            .filter(|list| list.len() <= most && list.iter().all(|band| *band < bands))
            .ok_or_else(|| {
                let wanted = format!("up to {most} numbers below {bands}, with commas between");
                wrong("bands", text, &wanted)
            })
    }
}

/// The error for a value that is not what is wanted.
fn wrong(name: &str, text: &str, wanted: &str) -> Error {
    Error::conflict(format!("{name}={text} is not {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_within_the_image() {
        let shape = CubeShape::new(4, 6, 2);
        let window = |text: &str| Query::parse(text).window(shape);
        assert_eq!(window("").unwrap(), Window::whole(shape));
        let some = window("rows=1:3&columns=5:6").unwrap();
        assert_eq!((some.rows.clone(), some.columns.clone(), some.pixels()), (1..3, 5..6, 2));
        for text in ["rows=1:5", "rows=2:2", "columns=-1:2", "rows=3", "rows=a:b", "rows=3:1"] {
            assert!(window(text).unwrap_err().to_string().contains("START:END"), "{text}");
        }
    }

    #[test]
    fn bands_are_those_of_the_cube() {
        let bands = |text: &str| Query::parse(text).bands(3, 2);
        assert_eq!(bands("bands=2,0").unwrap(), [2, 0]);
        for text in ["", "bands=", "bands=3", "bands=0,1,2", "bands=0,,1"] {
            assert!(bands(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_decoded() {
        let query = Query::parse("where=a+%3D%3D+%22%3Cb%3E%22&limit=12");
        assert_eq!(query.get("where"), Some(r#"a == "<b>""#));
        assert_eq!(query.number("limit", 1, 500).unwrap(), 12);
        assert!(query.number("limit", 1, 11).is_err());
    }
}
