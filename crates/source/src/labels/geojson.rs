//! GeoJSON, read feature by feature.

use std::fmt;
use std::io::BufReader;
use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::classes::{MAX_NAME, Value};
use super::features::{Budget, Feature, Features, remember};
use super::json;
use super::shapes::{Kind, Shape};

/// Reads the features in `path`, with the values of an attribute.
///
/// # Errors
/// If the file is not GeoJSON.
pub(super) fn read(path: &Path, attribute: Option<&str>) -> Result<Features> {
    let mut file = BufReader::new(bounded_read::window(path)?);
    json::skip_mark(&mut file)?;
    let mut read = Reading { attribute, ..Reading::default() };
    let mut json = serde_json::Deserializer::from_reader(file);
    let parsed = Document(&mut read).deserialize(&mut json).and_then(|()| json.end());
    if let Some(error) = read.error.take() {
        return Err(error);
    }
    parsed.map_err(|error| {
        Error::malformed(format!("cannot read the GeoJSON file: {error}"))
            .with_remedy("give a GeoJSON FeatureCollection, or convert the file with ogr2ogr")
    })?;
    match &*read.kind {
        "FeatureCollection" => {}
        "Feature" => {
            let (shapes, value) = read.single.take().unwrap_or_default();
            read.add(shapes, value).map_err(|error| error.at(path))?;
        }
        other => {
            return Err(Error::unsupported(format!(
                "the JSON file is of the type {other:?}, not a GeoJSON FeatureCollection"
            ))
            .with_remedy("give a GeoJSON file of features, such as ogr2ogr writes"));
        }
    }
    let crs = match read.crs {
        // Without this member, coordinates are longitude and latitude.
        Member::Absent => Some("EPSG:4326".to_owned()),
        Member::Unknown => None,
        Member::Named(name) => Some(crs_of(&name)),
    };
    Ok(Features {
        format: "GeoJSON",
        crs,
        features: read.features,
        attributes: read.attributes,
        files: vec![path.to_owned()],
    })
}

/// The reference system with this name: `urn:ogc:def:crs:EPSG::32631`, `EPSG:32631`,
/// `urn:ogc:def:crs:OGC:1.3:CRS84`.
fn crs_of(name: &str) -> String {
    let parts: Vec<&str> = name.split([':', '/']).collect();
    match parts[..] {
        [.., "CRS84" | "CRS84h"] => "EPSG:4326".to_owned(),
        [.., "EPSG", code] | [.., "EPSG", _, code] => format!("EPSG:{code}"),
        _ => name.to_owned(),
    }
}

/// The member `crs`.
#[derive(Default)]
enum Member {
    #[default]
    Absent,
    Unknown,
    Named(String),
}

/// The features that were read so far.
#[derive(Default)]
struct Reading<'a> {
    attribute: Option<&'a str>,
    kind: String,
    crs: Member,
    features: Vec<Feature>,
    attributes: Vec<String>,
    budget: Budget,
    /// Geometry and value of a file that is a single feature.
    single: Option<(Vec<Shape>, Option<Value>)>,
    /// An error that says more than that of the parser.
    error: Option<Error>,
}

impl Reading<'_> {
    fn add(&mut self, shapes: Vec<Shape>, value: Option<Value>) -> Result<()> {
        self.budget.take(&shapes, self.features.len())?;
        self.features.push(Feature { shapes, value: value.unwrap_or(Value::Null) });
        Ok(())
    }
}

/// The whole file.
struct Document<'a, 'b>(&'a mut Reading<'b>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a GeoJSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        #[derive(Deserialize)]
        struct Crs {
            #[serde(default)]
            properties: Properties,
        }
        #[derive(Default, Deserialize)]
        struct Properties {
            name: Option<String>,
        }
        let read = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "type" => read.kind = map.next_value()?,
                "crs" => {
                    let crs: Option<Crs> = map.next_value()?;
                    read.crs = match crs.and_then(|crs| crs.properties.name) {
                        Some(name) => Member::Named(name),
                        None => Member::Unknown,
                    };
                }
                "features" => map.next_value_seed(Collection(read))?,
                "geometry" | "properties" => {
                    let mut single = read.single.take().unwrap_or_default();
                    member(&key, &mut map, read, &mut single)?;
                    read.single = Some(single);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// The list of features.
struct Collection<'a, 'b>(&'a mut Reading<'b>);

impl<'de> DeserializeSeed<'de> for Collection<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Collection<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of features")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(OneFeature(self.0))?.is_some() {}
        Ok(())
    }
}

