//! TIFF: float32 or integers, the bands of a pixel side by side, in strips of whole rows; BigTIFF
//! above 4 GB. GDAL's metadata describe the bands.

use std::fmt::Write;
use std::fs::File;
use std::io::{BufWriter, Seek};
use std::path::Path;

use hsipack_format::metadata::Scaling;
use hsipack_format::{CubeShape, DType, Error, Result};
use tiff::encoder::{DirectoryEncoder, TiffEncoder, TiffKind, TiffKindBig, TiffKindStandard};
use tiff::tags::{ExtraSamples, SampleFormat, Tag};

use super::raster::Raster;
use super::{Written, geo_keys, to_f32};
use crate::staged::Staged;

/// The target size of a strip in bytes.
const STRIP: usize = 4 << 20;
/// Space for the directory, strip table and metadata in the decision for BigTIFF.
const MARGIN: u64 = 64 << 20;
const GDAL_METADATA: Tag = Tag::Unknown(42112);
const GDAL_NODATA: Tag = Tag::Unknown(42113);

/// Writes the file.
pub(super) fn write(raster: &Raster<'_>, path: &Path) -> Result<Written> {
    let shape = raster.shape;
    if shape.bands > usize::from(u16::MAX)
        || u32::try_from(shape.rows).is_err()
        || u32::try_from(shape.columns).is_err()
    {
        return Err(Error::unsupported(format!("{shape} is too large for TIFF"))
            .at(path)
            .with_remedy("use .npy or .hdr"));
    }
    let dtype = if raster.is_whole() { raster.dtype } else { DType::F32 };
    let mut file = Staged::create(path)?;
    let size = (shape.values() * dtype.size()) as u64 + MARGIN;
    let writer = file.writer();
    if size > u64::from(u32::MAX) {
        encode::<TiffKindBig>(raster, dtype, writer, path)?;
    } else {
        encode::<TiffKindStandard>(raster, dtype, writer, path)?;
    }
    file.commit()?;
    let mut notes = Vec::new();
    if shape.bands == 1 && !raster.flat {
        notes.push(
            "most tools treat a TIFF of one band as an image; hsipack reads it only as a mask"
                .to_owned(),
        );
    }
    if raster.class_colours.is_some() && raster.dtype != DType::U8 {
        notes.push("colours are left out: TIFF stores them only for uint8".to_owned());
    }
    Ok((dtype, raster.scaling, notes))
}

fn encode<K: TiffKind>(
    raster: &Raster<'_>,
    dtype: DType,
    writer: &mut BufWriter<File>,
    path: &Path,
) -> Result<()> {
    let fail = |error: tiff::TiffError| match error {
        tiff::TiffError::IoError(error) => Error::io(path, "cannot write", error),
        other => {
            Error::unsupported(format!("cannot write TIFF: {other}")).at(path).caused_by(other)
        }
    };
    // The encoder counts offsets from the writer's position.
    writer.rewind().map_err(|error| Error::io(path, "cannot write", error))?;
    let mut encoder = TiffEncoder::<_, K>::new_generic(writer).map_err(fail)?;
    let mut directory = encoder.image_directory().map_err(fail)?;
    let row_bytes = raster.shape.row_values() * dtype.size();
    let rows_per_strip = strip_rows(raster.slab, row_bytes);
    let (mut offsets, mut counts) = (Vec::new(), Vec::new());
    let mut singles = Vec::new();
    (raster.rows)(&mut |stored| {
        let bytes: &[u8] = if raster.is_whole() {
            stored
        } else {
            to_f32(stored, raster.dtype, &mut singles);
            bytemuck::cast_slice(&singles)
        };
        for strip in bytes.chunks(rows_per_strip * row_bytes) {
            offsets.push(directory.write_data(strip).map_err(fail)?);
            counts.push(strip.len() as u64);
        }
        Ok(())
    })?;
    write_strips(&mut directory, rows_per_strip, &offsets, &counts)
        .and_then(|()| write_tags(&mut directory, raster, dtype))
        .and_then(|()| write_metadata(&mut directory, raster))
        .and_then(|()| match &raster.geo {
            Some(geo) => geo_keys::write(&mut directory, geo),
            None => Ok(()),
        })
        .and_then(|()| directory.finish())
        .map_err(fail)
}

