//! Containers of several arrays (`.npz`, `.mat`, HTC dictionaries): which array is the cube, and
//! which ones describe its bands.

use std::path::Path;

use hsipack_format::{CubeShape, DType, Error, Result};

use super::wavelengths::{Unit, guess, known_unit, scaled};
use super::{AxisOrder, CubeInfo, OpenOptions};

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

/// What a list says about the bands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    Wavelength,
    Fwhm,
    GoodBands,
}

/// Names of lists that describe bands, the surest first.
const BAND_LISTS: [(&str, Says); 22] = [
    ("wavelengths_nm", Says::Wavelength),
    ("wavelength_nm", Says::Wavelength),
    ("wavelengths_um", Says::Wavelength),
    ("wavelength_um", Says::Wavelength),
    ("wavelengths", Says::Wavelength),
    ("wavelength", Says::Wavelength),
    ("wvls", Says::Wavelength),
    ("wvl", Says::Wavelength),
    ("wl", Says::Wavelength),
    ("lambdas", Says::Wavelength),
    ("lambda", Says::Wavelength),
    ("band_centers", Says::Wavelength),
    ("centers", Says::Wavelength),
    ("bands", Says::Wavelength),
    ("fwhm_nm", Says::Fwhm),
    ("fwhm_um", Says::Fwhm),
    ("fwhms", Says::Fwhm),
    ("fwhm", Says::Fwhm),
    ("bbl", Says::GoodBands),
    ("good_wavelengths", Says::GoodBands),
    ("good_bands", Says::GoodBands),
    ("goodbands", Says::GoodBands),
];

fn rank(name: &str) -> Option<usize> {
    BAND_LISTS.iter().position(|(known, _)| last_component(name).eq_ignore_ascii_case(known))
}

const MOST_LISTS: usize = 32;
/// No sensor has more bands; a longer list is not read.
const MOST_BANDS: usize = 1 << 20;

/// Fills in what the lists beside a cube say about its bands.
///
/// `vectors` are the (name, length) of all vectors beside the cube; `read` gives the values of the
/// one at an index. Lists that do not fit are left out, with a note.
///
/// # Errors
/// If `read` fails.
pub(super) fn describe_bands(
    info: &mut CubeInfo,
    vectors: &[(String, usize)],
    read: impl Fn(usize) -> Result<Vec<f64>>,
) -> Result<()> {
    let mut unit = None;
    // Wavelengths first: they tell the unit of the widths.
    for says in [Says::Wavelength, Says::Fwhm, Says::GoodBands] {
        let mut known: Vec<(usize, usize)> = (0..vectors.len())
            .filter_map(|index| Some((rank(&vectors[index].0)?, index)))
            .filter(|(rank, _)| BAND_LISTS[*rank].1 == says)
            .collect();
        known.sort_unstable();
        // No file has as many lists of one kind; in a compressed struct each takes long to read.
        known.truncate(MOST_LISTS);
        for (_, index) in known {
            let (name, length) = &vectors[index];
            if *length != info.shape.bands || *length > MOST_BANDS {
                // A lone number, such as `bands = 32`, is no list.
                if *length != 1 {
                    info.notes.push(format!(
                        "'{name}' has {length} values for {} bands and was left out",
                        info.shape.bands
                    ));
                }
                continue;
            }
            let values = read(index)?;
            let taken = match says {
                Says::Wavelength => take_wavelengths(info, name, &values, &mut unit),
                Says::Fwhm => take_fwhm(info, name, &values, unit),
                Says::GoodBands => take_good_bands(info, name, &values),
            };
            if taken {
                break;
            }
        }
    }
    Ok(())
}

/// The factor to nm that a list's own name states.
fn stated_unit(name: &str) -> Option<f64> {
    let name = last_component(name).to_ascii_lowercase();
    match known_unit(name.rsplit_once('_')?.1) {
        Some(Unit::Length(factor)) => Some(factor),
        _ => None,
    }
}

fn take_wavelengths(
    info: &mut CubeInfo,
    name: &str,
    values: &[f64],
    unit: &mut Option<f64>,
) -> bool {
    if numbered(values) {
        info.notes.push(format!("'{name}' numbers the bands; no wavelengths are known from it"));
        return false;
    }
    if !values.iter().all(|value| value.is_finite() && *value > 0.0) {
        info.notes.push(format!("'{name}' holds values that are no wavelengths and was left out"));
        return false;
    }
    let factor = stated_unit(name).unwrap_or_else(|| {
        let (factor, unit) = guess(values);
        if factor != 1.0 {
            info.notes.push(format!("'{name}' was taken to be in {unit}"));
        }
        factor
    });
    let nm = scaled(values, factor);
    if nm.contains(&f64::INFINITY) {
        info.notes.push(format!("'{name}' holds values that are no wavelengths and was left out"));
        return false;
    }
    *unit = Some(factor);
    info.wavelength = Some(nm);
    true
}

