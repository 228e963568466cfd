//! A device loader before it uses a device, memory or threads.

use std::fmt;
use std::sync::Arc;

use hsipack_augment::{Device, Frame, ImageBands, Pipeline};
use hsipack_format::{Opt, remedy};

use super::conversion::{Conversion, is_train};
use super::options::{DeviceCache, DeviceOptions, Normalization};
use crate::dataset::Dataset;
use crate::loader::{CacheChoice, DecodePlace, LoaderOptions, Member, PreparedLoader, Workload};
use crate::plan::{Plan, Share, State, seed_of};
use crate::{Error, Result};

/// A [`DeviceLoader`](super::DeviceLoader) whose options are checked and whose epochs are planned,
/// but which has neither memory nor threads yet, and has not looked at its device. See
/// [`PreparedLoader`].
#[derive(Clone)]
pub struct PreparedDeviceLoader {
    pub(super) loader: PreparedLoader,
    pub(super) options: DeviceOptions,
    /// Of each member of the loader.
    pub(super) conversions: Vec<Arc<Conversion>>,
    /// Of each member of the loader. Empty without augmentations.
    pub(super) pipelines: Vec<Arc<Pipeline>>,
}

/// Up to this many bytes a slot, two batches are prepared ahead on the CPU, which hides how long
/// threads take to wake. Larger batches take memory that nobody expects.
const SMALL: usize = 64 << 20;

/// Refuses to keep samples on a device for batches that have items of several datasets.
fn check_mixing(options: &DeviceOptions) -> Result<()> {
    match options.device_cache {
        DeviceCache::Auto | DeviceCache::None => Ok(()),
        DeviceCache::Decoded | DeviceCache::Compressed => Err(Error::unsupported(
            "samples cannot stay on the device if batches have items of several datasets",
        )
        .with_remedy(remedy![
            "leave out ",
            Opt::DeviceCache,
            ", or give hsipack.mix batches=\"one\""
        ])),
    }
}

impl PreparedDeviceLoader {
    /// Checks the options and plans the epochs. The loader will begin with epoch 0.
    ///
    /// # Errors
    /// As [`PreparedLoader::new`]; if the dataset lacks something that is asked for, such as
    /// statistics.
    pub fn new(dataset: &Dataset, options: LoaderOptions, device: DeviceOptions) -> Result<Self> {
        let options = LoaderOptions { integers: device.integers(options.integers), ..options };
        Self::of(PreparedLoader::new(dataset, options)?, device)
    }

    /// The same for any loader, such as one of [several datasets](PreparedLoader::joined).
    ///
    /// # Errors
    /// If a dataset lacks something that is asked for, such as statistics; if several datasets are
    /// to be standardised by the statistics of each.
    pub fn of(mut loader: PreparedLoader, options: DeviceOptions) -> Result<Self> {
        if let Some(rate) = options.emulated_bus
            && !(rate > 0.0 && rate.is_finite())
        {
            let what = format!("the emulated bus has {rate} bytes per second");
            return Err(Error::conflict(what).with_remedy("give a rate above 0"));
        }
        options.check_cache(loader.options().decode == DecodePlace::Device)?;
        let is_mix = loader.options().plan.is_mix;
        let standardizes = options.normalization == Normalization::Standardize;
        if loader.members().len() > 1 && standardizes && !is_mix {
            return Err(Error::unsupported(
                "several datasets cannot be standardised by the statistics of each",
            )
            .with_remedy("give mean and standard deviation for all of them"));
        }
        if loader.options().plan.mixes_items {
            check_mixing(&options)?;
        }
        let mut conversions = Vec::with_capacity(loader.members().len());
        for member in loader.members_mut() {
            let mut conversion = Conversion::new(member, &options)?;
            if let Some(fit) = &mut member.fit {
                conversion.move_to(Arc::make_mut(fit));
            }
            conversions.push(Arc::new(conversion));
        }
        Ok(Self { loader, options, conversions, pipelines: Vec::new() })
    }

