//! Which axes of an array are the cube's. An array has these three, and any number of axes of
//! length 1.

use hsipack_format::{CubeShape, Error, Opt, Result, remedy};

use crate::axes::axis_order::AxisOrder;
use crate::axes::lengths::{lengths_text, too_large};
use crate::axes::{Axes, one_cube_an_array};
use crate::open_options::OpenOptions;

/// Which axes of an array with three or more axes are the cube's, in index order: the axes that the
/// user names, otherwise all if there are three, otherwise the three that are longer than 1. If the
/// user names only three letters, they are the axes that remain without those of length 1.
///
/// # Errors
/// If the axes that the user names do not fit the array, if more than three axes are longer than 1,
/// or if fewer than three are and the user does not name all axes.
pub(crate) fn kept_axes(lengths: &[usize], axes: Option<&Axes>) -> Result<[usize; 3]> {
    if let Some(axes) = axes.filter(|axes| axes.count() != 3) {
        return axes.within(lengths);
    }
    if lengths.len() == 3 {
        return Ok([0, 1, 2]);
    }
    let long: Vec<usize> = (0..lengths.len()).filter(|axis| lengths[*axis] > 1).collect();
    let (rank, text) = (lengths.len(), lengths_text(lengths));
    match long[..] {
        [a, b, c] => Ok([a, b, c]),
        _ if long.len() > 3 => Err(Error::unsupported(format!(
            "the array is {rank}-D ({text}); a cube has rows, columns and bands"
        ))
        .with_remedy(one_cube_an_array())),
        _ => Err(Error::ambiguous(format!(
            "the array is {rank}-D ({text}), and it is unclear which of its axes of length 1 belong to the cube"
        ))
        .with_remedy(remedy![
            "name every axis with ",
            Opt::Axes,
            format!(", 1 for one to leave out, such as {}yxb", "1".repeat(rank.saturating_sub(3)))
        ])),
    }
}

/// The error for an array without values.
pub(crate) fn empty(lengths: &[usize]) -> Error {
    Error::malformed(format!("the array is empty: its shape is {}", lengths_text(lengths)))
        .with_remedy("leave this file out, or write it again")
}

/// The error for an array with fewer than three axes.
pub(crate) fn too_few_axes(lengths: &[usize]) -> Error {
    Error::unsupported(format!(
        "the array is {}-D ({}); a cube has rows, columns and bands",
        lengths.len(),
        lengths_text(lengths)
    ))
    .with_remedy(remedy![
        "give it as a mask with ",
        Opt::Mask,
        ", leave it out with ",
        Opt::Exclude,
        ", or save it with a third axis; if each file is one band of a scene, stack them: numpy.dstack"
    ])
}

/// The cube shape of an array and the order of its axes, slowest index first, as in `lengths`.
/// Additional axes of length 1 are dropped, which moves no value.
///
/// Three axes are (row, column, band) unless the user says otherwise. For a mask, two axes are one
/// band.
///
/// # Errors
/// If the array cannot be a cube, is empty, or is too large for the machine's address space.
pub(crate) fn cube_axes(
    lengths: &[usize],
    options: &OpenOptions,
) -> Result<(CubeShape, AxisOrder)> {
    if lengths.contains(&0) {
        return Err(empty(lengths));
    }
    let (shape, order) = match *lengths {
        [rows, columns] if options.mask => (CubeShape::new(rows, columns, 1), AxisOrder::BIP),
        [] | [_] | [_, _] => return Err(too_few_axes(lengths)),
        _ => {
            if options.axes.as_ref().is_some_and(|axes| axes.sample_axis().is_some()) {
                return Err(Error::unsupported("arrays of samples are not read from this format")
                    .with_remedy("save each sample as an array of its own"));
            }
            let kept = kept_axes(lengths, options.axes.as_ref())?;
            let order = options.axes.as_ref().map_or(AxisOrder::BIP, Axes::order);
            (order.shape(kept.map(|axis| lengths[axis])), order)
        }
    };
    if shape.checked_values().is_none() {
        return Err(too_large(lengths));
    }
    Ok((shape, order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_format::ErrorKind;

    fn kept(lengths: &[usize], axes: &str) -> Result<[usize; 3]> {
        let axes = (!axes.is_empty()).then(|| Axes::parse(axes).unwrap());
        kept_axes(lengths, axes.as_ref())
    }

    #[test]
    fn axes_of_length_one_are_left_out_only_beyond_three() {
        assert_eq!(kept(&[1, 5, 1], "").unwrap(), [0, 1, 2]);
        assert_eq!(kept(&[5, 1, 1, 6, 7], "").unwrap(), [0, 3, 4]);
        assert_eq!(kept(&[5, 1, 1, 6, 7], "byx").unwrap(), [0, 3, 4]);
        let error = kept(&[2, 5, 6, 7], "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.what().contains("2x5x6x7"), "{error}");
    }

    #[test]
    fn the_user_names_the_axes_where_their_lengths_do_not_tell() {
        let error = kept(&[1, 1, 1, 6, 7], "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Ambiguous);
        assert!(error.to_string().contains("such as 11yxb"), "{error}");
        assert_eq!(kept(&[1, 1, 1, 6, 7], "yxb").unwrap_err().kind(), ErrorKind::Ambiguous);
        assert_eq!(kept(&[1, 1, 1, 6, 7], "11yxb").unwrap(), [2, 3, 4]);
        assert_eq!(kept(&[1, 1, 1, 6, 7], "y11xb").unwrap(), [0, 3, 4]);
        for (lengths, axes) in
            [(&[2, 5, 6, 7][..], "1yxb"), (&[5, 6, 7], "1yxb"), (&[1, 1], "yxb1")]
        {
            assert_eq!(kept(lengths, axes).unwrap_err().kind(), ErrorKind::Conflict, "{axes}");
        }
    }

    #[test]
    fn axes_are_spelled_with_each_letter_once() {
        assert_eq!(Axes::parse("1B1yx").unwrap().to_string(), "1b1yx");
        assert_eq!(Axes::parse("1b1yx").unwrap().order(), AxisOrder::BSQ);
        for wrong in ["", "yx", "yxbb", "yyb", "1", "yxz", "y xb"] {
            assert_eq!(Axes::parse(wrong), None, "{wrong}");
        }
        assert!(Axes::parse("1yxb").unwrap().of_three().is_err());
        assert_eq!(AxisOrder::parse("1yxb"), None);
    }
}
