//! Containers of several arrays (`.npz`, `.mat`, HTC dictionaries): which array is the cube, and which
//! of its axes are which.

use std::path::Path;

use hsipack_format::{CubeShape, DType, Error, Result};

use super::{AxisOrder, OpenOptions};

/// What an array may serve as when the user names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A cube.
    Cube,
    /// One layer: taken as a mask, where a mask is asked for.
    Layer,
    /// Neither.
    Other,
}

impl Role {
    /// The role of an array of numbers with these `lengths`. Vectors are no layers, though MATLAB
    /// stores them with two axes.
    pub(super) fn of(lengths: &[usize]) -> Role {
        match lengths {
            _ if lengths.contains(&0) => Role::Other,
            [_, _, _] => Role::Cube,
            [rows, columns] if *rows > 1 && *columns > 1 => Role::Layer,
            _ => Role::Other,
        }
    }
}

/// An array in a container, as far as choosing goes.
pub(super) struct Candidate {
    /// Its full path inside the container.
    pub name: String,
    /// What it is, in words for messages: `8x10x32 uint16`.
    pub what: String,
    /// What it may serve as.
    pub role: Role,
}

/// `8x10x32`.
pub(super) fn lengths_text(lengths: &[usize]) -> String {
    let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
    lengths.join("x")
}

/// The part of a variable's path after its last separator.
pub(super) fn last_component(name: &str) -> &str {
    name.rsplit(['/', '.', '#']).next().unwrap_or(name)
}

/// Names of arrays for messages, as the user has to spell them.
fn listing<'a>(path: &Path, candidates: impl Iterator<Item = &'a Candidate>) -> String {
    const SHOWN: usize = 20;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let all: Vec<String> =
        candidates.map(|one| format!("{file}::{} ({})", one.name, one.what)).collect();
    match all.len() {
        0 => "nothing".to_owned(),
        count if count > SHOWN => {
            format!("{} and {} more", all[..SHOWN].join(", "), count - SHOWN)
        }
        _ => all.join(", "),
    }
}

/// The index of the array to open: the one the user named, else the only one that can be meant.
///
/// # Errors
/// If none or several fit.
pub(super) fn choose(
    path: &Path,
    options: &OpenOptions,
    candidates: &[Candidate],
) -> Result<usize> {
    match &options.variable {
        Some(wanted) => find_named(path, wanted, candidates),
        None => find_unnamed(path, options.mask, candidates),
    }
}

fn find_named(path: &Path, wanted: &str, candidates: &[Candidate]) -> Result<usize> {
    type Matches = fn(&str, &str) -> bool;
    let tries: [Matches; 4] = [
        |name, wanted| name == wanted,
        |name, wanted| last_component(name) == wanted,
        |name, wanted| name.eq_ignore_ascii_case(wanted),
        |name, wanted| last_component(name).eq_ignore_ascii_case(wanted),
    ];
    let wanted = wanted.strip_prefix('/').unwrap_or(wanted);
    for matches in tries {
        let found = indices(candidates, |one| matches(&one.name, wanted));
        match found[..] {
            [] => {}
            [one] => return Ok(one),
            _ => {
                let names = listing(path, found.iter().map(|index| &candidates[*index]));
                return Err(Error::ambiguous(format!(
                    "'{wanted}' may mean several variables: {names}"
                ))
                .at(path)
                .with_remedy("give the full path of one of them after '::'"));
            }
        }
    }
    Err(Error::conflict(format!(
        "no variable '{wanted}'; the file holds {}",
        listing(path, candidates.iter())
    ))
    .at(path)
    .with_remedy("name one of those after '::'"))
}

fn find_unnamed(path: &Path, mask: bool, candidates: &[Candidate]) -> Result<usize> {
    let roles: &[Role] = if mask { &[Role::Layer, Role::Cube] } else { &[Role::Cube] };
    for role in roles {
        let found = indices(candidates, |one| one.role == *role);
        match found[..] {
            [] => {}
            [one] => return Ok(one),
            _ => {
                let what = if mask { "masks" } else { "cubes" };
                let names = listing(path, found.iter().map(|index| &candidates[*index]));
                return Err(Error::ambiguous(format!(
                    "several variables may be the {what}: {names}"
                ))
                .at(path)
                .with_remedy("name one of them after '::'"));
            }
        }
    }
    let wanted = if mask { "2-D or 3-D" } else { "3-D" };
    let error = Error::unsupported(format!(
        "no {wanted} array of real numbers; the file holds {}",
        listing(path, candidates.iter())
    ))
    .at(path);
    Err(if candidates.iter().any(|one| one.role == Role::Layer) {
        error.with_remedy("a 2-D array can be a mask (--mask), not a cube")
    } else {
        error.with_remedy("save the cube as one array of rows x columns x bands")
    })
}

fn indices(candidates: &[Candidate], matches: impl Fn(&Candidate) -> bool) -> Vec<usize> {
    (0..candidates.len()).filter(|index| matches(&candidates[*index])).collect()
}

/// Refuses `file::variable` for a format that holds one array.
pub(super) fn refuse_variable(path: &Path, options: &OpenOptions) -> Result<()> {
    match &options.variable {
        None => Ok(()),
        Some(name) => {
            Err(Error::conflict(format!("the file holds one array, none named '{name}'"))
                .at(path)
                .with_remedy(format!("leave '::{name}' out")))
        }
    }
}

