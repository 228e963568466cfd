//! Which axis of an array is which.

use hsipack_format::{Error, Opt, Result, remedy};

use super::choose::Found;
use super::spectral::Spectrum;
use crate::cube_axes::kept_axes;
use crate::variables::lengths_text;
use crate::{Axes, Axis, AxisOrder, OpenOptions};

/// The cube's axes among those of an array.
pub(super) struct Kept {
    /// Their positions: three, or two for a mask without bands.
    pub axes: Vec<usize>,
    /// Their lengths, the last one 1 for 2-D masks.
    pub lengths: [usize; 3],
    /// Their names.
    pub names: Vec<Option<String>>,
}

impl Kept {
    /// The cube's axes in the array `found`.
    ///
    /// # Errors
    /// If it cannot be a cube, or a mask if the options ask for one.
    pub fn of(found: &Found, options: &OpenOptions) -> Result<Self> {
        let shape = found.array().map_or(&[][..], |array| &array.shape);
        let (axes, lengths) = match (shape, options.mask) {
            ([rows, columns], true) => (vec![0, 1], [*rows, *columns, 1]),
            ([] | [_] | [_, _], _) => {
                let text = lengths_text(shape);
                return Err(Error::unsupported(format!(
                    "this is an array of {} axes ({text}), not a cube",
                    shape.len()
                ))
                .with_remedy(remedy!["give a 3-D array; for a mask, use ", Opt::Mask]));
            }
            _ => {
                let kept = kept_axes(shape, options.axes.as_ref())?;
                (kept.to_vec(), kept.map(|axis| shape[axis]))
            }
        };
        let dimensions = found.array().map_or(&[][..], |array| &array.dimensions);
        let names = axes.iter().filter_map(|axis| dimensions.get(*axis).cloned()).collect();
        Ok(Self { axes, lengths, names })
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

/// The order that the names of three axes give, if they are unambiguous.
fn order_by_names(names: &[Option<String>]) -> Option<AxisOrder> {
    let mut axes: Vec<_> = names.iter().map(|name| axis_named(name.as_deref()?)).collect();
    if axes.len() == 2 {
        axes.push(Some(Axis::Band));
    }
    let mut missing: Vec<_> = [Axis::Row, Axis::Column, Axis::Band]
        .into_iter()
        .filter(|axis| !axes.contains(&Some(*axis)))
        .collect();
    // If only the band axis is known, rows come before columns, as everywhere.
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

/// What the axes are.
pub(super) fn axis_order(
    kept: &Kept,
    spectrum: Option<&Spectrum>,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> AxisOrder {
    if let Some(axes) = options.axes.as_ref().map(Axes::order) {
        return match kept.axes.len() {
            2 => without_bands(axes),
            _ => axes,
        };
    }
    if let Some(order) = order_by_names(&kept.names) {
        return order;
    }
    if kept.axes.len() == 2 {
        return AxisOrder::BIP;
    }
    if let Some(spectrum) = spectrum {
        let fits = |axis: usize| kept.lengths[axis] == spectrum.wavelength.len();
        match [fits(0), fits(1), fits(2)] {
            [true, false, false] => return AxisOrder::BSQ,
            [false, true, false] => return AxisOrder::BIL,
            [false, false, true] => return AxisOrder::BIP,
            _ => {}
        }
    }
    notes.push("the axes have no names; assumed to be (row, column, band)".to_owned());
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