    /// The same loader, which augments its batches: on the CPU ahead of their use, in a thread of
    /// its own; on a device as they are asked for.
    /// [`DeviceBatch::mixed`](super::DeviceBatch::mixed) says which samples were mixed. A batch
    /// that cannot be augmented is an error in its place.
    ///
    /// ```no_run
    /// use hsipack_read::augment::{Host, Pipeline};
    /// use hsipack_read::{Dataset, Device, DeviceOptions, LoaderOptions, PreparedDeviceLoader};
    ///
    /// let dataset = Dataset::open("tissue.hsipack")?;
    /// let pipeline = Pipeline::from_json(r#"[{"op": "hflip"}, {"op": "l1_normalize"}]"#)?;
    /// let (options, device) = (LoaderOptions::new(6), DeviceOptions::new(Device::Cpu));
    /// let prepared = PreparedDeviceLoader::new(&dataset, options, device)?.augmented(pipeline)?;
    /// let mut loader = prepared.start(Host::default())?;
    /// for batch in loader.epoch() {
    ///     println!("{:?}", batch?.image.shape()); // (samples, bands, rows, columns)
    /// }
    /// # Ok::<(), hsipack_read::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that a batch would give, such as a crop that is larger than the windows.
    pub fn augmented(self, pipeline: Pipeline) -> Result<Self> {
        let mut pairs = self.loader.members().iter().zip(&self.conversions);
        if let Some((member, _)) = pairs.find(|(_, conversion)| conversion.has_integers()) {
            return Err(Error::conflict("integers cannot be augmented")
                .at(member.dataset().path())
                .with_remedy("choose float32 as the type, or read physical values"));
        }
        if pipeline.resamples_bands() && self.loader.options().plan.mixes_items {
            return Err(Error::unsupported(
                "resample augments batches that have samples of several datasets",
            )
            .with_remedy("give hsipack.mix bands=hsipack.augment.Resample(wavelengths, fwhm)"));
        }
        let pipelines = self.loader.members().iter().zip(&self.conversions);
        let pipelines = pipelines.map(|(member, conversion)| {
            let seed = seed_of(pipeline.seed, member.number);
            let pipeline = Pipeline { seed, ..pipeline.clone() };
            match pipeline.resamples_bands() {
                true => self.resampling(pipeline, member, conversion),
                false => Ok(pipeline),
            }
        });
        let pipelines: Vec<_> = pipelines.collect::<Result<_>>()?;
        self.check_augmentations(&pipelines)?;
        let conversions = self.conversions.iter().zip(&pipelines);
        let conversions = conversions.map(|(conversion, pipeline)| {
            Ok(match pipeline.used_bands()? {
                Some(used) => Arc::new(conversion.of_bands(&used)),
                None => conversion.clone(),
            })
        });
        let conversions = conversions.collect::<Result<_>>()?;
        let pipelines: Vec<_> = pipelines.into_iter().map(Arc::new).collect();
        // The mask of valid pixels is made of all bands. Bands that are drawn of batches of several datasets are not those of
        // one of them.
        let needs_all = self.options.valid || self.loader.options().plan.mixes_items;
        let loader = match needs_all {
            true => self.loader,
            false => self.loader.drawing_bands(&pipelines),
        };
        Ok(Self { loader, conversions, pipelines, ..self })
    }

    /// The augmentations of its batches.
    pub fn augmentations(&self) -> Option<&Pipeline> {
        self.pipelines.first().map(Arc::as_ref)
    }

    /// The augmentations for the bands of a member.
    fn resampling(
        &self,
        pipeline: Pipeline,
        member: &Member,
        conversion: &Conversion,
    ) -> Result<Pipeline> {
        let by_band = match &self.options.normalization {
            Normalization::Standardize => true,
            Normalization::StandardizeBy { mean, std } => mean.len() > 1 || std.len() > 1,
            _ => false,
        };
        if by_band {
            return Err(Error::conflict(
                "resample would mix bands that are standardised by their own statistics",
            )
            .with_remedy(
                "do not standardise in the loader, but with a standardize after resample, which has numbers for the new bands",
            ));
        }
        let bands = conversion.bands(member)?;
        pipeline.with_bands(&bands).map_err(|error| error.at(member.dataset().path()))
    }

    /// For each dataset, the bands that its images have after they were resampled, before bands of
    /// them are drawn; `None` if they are not resampled.
    ///
    /// # Errors
    /// If the augmentations lost the bands of images.
    pub fn resampled_bands(&self) -> Result<Vec<Option<ImageBands>>> {
        self.pipelines.iter().map(|pipeline| pipeline.resampled_bands()).collect()
    }

    /// Whether batches are the stored values, so that nothing is computed.
    pub(super) fn computes_nothing(&self) -> bool {
        self.pipelines.is_empty() && self.conversions.iter().all(|conversion| conversion.is_view())
    }

    /// How many batches are prepared ahead on the CPU.
    pub(super) fn batches_ahead(&self, slot_bytes: usize) -> usize {
        // Batches that lie over their slots keep these, which the ring needs for the next batches.
        let keeps_slots = self.conversions.iter().any(|conversion| conversion.keeps_slots());
        if keeps_slots || slot_bytes > SMALL { 1 } else { 2 }
    }

