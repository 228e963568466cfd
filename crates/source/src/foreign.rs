//! Formats that are not read. They are recognised so that the error names the format, and the
//! program that converts it.

use std::path::Path;

use hsipack_format::{Error, Result};

use crate::flat::envi;
use crate::open_options::OpenOptions;
use crate::reader::Source;

/// A format that is not read.
struct Foreign {
    /// Its name, as users know it.
    name: &'static str,
    /// How its files begin: an offset and the bytes there.
    signatures: &'static [(usize, &'static [u8])],
    /// Endings that belong to this format alone, in lower case.
    endings: &'static [&'static str],
    /// How to convert it.
    remedy: Remedy,
}

/// A program that converts a format.
#[derive(Clone, Copy)]
enum Remedy {
    /// GDAL reads it.
    Gdal,
    /// A command or advice.
    Other(&'static str),
}

const NCCOPY: &str = "convert it to NetCDF-4: nccopy -k nc4 IN.nc OUT.nc";
const FRAMES: &str =
    "a video has colours, not bands; read its frames in Python and pack the cube with hsipack.pack";
const PICTURE: &str = "a picture has colours, not bands; give the file of the cube";
const EXPORT: &str = "export the cube as ENVI, TIFF or HDF5 in the software of the instrument, or read it in Python and pack the array with hsipack.pack";

const fn by(
    name: &'static str,
    signatures: &'static [(usize, &'static [u8])],
    endings: &'static [&'static str],
    remedy: Remedy,
) -> Foreign {
    Foreign { name, signatures, endings, remedy }
}

static FORMATS: [Foreign; 37] = [
    by(
        "NetCDF-3",
        &[(0, b"CDF\x01"), (0, b"CDF\x02"), (0, b"CDF\x05")],
        &[],
        Remedy::Other(NCCOPY),
    ),
    by(
        "HDF4",
        &[(0, b"\x0e\x03\x13\x01")],
        &[],
        Remedy::Other(
            "convert it to HDF5: h4toh5 IN.hdf OUT.h5, or one of its datasets with gdal_translate",
        ),
    ),
    by(
        "FITS",
        &[(0, b"SIMPLE  =")],
        &["fits", "fit", "fts"],
        Remedy::Other(
            "convert it: gdal_translate -of ENVI IN OUT; or read it with astropy.io.fits and pack the array with hsipack.pack",
        ),
    ),
    by(
        "GRIB",
        &[(0, b"GRIB")],
        &["grb", "grb2", "grib", "grib2"],
        Remedy::Other(
            "convert it: gdal_translate -of GTiff IN OUT.tif; or to NetCDF with xarray and cfgrib",
        ),
    ),
    by(
        "JPEG 2000",
        &[(0, b"\0\0\0\x0CjP  \r\n\x87\n"), (0, b"\xFF\x4F\xFF\x51")],
        &["jp2", "j2k", "jpx"],
        Remedy::Gdal,
    ),
    by("PCIDSK (PCI Geomatics)", &[(0, b"PCIDSK  ")], &["pix"], Remedy::Gdal),
    by("ERDAS Imagine (HFA)", &[(0, b"EHFA_HEADER_TAG")], &[], Remedy::Gdal),
    by("ERDAS LAN/GIS", &[(0, b"HEAD74")], &["lan", "gis"], Remedy::Gdal),
    by("NITF", &[(0, b"NITF0"), (0, b"NSIF0")], &["ntf", "nitf"], Remedy::Gdal),
    by("MrSID", &[(0, b"msid")], &["sid"], Remedy::Gdal),
    by("ECW", &[], &["ecw"], Remedy::Gdal),
    by("ER Mapper", &[], &["ers"], Remedy::Gdal),
    by("IDRISI", &[], &["rst", "rdc"], Remedy::Gdal),
    by("ILWIS", &[], &["mpr", "mpl"], Remedy::Gdal),
    by("SAGA grid", &[], &["sgrd", "sdat", "sg-grd-z"], Remedy::Gdal),
    by("ISIS or VICAR", &[(0, b"CCSD3ZF"), (0, b"LBLSIZE=")], &["cub"], Remedy::Gdal),
    by("PDS", &[(0, b"PDS_VERSION_ID")], &[], Remedy::Gdal),
    by(
        "VRT (a GDAL virtual raster, which only points to other files)",
        &[(0, b"<VRTDataset")],
        &["vrt"],
        Remedy::Gdal,
    ),
    by("ESRI ASCII grid", &[], &["asc"], Remedy::Gdal),
    by("ESRI float grid", &[], &["flt"], Remedy::Gdal),
    by(
        "NRRD",
        &[(0, b"NRRD000")],
        &["nrrd", "nhdr"],
        Remedy::Other("read it in Python with pynrrd and pack the array with hsipack.pack"),
    ),
    by(
        "NIfTI",
        &[(344, b"n+1\0"), (344, b"ni1\0")],
        &["nii"],
        Remedy::Other("read it in Python with nibabel and pack the array with hsipack.pack"),
    ),
    by(
        "DICOM",
        &[(128, b"DICM")],
        &["dcm"],
        Remedy::Other("read it in Python with pydicom and pack the array with hsipack.pack"),
    ),
    by(
        "a HEIF or AVIF picture",
        &[(4, b"ftypheic"), (4, b"ftypavif"), (4, b"ftypmif1")],
        &["heic", "avif"],
        Remedy::Other(PICTURE),
    ),
    by("a video (MP4)", &[(4, b"ftyp")], &["mp4", "mov", "m4v"], Remedy::Other(FRAMES)),
    by("a video (AVI)", &[(8, b"AVI ")], &["avi"], Remedy::Other(FRAMES)),
    by("a video (Matroska)", &[(0, b"\x1A\x45\xDF\xA3")], &["mkv", "webm"], Remedy::Other(FRAMES)),
    by("a video", &[], &["mpg", "mpeg", "wmv", "flv"], Remedy::Other(FRAMES)),
    by("a JPEG picture", &[(0, b"\xFF\xD8\xFF")], &["jpg", "jpeg"], Remedy::Other(PICTURE)),
    by("a GIF picture", &[(0, b"GIF87a"), (0, b"GIF89a")], &["gif"], Remedy::Other(PICTURE)),
    by("a WebP picture", &[(8, b"WEBP")], &["webp"], Remedy::Other(PICTURE)),
    by("a BMP picture", &[], &["bmp"], Remedy::Other(PICTURE)),
    by("a PDF document", &[(0, b"%PDF-")], &["pdf"], Remedy::Other("give the file of the cube")),
    by(
        "Parquet",
        &[(0, b"PAR1")],
        &["parquet"],
        Remedy::Other("read it in Python and pack the arrays with hsipack.pack"),
    ),
    by("HSD in another form than Hyperspectral City has it", &[], &["hsd"], Remedy::Other(EXPORT)),
    by(
        "a file of a microscope or spectrometer",
        &[],
        &["wip", "wdf", "czi", "lif", "nd2", "oib", "oif", "spe", "sif", "im3", "vsi", "ngs"],
        Remedy::Other(EXPORT),
    ),
    by(
        "an array of PyTorch or pickled Python",
        &[],
        &["pt", "pth", "pkl", "pickle"],
        Remedy::Other("load it in Python and pack the array with hsipack.pack"),
    ),
];

