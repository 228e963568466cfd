//! Which axis of an array is which.

use hsipack_format::{Error, Result};

use super::choose::Found;
use super::metadata::ArrayMetadata;
use super::spectral::Spectrum;
use crate::source::{Axis, AxisOrder, OpenOptions};

/// The array's axes as a cube's: three lengths, the last one 1 for 2-D masks.
pub(super) fn cube_lengths(found: &Found, options: &OpenOptions) -> Result<[usize; 3]> {
    let shape = found.array().map_or(&[][..], |array| &array.shape);
    match (shape, options.mask) {
        ([a, b, c], _) => Ok([*a, *b, *c]),
        ([a, b], true) => Ok([*a, *b, 1]),
        ([_, _], false) => Err(Error::unsupported(format!("a 2-D array of {shape:?}, not a cube"))
            .with_remedy("give a 3-D array; a mask goes to --mask")),
        _ => Err(Error::unsupported(format!("an array of {} axes, {shape:?}", shape.len()))
            .with_remedy("write one 3-D array (row, column, band) for each cube")),
    }
}

/// What a name says about an axis.
pub(super) fn axis_named(name: &str) -> Option<Axis> {
    Some(match name.to_lowercase().as_str() {
        "y" | "row" | "rows" | "lat" | "latitude" | "line" | "lines" | "northing" | "downtrack"
        | "height" => Axis::Row,
        "x" | "col" | "cols" | "column" | "columns" | "lon" | "longitude" | "sample"
        | "samples" | "easting" | "crosstrack" | "width" => Axis::Column,
        "b" | "band" | "bands" | "wavelength" | "wavelengths" | "wl" | "channel" | "channels"
        | "c" | "lambda" | "spectral" => Axis::Band,
        _ => return None,
    })
}

/// The order that the names of three axes mean, if they leave no doubt.
fn order_by_names(names: &[Option<String>]) -> Option<AxisOrder> {
    let mut axes: Vec<_> = names.iter().map(|name| axis_named(name.as_deref()?)).collect();
    if axes.len() == 2 {
        axes.push(Some(Axis::Band));
    }
    let mut missing: Vec<_> = [Axis::Row, Axis::Column, Axis::Band]
        .into_iter()
        .filter(|axis| !axes.contains(&Some(*axis)))
        .collect();
    // With the band axis known, rows come before columns as everywhere.
    if axes.len() != 3 || missing.len() > 2 || missing.len() == 2 && missing.contains(&Axis::Band) {
        return None;
    }
    let order: Vec<Axis> = axes
        .into_iter()
        .map(|axis| {
            axis.unwrap_or_else(|| if missing.is_empty() { Axis::Row } else { missing.remove(0) })
        })
        .collect();
    let text: String = AxisOrder(order.try_into().ok()?).to_string();
    AxisOrder::parse(&text)
}

pub(super) fn axis_order(
    metadata: &ArrayMetadata,
    lengths: &[usize; 3],
    spectrum: Option<&Spectrum>,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> AxisOrder {
    if let Some(axes) = options.axes {
        return match metadata.shape.len() {
            2 => without_bands(axes),
            _ => axes,
        };
    }
    if let Some(order) = order_by_names(&metadata.dimensions) {
        return order;
    }
    if metadata.shape.len() == 2 {
        return AxisOrder::BIP;
    }
    if let Some(spectrum) = spectrum {
        let fits = |axis: usize| lengths[axis] == spectrum.wavelength.len();
        match [fits(0), fits(1), fits(2)] {
            [true, false, false] => return AxisOrder::BSQ,
            [false, true, false] => return AxisOrder::BIL,
            [false, false, true] => return AxisOrder::BIP,
            _ => {}
        }
    }
    notes.push("the axes have no names; taken as (row, column, band)".to_owned());
    AxisOrder::BIP
}

/// The user's order for an array that has no band axis.
fn without_bands(axes: AxisOrder) -> AxisOrder {
    match axes.position(Axis::Row) < axes.position(Axis::Column) {
        true => AxisOrder::BIP,
        false => AxisOrder([Axis::Column, Axis::Row, Axis::Band]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(names: &[&str]) -> Option<String> {
        let names: Vec<_> =
            names.iter().map(|name| (!name.is_empty()).then(|| (*name).to_owned())).collect();
        order_by_names(&names).map(|order| order.to_string())
    }

    #[test]
    fn names_of_axes_give_their_order() {
        assert_eq!(order(&["y", "x", "band"]).as_deref(), Some("yxb"));
        assert_eq!(order(&["wavelength", "lat", "lon"]).as_deref(), Some("byx"));
        assert_eq!(order(&["Line", "Bands", "Sample"]).as_deref(), Some("ybx"));
        assert_eq!(order(&["x", "y", "c"]).as_deref(), Some("xyb"));
        assert_eq!(order(&["channel", "dim_1", "dim_2"]).as_deref(), Some("byx"));
        assert_eq!(order(&["dim_0", "x", "c"]).as_deref(), Some("yxb"));
        assert_eq!(order(&["y", "x"]).as_deref(), Some("yxb"));
        assert_eq!(order(&["x", "y"]).as_deref(), Some("xyb"));
        assert_eq!(order(&["", "", ""]), None);
        assert_eq!(order(&["y", "", ""]), None);
        assert_eq!(order(&["y", "y", "band"]), None);
        assert_eq!(order(&["band", "band", "x"]), None);
        assert_eq!(order(&[]), None);
    }
}