/// One feature.
struct OneFeature<'a, 'b>(&'a mut Reading<'b>);

impl<'de> DeserializeSeed<'de> for OneFeature<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneFeature<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a feature")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let read = self.0;
        let mut feature = Default::default();
        while let Some(key) = map.next_key::<String>()? {
            member(&key, &mut map, read, &mut feature)?;
        }
        read.add(feature.0, feature.1).map_err(|error| {
            let text = error.what().to_owned();
            read.error = Some(error);
            de::Error::custom(text)
        })
    }
}

/// A member of a feature.
fn member<'de, A: MapAccess<'de>>(
    key: &str,
    map: &mut A,
    read: &mut Reading<'_>,
    (shapes, value): &mut (Vec<Shape>, Option<Value>),
) -> Result<(), A::Error> {
    let number = read.features.len();
    match key {
        "geometry" => {
            let geometry: Option<Geometry> = map
                .next_value()
                .map_err(|error| de::Error::custom(format!("feature {number}: {error}")))?;
            if let Some(geometry) = geometry {
                geometry
                    .shapes(shapes)
                    .map_err(|what| de::Error::custom(format!("feature {number}: {what}")))?;
            }
        }
        "properties" => {
            let found = map.next_value_seed(OfFeature {
                attribute: read.attribute,
                attributes: &mut read.attributes,
            })?;
            *value = found;
        }
        _ => {
            map.next_value::<IgnoredAny>()?;
        }
    }
    Ok(())
}

/// The properties of a feature, of which one is kept.
struct OfFeature<'a> {
    attribute: Option<&'a str>,
    attributes: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for OfFeature<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Value>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OfFeature<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the properties of a feature")
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Value>, A::Error> {
        let mut value = None;
        while let Some(key) = map.next_key::<String>()? {
            if self.attribute.is_some_and(|attribute| attribute == key) {
                value = Some(map.next_value::<Plain>()?.0);
                if !self.attributes.contains(&key) {
                    self.attributes.insert(0, key);
                }
            } else {
                map.next_value::<IgnoredAny>()?;
                remember(self.attributes, &key);
            }
        }
        Ok(value)
    }
}

