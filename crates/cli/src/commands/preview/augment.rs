//! `hsipack preview --augment`: samples, and beside them the same samples augmented.

use std::path::Path;

use bytemuck::AnyBitPattern;
use half::f16;
use hsipack_format::{DType, Error, MaskValue, Result, mask};
use hsipack_pack::preview::pictures::{Picture, Sheet, check_output, colour_bands, draw};
use hsipack_pack::preview::{PreviewOptions, Previewed};
use hsipack_pack::target;
use hsipack_read::Dataset;
use hsipack_read::augment::array::Buffer;
use hsipack_read::augment::{
    Array, Augmented, ElementType, Host, Images, Mask, Op, Parameters, Pipeline, SampleKey, Step,
};
use hsipack_store::Stack;
use hsipack_store::dataset::ChunkArray;

/// Pictures in a row of a sheet: a sample, and its augmented versions of three epochs.
const ACROSS: usize = 4;
/// Samples on a sheet.
const SAMPLES: usize = 3;
/// Rows and columns that are read of a sample, in its middle.
const SIDE: usize = 1024;

/// The samples that are shown, as one batch.
struct Shown<'a> {
    dataset: &'a Dataset,
    stack: &'a Stack,
    mask: Option<&'a ChunkArray>,
    /// Ids of the samples. Samples that are only mixed into others come last.
    samples: Vec<usize>,
    /// First row and column, number of rows and columns.
    window: [usize; 4],
    /// The bands that are red, green and blue, and what they are.
    bands: [usize; 3],
    caption: String,
}

/// Draws the sheet.
///
/// # Errors
/// If the augmentations cannot be read or do not fit the samples, the path is not a dataset, there
/// is no such sample or mask, or the picture cannot be written.
pub fn preview(options: &PreviewOptions, file: &Path) -> Result<Previewed> {
    check_output(&options.output, options.force)?;
    let json = std::fs::read_to_string(file)
        .map_err(|error| Error::io(file, "cannot read the augmentations", error))?;
    let pipeline = Pipeline::from_json(&json).map_err(|error| error.at(file))?;
    check_bands(&pipeline).map_err(|error| error.at(file))?;
    let dataset = Dataset::open(&options.path)?;
    let shown = Shown::new(options, &dataset)?;
    let epochs = match options.sample {
        Some(_) => (ACROSS * SAMPLES - 1) as u64,
        None => (ACROSS - 1) as u64,
    };
    let keys: Vec<SampleKey> =
        shown.samples.iter().map(|sample| SampleKey { sample: *sample, repeat: 0 }).collect();
    let (host, images) = (Host::default(), shown.images(&pipeline)?);
    let augmented = (0..epochs)
        .map(|epoch| pipeline.augment(&host, &images, epoch, &keys))
        .collect::<Result<Vec<_>>>()
        .map_err(|error| error.at(file))?;
    let pictures = pictures(options, &shown, &pipeline, &images, &augmented)?;
    let sheet = Sheet {
        output: options.output.clone(),
        force: options.force,
        title: format!("{} under {}", name_of(Path::new(&options.path)), name_of(file)),
        subtitle: subtitle(&pipeline),
        captions: captions(&shown, &pipeline),
    };
    draw(sheet, &pictures, shown.mask)
}

fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}

impl<'a> Shown<'a> {
    fn new(options: &PreviewOptions, dataset: &'a Dataset) -> Result<Self> {
        let all = dataset.samples();
        let first = match &options.sample {
            None => 0,
            Some(text) => target::find_sample(all, options.path.as_ref(), text)?,
        };
        if all.is_empty() {
            return Err(Error::damaged("the dataset has no samples").at(&options.path));
        }
        let stack = &dataset.stacks()[all.stack(first)];
        let mask = match &options.mask {
            None => stack.masks.first(),
            Some(name) => {
                let mask = stack.masks.iter().find(|mask| mask.name() == name);
                Some(mask.ok_or_else(|| {
                    let names: Vec<&str> = stack.masks.iter().map(ChunkArray::name).collect();
                    let remedy = match names[..] {
                        [] => "the dataset has no masks".to_owned(),
                        _ => format!("choose from {}", names.join(", ")),
                    };
                    Error::conflict(format!("there is no mask {name}"))
                        .at(&options.path)
                        .with_remedy(remedy)
                })?)
            }
        };
        // Samples of one shape, evenly spread; the requested sample comes first.
        let alike: Vec<usize> = all.ids_in(all.stack(first)).collect();
        let mut samples: Vec<usize> =
            if options.sample.is_some() { vec![first] } else { Vec::new() };
        let others = (0..SAMPLES).map(|number| alike[number * alike.len() / SAMPLES]);
        for other in others {
            if samples.len() < SAMPLES && !samples.contains(&other) {
                samples.push(other);
            }
        }
        let shape = stack.image.shape();
        let (rows, columns) = (shape.rows.min(SIDE), shape.columns.min(SIDE));
        let window = [(shape.rows - rows) / 2, (shape.columns - columns) / 2, rows, columns];
        let (bands, caption) = colour_bands(stack);
        Ok(Self { dataset, stack, mask, samples, window, bands, caption })
    }

