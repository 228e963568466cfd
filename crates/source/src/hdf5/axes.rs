//! Which axis of an array is which.

use hsipack_format::{Error, Opt, Result, remedy};

use crate::{Axis, AxisOrder};

/// What an axis is, according to its name (a NetCDF dimension or a dimension scale).
pub(crate) fn axis_of_name(name: &str) -> Option<Axis> {
    let name = super::tree::plain(name);
    Some(match name.as_str() {
        "y" | "row" | "rows" | "line" | "lines" | "lat" | "latitude" | "northing" | "downtrack"
        | "height" | "alongtrack" | "yc" => Axis::Row,
        "x" | "column" | "columns" | "col" | "cols" | "sample" | "samples" | "lon"
        | "longitude" | "easting" | "crosstrack" | "width" | "acrosstrack" | "xc" => Axis::Column,
        "b" | "band" | "bands" | "channel" | "channels" | "wvl" | "wl" | "lambda" | "spectral"
        | "nbands" | "spectralbands" => Axis::Band,
        name if name.contains("wavelength") => Axis::Band,
        _ => return None,
    })
}

/// The order that the names of three axes give. `None` unless the band axis is named, or both
/// others are and the third is not known to be something else.
pub(crate) fn order_of_names(names: &[Option<String>; 3]) -> Option<AxisOrder> {
    let known = names.each_ref().map(|name| name.as_deref().and_then(axis_of_name));
    let only = |axis| {
        let mut at = (0..3).filter(|i| known[*i] == Some(axis));
        at.next().filter(|_| at.next().is_none())
    };
    let (row, column) = (only(Axis::Row), only(Axis::Column));
    let band = match (only(Axis::Band), row, column) {
        (Some(band), _, _) => band,
        (None, Some(row), Some(column)) => {
            let third = 3 - row - column;
            let name = names[third].as_deref().map(super::tree::plain).unwrap_or_default();
            if known[third].is_some() || ["t", "time", "times", "date"].contains(&name.as_str()) {
                return None;
            }
            third
        }
        _ => return None,
    };
    match (row, column) {
        // By their names, columns come before rows, unlike in most images.
        (Some(row), Some(column)) if column < row => {
            let mut order = [Axis::Band; 3];
            (order[row], order[column]) = (Axis::Row, Axis::Column);
            Some(AxisOrder(order))
        }
        _ => Some(with_band_at(band)),
    }
}

/// The order with the band axis at position `band`, and row before column.
pub(crate) fn with_band_at(band: usize) -> AxisOrder {
    match band {
        0 => AxisOrder::BSQ,
        1 => AxisOrder::BIL,
        _ => AxisOrder::BIP,
    }
}

/// The order if exactly one axis has the length `bands`: it is the band axis.
pub(crate) fn order_of_length(lengths: [usize; 3], bands: usize) -> Option<AxisOrder> {
    let mut at = (0..3).filter(|i| lengths[*i] == bands);
    at.next().filter(|_| at.next().is_none()).map(with_band_at)
}

/// Refuses axes that cannot be told apart.
pub(crate) fn cannot_tell<T>(path: &str, lengths: [usize; 3], why: &str) -> Result<T> {
    let [a, b, c] = lengths;
    Err(Error::ambiguous(format!("'{path}' is {a}x{b}x{c}, and {why}")).with_remedy(remedy![
        "give the order of axes with ",
        Opt::Axes,
        ": yxb if it is (row, column, band), ybx if (row, band, column), byx if (band, row, column)"
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(names: [&str; 3]) -> Option<String> {
        let names = names.map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()));
        order_of_names(&names).map(|order| order.to_string())
    }

    #[test]
    fn axis_names_tell_the_order() {
        assert_eq!(order(["y", "x", "band"]).unwrap(), "yxb");
        assert_eq!(order(["downtrack", "crosstrack", "bands"]).unwrap(), "yxb");
        assert_eq!(order(["wavelength", "lat", "lon"]).unwrap(), "byx");
        assert_eq!(order(["wavelength", "", ""]).unwrap(), "byx");
        assert_eq!(order(["lon", "lat", "wavelength"]).unwrap(), "xyb");
        assert_eq!(order(["z", "y", "x"]).unwrap(), "byx");
        assert_eq!(order(["x", "b", "y"]).unwrap(), "xby");
        assert_eq!(order(["line", "band", "sample"]).unwrap(), "ybx");
    }

    #[test]
    fn axis_names_that_do_not_tell_are_not_believed() {
        assert_eq!(order(["time", "y", "x"]), None);
        assert_eq!(order(["phony_dim_0", "phony_dim_1", "phony_dim_2"]), None);
        assert_eq!(order(["", "y", ""]), None);
        assert_eq!(order(["band", "band", "y"]), None);
        assert_eq!(order(["y", "y", "x"]), None);
    }

    #[test]
    fn a_length_tells_the_band_axis_only_if_one_axis_has_it() {
        assert_eq!(order_of_length([5, 6, 7], 6).unwrap(), AxisOrder::BIL);
        assert_eq!(order_of_length([7, 6, 7], 7), None);
        assert_eq!(order_of_length([5, 6, 7], 8), None);
    }
}
