//! Packs cubes from the files of cameras, satellites and benchmarks into a dataset, and checks that
//! the dataset is correct: conversion, validation. The crate [`hsipack_source`] reads the cubes.
//!
//! ```text
//! cube file → source → cube rows → calibrate/scale → fp16 → chunk → compress → shard → index → commit
//! ```
//!
//! ```
//! use hsipack_pack::convert::{ConvertOptions, convert};
//! use hsipack_pack::progress::Progress;
//! use hsipack_pack::validate::{ValidateOptions, validate};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let cube = folder.path().join("scan.hdr");
//! # let header = "ENVI\nsamples = 3\nlines = 2\nbands = 4\ndata type = 2\ninterleave = bsq\nbyte order = 0\n";
//! # std::fs::write(&cube, header).unwrap();
//! # std::fs::write(cube.with_extension("img"), [1; 48]).unwrap();
//! # let (cube, out) = (cube.display().to_string(), folder.path().join("scans.hsipack"));
//! let report = convert(&ConvertOptions::new(vec![cube], &out), &Progress::default(), &|_plan| {})?;
//! assert_eq!(report.cubes, 1);
//! let report = validate(&out, &ValidateOptions::default(), &Progress::default())?;
//! assert!(report.problems.is_empty());
//! # Ok::<(), hsipack_format::Error>(())
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`search`], [`table`] | turn what the user typed, and tables, into a list of cubes |
//! | [`input`] | one cube to open |
//! | [`pattern`] | patterns with fields that give a path or a name for each cube |
//! | [`convert`] | plans and runs a conversion |
//! | [`validate`], [`repair`] | check that a packed dataset is intact, and repair it |
//! | [`split`] | divides labelled pixels among training, validation and test |
//! | [`columns`] | changes split, label, group and other columns of packed samples |
//! | [`merge`] | merges packed datasets |
//! | [`add_mask`] | adds masks to a packed dataset |
//! | [`add_companions`] | adds targets and further images to a packed dataset |
//! | [`fingerprint`] | detects whether a source has changed |
//! | [`info`] | describes a cube or a dataset |
//! | [`precision`] | finds how many mantissa bits values need, and rounds values to that many |
//! | [`preview`] | a picture of a cube or a dataset |
//! | [`export`] | writes a sample to an ENVI, NumPy, TIFF or PNG file |
//! | [`spectra`] | mean and median spectra of the regions of a mask |
//! | [`statistics`] | mean, spread and range of each band over chosen samples |
//! | [`target`], [`physical`] | find the cube or dataset at a path, and read its physical values |
#![deny(missing_docs)]

pub mod add_companions;
pub mod add_mask;
pub mod columns;
pub mod convert;
pub mod deviation;
pub mod export;
pub mod fingerprint;
pub mod info;
pub mod input;
pub mod merge;
pub mod pattern;
pub mod physical;
pub mod precision;
pub mod preview;
pub mod progress;
pub mod repair;
mod repeats;
pub mod search;
mod session;
pub mod spectra;
pub mod split;
mod staged;
pub mod statistics;
pub mod table;
pub mod target;
mod utc;
pub mod validate;
mod walk;