/// Number of rows in a strip. It divides the rows of a chunk, so that strips fill slabs exactly,
/// and a strip has at most [`STRIP`] bytes if possible.
fn strip_rows(tile_rows: usize, row_bytes: usize) -> usize {
    (1..=tile_rows)
        .rev()
        .find(|rows| tile_rows.is_multiple_of(*rows) && rows * row_bytes <= STRIP)
        .unwrap_or(1)
}

fn write_strips<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, impl std::io::Write + Seek, K>,
    rows: usize,
    offsets: &[u64],
    counts: &[u64],
) -> tiff::TiffResult<()> {
    directory.write_tag(Tag::RowsPerStrip, rows as u32)?;
    let narrow =
        |values: &[u64]| values.iter().map(|v| u32::try_from(*v)).collect::<Result<Vec<_>, _>>();
    match (narrow(offsets), narrow(counts)) {
        (Ok(offsets), Ok(counts)) => {
            directory.write_tag(Tag::StripOffsets, offsets.as_slice())?;
            directory.write_tag(Tag::StripByteCounts, counts.as_slice())
        }
        _ => {
            directory.write_tag(Tag::StripOffsets, offsets)?;
            directory.write_tag(Tag::StripByteCounts, counts)
        }
    }
}

fn write_tags<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, impl std::io::Write + Seek, K>,
    raster: &Raster<'_>,
    dtype: DType,
) -> tiff::TiffResult<()> {
    let CubeShape { rows, columns, bands } = raster.shape;
    directory.write_tag(Tag::ImageWidth, columns as u32)?;
    directory.write_tag(Tag::ImageLength, rows as u32)?;
    directory.write_tag(Tag::SamplesPerPixel, bands as u16)?;
    directory.write_tag(Tag::BitsPerSample, vec![dtype.size() as u16 * 8; bands].as_slice())?;
    let format = match dtype {
        DType::I16 => SampleFormat::Int,
        dtype if dtype.is_float() => SampleFormat::IEEEFP,
        _ => SampleFormat::Uint,
    };
    directory.write_tag(Tag::SampleFormat, vec![format; bands].as_slice())?;
    directory.write_tag(Tag::Compression, 1u16)?;
    match palette(raster) {
        Some(colours) => {
            directory.write_tag(Tag::PhotometricInterpretation, 3u16)?;
            directory.write_tag(Tag::ColorMap, colours.as_slice())?;
        }
        None => directory.write_tag(Tag::PhotometricInterpretation, 1u16)?,
    }
    directory.write_tag(Tag::PlanarConfiguration, 1u16)?;
    if bands > 1 {
        let extra = vec![ExtraSamples::Unspecified; bands - 1];
        directory.write_tag(Tag::ExtraSamples, extra.as_slice())?;
    }
    directory.write_tag(Tag::Software, concat!("hsipack ", env!("CARGO_PKG_VERSION")))
}

/// Red, green and blue of all possible class ids. Classes without a colour are black.
fn palette(raster: &Raster<'_>) -> Option<Vec<u16>> {
    let colours = raster.class_colours.as_ref().filter(|_| raster.dtype == DType::U8)?;
    let part = |part: usize| {
        let of = move |id: usize| colours.get(id).map_or(0, |colour| u16::from(colour[part]) * 257);
        (0..256).map(of)
    };
    Some((0..3).flat_map(part).collect())
}

fn write_metadata<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, impl std::io::Write + Seek, K>,
    raster: &Raster<'_>,
) -> tiff::TiffResult<()> {
    match raster.nodata {
        Some(value) if value.is_nan() => directory.write_tag(GDAL_NODATA, "nan")?,
        Some(value) => directory.write_tag(GDAL_NODATA, value.to_string().as_str())?,
        None => {}
    }
    match metadata(raster) {
        // Tags of this type are ASCII. XML can express all other characters in ASCII.
        Some(xml) => directory.write_tag(GDAL_METADATA, ascii(&xml).as_str()),
        None => Ok(()),
    }
}