/// The cube shape of an array and the order of its axes, slowest index first as `lengths`.
///
/// Three axes are (row, column, band) unless the user says otherwise; two are one band, where a
/// mask is asked for. Axes of length 1 count like any other.
///
/// # Errors
/// If the array cannot be a cube, or is empty, or too large for the machine's addresses.
pub(super) fn cube_axes(
    lengths: &[usize],
    options: &OpenOptions,
) -> Result<(CubeShape, AxisOrder)> {
    let text = lengths_text(lengths);
    if lengths.contains(&0) {
        return Err(Error::malformed(format!("the array is empty: its shape is {text}"))
            .with_remedy("leave this file out, or write it again"));
    }
    let (shape, order) = match *lengths {
        [a, b, c] => {
            let order = options.axes.unwrap_or(AxisOrder::BIP);
            (order.shape([a, b, c]), order)
        }
        [rows, columns] if options.mask => (CubeShape::new(rows, columns, 1), AxisOrder::BIP),
        [_, _] => {
            return Err(Error::unsupported(format!(
                "the array is 2-D ({text}); a cube has rows, columns and bands"
            ))
            .with_remedy("give it as a mask (--mask), or save it with a third axis"));
        }
        _ => {
            return Err(Error::unsupported(format!(
                "the array is {}-D ({text}); a cube has rows, columns and bands",
                lengths.len()
            ))
            .with_remedy("save each cube as a 3-D array of its own"));
        }
    };
    if shape.checked_values().is_none() {
        return Err(too_large(lengths));
    }
    Ok((shape, order))
}

/// The error for a shape that no file can hold.
pub(super) fn too_large(lengths: &[usize]) -> Error {
    Error::malformed(format!("a shape of {} is impossibly large", lengths_text(lengths)))
        .with_remedy("copy the file again; it is damaged")
}

/// The numbers in `bytes`, as f64.
pub(super) fn to_f64(bytes: &[u8], dtype: DType, big_endian: bool) -> Vec<f64> {
    macro_rules! all {
        ($type:ty, $convert:expr) => {{
            let convert = $convert;
            bytes
                .as_chunks::<{ size_of::<$type>() }>()
                .0
                .iter()
                .map(|raw| {
                    convert(if big_endian {
                        <$type>::from_be_bytes(*raw)
                    } else {
                        <$type>::from_le_bytes(*raw)
                    })
                })
                .collect()
        }};
    }
    match dtype {
        DType::Bool | DType::U8 => bytes.iter().map(|byte| f64::from(*byte)).collect(),
        DType::I8 => bytes.iter().map(|byte| f64::from(*byte as i8)).collect(),
        DType::U16 => all!(u16, f64::from),
        DType::I16 => all!(i16, f64::from),
        DType::U32 => all!(u32, f64::from),
        DType::I32 => all!(i32, f64::from),
        DType::U64 => all!(u64, |value| value as f64),
        DType::I64 => all!(i64, |value| value as f64),
        DType::F16 => all!(half::f16, f64::from),
        DType::F32 => all!(f32, f64::from),
        DType::F64 => all!(f64, |value| value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_format::ErrorKind;

    fn candidates(of: &[(&str, Role)]) -> Vec<Candidate> {
        of.iter()
            .map(|(name, role)| Candidate {
                name: (*name).to_owned(),
                what: "2x3x4 uint8".to_owned(),
                role: *role,
            })
            .collect()
    }

    fn pick(of: &[(&str, Role)], variable: Option<&str>, mask: bool) -> Result<usize> {
        let options =
            OpenOptions { variable: variable.map(str::to_owned), mask, ..Default::default() };
        choose(Path::new("a.npz"), &options, &candidates(of))
    }

    #[test]
    fn the_only_cube_is_taken_and_the_only_layer_as_a_mask() {
        let of = [("w", Role::Other), ("cube", Role::Cube), ("gt", Role::Layer)];
        assert_eq!(pick(&of, None, false).unwrap(), 1);
        assert_eq!(pick(&of, None, true).unwrap(), 2);
        assert_eq!(pick(&of[..2], None, true).unwrap(), 1);
        assert_eq!(pick(&of[2..], None, false).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn several_cubes_have_to_be_told_apart_by_name() {
        let of = [("a/x", Role::Cube), ("b/x", Role::Cube), ("b/y", Role::Cube)];
        let error = pick(&of, None, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Ambiguous);
        assert!(error.what().contains("a.npz::b/y (2x3x4 uint8)"), "{error}");
        assert_eq!(pick(&of, Some("b/x"), false).unwrap(), 1);
        assert_eq!(pick(&of, Some("y"), false).unwrap(), 2);
        assert_eq!(pick(&of, Some("B/Y"), false).unwrap(), 2);
        assert_eq!(pick(&of, Some("x"), false).unwrap_err().kind(), ErrorKind::Ambiguous);
        let error = pick(&of, Some("z"), false).unwrap_err();
        assert!(error.what().contains("a.npz::a/x"), "{error}");
    }

    #[test]
    fn the_case_of_a_name_decides_where_it_has_to() {
        let of = [("Data", Role::Cube), ("data", Role::Cube)];
        assert_eq!(pick(&of, Some("data"), false).unwrap(), 1);
        assert_eq!(pick(&of, Some("Data"), false).unwrap(), 0);
        assert_eq!(pick(&of, Some("DATA"), false).unwrap_err().kind(), ErrorKind::Ambiguous);
    }

    #[test]
    fn every_type_is_read_in_both_byte_orders() {
        assert_eq!(to_f64(&[0xFF, 0x00], DType::I16, false), [255.0]);
        assert_eq!(to_f64(&[0xFF, 0x00], DType::I16, true), [-256.0]);
        assert_eq!(to_f64(&[0x3C, 0x00], DType::F16, true), [1.0]);
        assert_eq!(to_f64(&1.5f64.to_le_bytes(), DType::F64, false), [1.5]);
        assert_eq!(to_f64(&[0xFF], DType::I8, false), [-1.0]);
    }
}