/// Signatures shorter than this are found in raw data by chance.
const LONG_SIGNATURE: usize = 6;

impl Foreign {
    /// Whether a file that starts with `head` is of this format. Raw data with a header beside them
    /// are not, unless they have a long signature.
    fn has_signature(&self, path: &Path, head: &[u8]) -> bool {
        self.signatures.iter().any(|(at, signature)| {
            let is_there = head.get(*at..).is_some_and(|head| head.starts_with(signature));
            is_there && (signature.len() >= LONG_SIGNATURE || !envi::has_header(path))
        })
    }

    fn has_ending(&self, path: &Path) -> bool {
        let is = |ending: &&str| {
            path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
        };
        self.endings.iter().any(is)
    }

    fn refusal(&self, path: &Path, is_mask: bool) -> Error {
        let name = self.name;
        if is_mask && matches!(self.remedy, Remedy::Other(PICTURE)) {
            return Error::unsupported(format!("{name} is not a mask: it holds colours, and most such pictures are compressed with losses, which changes class ids"))
                .at(path)
                .with_remedy("save the labels as a PNG or TIFF picture of class ids (grayscale or palette), or as .npy");
        }
        let error = Error::unsupported(format!("{name} is not supported")).at(path);
        match self.remedy {
            Remedy::Gdal => error.with_remedy(
                "convert it with GDAL: gdal_translate -of GTiff -co INTERLEAVE=BAND IN OUT.tif; or read it in Python and pack the array with hsipack.pack",
            ),
            Remedy::Other(advice) => error.with_remedy(advice),
        }
    }
}

