//! Reads the pixels of one cube, chunk after chunk, and computes the statistics of its regions.

use std::sync::atomic::Ordering;

use hsipack_format::Result;
use hsipack_store::Dataset;

use super::median::{self, Gathered};
use super::options::{SpectraOptions, Statistic};
use super::regions::Regions;
use super::sums::Spectrum;
use super::table::Row;
use crate::export::find_mask;
use crate::physical::Cube;
use crate::progress::Progress;

/// Reads the cubes of a dataset.
pub(super) struct CubeReader<'a> {
    pub dataset: &'a Dataset,
    pub options: &'a SpectraOptions,
    pub progress: &'a Progress,
}

/// An open cube and its regions.
struct Opened<'a> {
    cube: Cube<'a>,
    regions: Regions,
    /// Bytes of a stored value.
    value_bytes: usize,
}

impl CubeReader<'_> {
    /// A row for every region of sample `id`, in the order of their ids.
    ///
    /// # Errors
    /// If the cube or its mask cannot be read or is damaged, memory cannot be allocated, or the
    /// user asked to stop.
    pub(super) fn regions(&self, id: usize) -> Result<Vec<Row>> {
        self.progress.check()?;
        let sample = self.dataset.samples().get(id)?;
        let stack_index = self.dataset.samples().stack(id);
        let stack = &self.dataset.stacks()[stack_index];
        let mask = find_mask(self.dataset, stack, &self.options.mask)?;
        let regions = Regions::of(mask, sample.index, self.options)?;
        let cube = Cube::of_sample(self.dataset, &sample)?;
        let opened = Opened { cube, regions, value_bytes: stack.image.meta().dtype.size() };
        let spectra = self.spectra(&opened)?;
        let regions = &opened.regions;
        self.progress.cubes.fetch_add(1, Ordering::Relaxed);
        let row = |(place_of, (spectrum, medians)): (usize, (Spectrum, Option<Vec<f64>>))| {
            let missing = spectrum.missing();
            let curve = spectrum.curve();
            Row {
                sample: id,
                stack: stack_index,
                region: regions.ids[place_of],
                pixels: regions.pixels[place_of],
                spectrum: medians.unwrap_or(curve.mean),
                std: curve.std,
                missing,
            }
        };
        Ok(spectra.into_iter().enumerate().map(row).collect())
    }

    /// Sums of every region, and its medians if they were requested.
    fn spectra(&self, opened: &Opened<'_>) -> Result<Vec<(Spectrum, Option<Vec<f64>>)>> {
        let (bands, regions) = (opened.cube.shape.bands, &opened.regions);
        let mut sums = vec![Spectrum::new(bands); regions.ids.len()];
        if self.options.statistic == Statistic::Mean {
            self.each_pixel(opened, true, &mut |region, pixel| sums[region].add(pixel))?;
            return Ok(sums.into_iter().map(|sums| (sums, None)).collect());
        }
        let mut medians = vec![Vec::new(); regions.ids.len()];
        for (pass, bands) in median::passes(&regions.pixels, bands).enumerate() {
            let mut gathered = Gathered::new(&regions.pixels, bands)?;
            self.each_pixel(opened, pass == 0, &mut |region, pixel| {
                if pass == 0 {
                    sums[region].add(pixel);
                }
                gathered.add(region, pixel);
            })?;
            medians.iter_mut().zip(gathered.medians()).for_each(|(all, some)| all.extend(some));
        }
        Ok(sums.into_iter().zip(medians.into_iter().map(Some)).collect())
    }

    /// Passes the pixels of all regions to `each`, row by row: the place of the region, and the
    /// physical values. Chunk rows without any region are not read. `counted` says whether the
    /// pixels count as progress.
    fn each_pixel(
        &self,
        opened: &Opened<'_>,
        counted: bool,
        each: &mut dyn FnMut(usize, &[f64]),
    ) -> Result<()> {
        let Opened { cube, regions, value_bytes } = opened;
        let (shape, block) = (cube.shape, cube.block_rows());
        for start in (0..shape.rows).step_by(block) {
            self.progress.check()?;
            let rows = start..shape.rows.min(start + block);
            if regions.are_in(rows.clone()) {
                cube.read_rows(rows.clone(), &mut |row, column, values| {
                    for (column, pixel) in (column..).zip(values.chunks_exact(shape.bands)) {
                        regions.of_pixel(row, column, |region| each(region, pixel));
                    }
                    Ok(())
                })?;
            }
            if counted {
                let bytes = rows.len() * shape.row_values() * value_bytes;
                self.progress.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
