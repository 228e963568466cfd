//! Adds every input to the plan, after it was examined, and checks that it fits those before it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hsipack_format::mask::{self, MAX_LAYERS};
use hsipack_format::metadata::{MaskMeaning, Role};
use hsipack_format::remedy::current;
use hsipack_format::{Color, CubeShape, DType, Error, Grid, Opt, Result, remedy};
use hsipack_source::CubeInfo;
use hsipack_store::{Dataset, mirror, threads};
use serde_json::Value;

use super::append::{continued, made_masks, with_made};
use super::class_names::ClassNames;
use super::columns;
use super::cube_notes::CubeNotes;
use super::description::Descriptions;
use super::differences::{self, recipe_for, recipe_of};
use super::examine::{Examined, Examiner};
use super::scale::scale_for;
use super::{Pair, Plan, PlannedMask, PlannedSample, PlannedStack, pick};
use crate::columns::ColumnTypes;
use crate::convert::classes;
use crate::convert::companions::PlannedCompanion;
use crate::convert::masks::{self, MaskGroup};
use crate::convert::options::{BandGroup, ConvertOptions, Scale, ValueOptions};
use crate::convert::pairs::{self, Kind};
use crate::input::Input;

pub(super) struct Planner<'a> {
    options: &'a ConvertOptions,
    base: Option<&'a Dataset>,
    pub plan: Plan,
    names: HashSet<String>,
    by_shape: HashMap<CubeShape, usize>,
    class_names: ClassNames,
    /// Masks of the dataset that were added after packing.
    added_masks: BTreeMap<String, MaskMeaning>,
    /// How the cubes of the dataset were packed.
    theirs: Option<ValueOptions>,
    /// Types of the columns of the dataset.
    column_types: ColumnTypes,
    cube_notes: CubeNotes,
    descriptions: Descriptions,
    /// Stacks and masks of which a cube has class ids, not layers.
    with_ids: HashSet<(String, String)>,
    /// For each mask, the cubes that its files do not touch, and the first such file.
    missed: BTreeMap<String, (usize, PathBuf)>,
    /// Inputs that are left out because no file of boxes lists them.
    without_boxes: usize,
}

impl<'a> Planner<'a> {
    pub fn new(
        options: &'a ConvertOptions,
        base: Option<&'a Dataset>,
        masks: Vec<MaskGroup>,
    ) -> Result<Self> {
        let taken =
            base.iter().flat_map(|base| base.samples().names()).map(str::to_owned).collect();
        let added_masks = made_masks(base);
        let theirs = base.and_then(recipe_of);
        let mut notes = Vec::new();
        if let (Some(base), Some(theirs)) = (base, &theirs) {
            let has_wavelengths = base.stacks().iter().all(|stack| stack.wavelength.is_some());
            let words = ["the new cubes", "those of the dataset"];
            notes.extend(differences::notes(
                [&recipe_for(options), theirs],
                words,
                has_wavelengths,
            ));
        }
        Ok(Self {
            options,
            base,
            plan: Plan {
                samples: Vec::new(),
                stacks: Vec::new(),
                masks: with_made(masks, &added_masks)?,
                companions: options.companions(),
                split_stats: true,
                mask_fill: options.mask_fill,
                values: options.values.clone(),
                information: None,
                notes,
                references: Vec::new(),
                skipped: Vec::new(),
            },
            names: taken,
            by_shape: HashMap::new(),
            class_names: ClassNames::of(base),
            added_masks,
            theirs: theirs.map(|recipe| recipe.values),
            // If a sample cannot be read, the append itself gives the error.
            column_types: base
                .and_then(|base| ColumnTypes::of(base, |_, _| true).ok())
                .unwrap_or_default(),
            cube_notes: CubeNotes::default(),
            descriptions: Descriptions::default(),
            with_ids: HashSet::new(),
            missed: BTreeMap::new(),
            without_boxes: 0,
        })
    }

