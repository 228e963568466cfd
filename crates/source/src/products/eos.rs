//! Grids of HDF-EOS5: what `StructMetadata.0` says, a text of groups of `NAME=VALUE`.
//!
//! ```text
//! GROUP=GRID_1
//!     GridName="HYP"
//!     XDim=22
//!     YDim=20
//!     UpperLeftPointMtrs=(634200.0,5297190.0)
//!     LowerRightMtrs=(634860.0,5296590.0)
//! END_GROUP=GRID_1
//! ```

/// Where a grid lies. Its corners are the outer corners of its pixels.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub struct Grid {
    columns: f64,
    rows: f64,
    upper_left: [f64; 2],
    lower_right: [f64; 2],
}

impl Grid {
    /// The grid `name` in the text of a `StructMetadata.0`; `None` if the text has no such grid, or
    /// lacks part of it.
    pub fn parse(text: &str, name: &str) -> Option<Self> {
        let quoted = format!("GridName=\"{name}\"");
        let lines = text.lines().map(str::trim).skip_while(|line| *line != quoted);
        let grid_lines: Vec<&str> =
            lines.take_while(|line| !line.starts_with("END_GROUP=GRID_")).collect();
        let value = |key: &str| {
            grid_lines
                .iter()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .map(str::trim)
        };
        let number = |text: &str| text.trim().parse().ok().filter(|n: &f64| n.is_finite());
        let side = |key| number(value(key)?).filter(|side| *side >= 1.0);
        let corner = |key| {
            let (x, y) = value(key)?.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
            Some([number(x)?, number(y)?])
        };
        Some(Self {
            columns: side("XDim")?,
            rows: side("YDim")?,
            upper_left: corner("UpperLeftPointMtrs")?,
            lower_right: corner("LowerRightMtrs")?,
        })
    }

    /// From columns and rows to positions, in GDAL's order.
    pub fn transform(&self) -> [f64; 6] {
        let ([left, top], [right, bottom]) = (self.upper_left, self.lower_right);
        [left, (right - left) / self.columns, 0.0, top, 0.0, (bottom - top) / self.rows]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "GROUP=GridStructure\n\tGROUP=GRID_1\n\t\tGridName=\"HYP\"\n\t\tXDim=22\n\t\tYDim=20\n\
        \t\tUpperLeftPointMtrs=(634200.000000,5297190.000000)\n\t\tLowerRightMtrs=(634860.000000,5296590.000000)\n\
        \tEND_GROUP=GRID_1\nEND_GROUP=GridStructure\n";

    #[test]
    fn corners_are_those_of_pixels() {
        let grid = Grid::parse(TEXT, "HYP").unwrap();
        assert_eq!(grid.transform(), [634200.0, 30.0, 0.0, 5297190.0, 0.0, -30.0]);
    }

    #[test]
    fn incomplete_grids_are_ignored() {
        assert_eq!(Grid::parse(TEXT, "OTHER"), None);
        for (from, to) in [
            ("XDim=22", "XDim=0"),
            ("YDim", "ZDim"),
            ("5297190.000000", "x"),
            ("(634860", "634860"),
        ] {
            assert_eq!(Grid::parse(&TEXT.replace(from, to), "HYP"), None, "{to}");
        }
    }
}
