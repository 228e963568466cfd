//! Which cubes show the same ground.

use std::collections::BTreeMap;

use hsipack_format::{Geo, Opt, Result};
use hsipack_store::Dataset;

/// The ground of a cube: a rectangle along the axes of its reference system.
struct Ground {
    sample: usize,
    /// Least and greatest x, then y.
    ranges: [[f64; 2]; 2],
    /// Half a pixel along each axis.
    tolerance: [f64; 2],
}

impl Ground {
    fn of(sample: usize, geo: &Geo, [rows, columns]: [usize; 2]) -> Self {
        let (columns, rows) = (columns as f64, rows as f64);
        let corners = [(0.0, 0.0), (columns, 0.0), (0.0, rows), (columns, rows)];
        let corners = corners.map(|(column, row)| geo.at(column, row));
        let range = |axis: usize| {
            let values = corners.map(|corner| corner[axis]);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            [least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max)]
        };
        let tolerance = geo.pixel_size().map(|side| side / 2.0);
        Self { sample, ranges: [range(0), range(1)], tolerance }
    }

    /// Whether both show the same ground, by more than half a pixel along each axis.
    fn overlaps(&self, other: &Self) -> bool {
        (0..2).all(|axis| {
            let [from, to] = self.ranges[axis];
            let [other_from, other_to] = other.ranges[axis];
            to.min(other_to) - from.max(other_from) > self.tolerance[axis]
        })
    }
}

/// A note if several cubes show the same ground, for example at different times: each is divided by
/// itself.
///
/// # Errors
/// If the metadata of a sample cannot be read.
pub(super) fn note(dataset: &Dataset) -> Result<Option<String>> {
    let samples = dataset.samples();
    if !samples.have_geo() {
        return Ok(None);
    }
    let mut by_system: BTreeMap<Option<String>, Vec<Ground>> = BTreeMap::new();
    for (id, sample) in samples.iter().enumerate() {
        let Some(geo) = sample?.geo else { continue };
        let shape = dataset.stacks()[samples.stack(id)].image.shape();
        let ground = Ground::of(id, &geo, [shape.rows, shape.columns]);
        by_system.entry(geo.crs).or_default().push(ground);
    }
    let mut shared = vec![false; samples.len()];
    let mut first = None;
    for mut grounds in by_system.into_values() {
        grounds.sort_by(|west, east| west.ranges[0][0].total_cmp(&east.ranges[0][0]));
        // From west to east: the earlier ones that reach as far as the present one.
        let mut reaching: Vec<&Ground> = Vec::new();
        for ground in &grounds {
            reaching.retain(|earlier| earlier.ranges[0][1] > ground.ranges[0][0]);
            for earlier in reaching.iter().filter(|earlier| earlier.overlaps(ground)) {
                shared[earlier.sample] = true;
                shared[ground.sample] = true;
                first.get_or_insert([earlier.sample, ground.sample]);
            }
            // Many cubes may show one place.
            if reaching.iter().all(|earlier| earlier.ranges != ground.ranges) {
                reaching.push(ground);
            }
        }
    }
    let Some([earlier, later]) = first else { return Ok(None) };
    Ok(Some(format!(
        "{} cubes show ground that another cube shows, too, such as {} and {}, and each cube is divided by itself: pixels of one place may be in different splits; to keep places apart, name them in a column `group`, and split with {}",
        shared.iter().filter(|is_shared| **is_shared).count(),
        samples.name(earlier),
        samples.name(later),
        Opt::By.to("groups"),
    )))
}
