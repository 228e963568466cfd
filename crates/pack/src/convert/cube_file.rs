//! Files of cubes and of their references, opened as the user says.

use hsipack_format::Result;
use hsipack_source::{Axes, BandPattern, OpenOptions, Source, demosaic, open_frame};

use super::options::ValueOptions;
use super::{band_centers, header};
use crate::input::Input;
use crate::search::Exclusion;

/// Opens the file of a cube or of its reference as the options say.
///
/// # Errors
/// If it cannot be read.
pub(super) fn open_file(input: &Input, values: &ValueOptions) -> Result<Box<dyn Source>> {
    if let Some(pattern) = values.bands_from.as_ref().filter(|_| input.is_folder_of_bands()) {
        let any_numbers = values.band_centers.as_deref().is_some_and(band_centers::are_listed);
        let exclusion = Exclusion::parse(&values.bands_exclude)?;
        return BandPattern::parse(pattern)?.open(
            &input.file,
            input.variable.as_deref(),
            any_numbers,
            &|path| exclusion.matches(path),
        );
    }
    let axes = match &input.axes {
        Some(text) => Axes::parse(text),
        None => values.axes()?,
    };
    let (variable, sample) = match axes.as_ref().and_then(Axes::sample_axis) {
        Some(_) => input.array_and_sample(),
        None => (input.variable.as_deref(), None),
    };
    let header = values.header.as_deref().map(|pattern| header::of(pattern, input)).transpose()?;
    let options = OpenOptions {
        variable: variable.map(str::to_owned),
        axes,
        sample,
        header: header.flatten(),
        nodata: values.nodata,
        ..Default::default()
    };
    match values.mosaic {
        Some(mosaic) => demosaic(open_frame(&input.file, &options)?, mosaic),
        None => hsipack_source::open(&input.file, &options),
    }
}