/// GDAL's metadata; `None` if nothing is known.
fn metadata(raster: &Raster<'_>) -> Option<String> {
    let mut items = String::new();
    let mut item = |name: &str, band: usize, role: &str, text: &str| {
        let role = if role.is_empty() { String::new() } else { format!(" role=\"{role}\"") };
        let text = escape(text);
        let _ = writeln!(items, "  <Item name=\"{name}\" sample=\"{band}\"{role}>{text}</Item>");
    };
    for band in 0..raster.shape.bands {
        if let Some(nm) = raster.wavelength {
            item("wavelength", band, "", &nm[band].to_string());
            item("wavelength_units", band, "", "nm");
        }
        if let Some(nm) = raster.fwhm {
            item("fwhm", band, "", &nm[band].to_string());
        }
        if let Some(good) = &raster.good_bands {
            item("bbl", band, "", if good[band] { "1" } else { "0" });
        }
        if let Some(names) = &raster.band_names {
            item("DESCRIPTION", band, "description", &names[band]);
        }
        let Scaling { factor, offset, .. } = raster.scaling;
        if factor != 1.0 {
            item("SCALE", band, "scale", &factor.to_string());
        }
        if offset != 0.0 {
            item("OFFSET", band, "offset", &offset.to_string());
        }
        if let Some(unit) = &raster.unit {
            item("UNITTYPE", band, "unittype", unit);
        }
    }
    let named = raster.class_names.iter().flatten().enumerate();
    for (id, name) in named.filter(|(_, name)| !name.is_empty()) {
        item(&format!("class_{id}"), 0, "", name);
    }
    (!items.is_empty()).then(|| format!("<GDALMetadata>\n{items}</GDALMetadata>\n"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn ascii(xml: &str) -> String {
    let mut text = String::with_capacity(xml.len());
    for letter in xml.chars() {
        if letter.is_ascii() {
            text.push(letter);
        } else {
            let _ = write!(text, "&#{};", u32::from(letter));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{ConvertOptions, convert};
    use crate::progress::Progress;
    use hsipack_source::{OpenOptions, RowBuffer};
    use hsipack_store::Dataset;

    #[test]
    fn big_tiff_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let header = "ENVI\nsamples = 3\nlines = 4\nbands = 2\ndata type = 1\ninterleave = bip\n";
        let input = folder.path().join("a.hdr");
        std::fs::write(&input, header).unwrap();
        std::fs::write(folder.path().join("a.img"), (0..24).collect::<Vec<u8>>()).unwrap();
        let output = folder.path().join("d.hsipack");
        let options = ConvertOptions::new(vec![input.display().to_string()], &output);
        convert(&options, &Progress::default(), &|_| {}).unwrap();
        let dataset = Dataset::open(&output).unwrap();
        let sample = dataset.samples().get(0).unwrap();
        let raster = Raster::of_sample(&dataset, &sample, None).unwrap();
        let path = folder.path().join("a.tif");
        let mut file = Staged::create(&path).unwrap();
        encode::<TiffKindBig>(&raster, DType::F32, file.writer(), &path).unwrap();
        file.commit().unwrap();
        let source = hsipack_source::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(source.info().format, "BigTIFF");
        let mut buffer = RowBuffer::new();
        source.read_rows(0..4, &mut buffer).unwrap();
        let want: Vec<f32> = (0..24u8).map(f32::from).collect();
        assert_eq!(buffer.as_slice::<f32>(), want);
    }

    #[test]
    fn strips_divide_slabs() {
        assert_eq!(strip_rows(16, 1000), 16);
        assert_eq!(strip_rows(16, 1 << 20), 4);
        assert_eq!(strip_rows(15, 1 << 20), 3);
        assert_eq!(strip_rows(7, 8 << 20), 1);
    }

    #[test]
    fn other_letters_become_references() {
        assert_eq!(ascii("Rand µ"), "Rand &#181;");
        assert_eq!(escape("a<b&c"), "a&lt;b&amp;c");
    }
}
