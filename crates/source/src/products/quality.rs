//! Quality layers of products, opened as boolean layers of a mask (`products/layers.rs`).

use std::ops::Range;
use std::path::{Path, PathBuf};

use hsipack_format::{CubeShape, DType, Error, Result};

use crate::container::hdf5;
use crate::products::{Layer, Part, Test, choose, part_of};
use crate::{Access, Axes, CubeInfo, OpenOptions, RowBuffer, Source, detect};

/// The quality layers of a cube that are in one file, opened.
pub struct QualityLayers {
    /// Their names.
    pub names: Vec<String>,
    /// The file.
    pub file: PathBuf,
    /// Their values: a band of 0 and 1 for each layer.
    pub source: Box<dyn Source>,
}

/// The quality layers of the cube in `path`, which has `rows` × `columns` pixels. Empty if the cube
/// belongs to no product, or to one without such layers.
///
/// # Errors
/// If a layer cannot be read, or has another shape.
pub fn quality(
    path: &Path,
    variable: Option<&str>,
    [rows, columns]: [usize; 2],
) -> Result<Vec<QualityLayers>> {
    let layers = layers(path, variable)?;
    let in_one_file = |a: &Layer, b: &Layer| (&a.file, &a.variable) == (&b.file, &b.variable);
    layers.chunk_by(in_one_file).map(|layers| open_layers(layers, [rows, columns])).collect()
}

/// The names of these layers, as far as they are known without opening one. Empty if something is
/// wrong with them.
pub fn quality_names(path: &Path, variable: Option<&str>) -> Vec<String> {
    let layers = layers(path, variable).unwrap_or_default();
    layers.into_iter().map(|layer| layer.name).collect()
}

fn open_layers(layers: &[Layer], [rows, columns]: [usize; 2]) -> Result<QualityLayers> {
    let Layer { file, variable, order, .. } = &layers[0];
    let options = OpenOptions {
        variable: variable.clone(),
        axes: order.map(Axes::from),
        mask: true,
        image: Some([rows, columns]),
        ..OpenOptions::default()
    };
    let source = detect::open(file, &options)?;
    let shape = source.info().shape;
    for Layer { name, test, .. } in layers {
        let least = match test {
            Test::Is(band, _) | Test::IsSet(band) => band + 1,
            _ => 1,
        };
        if (shape.rows, shape.columns) != (rows, columns) || shape.bands < least {
            return Err(Error::malformed(format!(
                "the quality layer {name} is {shape}, but its cube has {rows}x{columns} pixels"
            ))
            .at(file)
            .with_remedy("check that it belongs to this cube, and copy it again"));
        }
    }
    let shape = CubeShape { bands: layers.len(), ..shape };
    let info = CubeInfo::new("quality layers", shape, DType::U8, file.clone());
    let tests = layers.iter().map(|layer| layer.test).collect();
    Ok(QualityLayers {
        names: layers.iter().map(|layer| layer.name.clone()).collect(),
        file: file.clone(),
        source: Box::new(Tested { info, source, tests }),
    })
}

fn layers(path: &Path, variable: Option<&str>) -> Result<Vec<Layer>> {
    let mut name = variable.map(str::to_owned);
    let options = OpenOptions { variable: name.clone(), ..OpenOptions::default() };
    if let Some(found) = part_of(path, &options)? {
        let image = match found.part {
            Part::Layer => return Ok(Vec::new()),
            Part::Metadata => choose(path, found.images(), &found, &mut name)?,
            _ => found,
        };
        return Ok(image.product.quality_files(&image));
    }
    let head = hsipack_store::bounded_read::head(path, 4096)?;
    if !hdf5::recognises(path, &head) {
        return Ok(Vec::new());
    }
    hdf5::quality_layers(path, variable).map_err(|error| error.at(path))
}

/// The results of tests on the values of a source.
struct Tested {
    info: CubeInfo,
    source: Box<dyn Source>,
    /// One test per layer.
    tests: Vec<Test>,
}

impl Source for Tested {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        self.source.preferred_rows(budget)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let mut values = RowBuffer::new();
        self.source.read_rows(rows, &mut values)?;
        let bands = self.source.info().shape.bands;
        let layers = out.reset(DType::U8, values.len() / bands * self.tests.len());
        for (pixel, layers) in layers.chunks_exact_mut(self.tests.len()).enumerate() {
            for (layer, test) in layers.iter_mut().zip(&self.tests) {
                *layer = test.holds(&values, pixel * bands..(pixel + 1) * bands).into();
            }
        }
        Ok(())
    }
}