/// A number, a text or nothing.
struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfPlain;
        impl<'de> Visitor<'de> for OfPlain {
            type Value = Plain;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a text as the class of a feature")
            }

            fn visit_unit<E>(self) -> Result<Plain, E> {
                Ok(Plain(Value::Null))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Plain, E> {
                Ok(Plain(Value::Number(value.into())))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Plain, E> {
                Ok(Plain(Value::Number(value as f64)))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Plain, E> {
                Ok(Plain(Value::Number(value as f64)))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Plain, E> {
                Ok(Plain(Value::Number(value)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Plain, E> {
                if text.len() > MAX_NAME {
                    return Err(E::custom(format!(
                        "a text of {} bytes is no name of a class",
                        text.len()
                    )));
                }
                Ok(Plain(Value::Text(text.to_owned())))
            }
        }
        from.deserialize_any(OfPlain)
    }
}

/// A geometry. The parser limits how deeply collections are nested.
#[derive(Deserialize)]
struct Geometry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    coordinates: Coordinates,
    #[serde(default)]
    geometries: Vec<Geometry>,
}

impl Geometry {
    fn shapes(self, out: &mut Vec<Shape>) -> std::result::Result<(), String> {
        let Coordinates { points, lines, groups, depth } = self.coordinates;
        let (kind, right) = match &*self.kind {
            "GeometryCollection" => {
                return self.geometries.into_iter().try_for_each(|geometry| geometry.shapes(out));
            }
            "Point" => (Kind::Point, 1),
            "MultiPoint" => (Kind::Point, 2),
            "LineString" => (Kind::Line, 2),
            "MultiLineString" => (Kind::Line, 3),
            "Polygon" => (Kind::Polygon, 3),
            "MultiPolygon" => (Kind::Polygon, 4),
            other => return Err(format!("there is no geometry of the type {other:?}")),
        };
        // Empty lists have the depth of no list.
        if points.is_empty() {
            return Ok(());
        }
        if depth != right {
            return Err(format!(
                "the coordinates of a {} are {depth} lists deep instead of {right}",
                self.kind
            ));
        }
        match kind {
            Kind::Polygon if depth == 4 => {
                let mut first = 0;
                for group in groups {
                    let start = if first == 0 { 0 } else { lines[first - 1] };
                    let end = if group == 0 { 0 } else { lines[group - 1] };
                    let ends = lines[first..group].iter().map(|end| end - start).collect();
                    out.push(Shape { kind, points: points[start..end].to_vec(), ends });
                    first = group;
                }
            }
            Kind::Polygon | Kind::Line if depth >= 3 => {
                out.push(Shape { kind, points, ends: lines })
            }
            _ => out.push(Shape { kind, ends: vec![points.len()], points }),
        }
        Ok(())
    }
}

/// Nested lists of numbers.
#[derive(Default)]
struct Coordinates {
    points: Vec<[f64; 2]>,
    /// Where each list of points ends in `points`.
    lines: Vec<usize>,
    /// Where each list of such lists ends in `lines`.
    groups: Vec<usize>,
    /// How deeply numbers are nested.
    depth: usize,
}

impl<'de> Deserialize<'de> for Coordinates {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut all = Self::default();
        match (List { all: &mut all, level: 1 }).deserialize(from)? {
            Item::Number(_) => Err(de::Error::custom("coordinates are a number, not a list")),
            Item::List(depth) => {
                all.depth = depth;
                Ok(all)
            }
        }
    }
}

/// A part of coordinates: a number, or a list of so many levels.
enum Item {
    Number(f64),
    List(usize),
}

/// Reads an item at a level, which is 1 for the whole.
struct List<'a> {
    all: &'a mut Coordinates,
    level: usize,
}

/// Coordinates of polygons of a MultiPolygon are lists of lists of lists of lists.
const MAX_LEVELS: usize = 4;

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Item, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("coordinates: numbers in lists")
    }

    fn visit_unit<E>(self) -> Result<Item, E> {
        Ok(Item::List(0))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Item, E> {
        Ok(Item::Number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Item, E> {
        Ok(Item::Number(number as f64))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Item, E> {
        Ok(Item::Number(number as f64))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Item, A::Error> {
        if self.level > MAX_LEVELS {
            return Err(de::Error::custom("coordinates are nested too deeply"));
        }
        let (mut position, mut numbers, mut below) = ([0.0; 2], 0, None);
        while let Some(item) =
            list.next_element_seed(List { all: &mut *self.all, level: self.level + 1 })?
        {
            match item {
                Item::Number(number) if below.is_none() => {
                    if let Some(slot) = position.get_mut(numbers) {
                        *slot = number;
                    }
                    numbers += 1;
                }
                Item::List(depth)
                    if numbers == 0
                        && below
                            .is_none_or(|before| before == depth || depth == 0 || before == 0) =>
                {
                    below = Some(below.filter(|before| *before != 0).unwrap_or(depth));
                }
                _ => return Err(de::Error::custom("coordinates are nested unevenly")),
            }
        }
        match (numbers, below) {
            (0, None) => Ok(Item::List(0)),
            (1, _) => Err(de::Error::custom("a position has a single number")),
            (0, Some(below)) => {
                match below {
                    1 => self.all.lines.push(self.all.points.len()),
                    2 => self.all.groups.push(self.all.lines.len()),
                    _ => {}
                }
                Ok(Item::List(if below == 0 { 0 } else { below + 1 }))
            }
            _ => {
                self.all.points.push(position);
                Ok(Item::List(1))
            }
        }
    }
}
