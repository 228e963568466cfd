//! Well-known binary geometries, as GeoPackages hold them.

use hsipack_format::{Error, Result};

use super::shapes::{Kind, Shape};

/// How deeply collections may be nested.
const MAX_DEPTH: usize = 8;

/// Reads a geometry.
///
/// # Errors
/// If it is malformed, or a curve.
pub(super) fn shapes(bytes: &[u8]) -> Result<Vec<Shape>> {
    let mut out = Vec::new();
    geometry(&mut Bytes { bytes }, MAX_DEPTH, &mut out)?;
    Ok(out)
}

struct Bytes<'a> {
    bytes: &'a [u8],
}

fn cut() -> Error {
    Error::malformed("a geometry is cut short")
        .with_remedy("copy the file again, or export it again")
}

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, tail) = self.bytes.split_first_chunk::<N>().ok_or_else(cut)?;
        self.bytes = tail;
        Ok(*first)
    }

    fn whole(&mut self, is_little: bool) -> Result<u32> {
        let bytes = self.take()?;
        Ok(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn number(&mut self, is_little: bool) -> Result<f64> {
        let bytes = self.take()?;
        Ok(if is_little { f64::from_le_bytes(bytes) } else { f64::from_be_bytes(bytes) })
    }

    /// A count of items, each of which takes at least `size` bytes.
    fn count(&mut self, is_little: bool, size: usize) -> Result<usize> {
        let count = self.whole(is_little)? as usize;
        if count.saturating_mul(size) > self.bytes.len() { Err(cut()) } else { Ok(count) }
    }

    fn position(&mut self, is_little: bool, dimensions: usize) -> Result<[f64; 2]> {
        let position = [self.number(is_little)?, self.number(is_little)?];
        for _ in 2..dimensions {
            self.take::<8>()?;
        }
        Ok(position)
    }

    fn positions(&mut self, is_little: bool, dimensions: usize) -> Result<Vec<[f64; 2]>> {
        let count = self.count(is_little, 8 * dimensions)?;
        (0..count).map(|_| self.position(is_little, dimensions)).collect()
    }
}

fn geometry(bytes: &mut Bytes<'_>, depth: usize, out: &mut Vec<Shape>) -> Result<()> {
    let [order] = bytes.take()?;
    let is_little = match order {
        0 => false,
        1 => true,
        other => {
            return Err(Error::malformed(format!("a geometry has the byte order {other}"))
                .with_remedy("copy the file again, or export it again"));
        }
    };
    let code = bytes.whole(is_little)?;
    // ISO adds thousands for further dimensions, PostGIS sets high bits.
    let [z, m] = [0x8000_0000, 0x4000_0000].map(|bit| usize::from(code & bit != 0));
    let code = code & 0x0FFF_FFFF;
    let dimensions = 2 + z + m + [0, 1, 1, 2].get(code as usize / 1000).copied().unwrap_or(0);
    match code % 1000 {
        1 => {
            let point = bytes.position(is_little, dimensions)?;
            // An empty point has coordinates that are no numbers.
            if !point.iter().all(|number| number.is_nan()) {
                out.push(Shape::new(Kind::Point, [vec![point]]));
            }
        }
        2 => out.push(Shape::new(Kind::Line, [bytes.positions(is_little, dimensions)?])),
        3 => {
            let rings = bytes.count(is_little, 4)?;
            let rings: Result<Vec<_>> =
                (0..rings).map(|_| bytes.positions(is_little, dimensions)).collect();
            out.push(Shape::new(Kind::Polygon, rings?));
        }
        4..=7 => {
            let parts = bytes.count(is_little, 5)?;
            if depth == 0 {
                return Err(Error::malformed("geometries are nested too deeply")
                    .with_remedy("export the file again"));
            }
            for _ in 0..parts {
                geometry(bytes, depth - 1, out)?;
            }
        }
        other => {
            return Err(Error::unsupported(format!("a geometry of the type {other}"))
                .with_remedy("convert curves to lines with ogr2ogr -nlt CONVERT_TO_LINEAR"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polygon(count: u32) -> Vec<u8> {
        let mut bytes = vec![1, 3, 0, 0, 0, 1, 0, 0, 0];
        bytes.extend(count.to_le_bytes());
        for number in [0.0, 0.0, 4.0, 0.0, 4.0, 3.0f64] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn polygons_are_read_alone_and_in_collections() {
        let ring = vec![[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]];
        let whole = Shape::new(Kind::Polygon, [ring]);
        assert_eq!(shapes(&polygon(3)).unwrap(), std::slice::from_ref(&whole));
        let mut both = vec![1, 6, 0, 0, 0, 2, 0, 0, 0];
        both.extend(polygon(3).repeat(2));
        assert_eq!(shapes(&both).unwrap(), [whole.clone(), whole]);
        let mut high = vec![0, 0, 0, 3, 0xE9];
        for number in [1.0, 2.0, 3.0f64] {
            high.extend(number.to_be_bytes());
        }
        assert_eq!(shapes(&high).unwrap()[0].points, [[1.0, 2.0]]);
    }

    #[test]
    fn damaged_geometries_are_refused() {
        let nested = [[1u8, 7, 0, 0, 0, 1, 0, 0, 0]; 20].concat();
        for bytes in
            [&[][..], &[2], &[1, 3, 0, 0, 0, 255, 255, 255, 255], &[1, 8, 0, 0, 0], &nested]
        {
            assert!(shapes(bytes).is_err(), "{bytes:?}");
        }
        for end in 0..polygon(3).len() {
            assert!(shapes(&polygon(3)[..end]).is_err(), "{end}");
        }
        assert!(shapes(&polygon(u32::MAX)).is_err());
    }
}
