//! Writes maps of cubes to files, with the location of their cubes.

use std::path::PathBuf;

use hsipack_format::{CubeShape, DType, Error, Geo, names};
use hsipack_pack::export::{self, MapOptions};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors::OrRaise;
use crate::exit::calling;
use crate::settings::read;

/// A dictionary that describes a map; `hsipack.write_map` makes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    output: PathBuf,
    shape: (usize, usize, usize),
    flat: bool,
    dtype: String,
    title: String,
    /// JSON, as in `samples.jsonl`.
    geo: Option<String>,
    /// First row and column of the map in its cube.
    corner: (i64, i64),
    nodata: Option<f64>,
    names: Option<Vec<String>>,
    colors: Option<Vec<[u8; 3]>>,
}

impl Settings {
    fn options(self) -> Result<MapOptions, Error> {
        let (rows, columns, bands) = self.shape;
        let (row, column) = self.corner;
        // Older versions accepted table columns of this name; these give no location.
        let geo: Option<Geo> = self.geo.and_then(|geo| serde_json::from_str(&geo).ok());
        Ok(MapOptions {
            output: self.output,
            shape: CubeShape::new(rows, columns, bands),
            flat: self.flat,
            dtype: names::value(
                "dtype",
                &self.dtype,
                &[DType::U8, DType::U16, DType::F32],
                DType::name,
            )?,
            title: self.title,
            geo: geo.map(|geo| geo.window(row, column)),
            nodata: self.nodata,
            names: self.names,
            colours: self.colors,
        })
    }
}

/// Writes a map; returns its files and notes as JSON. `rows` is called with the first row and the
/// one after the last, and returns their values as bytes, little-endian, in (row, column, channel)
/// order.
#[pyfunction]
pub fn write_map(
    py: Python<'_>,
    settings: &Bound<'_, PyAny>,
    rows: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let options = read::<Settings>(settings)?.options().or_raise(py)?;
    let mut raised = None;
    let written = export::write_map(&options, &mut |some| {
        // Calls into Python between reads notice Ctrl-C.
        let bytes = calling(py, || rows.call1((some.start, some.end)))
            .and_then(|bytes| Ok(bytes.extract::<PyBackedBytes>()?));
        bytes.map(|bytes| bytes.to_vec()).map_err(|error| {
            raised = Some(error);
            Error::conflict("the rows of the map could not be read")
        })
    });
    match raised {
        Some(error) => Err(error),
        None => {
            let written = written.or_raise(py)?;
            Ok(serde_json::to_string(&written).expect("plain data"))
        }
    }
}