    /// The batch, with the masks that the augmentations need.
    fn images(&self, pipeline: &Pipeline) -> Result<Images<Array>> {
        let [top, left, rows, columns] = self.window;
        let (down, across) = (top..top + rows, left..left + columns);
        let load =
            |sample: &usize| self.dataset.load_image(*sample, down.clone(), across.clone(), None);
        let image = stacked(&self.samples.iter().map(load).collect::<Result<Vec<_>>>()?)?;
        let masks = self.stack.masks.iter().filter(|mask| {
            let shown = self.mask.is_some_and(|shown| shown.name() == mask.name());
            shown || pipeline.needs(mask.name()) || mask.name() == self.stack.masks[0].name()
        });
        let masks = masks.map(|mask| {
            let load = |sample: &usize| {
                self.dataset.load_mask(*sample, mask.name(), down.clone(), across.clone())
            };
            let labels = stacked(&self.samples.iter().map(load).collect::<Result<Vec<_>>>()?)?;
            Ok(Mask { name: mask.name().to_owned(), labels })
        });
        let masks = masks.collect::<Result<Vec<_>>>()?;
        Ok(Images::new(image.permuted(&[0, 3, 1, 2]), masks))
    }

    /// The picture of one sample of a batch.
    fn picture(&self, image: &Array, masks: &[Mask<Array>], index: usize) -> Result<Picture> {
        let [_, _, rows, columns] = image.shape()[..] else {
            return Err(Error::bug(format!("images of shape {:?}", image.shape())));
        };
        let spectra = image.permuted(&[0, 2, 3, 1]).narrowed(0, index, 1);
        let rgb = match image.element() {
            ElementType::F16 => self.colours::<f16>(&spectra),
            _ => self.colours::<f32>(&spectra),
        };
        let rgb = rgb.ok_or_else(|| Error::bug(format!("no pixels in {spectra:?}")))?;
        let shown = self.mask.and_then(|shown| masks.iter().find(|mask| mask.name == shown.name()));
        let mask = shown.map(|mask| values(&mask.labels.narrowed(0, index, 1))).transpose()?;
        let (name, detail) = (String::new(), String::new());
        Ok(Picture { name, detail, rows, columns, rgb, mask, stretched_like: 0 })
    }

    /// Red, green and blue of every pixel of (…, bands).
    fn colours<T: Copy + Into<f32> + AnyBitPattern>(
        &self,
        spectra: &Array,
    ) -> Option<Vec<[f32; 3]>> {
        let bands = *spectra.shape().last()?;
        let pixels = spectra.elements::<T>()?.chunks_exact(bands);
        Some(pixels.map(|spectrum| self.bands.map(|band| spectrum[band].into())).collect())
    }
}

/// The values of a mask, as it is stored.
fn values(mask: &Array) -> Result<Vec<MaskValue>> {
    let dtype = match mask.element() {
        ElementType::U16 => DType::U16,
        ElementType::U32 => DType::U32,
        ElementType::U64 => DType::U64,
        _ => DType::U8,
    };
    let bytes = mask.bytes().ok_or_else(|| Error::bug(format!("gaps in {mask:?}")))?;
    let mut values = Vec::new();
    mask::read(dtype, bytes, &mut values);
    Ok(values)
}

