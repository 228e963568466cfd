//! GeoPackages: tables of features in an SQLite database.

use std::path::Path;

use hsipack_format::{Error, Opt, Result, remedy};

use super::classes::Value;
use super::features::{Budget, Feature, Features, remember};
use super::sqlite::{Cell, Database, SIGNATURE, TableOfFile};
use super::wkb;
use crate::place::georeference;

/// Whether a file that starts with `head` is an SQLite database.
pub(super) fn recognises(head: &[u8]) -> bool {
    head.starts_with(SIGNATURE)
}

/// Reads the features in `path`, with the values of an attribute, which may stand behind a layer:
/// `LAYER/ATTRIBUTE`.
///
/// # Errors
/// If the file is no GeoPackage, is malformed, or has several layers and none is named.
pub(super) fn read(path: &Path, attribute: Option<&str>) -> Result<Features> {
    let database = Database::open(path)?;
    let layers = layers(&database)?;
    let named = attribute.and_then(|attribute| attribute.rsplit_once('/'));
    let layer = match (named, &layers[..]) {
        (Some((name, _)), layers) => {
            layers.iter().find(|layer| layer.table == name).ok_or_else(|| {
                Error::unsupported(format!("the GeoPackage has no layer {name:?}"))
                    .with_remedy(format!("its layers: {}", names(layers)))
            })?
        }
        (None, [only]) => only,
        (None, []) => {
            return Err(Error::unsupported("the database has no layer of features")
                .with_remedy("give a GeoPackage with polygons, lines or points"));
        }
        (None, layers) => {
            return Err(Error::ambiguous("the GeoPackage has several layers")
                .with_choices(layers.iter().map(|layer| layer.table.clone()).collect())
                .with_remedy(remedy![
                    "name the layer before the attribute: ",
                    Opt::Mask.to("NAME=FILE::LAYER/ATTRIBUTE")
                ]));
        }
    };
    let wanted = named.map(|(_, attribute)| attribute).or(attribute);
    let table = database.table(&layer.table)?;
    let geometry = column(&table, &layer.column)?;
    let mut attributes = Vec::new();
    for column in table.columns.iter().filter(|column| column.name != layer.column) {
        remember(&mut attributes, &column.name);
    }
    let value = wanted.and_then(|wanted| column(&table, wanted).ok());
    if let (Some(wanted), Some(_)) = (wanted, value) {
        attributes.insert(0, wanted.to_owned());
    }
    let (mut features, mut budget) = (Vec::new(), Budget::default());
    database.each_row(&table, &mut |row| {
        let number = features.len();
        let shapes = match &row[geometry] {
            Cell::Bytes(bytes) => shapes(bytes),
            Cell::Null => Ok(Vec::new()),
            _ => Err(Error::malformed("the geometry is not binary")
                .with_remedy("export the GeoPackage again")),
        };
        let shapes = shapes.map_err(|error| error.within(format!("feature {number}")))?;
        budget.take(&shapes, number)?;
        let value = value.map_or(Value::Null, |value| match &row[value] {
            Cell::Whole(number) => Value::Number(*number as f64),
            Cell::Real(number) => Value::Number(*number),
            Cell::Text(text) => Value::Text(text.clone()),
            Cell::Null | Cell::Bytes(_) => Value::Null,
        });
        features.push(Feature { shapes, value });
        Ok(())
    })?;
    Ok(Features {
        format: "GeoPackage",
        crs: crs(&database, layer.system)?,
        features,
        attributes,
        files: vec![path.to_owned()],
    })
}

/// A layer of features.
struct Layer {
    table: String,
    column: String,
    /// The id of its reference system.
    system: i64,
}

fn names(layers: &[Layer]) -> String {
    layers.iter().map(|layer| layer.table.as_str()).collect::<Vec<_>>().join(", ")
}

fn layers(database: &Database) -> Result<Vec<Layer>> {
    let table = database
        .table("gpkg_geometry_columns")
        .map_err(|error| error.within("this is no GeoPackage of features"))?;
    let [name, geometry, system] =
        ["table_name", "column_name", "srs_id"].map(|name| column(&table, name));
    let (name, geometry, system) = (name?, geometry?, system?);
    let mut layers = Vec::new();
    database.each_row(&table, &mut |row| {
        if let (Some(table), Some(column)) = (row[name].text(), row[geometry].text()) {
            let system = row[system].whole().unwrap_or(-1);
            layers.push(Layer { table: table.to_owned(), column: column.to_owned(), system });
        }
        Ok(())
    })?;
    Ok(layers)
}

fn column(table: &TableOfFile, name: &str) -> Result<usize> {
    let position = table.columns.iter().position(|column| column.name == name);
    position.ok_or_else(|| {
        Error::malformed(format!("table {} has no column {name}", table.name))
            .with_remedy("export the GeoPackage again")
    })
}

/// The reference system with this id; `None` if it is none on Earth.
fn crs(database: &Database, id: i64) -> Result<Option<String>> {
    // By the standard these are undefined systems.
    if id == 0 || id == -1 {
        return Ok(None);
    }
    let table = database.table("gpkg_spatial_ref_sys")?;
    let columns = ["srs_id", "organization", "organization_coordsys_id", "definition"];
    let [srs_id, organization, code, definition] = columns.map(|name| column(&table, name));
    let (srs_id, organization, code, definition) = (srs_id?, organization?, code?, definition?);
    let mut found = None;
    database.each_row(&table, &mut |row| {
        if row[srs_id].whole() == Some(id) {
            let is_epsg =
                row[organization].text().is_some_and(|name| name.eq_ignore_ascii_case("epsg"));
            let epsg = row[code].whole().filter(|_| is_epsg).map(|code| format!("EPSG:{code}"));
            let text = || georeference::crs(row[definition].text()?).map(|(crs, _)| crs);
            found = Some(
                epsg.or_else(text).unwrap_or_else(|| format!("system {id} of the GeoPackage")),
            );
        }
        Ok(())
    })?;
    found.map(Some).ok_or_else(|| {
        Error::malformed(format!("the GeoPackage does not describe the reference system {id}"))
            .with_remedy("export the GeoPackage again")
    })
}

/// The shapes of a geometry as GeoPackages store it: a header, and well-known binary.
fn shapes(bytes: &[u8]) -> Result<Vec<super::shapes::Shape>> {
    let odd = || {
        Error::malformed("the geometry has no header of a GeoPackage")
            .with_remedy("export the GeoPackage again")
    };
    let [b'G', b'P', _, flags, ..] = bytes else { return Err(odd()) };
    let is_empty = flags & 0x10 != 0;
    if is_empty {
        return Ok(Vec::new());
    }
    let envelope = [0, 32, 48, 48, 64].get(usize::from(flags >> 1 & 7)).ok_or_else(odd)?;
    wkb::shapes(bytes.get(8 + envelope..).ok_or_else(odd)?)
}