    /// Checks that these augmentations can be applied to all windows that will come.
    fn check_augmentations(&self, pipelines: &[Pipeline]) -> Result<()> {
        let members = self.loader.members().iter().zip(&self.conversions);
        for ((member, conversion), pipeline) in members.zip(pipelines) {
            let masks = conversion.masks();
            for shape in member.plan().shapes() {
                let read = member.options().bands.as_ref().map_or(shape.bands, Vec::len);
                let bands = member.fit.as_ref().map_or(read, |fit| fit.bands);
                let frame = Frame { rows: shape.rows, columns: shape.columns, bands };
                let checked = pipeline.check(frame, &masks);
                checked
                    .and_then(|_| pipeline.check_further(frame, &member.further()))
                    .map_err(|error| error.at(member.dataset().path()))?;
            }
        }
        Ok(())
    }

    /// The same loader on this device, for another place among the processes that train together.
    ///
    /// # Errors
    /// As [`PreparedLoader::at`].
    pub fn at(self, share: Share, device: Device) -> Result<Self> {
        let options = DeviceOptions { device, ..self.options };
        Ok(Self { loader: self.loader.at(share)?, options, ..self })
    }

    /// The same loader, which will go on from a state; see [`PreparedLoader::resumed`].
    ///
    /// # Errors
    /// If the state is of another dataset, seed or plan.
    pub fn resumed(self, state: &State) -> Result<Self> {
        Ok(Self { loader: self.loader.resumed(state)?, ..self })
    }

    /// The same loader, which will begin with this epoch.
    #[must_use]
    pub fn at_epoch(self, epoch: u64) -> Self {
        Self { loader: self.loader.at_epoch(epoch), ..self }
    }

    /// The datasets that are read.
    pub fn members(&self) -> &[Member] {
        self.loader.members()
    }

    /// The dataset. If there are several, this is the first one, and plan, options, cache and
    /// workload are also those of the first one.
    pub fn dataset(&self) -> &Dataset {
        self.loader.dataset()
    }

    /// The options of the loader inside.
    pub fn options(&self) -> &LoaderOptions {
        self.loader.options()
    }

    /// The options of the device.
    pub fn device_options(&self) -> &DeviceOptions {
        &self.options
    }

    /// The plan of the epochs.
    pub fn plan(&self) -> &Plan {
        self.loader.plan()
    }

    /// The state that the loader begins with.
    pub fn state(&self) -> &State {
        self.loader.state()
    }

    /// Cache policy, with its reason; see [`PreparedLoader::cache`].
    pub fn cache(&self) -> &CacheChoice {
        self.loader.cache()
    }

    /// Samples and chunks that the loader reads, and their costs.
    pub fn workload(&self) -> Workload {
        self.loader.workload()
    }

    /// Number of batches that every rank gets in the epoch of a state, with those already given.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub fn batches_in_epoch_of(&self, state: &State) -> Result<usize> {
        self.loader.batches_in_epoch_of(state)
    }

    /// Names of the masks that batches have.
    pub fn masks(&self) -> &[String] {
        self.loader.masks()
    }

    /// Names of the targets that batches have.
    pub fn targets(&self) -> &[String] {
        self.loader.targets()
    }

    /// Names of the further images that batches have.
    pub fn images(&self) -> &[String] {
        self.loader.images()
    }

    /// Names of a mask's boolean layers, in the order of their axis. Empty for class ids; `None` if
    /// there is no such mask.
    pub fn layers(&self, mask: &str) -> Option<&[String]> {
        self.conversions[0].layers(mask)
    }

    /// Every stack that [`Normalization::Standardize`](super::Normalization) acts on: its name, and
    /// the split whose statistics are used, or `None` if those of all its samples are used.
    pub fn standardized_by(&self) -> Vec<(String, Option<String>)> {
        self.conversions[0].standardized_by()
    }

    /// Whether a stack is standardised by the statistics of all its samples although the dataset
    /// has a training split. Older datasets do not record statistics of splits, and a stack may
    /// have no sample of this split.
    pub fn lacks_train_statistics(&self) -> bool {
        let splits = self.dataset().labels().splits();
        self.standardized_by().iter().any(|(_, split)| split.is_none())
            && splits.iter().any(|split| is_train(split))
    }
}

impl fmt::Debug for PreparedDeviceLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedDeviceLoader")
            .field("options", &self.options)
            .field("state", self.state())
            .finish_non_exhaustive()
    }
}
