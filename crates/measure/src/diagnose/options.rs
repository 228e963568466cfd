//! The options of a diagnosis: which dataset is read how, the training step, and how much is
//! measured.

// The help of arguments: an address in it is not a link.
#![allow(rustdoc::bare_urls)]

use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "clap")]
use hsipack_format::arguments::{count, one_of, rate};
use hsipack_format::names::by_name;
use hsipack_format::{Opt, remedy};
use hsipack_read::augment::Pipeline;
#[cfg(feature = "clap")]
use hsipack_read::plan::DEFAULT_BATCH_SIZE;
use hsipack_read::plan::{Crop, CropKind, Order, Patches, WindowOption};
use hsipack_read::store::{Link, StoreKind};
use hsipack_read::{CacheKind, Dataset, DeviceOptions, LoaderOptions};
use serde::{Deserialize, Serialize};

use super::effort::Effort;
use super::packed::PackedOptions;
#[cfg(feature = "clap")]
use crate::arguments;
use crate::device::TrainingLibrary;
use crate::step::{StepKind, Trainer};
use crate::{Error, Result};
#[cfg(feature = "clap")]
use hsipack_store::threads::cores;

/// A packed dataset, the options for reading it, the training step, and how much is measured: the
/// options of `hsipack diagnose`, and its request to another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(mut_arg("step_time", |arg| arg.required_unless_present("network"))))]
pub struct DiagnoseOptions {
    /// The dataset: a folder, or its URL
    pub dataset: PathBuf,
    /// The training step.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub step: StepKind,
    /// Number of cubes, crops or patches in a batch
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "N", default_value_t = DEFAULT_BATCH_SIZE, value_parser = count(1..=u64::from(u32::MAX)), help_heading = "Training"))]
    pub batch_size: usize,
    /// Augmentations in a JSON file, for every batch; the page Augmentations of the documentation
    /// describes it
    #[serde(rename = "augment")]
    #[cfg_attr(feature = "clap", arg(long = "augment", value_name = "FILE", value_parser = arguments::pipeline, help_heading = "Training"))]
    pub pipeline: Option<Pipeline>,
    /// Windows of the cubes; whole cubes otherwise.
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Samples"))]
    pub windows: WindowOption,
    /// Number of random windows from each cube in an epoch
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), requires = "windows", help_heading = "Samples"))]
    pub crops_per_cube: u32,
    /// Windows around labelled pixels instead: the name of the mask, and which pixels.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub patches: Option<(String, Patches)>,
    /// Read only cubes of these splits, such as train or train,val (repeatable)
    /// [default: all cubes]
    #[serde(rename = "split")]
    #[cfg_attr(
        feature = "clap",
        arg(long = "split", value_name = "NAME", value_delimiter = ',', help_heading = "Samples")
    )]
    pub splits: Vec<String>,
    /// Device that batches go to: cpu (auto is the same), or cuda or cuda:1, which need the Python
    /// package with torch
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "DEVICE", default_value = "auto", help_heading = "Device")
    )]
    pub device: String,
    /// Emulate, on the CPU, a device behind a bus of this rate, such as 12GB/s
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES/s", value_parser = rate, help_heading = "Device"))]
    pub emulate_bus: Option<u64>,
    /// Number of threads that decode [default: one per core]
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "N", default_value_t = cores(), hide_default_value = true, value_parser = count(1..=1024), help_heading = "Resources"))]
    pub threads: usize,
    /// Number of batches that the ring has room for
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 4, value_parser = count(2..=65535), help_heading = "Resources"))]
    pub slots: usize,
    /// How to read files: mmap for local disks, pread for network disks, direct to bypass the
    /// system's file cache
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "HOW", value_parser = one_of(&StoreKind::ALL), default_value_t = StoreKind::Mapped, help_heading = "Reading"))]
    pub store: StoreKind,
    /// Emulates a disk, or a connection to the server, of limited speed.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub link: Link,
    /// Also measure with the dataset dropped from the system's file cache, in every round, to see
    /// what the disk costs
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Reading"))]
    pub cold: bool,
    /// How much is measured.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub effort: Effort,
    /// Write a trace of all threads, with the complete pipeline, to FILE, for
    /// https://ui.perfetto.dev
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub trace: Option<PathBuf>,
}

