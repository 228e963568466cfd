//! The georeferencing of an array that a program gives.

use hsipack_format::geo::Unit;
use hsipack_format::{Error, Geo, Result, text};

use crate::place::georeference;

/// If the cosine of the angle between the axes of pixels is below this, they count as
/// perpendicular.
const RIGHT: f64 = 1e-3;

/// The georeferencing of cube `name`. `crs` is a reference system: `EPSG:` and a code, or WKT.
/// `transform` is in GDAL's order. `unit` is the unit of positions if the reference system does not
/// define one.
///
/// # Errors
/// If `crs` is neither, `transform` gives pixels no position and size, or its numbers are in
/// rasterio's order.
pub fn array_geo(
    name: &str,
    crs: Option<&str>,
    transform: [f64; 6],
    unit: Option<Unit>,
) -> Result<Geo> {
    let wrong =
        |what: String| Error::conflict(format!("cube '{}': geo: {what}", text::printable(name)));
    let parsed = crs.map(|crs| {
        georeference::crs(crs).ok_or_else(|| {
            wrong(format!("{} is not a coordinate reference system", shown(crs)))
                .with_remedy("give EPSG: and a code, such as EPSG:32632, or WKT")
        })
    });
    let (crs, crs_unit) = parsed.transpose()?.unzip();
    if in_other_order(transform) {
        return Err(wrong(format!(
            "the transform {transform:?} is in the order of rasterio's Affine"
        ))
        .with_remedy("give GDAL's order, transform.to_gdal(), or the Affine itself"));
    }
    let geo = Geo::new(crs, transform).ok_or_else(|| {
        wrong(format!("the transform {transform:?} does not give the position and size of pixels")).with_remedy(
            "give six finite numbers in GDAL's order: x of the upper left corner, width of a pixel, 0, y of that corner, 0, height of a pixel, negative if rows run south",
        )
    })?;
    Ok(geo.in_unit(crs_unit.flatten().or(unit)))
}

/// A text for an error message, shortened if it is long.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(60).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("'{}{more}'", text::printable(&start))
}

/// Whether the six numbers look like rasterio's order: pixels would be oblique in GDAL's order, but
/// are perpendicular and nearly square in rasterio's. GDAL's order is c, a, b, f, d, e; rasterio
/// and the affine package use a, b, c, d, e, f of x = a·column + b·row + c, y = d·column + e·row +
/// f.
fn in_other_order([a, b, c, d, e, f]: [f64; 6]) -> bool {
    let (column, row) = ([a, d], [b, e]);
    let ratio = length(column) / length(row);
    obliqueness([b, e], [c, f]) > RIGHT
        && obliqueness(column, row) < RIGHT
        && (0.1..10.0).contains(&ratio)
}

fn length([x, y]: [f64; 2]) -> f64 {
    x.hypot(y)
}

/// The cosine of the angle between two axes; 1 if one has no length.
fn obliqueness(first: [f64; 2], other: [f64; 2]) -> f64 {
    let lengths = length(first) * length(other);
    if lengths == 0.0 { 1.0 } else { ((first[0] * other[0] + first[1] * other[1]) / lengths).abs() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORTH_UP: [f64; 6] = [634_200.0, 30.0, 0.0, 5_297_190.0, 0.0, -30.0];

    fn refused(crs: Option<&str>, transform: [f64; 6]) -> String {
        array_geo("a", crs, transform, None).unwrap_err().to_string()
    }

    #[test]
    fn systems_and_transforms_become_georeferencing() {
        let geo = array_geo("a", Some("epsg:32632"), NORTH_UP, None).unwrap();
        assert_eq!((geo.crs.as_deref(), geo.unit), (Some("EPSG:32632"), Some(Unit::Metre)));
        assert_eq!(geo.transform, NORTH_UP);
        let local = array_geo("a", None, NORTH_UP, Some(Unit::Metre)).unwrap();
        assert_eq!((local.crs, local.unit), (None, Some(Unit::Metre)));
    }

    #[test]
    fn errors_name_the_cube() {
        let message = refused(Some("WGS 84"), NORTH_UP);
        assert!(
            message.starts_with("cube 'a': geo: 'WGS 84' is not a coordinate reference"),
            "{message}"
        );
        for transform in [[f64::NAN; 6], [0.0; 6], [1.0, 2.0, 2.0, 3.0, 4.0, 4.0]] {
            let message = refused(None, transform);
            assert!(
                message.contains("cube 'a': geo: the transform [") && message.contains("GDAL"),
                "{message}"
            );
        }
        let long = refused(Some(&"x".repeat(1000)), NORTH_UP);
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn rasterios_order_is_told_from_gdals() {
        let turned = |angle: f64| {
            let (sin, cos) = angle.to_radians().sin_cos();
            [634_200.0, 30.0 * cos, 30.0 * sin, 5_297_190.0, 30.0 * sin, -30.0 * cos]
        };
        for angle in [0.0, 27.0, 45.0, 90.0, 180.0, 200.0] {
            let [c, a, b, f, d, e] = turned(angle);
            assert!(array_geo("a", None, turned(angle), None).is_ok(), "{angle}");
            let message = refused(None, [a, b, c, d, e, f]);
            assert!(message.contains("Affine"), "{angle}: {message}");
        }
        // In degrees, and in metres near the equator.
        for [c, a, b, f, d, e] in
            [[7.5, 1e-3, 0.0, 47.25, 0.0, -1e-3], [634_200.0, 30.0, 0.0, 3000.0, 0.0, -30.0]]
        {
            assert!(refused(None, [a, b, c, d, e, f]).contains("Affine"));
        }
        // A sheared transform in GDAL's order is accepted.
        assert!(array_geo("a", None, [0.0, 1.0, 0.5, 100.0, 0.0, -1.0], None).is_ok());
    }
}