    /// Examines inputs of this plan.
    pub fn examiner(&self) -> Examiner<'a> {
        Examiner {
            options: self.options,
            masks: self.plan.masks.clone(),
            companions: self.plan.companions.clone(),
            added_masks: self.added_masks.clone(),
        }
    }

    /// Adds an input whose columns are complete.
    pub fn add(&mut self, mut input: Input, examined: Examined) -> Result<()> {
        let Examined {
            mut info,
            source_bytes,
            fingerprint,
            bands,
            shape,
            references,
            boxes,
            mut masks,
            companions,
        } = examined;
        let Some(boxes) = boxes else {
            self.without_boxes += 1;
            return Ok(());
        };
        let mut columns = std::mem::take(&mut input.columns);
        columns.extend(boxes);
        columns::acquired(&mut columns, info.acquisition.take());
        let label = self.options.joins.label_column.as_deref();
        columns::finish(&mut columns, label, input.stands_for.is_some())?;
        self.column_types.fit(&mut columns);
        let name = match columns.get("name") {
            Some(Value::String(name)) => name.clone(),
            _ => input.default_name(),
        };
        if self.names.contains(&name) {
            if self.base.is_some() && self.plan.samples.iter().all(|sample| sample.name != name) {
                return Err(Error::conflict(format!("the dataset already has a sample {name}"))
                    .at(&input.file)
                    .with_remedy("leave it out if it is the same cube, or give it another name in a CSV list"));
            }
            let other = self.plan.samples.iter().find(|sample| sample.name == name);
            let other = other.map(|other| other.input.text()).unwrap_or_default();
            let folder = |file: &Path| file.parent().map(Path::to_owned);
            let beside = folder(Path::new(&other)) == folder(Path::new(&input.text()));
            return Err(Error::conflict(format!("another cube already has the name {name}: {other}"))
                .at(&input.file)
                .with_remedy(if beside {
                    remedy![
                        "if both hold the same cube, give only one of them, or leave the other out with ",
                        Opt::Exclude,
                        "; otherwise give names in a CSV list"
                    ]
                } else {
                    remedy!["give a common parent folder, so that names include the path, or give names in a CSV list"]
                }));
        }
        self.check_calibrated(&input)?;
        let mut free_names = Vec::new();
        for (group, mask) in self.plan.masks.iter().zip(&mut masks) {
            self.class_names.found(group, &mask.file_classes);
            self.class_names.colored(group, std::mem::take(&mut mask.named_colors));
            free_names.push(std::mem::take(&mut mask.free_names));
        }
        let missed = self.plan.masks.iter().zip(&mut masks);
        let missed =
            missed.filter_map(|(group, mask)| Some((group.name.clone(), mask.missed_by.take()?)));
        let missed: Vec<_> = missed.collect();
        let of_masks = masks.iter_mut().flat_map(|mask| std::mem::take(&mut mask.notes));
        let of_companions = companions.iter().filter_map(|found| found.note.clone());
        let notes: Vec<String> = of_masks.chain(of_companions).collect();
        let with_ids: Vec<bool> = masks.iter().map(|mask| mask.has_ids).collect();
        let masks = masks.into_iter().map(|mask| (mask.fingerprint, mask.array));
        let (mask_fingerprints, masks): (Vec<_>, Vec<_>) = masks.unzip();
        let stack = self.stack(shape, &info, &bands)?;
        let companions = companions.into_iter().map(|found| (found.fingerprint, found.array));
        let (companion_fingerprints, companions): (Vec<_>, Vec<_>) = companions.unzip();
        let fitting = self.check_companions(stack, &companions);
        if let Err(error) = fitting.and_then(|()| self.merge_masks(stack, masks, &with_ids)) {
            self.forget_if_empty(shape, stack);
            return Err(error.at(&input.file));
        }
        // From here on nothing can fail, so the cube is added to the plan.
        if self.plan.stacks[stack].unit != self.unit(&info) {
            self.plan.stacks[stack].unit = None;
        }
        if self.plan.stacks[stack].companions.is_empty() {
            self.plan.stacks[stack].companions = companions;
        }
        for (group, names) in self.plan.masks.iter().zip(free_names) {
            self.class_names.without_ids(group, names);
        }
        // What is read twice to plan a cube is noted twice.
        let mut noted = HashSet::new();
        for note in info.notes.iter().filter(|note| noted.insert(*note)) {
            self.cube_notes.add(&input.text(), note, &mut self.plan.notes);
        }
        self.plan.notes.extend(references.notes);
        if references.white.is_some() || references.dark.is_some() {
            let text = |file: Option<PathBuf>| {
                file.map(|file| mirror::with_urls(&file.display().to_string()))
            };
            self.plan.references.push(Pair {
                cube: input.text(),
                white: text(references.white),
                dark: text(references.dark),
            });
        }
        for (name, file) in missed {
            self.missed.entry(name).or_insert((0, file)).0 += 1;
        }
        for note in notes {
            self.cube_notes.add(&input.text(), &note, &mut self.plan.notes);
        }
        self.note_references(&input);
        self.names.insert(name.clone());
        let (description, facts) = self.descriptions.share(info, bands);
        let number = self.plan.samples.len();
        let index = self.plan.stacks[stack].existing + self.plan.stacks[stack].samples.len();
        self.plan.stacks[stack].samples.push(number);
        self.plan.samples.push(PlannedSample {
            input,
            name,
            stack,
            index,
            description,
            facts: Box::new(facts),
            columns,
            masks: mask_fingerprints,
            companions: companion_fingerprints,
            references: shared_text(references.fingerprint, self.plan.samples.last()),
            source_bytes,
            fingerprint,
        });
        Ok(())
    }

    /// Lists an input that cannot be packed as skipped.
    ///
    /// # Errors
    /// `error`, if such inputs stop the conversion.
    pub fn skip(&mut self, input: &str, error: Error) -> Result<()> {
        if !self.options.skip_errors {
            return Err(error);
        }
        self.plan.skipped.push(match error.path() {
            Some(_) => error.to_string(),
            None => format!("{input}: {error}"),
        });
        Ok(())
    }

    /// Removes a stack that was created for a cube which then turned out not to fit.
    fn forget_if_empty(&mut self, shape: CubeShape, stack: usize) {
        if self.plan.stacks[stack].samples.is_empty() {
            self.plan.stacks.remove(stack);
            self.by_shape.remove(&shape);
            self.by_shape
                .values_mut()
                .filter(|number| **number > stack)
                .for_each(|number| *number -= 1);
        }
    }

    fn note_references(&mut self, input: &Input) {
        let values = &self.options.values;
        let is_beside = |kind| pairs::beside(&input.file, kind).is_some();
        if values.white.is_none() && is_beside(Kind::White) {
            let options = current().together(&[Opt::White.to("auto"), Opt::Dark.to("auto")]);
            let note =
                format!("the white reference beside it is not used; pass {options} to calibrate");
            self.cube_notes.add(&input.text(), &note, &mut self.plan.notes);
        } else if values.white.is_some() && values.dark.is_none() && is_beside(Kind::Dark) {
            let note = format!(
                "the dark reference beside it is not used, so values are divided by the white one only; pass {} to subtract it",
                Opt::Dark.to("auto")
            );
            self.cube_notes.add(&input.text(), &note, &mut self.plan.notes);
        }
    }

    /// Refuses to append a cube that would not be calibrated, although references are beside it, to
    /// cubes that were.
    fn check_calibrated(&self, input: &Input) -> Result<()> {
        let Some(theirs) = &self.theirs else { return Ok(()) };
        let values = &self.options.values;
        for (kind, theirs, ours, option) in [
            (Kind::White, &theirs.white, &values.white, Opt::White),
            (Kind::Dark, &theirs.dark, &values.dark, Opt::Dark),
        ] {
            if theirs.is_some() && ours.is_none() && pairs::beside(&input.file, kind).is_some() {
                let word = kind.word();
                return Err(Error::conflict(format!(
                    "the cubes of the dataset were calibrated with a {word} reference, but this one would not be"
                ))
                .at(&input.file)
                .with_remedy(remedy!["append with ", option.to("auto"), ", or pack a new dataset"]));
            }
        }
        Ok(())
    }

    /// The stack for a cube of `shape`, created if it is the first cube of its shape. Checks that
    /// the stack fits the cube's description of its bands.
    fn stack(
        &mut self,
        shape: CubeShape,
        info: &CubeInfo,
        bands: &Option<Vec<usize>>,
    ) -> Result<usize> {
        let wavelength = pick(&info.wavelength, bands);
        let number = match self.by_shape.get(&shape) {
            Some(number) => *number,
            None => {
                let stack = self.new_stack(shape, info, bands)?;
                self.plan.stacks.push(stack);
                self.by_shape.insert(shape, self.plan.stacks.len() - 1);
                self.plan.stacks.len() - 1
            }
        };
        let stack = &mut self.plan.stacks[number];
        let file = &info.files[0];
        let text = file.display().to_string();
        match (&stack.wavelength, &wavelength) {
            (Some(ours), Some(theirs)) => {
                let far = |(a, b): (&f64, &f64)| (a - b).abs() > self.options.wavelength_tolerance;
                if let Some(band) = ours.iter().zip(theirs).position(far) {
                    return Err(Error::conflict(format!(
                        "band {band} is at {} nm, but at {} nm in other cubes of {shape}",
                        theirs[band], ours[band]
                    ))
                    .at(file)
                    .with_remedy(remedy![
                        "pack it into another dataset, or pass a larger ",
                        Opt::WavelengthTolerance
                    ]));
                }
            }
            (None, Some(_)) if stack.samples.is_empty() && stack.existing == 0 => {}
            (None, Some(theirs)) => {
                if stack.existing > 0 {
                    let note =
                        format!("its wavelengths are dropped; the dataset has none for {shape}");
                    self.cube_notes.add(&text, &note, &mut self.plan.notes);
                } else {
                    self.plan.notes.push(format!(
                        "{}: its wavelengths are used for all cubes of {shape}",
                        file.display()
                    ));
                    stack.wavelength = Some(theirs.clone());
                    stack.fwhm = pick(&info.fwhm, bands);
                }
            }
            (Some(_), None) => {
                let note =
                    format!("it gives no wavelengths; those of other cubes of {shape} are used");
                self.cube_notes.add(&text, &note, &mut self.plan.notes);
            }
            (None, None) => {}
        }
        let first = stack.samples.first().map(|first| &self.plan.samples[*first]);
        if let Some(first) = first
            && let (Some(ours), Some(theirs)) = (&first.description.shared().unit, &info.unit)
            && ours != theirs
            && !self.options.values.raw_values
        {
            self.plan.notes.push(format!(
                "{}: its values are in {theirs}, but the values of {} in the same stack of {shape} are in {ours}",
                file.display(),
                first.input.file.display()
            ));
        }
        let packed = self.base.and_then(|base| base.stack(&stack.name));
        if let (Some(ours), Some(theirs)) =
            (packed.and_then(|packed| packed.image.meta().unit()), &info.unit)
            && ours != *theirs
            && self.options.values.are_physical()
        {
            let note = format!(
                "its values are in {theirs}, but those of {shape} in the dataset are in {ours}"
            );
            self.cube_notes.add(&text, &note, &mut self.plan.notes);
        }
        let names = pick(&info.band_names, bands);
        if stack.wavelength.is_none()
            && let (Some(ours), Some(theirs)) = (&stack.band_names, &names)
            && ours != theirs
        {
            let sorted = |names: &[String]| {
                let mut names = names.to_vec();
                names.sort_unstable();
                names
            };
            if sorted(ours) == sorted(theirs) {
                return Err(Error::conflict(format!(
                    "its bands are {}, those of other cubes of {shape} are {}",
                    theirs.join(", "),
                    ours.join(", ")
                ))
                .at(file)
                .with_remedy(
                    "give all cubes their bands in one order, or pack separate datasets",
                ));
            }
            let note = format!(
                "its band names differ from those of other cubes of {shape}; the first ones are kept"
            );
            self.cube_notes.add(&text, &note, &mut self.plan.notes);
        }
        let fwhm = pick(&info.fwhm, bands);
        if wavelength.is_some() && fwhm.is_some() && fwhm != stack.fwhm {
            let note = format!(
                "its fwhm differ from those of other cubes of {shape}; the first ones are kept"
            );
            self.cube_notes.add(&text, &note, &mut self.plan.notes);
        }
        let good = pick(&info.good_bands, bands);
        if good.is_some() && good != stack.good_bands {
            let note = format!(
                "its bad-band list differs from that of other cubes of {shape}; the first one is kept"
            );
            self.cube_notes.add(&text, &note, &mut self.plan.notes);
        }
        Ok(number)
    }

    /// The unit of the packed values of a cube.
    fn unit(&self, info: &CubeInfo) -> Option<String> {
        info.unit.clone().filter(|_| self.options.values.are_physical())
    }

    fn new_stack(
        &mut self,
        shape: CubeShape,
        info: &CubeInfo,
        bands: &Option<Vec<usize>>,
    ) -> Result<PlannedStack> {
        let size = self.options.values.dtype().size();
        let tile = self.options.layout.tile(shape, size);
        let per_shard = Grid::samples_for(shape, size, self.options.layout.shard_size);
        let group = self.options.layout.band_group(shape);
        let grid = Grid::new(shape, tile, per_shard)?.in_band_groups(group)?;
        if grid.chunk_values() * size > hsipack_format::codec::MAX_CHUNK {
            return Err(Error::conflict(format!(
                "a chunk of {}x{} pixels and {} bands is above 2 GiB",
                tile.rows, tile.columns, group
            ))
            .with_remedy(remedy!["choose a smaller ", Opt::Chunk]));
        }
        let fresh = PlannedStack {
            name: shape.to_string(),
            grid,
            codec: self.options.layout.codec(self.options.values.dtype(), grid.chunk_values()),
            samples: Vec::new(),
            existing: 0,
            scale: match self.options.values.scale {
                Scale::Factor(factor) => factor,
                Scale::None | Scale::Auto => 1.0,
            },
            offset: 0.0,
            missing: None,
            unit: self.unit(info),
            wavelength: pick(&info.wavelength, bands),
            fwhm: pick(&info.fwhm, bands),
            good_bands: pick(&info.good_bands, bands),
            band_names: pick(&info.band_names, bands),
            masks: Vec::new(),
            companions: Vec::new(),
        };
        let packed = self.base.and_then(|base| base.stack(&fresh.name));
        let stack = match packed {
            Some(packed) => continued(fresh, packed, &self.options.values, &self.options.layout)
                .map_err(|error| error.at(packed.image.folder()))?,
            None => fresh,
        };
        if packed.is_none()
            && let Some(theirs) = &self.theirs
            && let Some(options) = differences::other_bands(&self.options.values, theirs)
        {
            self.plan.notes.push(format!(
                "the dataset has no cubes of {shape}, and {options} of its cubes and the new ones differ: give the same if the bands should be the same"
            ));
        }
        let chosen = stack.grid.band_group();
        let is_choice = packed.is_none() || chosen != group;
        if self.options.layout.band_group == Some(BandGroup::Auto) && is_choice {
            let auto = Opt::BandGroup.to("auto");
            self.plan.notes.push(match stack.grid.band_groups() {
                1 => format!("{auto}: chunks of {shape} hold all bands"),
                _ => format!("{auto}: chunks of {shape} hold {chosen} bands"),
            });
        }
        Ok(stack)
    }

    /// Refuses the companions of a cube if they do not fit those of its stack, or have other bands,
    /// types or resolutions than in other stacks.
    fn check_companions(&self, stack: usize, companions: &[PlannedCompanion]) -> Result<()> {
        let stack = &self.plan.stacks[stack];
        for (role, option) in [(Role::Target, Opt::Target), (Role::Image, Opt::Image)] {
            let names = |companions: &[PlannedCompanion]| -> Vec<String> {
                let of_role = companions.iter().filter(|array| array.meaning.role == role);
                of_role.map(|array| array.name.clone()).collect()
            };
            let (ours, theirs) = (names(&stack.companions), names(companions));
            if stack.existing > 0 && ours != theirs {
                let role = role.words();
                return Err(Error::conflict(format!(
                    "the dataset has the {role}s {ours:?} for cubes of this shape, but {theirs:?} are given"
                ))
                .with_remedy(remedy![format!("give the same {role}s with "), option]));
            }
        }
        let packed = self.base.into_iter().flat_map(Dataset::stacks);
        let packed = packed.flat_map(|stack| &stack.companions);
        let packed = packed.filter_map(|array| {
            Some((
                array.name(),
                array.meta().dtype,
                array.shape(),
                array.meta().companion_meaning()?,
            ))
        });
        let planned = self.plan.stacks.iter().flat_map(|stack| &stack.companions);
        let planned = planned.map(|array| {
            (array.name.as_str(), array.dtype, array.grid.shape(), array.meaning.clone())
        });
        let others: Vec<_> = packed.chain(planned).collect();
        for companion in companions {
            let same_name = others.iter().filter(|(other, ..)| *other == companion.name);
            for (_, dtype, shape, meaning) in same_name {
                let tolerance = self.options.wavelength_tolerance;
                companion.check_like(*dtype, shape.bands, meaning, tolerance)?;
            }
        }
        Ok(())
    }

    /// Adds the masks of a cube to those of its stack. `with_ids` says which of them have class
    /// ids.
    fn merge_masks(
        &mut self,
        stack: usize,
        masks: Vec<PlannedMask>,
        with_ids: &[bool],
    ) -> Result<()> {
        self.check_kinds(stack, &masks, with_ids)?;
        let new = self.class_names.new_in(&masks)?;
        self.merge_into(stack, masks)?;
        self.class_names.add(new);
        let stack = &self.plan.stacks[stack];
        let masks = stack.masks.iter().zip(with_ids).filter(|(_, has_ids)| **has_ids);
        self.with_ids.extend(masks.map(|(mask, _)| (stack.name.clone(), mask.name.clone())));
        Ok(())
    }

    /// Refuses a mask that has class ids in some cubes and layers in others: the ids would be read
    /// as sets of layers.
    fn check_kinds(&self, stack: usize, masks: &[PlannedMask], with_ids: &[bool]) -> Result<()> {
        let stack = &self.plan.stacks[stack];
        for ((group, theirs), has_ids) in self.plan.masks.iter().zip(masks).zip(with_ids) {
            let Some(ours) = stack.masks.iter().find(|mask| mask.name == theirs.name) else {
                continue;
            };
            // A dataset without files of classes so far has no layers either.
            let is_packed = stack.existing > 0 && ours.layers.is_empty() && !group.is_by_class();
            let ours_have_ids =
                is_packed || self.with_ids.contains(&(stack.name.clone(), ours.name.clone()));
            if ours_have_ids && !theirs.layers.is_empty() || *has_ids && !ours.layers.is_empty() {
                return Err(Error::conflict(format!(
                    "mask {} has class ids in some cubes, and boolean layers in others",
                    ours.name
                ))
                .with_remedy("give them as masks of different names"));
            }
        }
        Ok(())
    }

    fn merge_into(&mut self, stack: usize, masks: Vec<PlannedMask>) -> Result<()> {
        let stack = &mut self.plan.stacks[stack];
        if stack.masks.is_empty() {
            if stack.existing > 0 && !masks.is_empty() {
                return Err(Error::conflict("the dataset has no masks for cubes of this shape")
                    .with_remedy(remedy![
                        "append without ",
                        Opt::Mask,
                        ", or pack a new dataset"
                    ]));
            }
            stack.masks = masks;
            return Ok(());
        }
        let names =
            |masks: &[PlannedMask]| masks.iter().map(|mask| mask.name.clone()).collect::<Vec<_>>();
        if names(&stack.masks) != names(&masks) {
            return Err(Error::conflict(format!(
                "the dataset has the masks {:?} for cubes of this shape, but {:?} are given",
                names(&stack.masks),
                names(&masks)
            ))
            .with_remedy(remedy![
                "give the same masks with ",
                Opt::Mask,
                ", in the same order"
            ]));
        }
        // Works on a copy, so that a mask that does not fit changes nothing.
        let mut merged = stack.masks.clone();
        for (ours, theirs) in merged.iter_mut().zip(masks) {
            let layers = together(&ours.name, &ours.layers, &theirs.layers, stack.existing > 0)?;
            let least = mask::dtype_for(mask::all_layers(layers.len()));
            let dtype = mask::wider(mask::wider(ours.dtype, theirs.dtype), least);
            if dtype != ours.dtype && stack.existing > 0 {
                return Err(Error::conflict(format!(
                    "mask {} has ids or layers that need {dtype}, but is {} in the dataset",
                    ours.name, ours.dtype
                ))
                .with_remedy("pack a new dataset"));
            }
            ours.dtype = dtype;
            ours.layers = layers;
            let names = classes::together(&ours.name, ours.class_names.take(), theirs.class_names)?;
            ours.class_names = names;
            classes::colors_together(&mut ours.class_colors, &theirs.class_colors);
        }
        stack.masks = merged;
        Ok(())
    }

    pub fn finish(mut self, stop: &AtomicBool) -> Result<Plan> {
        match self.without_boxes {
            0 => {}
            1 => self.plan.notes.push("one input is left out: no file has its boxes".to_owned()),
            count => {
                self.plan
                    .notes
                    .push(format!("{count} inputs are left out: no file has their boxes"));
            }
        }
        if self.plan.samples.is_empty() && self.without_boxes > 0 {
            return Err(Error::conflict("no file lists the boxes of an input")
                .with_remedy(remedy!["correct ", Opt::Boxes]));
        }
        if self.plan.samples.is_empty() {
            let first = self.plan.skipped.first().cloned().unwrap_or_default();
            return Err(Error::conflict(format!(
                "no input could be opened; the first error: {first}"
            )));
        }
        self.refuse_masks_elsewhere()?;
        self.refuse_lack_of_bad_bands()?;
        self.class_names.check(&self.plan.masks)?;
        self.class_names.give_ids(&self.plan.masks);
        self.class_names.give(&mut self.plan.stacks)?;
        self.class_names.color(&mut self.plan.stacks);
        widen_masks(&mut self.plan.stacks)?;
        share_colors(&mut self.plan.stacks);
        self.plan.notes.extend(self.class_names.notes(&self.plan.stacks, self.base));
        self.note_made();
        self.plan.notes.extend(self.column_types.notes("the dataset"));
        self.note_single_bands();
        self.note_groups();
        self.note_no_split();
        self.limit_splits();
        self.share_layers()?;
        self.plan.stacks.iter_mut().for_each(size_shards);
        let (values, resources) = (&self.options.values, self.options.resources());
        if !values.dtype().is_float() {
            super::integers::settle(&mut self.plan, values, resources, self.base, stop)?;
        } else if values.scale == Scale::Auto {
            self.choose_scales(stop)?;
        }
        super::bits::choose(&mut self.plan, values, resources, self.base, stop)?;
        sort_stacks(&mut self.plan);
        Ok(self.plan)
    }

    /// Refuses masks that touch no cube at all, unless the cubes are appended to others.
    fn refuse_masks_elsewhere(&self) -> Result<()> {
        let count = self.plan.samples.len();
        let missed = self.missed.iter().find(|(_, (cubes, _))| *cubes == count);
        match missed {
            Some((name, (_, file))) if self.base.is_none() => Err(Error::conflict(format!(
                "no part of mask {name} touches {}",
                if count == 1 { "the cube".to_owned() } else { format!("one of the {count} cubes") }
            ))
            .at(file)
            .with_remedy(
                "check its coordinates (x or longitude comes first) and its reference system, or leave the mask out",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses to drop bad bands if no cube has a list of them, and notes the cubes without one.
    fn refuse_lack_of_bad_bands(&mut self) -> Result<()> {
        let lacks = |sample: &&PlannedSample| sample.description.shared().good_bands.is_none();
        if !self.options.values.drop_bad_bands {
            return Ok(());
        }
        let without: Vec<&PlannedSample> = self.plan.samples.iter().filter(lacks).collect();
        if without.len() == self.plan.samples.len() {
            let what = match without.len() {
                1 => "the file has no bad-band list",
                _ => "neither this file nor another has a bad-band list",
            };
            return Err(Error::conflict(what).at(&without[0].input.file).with_remedy(remedy![
                "leave out ",
                Opt::DropBadBands,
                ", or select with ",
                Opt::Bands
            ]));
        }
        for sample in without {
            let note = "it has no bad-band list, so all its bands are kept";
            self.cube_notes.add(&sample.input.text(), note, &mut self.plan.notes);
        }
        Ok(())
    }

    /// Gives the masks with a file for each class the same layers in all stacks.
    ///
    /// # Errors
    /// If these are too many, or a dataset to which cubes are appended has other layers.
    fn share_layers(&mut self) -> Result<()> {
        for (number, group) in self.plan.masks.iter().enumerate() {
            if !group.is_by_class() {
                continue;
            }
            let mut all = Vec::new();
            for stack in &self.plan.stacks {
                all = together(&group.name, &all, &stack.masks[number].layers, false)?;
            }
            if all.is_empty() {
                let (_, pattern) = &group.patterns[0];
                return Err(Error::conflict(format!(
                    "no cube has a file of mask {}: nothing matches {pattern:?}",
                    group.name
                ))
                .with_remedy(remedy!["correct the pattern of ", Opt::Mask]));
            }
            for stack in &mut self.plan.stacks {
                let mask = &mut stack.masks[number];
                if stack.existing > 0 {
                    continue;
                }
                mask.layers = together(&group.name, &mask.layers, &all, false)?;
                mask.layers.sort_by_key(|layer| all.iter().position(|other| other == layer));
                let least = mask::dtype_for(mask::all_layers(all.len()));
                mask.dtype = mask::wider(mask.dtype, least);
            }
        }
        Ok(())
    }

    /// Adds a note if several cubes have one band each: most likely they are the bands of one
    /// scene.
    fn note_single_bands(&mut self) {
        let single = |sample: &&PlannedSample| {
            sample.shape().bands == 1 && sample.input.stands_for.is_none()
        };
        let count = self.plan.samples.iter().filter(single).count();
        if count > 1 {
            self.plan.notes.push(format!(
                "{count} cubes have a single band; if each file is one band of a scene, say so with {}, or pack the array with hsipack.pack in Python",
                Opt::BandsFrom
            ));
        }
    }

    /// Adds a note that masks which were added after packing are empty in the new cubes.
    fn note_made(&mut self) {
        if !self.added_masks.is_empty() {
            let names: Vec<&str> = self.added_masks.keys().map(String::as_str).collect();
            self.plan.notes.push(format!(
                "masks that were added after packing ({}) are 0 in the new cubes until you add them again",
                names.join(", ")
            ));
        }
    }

    /// Adds a note if the dataset has splits and no new cube has one: then no split reads the new
    /// cubes.
    fn note_no_split(&mut self) {
        let has_splits = self.base.is_some_and(|base| {
            let samples = base.samples();
            (0..samples.len()).any(|id| samples.splits().get(id).is_some())
        });
        if has_splits && self.plan.samples.iter().all(|sample| sample.split().is_none()) {
            self.plan.notes.push(format!(
                "the new cubes are in no split, unlike those of the dataset; give {} with a column split",
                current().together(&[Opt::Table.into()])
            ));
        }
    }

    /// Adds a note if a group, such as a patient, is in several splits: then what is measured on
    /// one of them is not about unseen patients.
    fn note_groups(&mut self) {
        let mut splits: BTreeMap<Cow<'_, str>, BTreeSet<Cow<'_, str>>> = BTreeMap::new();
        let stored = self.base.into_iter().flat_map(|base| {
            let samples = base.samples();
            let of = move |id| Some((samples.groups().get(id)?, samples.splits().get(id)?));
            (0..samples.len()).filter_map(of)
        });
        let stored = stored
            .map(|(group, split)| (Cow::Borrowed(group.as_str()), Cow::Borrowed(split.as_str())));
        let both = |sample: &PlannedSample| Some((sample.group()?.into(), sample.split()?.into()));
        let new = self.plan.samples.iter().filter_map(both);
        for (group, split) in stored.chain(new) {
            splits.entry(group).or_default().insert(split);
        }
        let mut divided = splits.iter().filter(|(_, splits)| splits.len() > 1);
        if let Some((group, of)) = divided.next() {
            let of: Vec<&str> = of.iter().map(|split| &**split).collect();
            let more = match divided.count() {
                0 => String::new(),
                1 => ", and another group is divided, too".to_owned(),
                more => format!(", and {more} more groups are divided, too"),
            };
            self.plan.notes.push(format!("group {group} is in the splits {}{more}", of.join(", ")));
        }
    }

    /// Records no statistics of splits if there are too many of them, for example one for every
    /// other cube: those of one split take as much space as those of the whole stack.
    fn limit_splits(&mut self) {
        let splits: HashSet<_> =
            self.plan.samples.iter().filter_map(PlannedSample::split).collect();
        self.plan.split_stats = splits.len() <= MAX_SPLITS;
        if !self.plan.split_stats {
            self.plan.notes.push(format!(
                "there are {} splits, so no statistics of splits are recorded (at most {MAX_SPLITS} splits can have them)",
                splits.len()
            ));
        }
    }

    /// `--scale auto`: reads every cube of each new stack once to find its greatest value.
    fn choose_scales(&mut self, stop: &AtomicBool) -> Result<()> {
        let (values, resources) = (&self.options.values, self.options.resources());
        let pool = threads::pool(resources.threads, "scale")?;
        for stack in self.plan.stacks.iter_mut().filter(|stack| stack.existing == 0) {
            let samples = stack.samples.iter().map(|sample| &self.plan.samples[*sample]);
            stack.scale = scale_for(samples, values, resources, &pool, stop)?;
        }
        Ok(())
    }
}

/// Gives masks whose classes have ids above 255 two bytes for each pixel.
fn widen_masks(stacks: &mut [PlannedStack]) -> Result<()> {
    for stack in stacks {
        let (existing, masks) = (stack.existing, &mut stack.masks);
        for mask in masks.iter_mut().filter(|mask| mask.dtype == DType::U8) {
            if mask.class_names.as_ref().is_none_or(|names| names.len() <= 256) {
                continue;
            }
            if existing > 0 {
                return Err(Error::conflict(format!(
                    "mask {} has more than 256 classes, but is uint8 in the dataset",
                    mask.name
                ))
                .with_remedy("pack a new dataset"));
            }
            mask.dtype = DType::U16;
        }
    }
    Ok(())
}

/// Gives the masks of all stacks the colours that are known in any of them.
fn share_colors(stacks: &mut [PlannedStack]) {
    let mut all: BTreeMap<String, Vec<Option<Color>>> = BTreeMap::new();
    for mask in stacks.iter().flat_map(|stack| &stack.masks) {
        let colors = all.entry(mask.name.clone()).or_default();
        classes::colors_together(colors, &mask.class_colors);
    }
    for mask in stacks.iter_mut().flat_map(|stack| &mut stack.masks) {
        mask.class_colors.clone_from(&all[&mask.name]);
    }
}

/// A text that most samples share with the one before, in the same memory.
fn shared_text(text: Option<String>, before: Option<&PlannedSample>) -> Option<Arc<str>> {
    let text = text?;
    let before = before.and_then(|sample| sample.references.as_ref());
    Some(before.filter(|before| ***before == *text).cloned().unwrap_or_else(|| Arc::from(text)))
}

/// The most splits for which statistics are recorded.
pub(crate) const MAX_SPLITS: usize = 64;

/// The layers of a mask in all cubes: `ours` of those so far, then those that another cube has
/// besides.
///
/// # Errors
/// If these are too many, or the dataset to which cubes are appended has other layers.
fn together(mask: &str, ours: &[String], theirs: &[String], is_fixed: bool) -> Result<Vec<String>> {
    let is_numbered = |layers: &[String]| {
        layers.iter().enumerate().all(|(number, layer)| *layer == masks::numbered_layer(number))
    };
    let both = [ours, theirs];
    if both.iter().all(|layers| !layers.is_empty())
        && both.iter().any(|layers| is_numbered(layers))
        && ours != theirs
    {
        return Err(Error::conflict(format!(
            "mask {mask} has different layers than in other cubes, and files do not name them"
        ))
        .with_remedy("give every cube the same layers in the same order"));
    }
    let counted: HashSet<_> = masks::counted(ours).collect();
    let new = masks::counted(theirs).filter(|layer| !counted.contains(layer));
    let mut all = ours.to_vec();
    all.extend(new.map(|(layer, _)| layer.to_owned()));
    if is_fixed && !ours.is_empty() && all.len() > ours.len() {
        return Err(Error::conflict(format!(
            "mask {mask} has the layer {:?}, which the dataset does not have",
            all[ours.len()]
        ))
        .with_remedy("pack a new dataset"));
    }
    match all.len() > MAX_LAYERS {
        true => Err(masks::too_many_layers(mask, &all)),
        false => Ok(all),
    }
}

/// A shard has room for at least this many cubes, unless they are large. Otherwise a dataset to
/// which cubes are appended one by one would have a file for each cube.
const ROOM: usize = 64;

/// Prevents a shard from having room for many more cubes than there are, because its index has an
/// entry for each.
fn size_shards(stack: &mut PlannedStack) {
    if stack.existing == 0 {
        let room = stack.samples.len().max(ROOM);
        stack.grid = stack.grid.at_most_per_shard(room);
        for mask in &mut stack.masks {
            mask.grid = mask.grid.at_most_per_shard(room);
        }
        for companion in &mut stack.companions {
            companion.grid = companion.grid.at_most_per_shard(room);
        }
    }
}

/// Stacks are written in the order of their names, whatever the order of the inputs.
fn sort_stacks(plan: &mut Plan) {
    let mut order: Vec<usize> = (0..plan.stacks.len()).collect();
    order.sort_by(|a, b| plan.stacks[*a].name.cmp(&plan.stacks[*b].name));
    let mut new_numbers = vec![0; order.len()];
    for (new, old) in order.iter().enumerate() {
        new_numbers[*old] = new;
    }
    plan.stacks.sort_by(|a, b| a.name.cmp(&b.name));
    for sample in &mut plan.samples {
        sample.stack = new_numbers[sample.stack];
    }
}