/// Whether values count 0, 1, 2, … or 1, 2, 3, …: numbers of bands.
fn numbered(values: &[f64]) -> bool {
    values.len() > 1
        && values[0] <= 1.0
        && values.iter().enumerate().all(|(index, value)| *value == values[0] + index as f64)
}

fn take_fwhm(info: &mut CubeInfo, name: &str, values: &[f64], unit: Option<f64>) -> bool {
    let Some(factor) = stated_unit(name).or(unit) else {
        info.notes.push(format!("'{name}' has no unit without wavelengths and was left out"));
        return false;
    };
    let nm = scaled(values, factor);
    if !nm.iter().all(|value| value.is_finite() && *value >= 0.0) {
        info.notes.push(format!("'{name}' holds values that are no widths and was left out"));
        return false;
    }
    info.fwhm = Some(nm);
    true
}

fn take_good_bands(info: &mut CubeInfo, name: &str, values: &[f64]) -> bool {
    if !values.iter().all(|value| *value == 0.0 || *value == 1.0) {
        info.notes.push(format!("'{name}' holds more than 0 and 1 and was left out"));
        return false;
    }
    info.good_bands = Some(values.iter().map(|value| *value == 1.0).collect());
    true
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
    fn lists_are_infinite_in_no_unit_and_read_only_so_often() {
        let describe = |name: &str, value: f64| {
            let mut info = CubeInfo::new("test", CubeShape::new(1, 1, 2), DType::U8, "a");
            let read = std::cell::Cell::new(0);
            describe_bands(&mut info, &vec![(name.to_owned(), 2); 100], |_| {
                read.set(read.get() + 1);
                Ok(vec![value, 2.0 * value])
            })
            .unwrap();
            (info, read.get())
        };
        let (info, read) = describe("wavelength_um", 1e307);
        assert_eq!((info.wavelength, read), (None, MOST_LISTS));
        let (info, read) = describe("fwhm_um", 1e307);
        assert_eq!((info.fwhm, read), (None, MOST_LISTS));
        let (info, read) = describe("fwhm_um", 1.0);
        assert_eq!((info.fwhm, read), (Some(vec![1000.0, 2000.0]), 1));
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

    fn described(lists: &[(&str, &[f64])]) -> CubeInfo {
        let mut info = CubeInfo::new("test", CubeShape::new(1, 1, 3), DType::U8, "x");
        let vectors: Vec<(String, usize)> =
            lists.iter().map(|(name, values)| ((*name).to_owned(), values.len())).collect();
        describe_bands(&mut info, &vectors, |index| Ok(lists[index].1.to_vec())).unwrap();
        info
    }

    #[test]
    fn wavelengths_become_nanometres() {
        let nm = Some(vec![400.0, 500.0, 2500.0]);
        assert_eq!(described(&[("Wavelengths", &[400.0, 500.0, 2500.0])]).wavelength, nm);
        let um = described(&[("s.wvl", &[0.4, 0.5, 2.5]), ("fwhm", &[0.005, 0.005, 0.01])]);
        assert_eq!(um.wavelength, nm);
        assert_eq!(um.fwhm, Some(vec![5.0, 5.0, 10.0]));
        assert_eq!(um.notes.len(), 1);
        assert_eq!(
            described(&[("wavelength_um", &[0.5, 120.0, 130.0])]).wavelength,
            Some(vec![500.0, 120_000.0, 130_000.0])
        );
    }

    #[test]
    fn lists_that_are_no_wavelengths_are_left_out() {
        for values in [&[1.0, 2.0, 3.0][..], &[0.0, 1.0, 2.0], &[1.0, f64::NAN, 3.0], &[5.0, 6.0]] {
            let info = described(&[("bands", values)]);
            assert_eq!(info.wavelength, None, "{values:?}");
        }
        let info = described(&[("wavelength", &[400.0, 500.0])]);
        assert_eq!(info.notes, ["'wavelength' has 2 values for 3 bands and was left out"]);
        // A band count beside the list is no list.
        let info = described(&[("bands", &[3.0]), ("wl", &[400.0, 500.0, 600.0])]);
        assert!(info.wavelength.is_some() && info.notes.is_empty());
    }

    #[test]
    fn bad_bands_are_zeros_and_ones() {
        assert_eq!(
            described(&[("bbl", &[1.0, 0.0, 1.0])]).good_bands,
            Some(vec![true, false, true])
        );
        assert_eq!(described(&[("bbl", &[1.0, 2.0, 1.0])]).good_bands, None);
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
