//! Containers of several arrays (`.npz`, `.mat`, HDF5, Zarr, HTC dictionaries): which array is the
//! cube.
//!
//! ```text
//! the user names one        that one
//! else, for a cube          arrays with the most axes longer than 1 (three, or two for a single line);
//!                           an array with more such axes is not a cube, but competes if it is larger;
//!                           a picture (3 or 4 bands of bytes) only if there is nothing else;
//!                           a list stored with three axes only if there is no picture either
//! else, for a mask          2-D arrays of whole numbers, 2-D arrays, arrays that may be cubes
//! ```
//!
//! If one array remains, it is used. If several remain, an error asks the user to name one.

use std::path::Path;

use hsipack_format::{DType, Error, Opt, Result, remedy};

use crate::axes::lengths::lengths_text;
use crate::container::Value;
use crate::open_options::OpenOptions;

/// Uses of an array if the user names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A cube with this many axes (0 to 3) longer than 1.
    Cube(usize),
    /// Three or four bands of bytes: a preview, unless there is nothing else.
    Picture,
    /// An array with more axes longer than 1 than a cube has.
    Higher,
    /// One layer, which is used only as a mask.
    Layer,
    /// One column with as many values as the mask's image has pixels: a mask if there is no layer.
    Column,
    /// None of these.
    Other,
}

impl Role {
    /// The role of an array of `dtype` numbers with these `lengths`. Vectors are not layers,
    /// although MATLAB stores them with two axes.
    pub(crate) fn of(lengths: &[usize], dtype: DType) -> Role {
        if lengths.contains(&0) {
            return Role::Other;
        }
        let long: Vec<usize> = lengths.iter().copied().filter(|length| *length > 1).collect();
        match (lengths.len(), &long[..]) {
            (2, [_, _]) => Role::Layer,
            (0..=2, _) => Role::Other,
            (_, [first, _, last]) => {
                let colours = |length: &usize| [3, 4].contains(length);
                let picture = dtype == DType::U8 && (colours(first) || colours(last));
                if picture { Role::Picture } else { Role::Cube(3) }
            }
            (_, [] | [_] | [_, _]) => Role::Cube(long.len()),
            _ => Role::Higher,
        }
    }
}

/// Properties of an array in a container by which one is chosen.
pub(crate) struct Candidate {
    /// Its full path inside the container.
    pub name: String,
    /// Shape and type in words for messages: `8x10x32 uint16`.
    pub what: String,
    /// Its possible use.
    pub role: Role,
    /// Bytes of its numbers; 0 if it holds none.
    bytes: u64,
    /// Whether its numbers are whole, as class ids are.
    whole: bool,
}

impl Candidate {
    /// An array of numbers.
    pub fn numbers(name: impl Into<String>, lengths: &[usize], dtype: DType) -> Self {
        let values = lengths.iter().fold(1u64, |all, length| all.saturating_mul(*length as u64));
        Self {
            name: name.into(),
            what: format!("{} {dtype}", lengths_text(lengths)),
            role: Role::of(lengths, dtype),
            bytes: values.saturating_mul(dtype.size() as u64),
            whole: !dtype.is_float(),
        }
    }

    /// The array, with another role than its lengths suggest.
    pub fn of(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Something that is not an array of real numbers; `what` says what it is.
    pub fn other(name: impl Into<String>, what: impl Into<String>) -> Self {
        let (name, what) = (name.into(), what.into());
        Self { name, what, role: Role::Other, bytes: 0, whole: false }
    }
}

/// The part of a variable's path after its last separator.
pub(crate) fn last_component(name: &str) -> &str {
    name.rsplit(['/', '.', '#']).next().unwrap_or(name)
}

/// Names of arrays for messages, as the user has to spell them.
fn choices<'a>(path: &Path, candidates: impl IntoIterator<Item = &'a Candidate>) -> Vec<String> {
    const SHOWN: usize = 5;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let mut all: Vec<String> = candidates
        .into_iter()
        .map(|candidate| format!("{file}::{} ({})", candidate.name, candidate.what))
        .collect();
    if all.len() > SHOWN {
        let more = format!("and {} more", all.len() - SHOWN);
        all.truncate(SHOWN);
        all.push(more);
    }
    all
}

