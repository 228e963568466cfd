//! The subject of the viewer: a dataset, or cubes in files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::{Command, CubeShape, Error, Result, Sample, Samples, remedy};
use hsipack_pack::convert::plan::open_source;
use hsipack_pack::convert::{MaskGroup, MaskOption, ValueOptions, mask_groups};
use hsipack_pack::input::Input;
use hsipack_pack::physical::Cube;
use hsipack_pack::search;
use hsipack_pack::target::Target;
use hsipack_source::Source;
use hsipack_store::dataset::ChunkArray;
use hsipack_store::remote::is_url;
use hsipack_store::{Dataset, Stack, mirror, paths};

use crate::training::Training;

/// The subject of the viewer.
pub struct Subject {
    path: String,
    title: String,
    what: What,
    masks: Vec<MaskGroup>,
    source_root: Option<PathBuf>,
    training: Training,
    for_training: bool,
    /// Files from archives are kept until this is dropped.
    _files: mirror::Session,
}

pub(crate) enum What {
    /// A packed dataset.
    Dataset(Box<Dataset>),
    /// Cubes in files.
    Cubes(Box<Cubes>),
}

/// Cubes in files. The cubes that were opened last stay open.
pub(crate) struct Cubes {
    /// The files.
    pub inputs: Vec<Input>,
    open: Mutex<Vec<(usize, Arc<dyn Source>)>>,
    values: ValueOptions,
}