/// Copies arrays of one shape into new memory, one after the other.
fn stacked(arrays: &[Array]) -> Result<Array> {
    let [first, ..] = arrays else { return Err(Error::bug("a batch without samples")) };
    let bytes: Option<Vec<&[u8]>> = arrays.iter().map(Array::bytes).collect();
    let bytes = bytes.ok_or_else(|| Error::bug("samples with gaps"))?.concat();
    Buffer::of(&bytes)?.array(&[&[arrays.len()], first.shape()].concat(), first.element())
}

/// The pictures of every sample, as it is stored and as the epochs augment it.
fn pictures(
    options: &PreviewOptions,
    shown: &Shown<'_>,
    pipeline: &Pipeline,
    plain: &Images<Array>,
    augmented: &[(Augmented<Array>, Parameters)],
) -> Result<Vec<Picture>> {
    // Otherwise pictures share a stretch, so that a brighter one looks brighter.
    let own_stretch = normalises(pipeline);
    let wanted = if options.sample.is_some() { 1 } else { shown.samples.len() };
    let mut pictures = Vec::new();
    for (index, sample) in shown.samples.iter().enumerate().take(wanted) {
        let original = pictures.len();
        let name = shown.dataset.samples().name(*sample);
        pictures.push(Picture {
            name: name.to_owned(),
            detail: format!("sample {sample}, as it is stored"),
            stretched_like: original,
            ..shown.picture(&plain.image, &plain.masks, index)?
        });
        for (epoch, (augmented, parameters)) in augmented.iter().enumerate() {
            let stretched_like = if own_stretch { pictures.len() } else { original };
            pictures.push(Picture {
                name: format!("epoch {epoch}"),
                detail: applied(&parameters.steps, index),
                stretched_like,
                ..shown.picture(&augmented.image, &augmented.masks, index)?
            });
        }
    }
    Ok(pictures)
}

/// Refuses augmentations after which images have other bands, because the pictures would compare
/// different colours.
fn check_bands(pipeline: &Pipeline) -> Result<()> {
    let changes_bands = |op: &&Op| matches!(op, Op::RandomBands(_) | Op::Resample(_));
    let Some(op) = pipeline.ops.iter().find(changes_bands) else { return Ok(()) };
    Err(Error::unsupported(format!(
        "{} changes the bands, so pictures before and after it cannot be compared",
        op.name()
    ))
    .with_remedy(format!("leave {} out of the file", op.name())))
}

/// Whether augmentations change the unit of values, so that a stretch of the stored values would
/// show nothing.
fn normalises(pipeline: &Pipeline) -> bool {
    pipeline.ops.iter().any(|op| {
        matches!(op, Op::L1Normalize(_) | Op::L2Normalize(_) | Op::Snv(_) | Op::Standardize(_))
    })
}

/// The augmentations that were applied to a sample.
fn applied(steps: &[Step], index: usize) -> String {
    let names: Vec<&str> = (steps.iter())
        .filter(|step| step.drawn[index].is_some())
        .map(|step| step.op.as_str())
        .collect();
    if names.is_empty() { "nothing drawn".to_owned() } else { names.join(", ") }
}

fn subtitle(pipeline: &Pipeline) -> String {
    let ops: Vec<String> = (pipeline.ops.iter())
        .map(|op| match op.p() {
            1.0 => op.name().to_owned(),
            p => format!("{} (p = {p})", op.name()),
        })
        .collect();
    format!("{} · seed {}", ops.join(", "), pipeline.seed)
}

fn captions(shown: &Shown<'_>, pipeline: &Pipeline) -> Vec<String> {
    let mut captions = vec![format!("{}.", shown.caption)];
    captions.push(match normalises(pipeline) {
        true => "Each channel of each picture is stretched from its 2nd to its 98th percentile.".to_owned(),
        false => "Each channel is stretched from the 2nd to the 98th percentile of the sample as it is stored.".to_owned(),
    });
    if shown.dataset.stacks().len() > 1 {
        // A batch has one shape, because samples may be mixed.
        captions.push(format!(
            "Only cubes of {} are shown; --sample chooses others.",
            shown.stack.name
        ));
    }
    let shape = shown.stack.image.shape();
    let [_, _, rows, columns] = shown.window;
    if (rows, columns) != (shape.rows, shape.columns) {
        captions.push(format!(
            "Only the middle {rows} × {columns} of {} × {} pixels were augmented.",
            shape.rows, shape.columns
        ));
    }
    captions.extend(
        shown.mask.map(|mask| format!("The classes of mask '{}' are laid over.", mask.name())),
    );
    captions
}
