//! Where cubes are on Earth, in longitude and latitude, and when they were measured.

use std::collections::BTreeMap;

use hsipack_format::{Geo, Sample};
use hsipack_source::labels::Conversion;
use hsipack_store::Dataset;
use serde_json::Value;

use crate::about::{About, rfc3339};

/// The reference system of GeoJSON.
const LONGITUDE_LATITUDE: &str = "EPSG:4326";
/// The most items of a collection: each is a file.
const MAX_ITEMS: usize = 10_000;

/// When something was measured, in UTC by RFC 3339.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Time {
    /// At one time.
    At(String),
    /// Between two times.
    Between(String, String),
}

/// A cube that has a place and a time.
pub(crate) struct Footprint {
    /// Id of the sample.
    pub(crate) id: usize,
    /// Its name.
    pub(crate) name: String,
    /// Number of its stack.
    pub(crate) stack: usize,
    /// Position in the arrays of the stack.
    pub(crate) index: usize,
    /// Its georeferencing.
    pub(crate) geo: Geo,
    /// Its corners as longitude and latitude, counter-clockwise.
    pub(crate) corners: [[f64; 2]; 4],
    /// When it was measured.
    pub(crate) time: Time,
}

/// The places of a dataset's cubes.
pub(crate) struct Footprints {
    /// Cubes that can be items of a catalogue.
    pub(crate) items: Vec<Footprint>,
    between: Option<Time>,
    /// By reference system; `None` if it cannot be converted.
    conversions: BTreeMap<String, Option<Converted>>,
    omissions: BTreeMap<&'static str, usize>,
}

/// Conversion of positions; `None` if they are longitude and latitude already.
type Converted = Option<Conversion>;

impl Footprints {
    /// No places yet.
    pub(crate) fn new(about: &About) -> Self {
        let [start, end] = [&about.start, &about.end].map(|time| time.as_deref().and_then(rfc3339));
        Self {
            items: Vec::new(),
            between: start.zip(end).map(|(start, end)| Time::Between(start, end)),
            conversions: BTreeMap::new(),
            omissions: BTreeMap::new(),
        }
    }

    /// Adds a sample, if it has a place and a time.
    pub(crate) fn add(&mut self, dataset: &Dataset, sample: &Sample) {
        let Some(geo) = &sample.geo else { return };
        let stack = dataset.samples().stack(sample.id);
        let shape = dataset.stacks()[stack].image.shape();
        match self.place(geo, [shape.rows, shape.columns], sample) {
            Ok(_) if self.items.len() == MAX_ITEMS => {
                *self.omissions.entry("are beyond the 10000th").or_default() += 1;
            }
            Ok((corners, time)) => self.items.push(Footprint {
                id: sample.id,
                name: sample.name.clone(),
                stack,
                index: sample.index,
                geo: geo.clone(),
                corners,
                time,
            }),
            Err(reason) => *self.omissions.entry(reason).or_default() += 1,
        }
    }

    /// The corners and the time of a cube, or why it has none.
    fn place(
        &mut self,
        geo: &Geo,
        [rows, columns]: [usize; 2],
        sample: &Sample,
    ) -> Result<([[f64; 2]; 4], Time), &'static str> {
        let crs = geo.crs.as_deref().ok_or("have no reference system")?;
        let of_column = match sample.columns.get("time") {
            Some(Value::String(text)) => rfc3339(text).map(Time::At),
            _ => None,
        };
        let is_unknown = sample.columns.get("time").is_some_and(|time| !time.is_null());
        let time = of_column.or_else(|| self.between.clone()).ok_or(match is_unknown {
            true => {
                "have no time that can be read in the column time: write it as 2020-01-01T10:00:00Z"
            }
            false => "have no time: give start and end in the author's file, or a column time",
        })?;
        let conversion = self
            .conversions
            .entry(crs.to_owned())
            .or_insert_with(|| Conversion::between(Some(crs), Some(LONGITUDE_LATITUDE)).ok());
        let conversion = conversion.as_ref().ok_or(
            "have a reference system that hsipack cannot convert to longitude and latitude",
        )?;
        let (right, bottom) = (columns as f64, rows as f64);
        let mut corners = [[0.0; 2]; 4];
        for (corner, [column, row]) in
            corners.iter_mut().zip([[0.0, 0.0], [0.0, bottom], [right, bottom], [right, 0.0]])
        {
            let position = geo.at(column, row);
            let converted = match conversion {
                Some(conversion) => conversion.point(position),
                None => Some(position),
            };
            *corner = converted.ok_or(NOT_ON_EARTH)?;
        }
        let longitudes = corners.map(|corner| corner[0]);
        let [west, east] = extent(&longitudes);
        let crosses = |meridian: f64| west < meridian && meridian < east;
        if corners.iter().any(|[_, latitude]| latitude.abs() > 90.0) {
            return Err(NOT_ON_EARTH);
        }
        if east - west > 180.0 || crosses(180.0) || crosses(-180.0) {
            return Err("cross the antimeridian");
        }
        if west < -180.0 || east > 180.0 {
            return Err(NOT_ON_EARTH);
        }
        if doubled_area(&corners) < 0.0 {
            corners.reverse();
        }
        Ok((corners, time))
    }

    /// Which georeferenced cubes are no items, and why.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.omissions
            .iter()
            .map(|(reason, count)| {
                format!("STAC: {count} georeferenced cube(s) left out, because they {reason}")
            })
            .collect()
    }
}

/// Why a cube has no footprint.
const NOT_ON_EARTH: &str = "have corners that are not on Earth";

/// Least and greatest value.
pub(crate) fn extent(values: &[f64]) -> [f64; 2] {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    [least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max)]
}

/// Twice the area of a polygon; positive if its corners are counter-clockwise.
fn doubled_area(corners: &[[f64; 2]; 4]) -> f64 {
    (0..4)
        .map(|at| {
            let ([x, y], [next_x, next_y]) = (corners[at], corners[(at + 1) % 4]);
            x * next_y - next_x * y
        })
        .sum()
}
