//! The native part of the Python package `hsipack`: one class for each type of the reader, and
//! functions for the packer. `python/hsipack` wraps them with the signatures and documentation that
//! users see. Its stub `_hsipack.pyi` shows how they are called.
//!
//! | file | part |
//! |---|---|
//! | `dataset.rs` | an open dataset: samples, stacks, random access |
//! | `card.rs` | the card of a dataset |
//! | `columns.rs` | values of many samples, by columns |
//! | `boxes.rs` | boxes around objects |
//! | `loader.rs` | batches, and the state to resume from |
//! | `options.rs` | options of the libraries, from keyword arguments |
//! | `settings.rs` | the settings of a loader, from Python's dictionary |
//! | `augment.rs` | augments the user's own arrays |
//! | `device.rs` | devices and features of the machine |
//! | `diagnose.rs` | finds what training waits for: the driver of hsipack-measure with levels in Python |
//! | `measure.rs` | `hsipack bench` and `hsipack diagnose` on the devices of the user's torch |
//! | `map.rs` | maps of cubes, written to files |
//! | `pack.rs` | convert (also in parts), estimate, validate, spectra |
//! | `statistics.rs` | statistics of chosen samples |
//! | `masks.rs` | masks that are added to a dataset: splits, and those of users |
//! | `view.rs` | the viewer's server |
//! | `array.rs` | the array that Python gets |
//! | `dlpack.rs` | converts our arrays for DLPack and NumPy, and theirs to ours |
//! | `torch/` | the user's torch, called through Python, which computes on devices |
//! | `exit.rs` | calls of other threads when the process ends |
//! | `task.rs` | long work in a thread, while Ctrl-C is checked |
//! | `errors.rs` | maps errors to exceptions, in one place |
//! | `surface.rs` | how remedies spell options in Python |
#![deny(missing_docs)]
// The types are Python classes, so no Rust program names them.
#![allow(unnameable_types)]

mod array;
mod augment;
mod boxes;
mod card;
mod columns;
mod dataset;
mod device;
mod diagnose;
mod dlpack;
mod errors;
mod exit;
mod loader;
mod map;
mod masks;
mod measure;
mod options;
mod pack;
mod settings;
mod statistics;
mod surface;
mod task;
mod torch;
mod view;

use pyo3::prelude::*;

/// The native part of hsipack; use the package `hsipack`.
#[pymodule]
mod _hsipack {
    #[pymodule_export]
    use super::array::Array;
    #[pymodule_export]
    use super::augment::Pipeline;
    #[pymodule_export]
    use super::card::card;
    #[pymodule_export]
    use super::dataset::{Dataset, set_storage_options};
    #[pymodule_export]
    use super::device::cuda_is_available;
    #[pymodule_export]
    use super::diagnose::{diagnose, diagnose_defaults, diagnosis_samples};
    #[pymodule_export]
    use super::exit::end_calls;
    #[pymodule_export]
    use super::loader::Loader;
    #[pymodule_export]
    use super::map::write_map;
    #[pymodule_export]
    use super::masks::{add_arrays, add_mask, merge, set_columns, split};
    #[pymodule_export]
    use super::measure::measure;
    #[pymodule_export]
    use super::pack::{
        array_geo, commit_parts, convert, convert_defaults, discard_parts, estimate, plan_parts,
        put_spectra_together, put_validation_together, spectra, spectra_part, spectra_shares,
        validate, validate_part, validation_parts, wavelength_unit, work_part,
    };
    #[pymodule_export]
    use super::settings::loader_defaults;
    #[pymodule_export]
    use super::statistics::sample_statistics;
    #[pymodule_export]
    use super::surface::spelled_options;
    #[pymodule_export]
    use super::view::Viewer;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        exit::begin();
        hsipack_format::remedy::speak(surface::Python);
        hsipack_format::processor::check().map_err(pyo3::exceptions::PyImportError::new_err)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