impl DiagnoseOptions {
    /// The same options for a library.
    ///
    /// # Errors
    /// If the library has no such device.
    pub fn options<L: TrainingLibrary>(&self, library: &L) -> Result<PackedOptions> {
        let store = self.store.behind(&self.dataset, self.link)?;
        let mut loader = LoaderOptions::new(self.batch_size);
        loader.plan.order = Order::Shuffled;
        // Measure the full cost of reading and decoding, even if a cache would avoid it.
        loader.cache = CacheKind::None;
        loader.plan.crop = self.windows.crop();
        if self.crops_per_cube != 1 && !self.windows.is(CropKind::Random) {
            return Err(Error::conflict(format!("{} is for random windows", Opt::CropsPerCube))
                .with_remedy(remedy!["leave it out, or read random windows with ", Opt::Crop]));
        }
        if let Crop::Random { per_sample, .. } = &mut loader.plan.crop {
            *per_sample = self.crops_per_cube;
        }
        loader.patches = self.patches.clone();
        loader.splits = self.splits.clone();
        loader.threads = self.threads;
        loader.slots = self.slots;
        loader.trace = self.trace.is_some().then(Arc::default);
        let mut device = DeviceOptions::new(library.named(&self.device)?);
        device.emulated_bus = self.emulate_bus.map(|rate| rate as f64);
        Ok(PackedOptions {
            path: self.dataset.clone(),
            store: Some(store),
            loader,
            device,
            pipeline: self.pipeline.clone().filter(|pipeline| !pipeline.ops.is_empty()),
            cold: self.cold,
        })
    }

    /// The training step for these images: a wait or a network.
    ///
    /// # Errors
    /// If the dataset cannot be opened, or the device has not enough memory.
    pub fn step<L: TrainingLibrary>(
        &self,
        library: &L,
        options: &PackedOptions,
    ) -> Result<Box<dyn Trainer<L::Tensor>>> {
        let dataset = Dataset::open(&self.dataset)?;
        let stack = dataset.stacks().first();
        let stack = stack
            .ok_or_else(|| Error::conflict("there are no samples to read").at(&self.dataset))?;
        library.step(self.step, stack.image.shape().bands, options.device.device)
    }
}

#[cfg(all(test, feature = "clap"))]
mod tests {
    use std::time::Duration;

    use hsipack_read::plan::CropSize;

    use super::super::rounds::Rounds;
    use super::*;

    #[test]
    fn flags_set_the_options_of_their_names_and_pass_to_another_process() {
        use clap::{Args, Command, FromArgMatches};

        let parsed = |words: &str| {
            // The group and the argument are those of the command.
            let command = DiagnoseOptions::augment_args(Command::new("diagnose"))
                .no_binary_name(true)
                .arg(clap::Arg::new("patch").long("patch"));
            let matches = command.try_get_matches_from(words.split(' '))?;
            DiagnoseOptions::from_arg_matches(&matches)
        };
        let options =
            parsed("d --step-time 2ms --windows random 8x9 --split a,b --rounds 2 --time 0s")
                .unwrap();
        assert_eq!(options.step, StepKind::Time(0.002));
        let size = CropSize { kind: CropKind::Random, size: [8, 9] };
        assert_eq!((options.windows, options.crops_per_cube), (WindowOption(Some(size)), 1));
        assert_eq!((options.splits.len(), options.batch_size, options.slots), (2, 6, 4));
        assert_eq!((options.effort.rounds, options.effort.time), (Rounds::new(2), Duration::ZERO));
        assert_eq!((options.link, options.store), (Link::default(), StoreKind::Mapped));
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<DiagnoseOptions>(&json).unwrap(), options);
        assert_eq!(parsed("d --network small").unwrap().step, StepKind::Network);
        for wrong in [
            "d",
            "d --step-time 2ms --network small",
            "d --network small --rounds 0",
            "d --network small --crops-per-cube 2",
            "d --network small --windows random 8x8 --patch 9x9",
            "d --network small --augment missing.json",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