/// How many cubes in files stay open.
const OPEN: usize = 4;

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Subject {
    /// Opens what `path` names: the folder or URL of a dataset, a cube as `file` or
    /// `file::variable`, or a folder or glob of cubes. `axes` is the order of an array's axes, if
    /// the user gives it.
    ///
    /// # Errors
    /// If it is none of these, or cannot be opened.
    pub fn open(path: &str, axes: Option<&str>) -> Result<Self> {
        let files = mirror::session();
        let title = title(path);
        // Files are opened later, and the program may change its working directory meanwhile.
        let absolute = paths::absolute(Path::new(path))?;
        let (original, path) = (path, absolute.to_str().unwrap_or(path));
        let values = ValueOptions { axes: axes.map(str::to_owned), ..ValueOptions::default() };
        let cubes = |inputs, open| {
            let (open, values) = (Mutex::new(open), values.clone());
            What::Cubes(Box::new(Cubes { inputs, open, values }))
        };
        let what = match Target::open(path, axes) {
            Ok(Target::Dataset(dataset)) => What::Dataset(dataset),
            Ok(Target::Cube(input, source)) => cubes(vec![*input], vec![(0, source.into())]),
            Err(error) if is_url(Path::new(path)) => return Err(error),
            // If there are several cubes, each is opened when it is shown. Otherwise report what is wrong with the one.
            Err(error) => {
                match (search::expand(&[path.to_owned()], &[], &values), Path::new(path).is_dir()) {
                    (Ok(inputs), is_folder) if inputs.len() > 1 || is_folder => {
                        cubes(inputs, Vec::new())
                    }
                    (Err(nothing), true) => return Err(nothing),
                    _ => return Err(error),
                }
            }
        };
        let (path, training) = (original.to_owned(), Training::default());
        Ok(Self {
            path,
            title,
            what,
            masks: Vec::new(),
            source_root: None,
            training,
            for_training: false,
            _files: files,
        })
    }

    /// Adds masks in files to those of the dataset, such as predictions or labels of other people.
    /// Patterns are those of `convert`, relative to the cube, or to the source of a sample.
    ///
    /// # Errors
    /// If two of these masks have the same name, or one has the name of a mask of the dataset.
    pub fn with_masks(mut self, masks: &[MaskOption]) -> Result<Self> {
        self.masks = mask_groups(masks)?;
        let stacks = self.dataset().map_or(&[][..], Dataset::stacks);
        let is_packed =
            |group: &&MaskGroup| stacks.iter().any(|stack| stack.mask(&group.name).is_some());
        if let Some(group) = self.masks.iter().find(is_packed) {
            return Err(Error::conflict(format!(
                "the dataset already has a mask named {}",
                group.name
            ))
            .with_remedy("give the new mask another name, as NAME=PATTERN"));
        }
        Ok(self)
    }

    /// Also looks for sources of samples in `folder`.
    pub fn with_source_root(self, folder: Option<PathBuf>) -> Self {
        Self { source_root: folder, ..self }
    }

    /// Also shows the batches of this loader. The page can request other loaders.
    ///
    /// # Errors
    /// If the augmentations are not valid, or the subject is not a dataset.
    pub fn with_training(self, training: Training) -> Result<Self> {
        training.pipeline()?;
        if self.dataset().is_none() {
            return Err(Error::conflict(
                "the cubes are not packed: loaders read only packed datasets",
            )
            .at(&self.path)
            .with_remedy(remedy!["pack them with ", Command::Convert]));
        }
        Ok(Self { training, for_training: true, ..self })
    }

    /// Whether the viewer was started to show a loader.
    pub(crate) fn is_for_training(&self) -> bool {
        self.for_training
    }

    /// The loader that the viewer was started with.
    pub(crate) fn training(&self) -> &Training {
        &self.training
    }

    /// The masks in files.
    pub(crate) fn masks(&self) -> &[MaskGroup] {
        &self.masks
    }

    /// An additional folder in which to look for sources of samples.
    pub(crate) fn source_root(&self) -> Option<&Path> {
        self.source_root.as_deref()
    }

    /// The path as the user gave it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The last part of the path.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn what(&self) -> &What {
        &self.what
    }

    /// The dataset, if the subject is one.
    pub(crate) fn dataset(&self) -> Option<&Dataset> {
        match &self.what {
            What::Dataset(dataset) => Some(dataset),
            What::Cubes(_) => None,
        }
    }

    /// The samples of a dataset.
    pub(crate) fn samples(&self) -> Option<&Samples> {
        self.dataset().map(Dataset::samples)
    }

    /// How many cubes there are.
    pub fn len(&self) -> usize {
        match &self.what {
            What::Dataset(dataset) => dataset.samples().len(),
            What::Cubes(cubes) => cubes.inputs.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `look` with cube `id`, opened; or, if `array` is given, with the target or further
    /// image of that name beside it.
    ///
    /// # Errors
    /// If there is no such cube or array, or it cannot be opened, and the errors of `look`.
    pub(crate) fn with<T>(
        &self,
        id: usize,
        array: Option<&str>,
        look: impl FnOnce(&Opened) -> Result<T>,
    ) -> Result<T> {
        if id >= self.len() {
            return Err(Error::conflict(format!(
                "there is no cube {id}; there are {}",
                self.len()
            )));
        }
        let none =
            |name| Error::conflict(format!("the cube has no target or further image '{name}'"));
        match &self.what {
            What::Dataset(dataset) => {
                let sample = dataset.samples().get(id)?;
                let stack = dataset.stack(&sample.stack);
                let mut cube = Cube::of_sample(dataset, &sample)?;
                let (image, mut companion) = (cube.shape, None);
                if let Some(name) = array {
                    let found = stack.and_then(|stack| stack.companion(name));
                    let found = found.ok_or_else(|| none(name))?;
                    cube = Cube::of_companion(found, sample.index)?;
                    companion = Some(found);
                }
                let origin = Origin::Sample { sample: &sample, stack };
                look(&Opened { id, cube, image, companion, origin })
            }
            What::Cubes(cubes) => {
                if let Some(name) = array {
                    return Err(none(name));
                }
                let input = &cubes.inputs[id];
                let source = cubes.open(id, input)?;
                let cube = Cube::of_source(&*source);
                let origin = Origin::File { input, source: &*source };
                look(&Opened { id, image: cube.shape, cube, companion: None, origin })
            }
        }
    }
}

/// A cube that is shown.
pub(crate) struct Opened<'a> {
    /// Its number.
    pub id: usize,
    /// The values that are shown: those of the cube, or of its companion.
    pub cube: Cube<'a>,
    /// The shape of the cube itself.
    pub image: CubeShape,
    /// The target or further image that is shown instead of the cube.
    pub companion: Option<&'a ChunkArray>,
    /// Where it comes from.
    pub origin: Origin<'a>,
}

impl Opened<'_> {
    /// Identifies the values that are shown.
    pub fn key(&self) -> CubeKey {
        (self.id, self.companion.map(|array| array.name().to_owned()))
    }
}

/// The number of a cube, and the name of its companion that is shown.
pub(crate) type CubeKey = (usize, Option<String>);

/// Where a cube comes from.
pub(crate) enum Origin<'a> {
    /// A dataset. The stack is missing only if the dataset is damaged.
    Sample { sample: &'a Sample, stack: Option<&'a Stack> },
    /// A file.
    File { input: &'a Input, source: &'a dyn Source },
}

fn title(path: &str) -> String {
    if is_url(Path::new(path)) {
        return path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_owned();
    }
    let whole = Path::new(path).canonicalize();
    let whole = whole.as_deref().unwrap_or(Path::new(path));
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}

impl Cubes {
    fn open(&self, id: usize, input: &Input) -> Result<Arc<dyn Source>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = open.iter().position(|(open_id, _)| *open_id == id) {
            let found = open.remove(position);
            open.push(found);
        } else {
            let source = open_source(input, &self.values)?;
            if open.len() == OPEN {
                open.remove(0);
            }
            open.push((id, source.into()));
        }
        Ok(Arc::clone(&open.last().expect("one was pushed").1))
    }
}
