//! The order of a cube's axes in memory or in a file.

use hsipack_format::CubeShape;

/// The three axes of a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Image rows (y).
    Row,
    /// Image columns (x).
    Column,
    /// Bands (b).
    Band,
}

/// The meaning of an array's axes in index order, slowest in C order first; `yxb` is (row, column,
/// band).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisOrder(pub [Axis; 3]);

impl AxisOrder {
    /// Band-interleaved by pixel: (row, column, band).
    pub const BIP: AxisOrder = AxisOrder([Axis::Row, Axis::Column, Axis::Band]);
    /// Band-interleaved by line: (row, band, column).
    pub const BIL: AxisOrder = AxisOrder([Axis::Row, Axis::Band, Axis::Column]);
    /// Band-sequential: (band, row, column).
    pub const BSQ: AxisOrder = AxisOrder([Axis::Band, Axis::Row, Axis::Column]);

    /// The same axes in reverse: the order in C of an array that is stored in Fortran order.
    pub fn reversed(self) -> AxisOrder {
        let [a, b, c] = self.0;
        AxisOrder([c, b, a])
    }

    /// The position of `axis`, 0 to 2.
    pub fn position(self, axis: Axis) -> usize {
        self.0.iter().position(|a| *a == axis).expect("each axis occurs once")
    }

    /// The cube shape of an array with these `lengths` in index order.
    pub fn shape(self, lengths: [usize; 3]) -> CubeShape {
        CubeShape::new(
            lengths[self.position(Axis::Row)],
            lengths[self.position(Axis::Column)],
            lengths[self.position(Axis::Band)],
        )
    }

    /// The lengths in index order of an array that holds a cube of `shape`.
    pub fn lengths(self, shape: CubeShape) -> [usize; 3] {
        self.0.map(|axis| match axis {
            Axis::Row => shape.rows,
            Axis::Column => shape.columns,
            Axis::Band => shape.bands,
        })
    }
}

impl std::fmt::Display for AxisOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for axis in self.0 {
            f.write_str(match axis {
                Axis::Row => "y",
                Axis::Column => "x",
                Axis::Band => "b",
            })?;
        }
        Ok(())
    }
}