/// The format of a file that starts with `head` (up to 4 KiB), by its first bytes.
fn signed(path: &Path, head: &[u8]) -> Option<&'static Foreign> {
    // A text may begin with a byte-order mark, an XML declaration and blanks.
    let text = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head).trim_ascii_start();
    let vrt = || {
        let start = &text[..text.len().min(512)];
        start.starts_with(b"<") && start.windows(11).any(|window| window == b"<VRTDataset")
    };
    let is_vrt = |format: &&Foreign| format.endings == ["vrt"];
    match vrt() {
        true => FORMATS.iter().find(is_vrt),
        false => FORMATS.iter().find(|format| format.has_signature(path, head)),
    }
}

/// Whether a file that starts with `head` (up to 4 KiB) is of such a format, by its first bytes.
pub(super) fn recognises(path: &Path, head: &[u8]) -> bool {
    signed(path, head).is_some()
}

/// Whether a file is of such a format, by its name only.
pub(super) fn is_named(path: &Path, head: &[u8]) -> bool {
    let is_folder = head.is_empty();
    !is_folder && FORMATS.iter().any(|format| format.has_ending(path)) && !envi::has_header(path)
}

/// The name of the format of a file, for lists of files that are no cubes.
pub(super) fn name_of(path: &Path, head: &[u8]) -> Option<&'static str> {
    let by_ending = || FORMATS.iter().find(|format| format.has_ending(path));
    signed(path, head).or_else(by_ending).map(|format| format.name)
}

/// How to convert the file, for lists of files that are no cubes; `None` if it is not of such a
/// format or a picture.
pub(super) fn way_out(path: &Path, head: &[u8]) -> Option<String> {
    let by_ending = || FORMATS.iter().find(|format| format.has_ending(path));
    let format = signed(path, head).or_else(by_ending)?;
    let is_cube = !matches!(format.remedy, Remedy::Other(PICTURE | FRAMES));
    let refusal = is_cube.then(|| format.refusal(path, false))?;
    Some(refusal.remedy()?.to_string())
}

/// Refuses the file.
///
/// # Errors
/// Always: such formats are not read.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let head = hsipack_store::bounded_read::head(path, 4096)?;
    let by_ending = || FORMATS.iter().find(|format| format.has_ending(path));
    match signed(path, &head).or_else(by_ending) {
        Some(format) => Err(format.refusal(path, options.mask)),
        None => Err(Error::unsupported("not a cube in any format hsipack knows").at(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(file: &str, head: &[u8]) -> Option<&'static str> {
        name_of(Path::new(file), head)
    }

    #[test]
    fn formats_are_known_by_their_first_bytes_or_endings() {
        for (file, head, want) in [
            ("a.nc", &b"CDF\x01\0\0"[..], "NetCDF-3"),
            ("a.hdf", b"\x0e\x03\x13\x01", "HDF4"),
            ("a", b"SIMPLE  =        T", "FITS"),
            ("a.grb", b"GRIB\0\0", "GRIB"),
            ("a.img", b"EHFA_HEADER_TAG\0", "ERDAS Imagine (HFA)"),
            ("a.pix", b"PCIDSK  SDS", "PCIDSK (PCI Geomatics)"),
            (
                "a.xml",
                b"<?xml version='1.0'?>\n<VRTDataset rasterXSize='4'>",
                "VRT (a GDAL virtual raster, which only points to other files)",
            ),
            ("A.VRT", b"", "VRT (a GDAL virtual raster, which only points to other files)"),
            ("a.mp4", b"\0\0\0\x18ftypmp42", "a video (MP4)"),
            ("a.jpg", b"\xFF\xD8\xFF\xE0", "a JPEG picture"),
            ("a.hsd", b"", "HSD in another form than Hyperspectral City has it"),
        ] {
            assert_eq!(name(file, head), Some(want), "{file}");
        }
        for (file, head) in
            [("a.raw", &b"\0\0\0\0"[..]), ("a.nc", b"\x89HDF\r\n"), ("a.txt", b"<VRT"), ("a", b"")]
        {
            assert_eq!(name(file, head), None, "{file}");
        }
    }

    #[test]
    fn raw_data_may_begin_like_another_format() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.raw");
        assert!(recognises(&path, b"\xFF\xD8\xFF\xE0"));
        std::fs::write(folder.path().join("a.hdr"), "ENVI\n").unwrap();
        assert!(!recognises(&path, b"\xFF\xD8\xFF\xE0"));
        assert!(recognises(&path, b"EHFA_HEADER_TAG"));
    }

    #[test]
    fn every_refusal_has_a_way_out() {
        for format in &FORMATS {
            for is_mask in [false, true] {
                assert!(
                    format.refusal(Path::new("a"), is_mask).remedy().is_some(),
                    "{}",
                    format.name
                );
            }
        }
    }
}