/// The names of arrays for messages, in one line.
pub(crate) fn listing<'a>(
    path: &Path,
    candidates: impl IntoIterator<Item = &'a Candidate>,
) -> String {
    let all = choices(path, candidates);
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

/// The index of the array to open: the one that the user names, otherwise the only one that fits.
///
/// # Errors
/// If none or several fit.
pub(crate) fn choose(
    path: &Path,
    options: &OpenOptions,
    candidates: &[Candidate],
) -> Result<usize> {
    match &options.variable {
        Some(wanted) => find_named(path, wanted, candidates),
        None => choose_unnamed(path, options.mask, candidates),
    }
}

/// The error that asks which of the arrays at `places` is meant.
pub(crate) fn ambiguous(
    path: &Path,
    what: &str,
    candidates: &[Candidate],
    places: &[usize],
) -> Error {
    let named = || places.iter().map(|index| &candidates[*index]);
    let first = named().next().map_or("", |candidate| &candidate.name);
    Error::ambiguous(what)
        .with_choices(choices(path, named()))
        .at(path)
        .with_remedy(format!("name one: '{}::{first}'", path.display()))
}

fn find_named(path: &Path, wanted: &str, candidates: &[Candidate]) -> Result<usize> {
    type Matches = fn(&str, &str) -> bool;
    let tries: [Matches; 5] = [
        |name, wanted| name == wanted,
        // Paths of the fields of structs, as `listing` spells them.
        |name, wanted| wanted.contains('/') && name.replace('.', "/") == wanted,
        |name, wanted| last_component(name) == wanted,
        |name, wanted| name.eq_ignore_ascii_case(wanted),
        |name, wanted| last_component(name).eq_ignore_ascii_case(wanted),
    ];
    let wanted = wanted.strip_prefix('/').unwrap_or(wanted);
    for matches in tries {
        let found = indices(candidates, |candidate| matches(&candidate.name, wanted));
        match found[..] {
            [] => {}
            [only] => return Ok(only),
            _ => {
                let what = format!("'{wanted}' matches several variables");
                return Err(ambiguous(path, &what, candidates, &found));
            }
        }
    }
    Err(Error::not_found(format!(
        "no variable '{wanted}'; the file holds {}",
        listing(path, candidates)
    ))
    .at(path)
    .with_remedy("give one of them after '::'"))
}

/// The index of the only array that fits if the user names none.
///
/// # Errors
/// If none or several fit.
pub(crate) fn choose_unnamed(path: &Path, mask: bool, candidates: &[Candidate]) -> Result<usize> {
    let (what, found) =
        if mask { ("the file holds several masks", masks(candidates)) } else { cubes(candidates) };
    match found[..] {
        [only] => Ok(only),
        [] => Err(none_fits(path, mask, candidates)),
        _ => Err(ambiguous(path, what, candidates, &found)),
    }
}

/// The arrays that may be the mask if the user names none.
pub(crate) fn masks(candidates: &[Candidate]) -> Vec<usize> {
    let of = |wanted: &dyn Fn(&Candidate) -> bool| indices(candidates, wanted);
    let tries = [
        of(&|candidate| candidate.role == Role::Layer && candidate.whole),
        of(&|candidate| candidate.role == Role::Layer),
        of(&|candidate| candidate.role == Role::Column && candidate.whole),
        of(&|candidate| candidate.role == Role::Column),
        of(&|candidate| matches!(candidate.role, Role::Cube(2..)) && candidate.whole),
        of(&|candidate| matches!(candidate.role, Role::Cube(_) | Role::Picture)),
    ];
    tries.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// The arrays that may be the cube if the user names none, and what to say if they are several.
pub(crate) fn cubes(candidates: &[Candidate]) -> (&'static str, Vec<usize>) {
    let of = |wanted: &dyn Fn(&Candidate) -> bool| indices(candidates, wanted);
    let several = "the file holds several cubes";
    let pictures = of(&|candidate| candidate.role == Role::Picture);
    let most = if of(&|candidate| candidate.role == Role::Cube(3)).is_empty() { 2 } else { 3 };
    let mut found = of(&|candidate| candidate.role == Role::Cube(most));
    let largest = found.iter().map(|index| candidates[*index].bytes).max().unwrap_or(0);
    found.extend(of(&|candidate| candidate.role == Role::Higher && candidate.bytes > largest));
    if !found.is_empty() {
        // A single line may be a white reference, and the picture its scene.
        if found.iter().any(|index| candidates[*index].role == Role::Cube(2)) {
            found.extend(pictures);
        }
        return (several, found);
    }
    if let [only] = pictures[..] {
        let larger = of(&|candidate| candidate.bytes > candidates[only].bytes);
        if !larger.is_empty() {
            let what =
                "the only array that could be a cube is a picture, and other arrays are larger";
            return (what, [vec![only], larger].concat());
        }
    }
    match pictures.is_empty() {
        true => (several, of(&|candidate| matches!(candidate.role, Role::Cube(_)))),
        false => (several, pictures),
    }
}

fn none_fits(path: &Path, mask: bool, candidates: &[Candidate]) -> Error {
    let wanted = if mask { "2-D or 3-D" } else { "3-D" };
    let layers = indices(candidates, |candidate| candidate.role == Role::Layer);
    let error = Error::unsupported(format!(
        "there is no {wanted} array of real numbers; the file holds {}",
        listing(path, candidates)
    ))
    .at(path);
    if mask {
        error.with_remedy("save the mask as one array of rows x columns")
    } else if !layers.is_empty() {
        let stack = match layers.len() {
            1 => "",
            _ => {
                "; if each array is one band of a scene, stack them (numpy.dstack) and save the cube"
            }
        };
        error.with_remedy(remedy!["a 2-D array can be a mask (", Opt::Mask, "), not a cube", stack])
    } else {
        error.with_remedy("save the cube as one array of rows x columns x bands")
    }
}

fn indices(candidates: &[Candidate], matches: impl Fn(&Candidate) -> bool) -> Vec<usize> {
    (0..candidates.len()).filter(|index| matches(&candidates[*index])).collect()
}

/// Refuses `file::variable` for a format that holds one array.
pub(crate) fn refuse_variable(path: &Path, options: &OpenOptions) -> Result<()> {
    match &options.variable {
        None => Ok(()),
        Some(name) => Err(Error::conflict(format!(
            "the file holds a single array, which is not named '{name}'"
        ))
        .at(path)
        .with_remedy(format!("leave '::{name}' out"))),
    }
}

/// The numbers in `bytes`. Integers with more digits than `f64` holds keep them.
pub(crate) fn to_value(bytes: &[u8], dtype: DType, big_endian: bool) -> Value {
    let read = |raw: &[u8; 8]| {
        if big_endian { u64::from_be_bytes(*raw) } else { u64::from_le_bytes(*raw) }
    };
    let words = bytes.as_chunks::<8>().0.iter().map(read);
    let whole: Vec<i128> = match dtype {
        DType::U64 => words.map(i128::from).collect(),
        DType::I64 => words.map(|word| i128::from(word as i64)).collect(),
        _ => Vec::new(),
    };
    exact(to_f64(bytes, dtype, big_endian), whole)
}

/// The `whole` numbers if `numbers`, which are equal to them, lost digits.
pub(crate) fn exact(numbers: Vec<f64>, whole: Vec<i128>) -> Value {
    match whole.iter().any(|value| *value as f64 as i128 != *value) {
        true => Value::Integers(whole),
        false => Value::Numbers(numbers),
    }
}

/// The numbers in `bytes`, as f64.
pub(crate) fn to_f64(bytes: &[u8], dtype: DType, big_endian: bool) -> Vec<f64> {
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
                role: *role,
                ..Candidate::numbers(*name, &[2, 3, 4], DType::U16)
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
        let of = [("w", Role::Other), ("cube", Role::Cube(3)), ("gt", Role::Layer)];
        assert_eq!(pick(&of, None, false).unwrap(), 1);
        assert_eq!(pick(&of, None, true).unwrap(), 2);
        assert_eq!(pick(&of[..2], None, true).unwrap(), 1);
        assert_eq!(pick(&of[2..], None, false).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn several_cubes_have_to_be_told_apart_by_name() {
        let of = [("a/x", Role::Cube(3)), ("b/x", Role::Cube(3)), ("b/y", Role::Cube(3))];
        let error = pick(&of, None, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Ambiguous);
        assert!(error.to_string().contains("a.npz::b/y (2x3x4 uint16)"), "{error}");
        assert_eq!(pick(&of, Some("b/x"), false).unwrap(), 1);
        assert_eq!(pick(&of, Some("y"), false).unwrap(), 2);
        assert_eq!(pick(&of, Some("B/Y"), false).unwrap(), 2);
        assert_eq!(pick(&of, Some("x"), false).unwrap_err().kind(), ErrorKind::Ambiguous);
        let error = pick(&of, Some("z"), false).unwrap_err();
        assert!(error.what().contains("a.npz::a/x"), "{error}");
    }

    #[test]
    fn the_case_of_a_name_decides_where_it_has_to() {
        let of = [("Data", Role::Cube(3)), ("data", Role::Cube(3))];
        assert_eq!(pick(&of, Some("data"), false).unwrap(), 1);
        assert_eq!(pick(&of, Some("Data"), false).unwrap(), 0);
        assert_eq!(pick(&of, Some("DATA"), false).unwrap_err().kind(), ErrorKind::Ambiguous);
    }

    /// The names of the arrays among these that may be the cube.
    fn compete(of: &[(&str, &[usize], DType)]) -> String {
        let all: Vec<_> = of
            .iter()
            .map(|(name, lengths, dtype)| Candidate::numbers(*name, lengths, *dtype))
            .collect();
        let names: Vec<_> = cubes(&all).1.iter().map(|index| &*all[*index].name).collect();
        names.join(" ")
    }

    const PREVIEW: (&str, &[usize], DType) = ("preview", &[512, 512, 3], DType::U8);

    #[test]
    fn a_picture_is_never_taken_in_place_of_something_else() {
        assert_eq!(compete(&[PREVIEW]), "preview");
        assert_eq!(compete(&[PREVIEW, ("rgba", &[4, 64, 64], DType::U8)]), "preview rgba");
        // Smaller or larger, with axes of length 1 or more axes than a cube has.
        for (lengths, dtype) in [
            (&[60, 80, 100][..], DType::U16),
            (&[1, 1, 60, 80, 100], DType::U16),
            (&[100, 1, 1, 600, 800], DType::F32),
            (&[6, 5, 4, 3], DType::U8),
        ] {
            assert_eq!(compete(&[PREVIEW, ("data", lengths, dtype)]), "data", "{lengths:?}");
        }
        // The other arrays cannot be cubes, or may not be the one that the user means.
        assert_eq!(compete(&[PREVIEW, ("y", &[4096, 100], DType::F32)]), "preview y");
        assert_eq!(compete(&[PREVIEW, ("gt", &[512, 512], DType::U8)]), "preview");
        assert_eq!(compete(&[PREVIEW, ("white", &[1, 640, 100], DType::U16)]), "white preview");
        assert_eq!(compete(&[PREVIEW, ("nm", &[1, 1, 100], DType::F64)]), "preview");
        // Three bands of other numbers, and other bytes, may be cubes.
        assert_eq!(compete(&[("a", &[9, 9, 3], DType::U16), PREVIEW]), "a");
        assert_eq!(compete(&[("a", &[9, 9, 5], DType::U8), PREVIEW]), "a");
    }

    #[test]
    fn an_array_of_more_axes_than_a_cube_has_competes_if_it_is_larger() {
        let cube = ("cube", &[7, 9, 12][..], DType::U16);
        assert_eq!(compete(&[cube, ("kernel", &[2, 3, 4, 5], DType::U8)]), "cube");
        assert_eq!(compete(&[cube, ("series", &[5, 7, 9, 12], DType::U16)]), "cube series");
        assert_eq!(compete(&[cube, ("white", &[1, 9, 12], DType::F64)]), "cube");
        assert_eq!(compete(&[cube, ("two", &[1, 7, 9, 12], DType::U16)]), "cube two");
    }

    #[test]
    fn a_mask_is_the_image_of_whole_numbers_where_there_is_one() {
        let all = [
            Candidate::numbers("cube", &[7, 9, 12], DType::U16),
            Candidate::numbers("lat", &[7, 9], DType::F64),
            Candidate::numbers("gt", &[7, 9], DType::U8),
        ];
        assert_eq!(masks(&all), [2]);
        assert_eq!(masks(&all[..2]), [1]);
        assert_eq!(masks(&all[..1]), [0]);
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
