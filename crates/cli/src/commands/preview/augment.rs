//! `hsipack preview --augment`: samples beside what augmentations make of them.

use std::path::Path;

use hsipack_format::{DType, Error, Result};
use hsipack_pack::preview::Previewed;
use hsipack_pack::preview::pictures::{Picture, Sheet, check_output, colour_bands, draw};
use hsipack_read::Dataset;
use hsipack_read::augment::{Augmented, Images, Mask, Op, Parameters, Pipeline, SampleKey, Step};
use hsipack_store::Stack;
use hsipack_store::dataset::ChunkArray;
use tch::{Kind, Tensor};

use super::Args;

/// Pictures in a row of a sheet: a sample and what three epochs make of it.
const ACROSS: usize = 4;
/// Samples on a sheet.
const SAMPLES: usize = 3;
/// Rows and columns of a sample that are looked at, in its middle.
const SIDE: usize = 1024;

/// The samples that are shown, as one batch.
struct Shown<'a> {
    dataset: &'a Dataset,
    stack: &'a Stack,
    mask: Option<&'a ChunkArray>,
    /// Numbers of the samples; those that are only there to be mixed with come last.
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
/// If the augmentations cannot be read or do not fit the samples, the path is no dataset, there is no such sample or
/// mask, or the picture cannot be written.
pub fn preview(args: &Args, file: &Path) -> Result<Previewed> {
    check_output(&args.output, args.force)?;
    let json = std::fs::read_to_string(file)
        .map_err(|error| Error::io(file, "cannot read the augmentations", error))?;
    let pipeline = Pipeline::from_json(&json).map_err(|error| error.at(file))?;
    let dataset = Dataset::open(&args.path)?;
    let shown = Shown::new(args, &dataset)?;
    let epochs = match args.sample {
        Some(_) => (ACROSS * SAMPLES - 1) as u64,
        None => (ACROSS - 1) as u64,
    };
    let augmented = (0..epochs)
        .map(|epoch| {
            let keys: Vec<SampleKey> = (shown.samples.iter())
                .map(|sample| SampleKey { sample: *sample, repeat: 0 })
                .collect();
            pipeline.augment(shown.images(&pipeline)?, epoch, &keys)
        })
        .collect::<Result<Vec<_>>>()
        .map_err(|error| error.at(file))?;
    let pictures = pictures(args, &shown, &pipeline, &augmented)?;
    let sheet = Sheet {
        output: args.output.clone(),
        force: args.force,
        title: format!("{} under {}", name_of(Path::new(&args.path)), name_of(file)),
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
    fn new(args: &Args, dataset: &'a Dataset) -> Result<Self> {
        let all = dataset.samples();
        let first = match &args.sample {
            None => 0,
            Some(text) => all.find(text).ok_or_else(|| {
                Error::conflict(format!("no sample {text}"))
                    .at(&args.path)
                    .with_remedy("give an id or a name; samples.jsonl lists them")
            })?,
        };
        if all.is_empty() {
            return Err(Error::damaged("the dataset has no samples").at(&args.path));
        }
        let stack = &dataset.stacks()[all.stack(first)];
        let mask = match &args.mask {
            None => stack.masks.first(),
            Some(name) => {
                let mask = stack.masks.iter().find(|mask| mask.name() == name);
                Some(mask.ok_or_else(|| {
                    let names: Vec<&str> = stack.masks.iter().map(ChunkArray::name).collect();
                    let remedy = match names[..] {
                        [] => "this dataset has none".to_owned(),
                        _ => format!("choose from {}", names.join(", ")),
                    };
                    Error::conflict(format!("no mask {name}")).at(&args.path).with_remedy(remedy)
                })?)
            }
        };
        // Of one shape, evenly spread; the one that was asked for first.
        let alike: Vec<usize> = all.ids_in(all.stack(first)).collect();
        let mut samples: Vec<usize> = if args.sample.is_some() { vec![first] } else { Vec::new() };
        let others = (0..SAMPLES).map(|place| alike[place * alike.len() / SAMPLES]);
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
    fn images(&self, pipeline: &Pipeline) -> Result<Images> {
        let [top, left, rows, columns] = self.window;
        let (rows, columns) = (top..top + rows, left..left + columns);
        let mut batch = Vec::new();
        for sample in &self.samples {
            let cube = self.dataset.crop(*sample, rows.clone(), columns.clone())?;
            let kind = if cube.dtype == DType::F16 { Kind::Half } else { Kind::Float };
            let shape = [cube.shape.rows, cube.shape.columns, cube.shape.bands];
            batch.push(tensor(&cube.bytes, &shape, kind)?);
        }
        let masks = self.stack.masks.iter().filter(|mask| {
            let shown = self.mask.is_some_and(|shown| shown.name() == mask.name());
            shown || pipeline.needs(mask.name()) || mask.name() == self.stack.masks[0].name()
        });
        let masks = masks.map(|mask| self.labels(mask)).collect::<Result<Vec<_>>>()?;
        let image = Tensor::f_stack(&batch, 0).and_then(|image| image.f_permute([0, 3, 1, 2]));
        Ok(Images { image: image.map_err(failed)?, masks, overwrite: true })
    }

    fn labels(&self, mask: &ChunkArray) -> Result<Mask> {
        let [top, left, rows, columns] = self.window;
        let size = mask.meta().dtype.size();
        let mut labels = Vec::new();
        for sample in &self.samples {
            let mut bytes = vec![0; rows * columns * size];
            let (down, across) = (top..top + rows, left..left + columns);
            self.dataset.read_mask(*sample, mask.name(), down, across, &mut bytes)?;
            // Wide enough for labels of two bytes, which libtorch has no type for.
            let wide: Vec<i32> = bytes
                .chunks_exact(size)
                .map(|bytes| {
                    bytes.iter().rev().fold(0, |label, byte| label << 8 | i32::from(*byte))
                })
                .collect();
            let labels_of = Tensor::f_from_slice(&wide)
                .and_then(|wide| wide.f_view([rows as i64, columns as i64]));
            labels.push(labels_of.map_err(failed)?);
        }
        let labels = Tensor::f_stack(&labels, 0).map_err(failed)?;
        Ok(Mask { name: mask.name().to_owned(), labels })
    }

    /// The picture of one sample of a batch.
    fn picture(&self, augmented: &Augmented, place: usize) -> Result<Picture> {
        let image = augmented.image.f_get(place as i64).map_err(failed)?;
        let size: Vec<usize> = image.size().iter().map(|size| *size as usize).collect();
        let (rows, columns) = (size[1], size[2]);
        let mut rgb = vec![[0.0; 3]; rows * columns];
        for (channel, band) in self.bands.into_iter().enumerate() {
            let plane = image
                .f_get(band as i64)
                .and_then(|plane| plane.f_contiguous()?.f_view([-1])?.f_to_kind(Kind::Float))
                .map_err(failed)?;
            let plane: Vec<f32> = Vec::try_from(&plane).map_err(failed)?;
            rgb.iter_mut().zip(plane).for_each(|(pixel, value)| pixel[channel] = value);
        }
        let shown = self.mask.and_then(|mask| {
            augmented.masks.iter().find(|augmented| augmented.name == mask.name())
        });
        let mask = shown
            .map(|mask| {
                let labels = mask.labels.f_get(place as i64)?.f_contiguous()?.f_view([-1])?;
                let labels: Vec<i64> = Vec::try_from(&labels.f_to_kind(Kind::Int64)?)?;
                Ok(labels.into_iter().map(|label| label as u16).collect())
            })
            .transpose()
            .map_err(failed)?;
        let (name, detail) = (String::new(), String::new());
        Ok(Picture { name, detail, rows, columns, rgb, mask, stretched_like: 0 })
    }
}

fn tensor(bytes: &[u8], shape: &[usize], kind: Kind) -> Result<Tensor> {
    let shape: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    Tensor::f_from_data_size(bytes, &shape, kind).map_err(failed)
}

fn failed(error: tch::TchError) -> Error {
    Error::conflict(format!(
        "libtorch: {}",
        error.to_string().lines().next().unwrap_or("it failed")
    ))
    .caused_by(error)
}

/// Every sample, and what the epochs make of it.
fn pictures(
    args: &Args,
    shown: &Shown<'_>,
    pipeline: &Pipeline,
    augmented: &[(Augmented, Parameters)],
) -> Result<Vec<Picture>> {
    let nothing = Pipeline::new(Vec::new());
    let keys: Vec<SampleKey> =
        shown.samples.iter().map(|_| SampleKey { sample: 0, repeat: 0 }).collect();
    let (plain, _) = nothing.augment(shown.images(pipeline)?, 0, &keys)?;
    // Otherwise brighter is to look brighter.
    let own_stretch = normalises(pipeline);
    let wanted = if args.sample.is_some() { 1 } else { shown.samples.len() };
    let mut pictures = Vec::new();
    for (place, sample) in shown.samples.iter().enumerate().take(wanted) {
        let original = pictures.len();
        let name = shown.dataset.samples().name(*sample);
        pictures.push(Picture {
            name: name.to_owned(),
            detail: format!("sample {sample}, as it is stored"),
            stretched_like: original,
            ..shown.picture(&plain, place)?
        });
        for (epoch, (augmented, parameters)) in augmented.iter().enumerate() {
            let stretched_like = if own_stretch { pictures.len() } else { original };
            pictures.push(Picture {
                name: format!("epoch {epoch}"),
                detail: applied(&parameters.steps, place),
                stretched_like,
                ..shown.picture(augmented, place)?
            });
        }
    }
    Ok(pictures)
}

/// Whether values come out in other units, so that a stretch of the stored ones would show nothing.
fn normalises(pipeline: &Pipeline) -> bool {
    pipeline.ops.iter().any(|op| {
        matches!(op, Op::L1Normalize(_) | Op::L2Normalize(_) | Op::Snv(_) | Op::Standardize(_))
    })
}

/// The augmentations that a sample was given.
fn applied(steps: &[Step], place: usize) -> String {
    let names: Vec<&str> = (steps.iter())
        .filter(|step| step.drawn[place].is_some())
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
        // A batch has one shape, so that samples can be mixed.
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
