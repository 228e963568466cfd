//! Remedies of a bottleneck, with the gain that is predicted.
//!
//! If a measured time fits, it is the prediction: with stored samples in memory, an epoch takes as
//! long as it took at the level `decode`. Otherwise the prediction is computed from the measured
//! times of the parts; parts that work at the same time are as slow as the slowest.

use hsipack_format::{Command, Opt};
use hsipack_read::CacheKind;
use serde::Serialize;

use super::action::Action;
use super::facts::{CollateCost, Facts, Kind};
use super::level::Level;
use super::prediction::{Basis, Prediction};
use super::verdict::Verdict;
use super::windowed;
use super::words::time;

/// The recommended change, with advice and a prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// The change.
    #[serde(flatten)]
    pub action: Action,
    /// Further advice, in words.
    pub advice: Vec<String>,
    /// Predicted seconds per batch, if a prediction is possible.
    pub predicted_s: Option<f64>,
    /// Predicted speed-up of training.
    pub predicted_gain: Option<f64>,
    /// The measured time that the prediction is based on, if it can be measured again.
    pub basis: Option<Basis>,
}

/// The remedy for the culprit; `None` if nothing is to be done.
pub fn remedy(verdict: &Verdict, facts: &Facts) -> Option<Remedy> {
    let culprit = verdict.culprit?;
    let (action, predicted, advice) = match (facts.kind, culprit) {
        (_, Level::Step) => return None,
        (_, Level::Augment) => augmentation(verdict, facts),
        (_, Level::Prepare) => (Action::Other, None, prepare_advice()),
        (_, Level::Copy) => copy(verdict, facts),
        (Kind::Hsipack, Level::Collate) if facts.window.is_some() => (
            Action::Other,
            None,
            words(&[
                "windows are copied one by one from decoded chunks: use more cores, or fewer bands",
            ]),
        ),
        (Kind::Hsipack, Level::Collate) => (
            Action::Other,
            None,
            words(&[
                "writing batches is limited by the speed of memory: train on crops, or on fewer bands",
                "check the notes about the memory of the ring: it should be locked, on huge pages",
            ]),
        ),
        (Kind::Hsipack, Level::Decode | Level::Load) => decode(verdict, facts),
        (Kind::Hsipack, Level::Read | Level::Cold) => disk(verdict, facts, culprit),
        (_, Level::Collate) => collate(verdict, facts),
        (_, Level::Decode | Level::Load | Level::Read | Level::Cold) => load(verdict, facts),
    };
    let gain = |after: &Prediction| verdict.real_s() / after.batch_s;
    // If the change would not help, do not recommend it.
    let (action, predicted) = match predicted.filter(|after| after.batch_s > 0.0) {
        Some(after) if gain(&after) < 1.02 => (Action::Other, None),
        predicted => (action, predicted),
    };
    Some(Remedy {
        action,
        advice,
        predicted_s: predicted.map(|after| after.batch_s),
        predicted_gain: predicted.as_ref().map(gain),
        basis: predicted.and_then(|after| after.basis),
    })
}

/// More threads are preferred to decoded samples in memory if a batch then takes at most this many
/// times as long.
const MAX_SLOWDOWN: f64 = 1.1;

type Advice = (Action, Option<Prediction>, Vec<String>);

fn words(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// `other_work`, or the time of loading if that is longer, because loading may be the next
/// bottleneck. `part` is the share of today's batch that is still loaded.
fn slowed_by_loading(facts: &Facts, other_work: Prediction, part: f64) -> Prediction {
    facts.load_s.map_or(other_work, |time| other_work.slowest((time * part).into()))
}

fn augmentation(verdict: &Verdict, facts: &Facts) -> Advice {
    let step = verdict.up_to(Level::Step);
    let all = verdict.up_to(Level::Augment);
    let dearest = facts.augmentations.iter().enumerate();
    let dearest = dearest.min_by(|(_, a), (_, b)| a.without_s.total_cmp(&b.without_s));
    let mut advice = Vec::new();
    if !facts.gpu {
        advice.push("on a GPU, augmentations take a small part of this time".to_owned());
    }
    let Some((index, cost)) = dearest else { return (Action::Other, None, advice) };
    if facts.augmentations.len() > 1 {
        let share = (all - cost.without_s) / (all - step).max(f64::MIN_POSITIVE);
        advice.push(format!(
            "{} takes {:.0} % of the time of augmentations; a lower p, a cheaper kind, or crops before it help, too",
            cost.name,
            100.0 * share.clamp(0.0, 1.0)
        ));
    }
    let without = Prediction::of(cost.without_s, Basis::Without { index });
    let predicted = slowed_by_loading(facts, without, 1.0);
    (Action::Without { index, name: cost.name.clone() }, Some(predicted), advice)
}

/// Advice for a loader that waits for conversion and normalisation, which threads and memory do not
/// help.
fn prepare_advice() -> Vec<String> {
    vec![
        "choose element types that need less work: float16 images that are not normalised are delivered as they are".to_owned(),
        format!(
            "if spectra are normalised: normalise them once, when they are packed: {}",
            Command::Convert.with(Opt::Normalize)
        ),
        "train on crops, or on fewer bands; on a GPU, this takes a small part of the time".to_owned(),
    ]
}

fn copy(verdict: &Verdict, facts: &Facts) -> Advice {
    let pageable = matches!(facts.copies.as_str(), "staged" | "pageable");
    if pageable && facts.kind == Kind::Dataloader {
        return (
            Action::Pin,
            None,
            words(&[
                "copies from page-locked memory continue while the step runs: pin_memory=True, and .to(device, non_blocking=True)",
            ]),
        );
    }
    let mut advice = Vec::new();
    if pageable {
        advice.push(
            "page-locked memory is copied faster: see the notes about the memory of the ring"
                .to_owned(),
        );
    }
    advice.push("fewer bands, or a smaller element type, also mean less data to copy".to_owned());
    let (Some([rows, columns]), Kind::Hsipack) = (facts.pixels, facts.kind) else {
        return (Action::Other, None, advice);
    };
    // Half of the rows and the full width, so that loading is halved as well.
    let pixels = [rows.div_ceil(2), columns];
    let part = f64::from(pixels[0]) / f64::from(rows.max(1));
    let copies = Prediction::level(verdict, Level::Copy).times(part);
    let other_work = Prediction::level(verdict, Level::Augment).slowest(copies);
    let predicted = slowed_by_loading(facts, other_work, part);
    advice.push(
        "the prediction assumes that the step takes as long for a crop as for a whole cube"
            .to_owned(),
    );
    (Action::Crop { pixels }, Some(predicted), advice)
}

/// One thread per core, if there are fewer now.
pub(super) fn threads(facts: &Facts) -> Option<Action> {
    (facts.threads < facts.cores).then_some(Action::Threads { threads: facts.cores })
}

/// Chunks of this kind in memory, if they fit and are not there already.
pub(super) fn cache(facts: &Facts, kind: CacheKind) -> Option<Action> {
    let decoded = kind == CacheKind::Decoded;
    let cached = facts.cache == "decoded" || (!decoded && facts.cache == "compressed");
    let bytes = if decoded { facts.decoded_bytes } else { facts.stored_bytes };
    let bytes = facts.fit(bytes).filter(|_| !cached)?;
    Some(Action::Cache { cache: kind, bytes })
}

/// Advice for a loader that waits for decoding, besides threads and memory.
pub(super) fn decode_advice(facts: &Facts) -> Vec<String> {
    let mut advice: Vec<String> = windowed::other_chunks(facts).into_iter().collect();
    advice.extend(windowed::cost(facts));
    if let Some(slow) = facts.compressor.as_deref().filter(|name| !matches!(*name, "lz4" | "lz4hc"))
    {
        let packing = Command::Convert.with(Opt::Codec.to("lz4hc"));
        advice.push(format!("{packing}, which decodes faster than {slow}"));
    }
    if let Some([rows, columns]) = facts.tiles {
        let packing = Command::Convert.with(Opt::Chunk.to([rows, columns].map(u64::from)));
        advice.push(format!("{packing}: at present, a crop decodes whole rows of the scene"));
    }
    if facts.always_verified {
        advice.push("comparing checksums only once".to_owned());
    }
    advice.push(format!(
        "{} finds what decodes fastest for these {}; fewer mantissa bits help, too: {}",
        windowed::tune(facts),
        if facts.window.is_some() { "windows" } else { "cubes" },
        Command::Convert.with(Opt::KeepBits)
    ));
    advice
}

/// Advice for a loader that waits for stored bytes, besides memory.
pub(super) fn disk_advice(facts: &Facts) -> Vec<String> {
    let mut advice: Vec<String> = windowed::cost(facts).into_iter().collect();
    if facts.rate_limited {
        advice.push(format!("a higher {}", Opt::RateLimit));
    }
    if facts.remote {
        return network_advice(facts, advice);
    }
    if !facts.rate_limited && facts.mapped {
        advice.push(format!(
            "{}, or {} on a network disk",
            Opt::Store.to("direct"),
            Opt::Store.to("pread")
        ));
    }
    advice.push(format!(
        "fewer stored bytes: {} finds the codec; fewer mantissa bits help, too: {}",
        Command::Tune.with(Opt::DiskRate),
        Command::Convert.with(Opt::KeepBits)
    ));
    advice.push("a faster disk".to_owned());
    advice
}

/// The same for a loader that waits for a server.
fn network_advice(facts: &Facts, mut advice: Vec<String>) -> Vec<String> {
    if !facts.locally_cached {
        advice.push(format!(
            "{}: later epochs, and other processes, read from the local disk",
            Opt::LocalCache
        ));
    }
    advice.push(format!(
        "fewer stored bytes: {} finds the codec; fewer mantissa bits help, too: {}",
        Command::Tune.with(Opt::DiskRate),
        Command::Convert.with(Opt::KeepBits)
    ));
    advice.push(format!(
        "more {}, for which chunks are fetched ahead, if the link is not full",
        Opt::Slots
    ));
    advice.push("a machine nearer to the data".to_owned());
    advice
}

/// The default of loaders, as the first advice.
fn by_default(verdict: &Verdict, facts: &Facts, others: &[String]) -> Option<Advice> {
    let (action, predicted, what) = windowed::by_default(verdict, facts)?;
    let advice = std::iter::once(what).chain(others.iter().cloned()).collect();
    Some((action, Some(predicted), advice))
}

fn decode(verdict: &Verdict, facts: &Facts) -> Advice {
    let advice = decode_advice(facts);
    if let Some(found) = by_default(verdict, facts, &advice) {
        return found;
    }
    let collate = Prediction::level(verdict, Level::Collate);
    let cached = cache(facts, CacheKind::Decoded).map(|action| (action, collate));
    let threads = threads(facts).map(|action| {
        let load = match facts.more_threads_s {
            // More threads read faster, too.
            Some(time) => Prediction::of(time, Basis::MoreThreads)
                .times(verdict.real_s() / verdict.up_to(Level::Decode)),
            None => {
                let ideal = facts.cores as f64 / facts.threads.max(1) as f64;
                Prediction::from(facts.load_s.unwrap_or(verdict.real_s()) / ideal)
            }
        };
        (action, collate.slowest(load))
    });
    // More threads need no memory, so they are preferred even if they are slightly slower.
    let enough =
        threads.clone().filter(|(_, after)| after.batch_s <= collate.batch_s * MAX_SLOWDOWN);
    match enough.or(cached).or(threads) {
        Some((action, after)) => (action, Some(after), advice),
        None => {
            let mut more = words(&["more cores"]);
            more.extend(advice);
            (Action::Other, None, more)
        }
    }
}

fn disk(verdict: &Verdict, facts: &Facts, culprit: Level) -> Advice {
    let mut advice = disk_advice(facts);
    if let Some(found) = by_default(verdict, facts, &advice) {
        return found;
    }
    let cached = cache(facts, CacheKind::Compressed);
    if culprit == Level::Cold && cached.is_some() {
        advice.insert(
            0,
            "only the first epoch is affected: the samples fit into memory, where the system keeps them"
                .to_owned(),
        );
    }
    match cached {
        Some(action) => (action, Some(Prediction::level(verdict, Level::Decode)), advice),
        None => (Action::Other, None, advice),
    }
}

/// The collate function is named if it takes at least this share of the collate level's cost.
const MOSTLY: f64 = 0.5;

fn collate(verdict: &Verdict, facts: &Facts) -> Advice {
    let cost_s = verdict.row(Level::Collate).map_or(0.0, |row| row.cost_s);
    // Workers collate in parallel.
    let own_s = |cost: &CollateCost| cost.batch_s / facts.threads.max(1) as f64;
    let slow = facts.collate.as_ref().filter(|cost| own_s(cost) >= MOSTLY * cost_s);
    let mut advice = Vec::new();
    if let Some(CollateCost { name, batch_s }) = slow {
        advice.push(format!("collate_fn ({name}) alone takes {} for a batch", time(*batch_s)));
        advice.push("do its work in __getitem__, in workers, or on the device".to_owned());
    } else {
        advice.push(
            "samples are copied into batches, and from the worker processes into this one"
                .to_owned(),
        );
    }
    advice.push(format!(
        "hsipack.Loader decodes directly into batches in one block of memory; {} shows the gain",
        Command::Bench
    ));
    (Action::Other, None, advice)
}

/// Augmentations are named if they take at least this share of loading a sample.
const HEAVY: f64 = 0.3;

fn load(verdict: &Verdict, facts: &Facts) -> Advice {
    let mut advice = Vec::new();
    if let Some(computing) = facts.computing {
        let (most, what) = if computing >= 0.5 {
            (computing, "computing: decoding and transforming")
        } else {
            (1.0 - computing, "waiting for files or the network")
        };
        advice.push(format!("loading a sample is {:.0} % {what}", 100.0 * most));
    }
    if let Some(share) = facts.augmenting.filter(|share| *share >= HEAVY) {
        advice.push(format!(
            "augmentation is {:.0} % of loading a sample: hsipack.augment augments whole batches, on the GPU if there is one",
            100.0 * share
        ));
    }
    let more = facts.more_threads_s.filter(|_| facts.more_threads > facts.threads);
    if let Some(after_s) = more {
        advice.push(format!(
            "with {} workers it was {:.2} times as fast",
            facts.more_threads,
            verdict.real_s() / after_s.max(f64::MIN_POSITIVE)
        ));
    }
    advice.push(format!(
        "pack with {} and use hsipack.Loader; {} shows the gain on your cubes",
        Command::Convert,
        Command::Bench
    ));
    match more {
        Some(after_s) => {
            let action = Action::Threads { threads: facts.more_threads };
            (action, Some(Prediction::of(after_s, Basis::MoreThreads)), advice)
        }
        None => (Action::Other, None, advice),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::AugmentationCost;
    use super::super::verdict::{Limits, Measured, verdict};
    use super::*;

    fn of(times: &[(Level, f64)], facts: Facts) -> Option<Remedy> {
        let measured =
            times.iter().map(|(level, time)| Measured { level: *level, batch_s: vec![*time; 3] });
        remedy(&verdict(&measured.collect::<Vec<_>>(), Limits::default()), &facts)
    }

    fn facts() -> Facts {
        Facts {
            threads: 2,
            cores: 2,
            available_memory: Some(1000),
            stored_bytes: Some(100),
            decoded_bytes: Some(200),
            load_s: Some(0.3),
            copies: "none".into(),
            pixels: Some([101, 50]),
            ..Facts::default()
        }
    }

    const TIMES: [(Level, f64); 4] =
        [(Level::Step, 0.1), (Level::Collate, 0.11), (Level::Decode, 0.2), (Level::Read, 0.6)];

    #[test]
    fn nobody_to_blame_needs_no_remedy() {
        assert_eq!(of(&[(Level::Step, 0.1), (Level::Read, 0.101)], facts()), None);
    }

    #[test]
    fn a_slow_disk_is_helped_by_keeping_what_it_stores_if_that_fits() {
        let remedy = of(&TIMES, facts()).unwrap();
        assert_eq!(remedy.action, Action::Cache { cache: CacheKind::Compressed, bytes: 100 });
        assert_eq!(
            (remedy.predicted_s, remedy.predicted_gain.map(f64::round)),
            (Some(0.2), Some(3.0))
        );
        assert_eq!(remedy.basis, Some(Basis::Level { level: Level::Decode }));
        let large = Facts { stored_bytes: Some(501), ..facts() };
        assert_eq!(of(&TIMES, large).unwrap().action, Action::Other);
    }

    #[test]
    fn slow_decoding_is_helped_by_threads_if_those_are_enough_else_by_memory_else_by_threads() {
        let times = [(Level::Step, 0.1), (Level::Collate, 0.1), (Level::Decode, 0.3)];
        let action = |facts| of(&times, facts).map(|remedy| (remedy.action, remedy.predicted_s));
        let cache = Action::Cache { cache: CacheKind::Decoded, bytes: 200 };
        assert_eq!(action(facts()), Some((cache.clone(), Some(0.1))));
        let many = Facts { cores: 16, ..facts() };
        assert_eq!(action(many), Some((Action::Threads { threads: 16 }, Some(0.1))));
        let few = Facts { cores: 3, ..facts() };
        assert_eq!(action(few.clone()), Some((cache, Some(0.1))));
        let full = Facts { decoded_bytes: Some(900), ..few };
        let (action_, time) = action(full).unwrap();
        assert_eq!(action_, Action::Threads { threads: 3 });
        assert!((time.unwrap() - 0.2).abs() < 1e-9);
        let none = Facts { decoded_bytes: None, ..facts() };
        assert_eq!(action(none), Some((Action::Other, None)));
        // Cores may share resources: use the time that was measured with all of them.
        let siblings = Facts { cores: 4, decoded_bytes: None, ..facts() };
        assert_eq!(action(siblings.clone()), Some((Action::Threads { threads: 4 }, Some(0.15))));
        let slower = Facts { more_threads_s: Some(0.25), ..siblings };
        let (action_, time) = action(slower).unwrap();
        assert_eq!(action_, Action::Threads { threads: 4 });
        assert!((time.unwrap() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn predictions_for_more_threads_use_measurements_with_more_threads() {
        // Half the loading time would equal the step. Because the two take turns, a batch takes longer than either.
        let times = [(Level::Step, 0.1), (Level::Collate, 0.1), (Level::Decode, 0.2)];
        let facts =
            |time| Facts { threads: 1, load_s: Some(0.2), more_threads_s: Some(time), ..facts() };
        let near = of(&times, facts(0.108)).unwrap();
        assert_eq!(near.action, Action::Threads { threads: 2 });
        assert!((near.predicted_s.unwrap() - 0.108).abs() < 1e-9);
        assert_eq!(near.basis, Some(Basis::MoreThreads));
        let enough = of(&times, facts(0.09)).unwrap();
        assert_eq!(enough.predicted_s, Some(0.1), "no faster than without loading");
        assert_eq!(enough.basis, Some(Basis::Level { level: Level::Collate }));
        // Memory is recommended only if threads are clearly slower.
        let far = of(&times, facts(0.12)).unwrap();
        assert!(matches!(far.action, Action::Cache { .. }), "{far:?}");
        assert!((far.predicted_gain.unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_dearest_augmentation_is_named_and_loading_may_be_next() {
        let cost = |name: &str, without_s| AugmentationCost { name: name.into(), without_s };
        let times = [(Level::Step, 0.1), (Level::Augment, 0.5), (Level::Read, 0.5)];
        let facts =
            Facts { augmentations: vec![cost("hflip", 0.48), cost("elastic", 0.16)], ..facts() };
        let remedy = of(&times, facts.clone()).unwrap();
        assert_eq!(remedy.action, Action::Without { index: 1, name: "elastic".into() });
        assert_eq!((remedy.predicted_s, remedy.basis), (Some(0.3), None), "loading takes 0.3 s");
        assert!(remedy.advice.iter().any(|line| line.contains("elastic takes 85 %")), "{remedy:?}");
        let loaded = of(&times, Facts { load_s: None, ..facts }).unwrap();
        let basis = Some(Basis::Without { index: 1 });
        assert_eq!((loaded.predicted_s, loaded.basis), (Some(0.16), basis));
    }

    #[test]
    fn copies_are_halved_by_crops() {
        let times = [(Level::Step, 0.1), (Level::Copy, 0.4), (Level::Read, 0.4)];
        let remedy = of(&times, facts()).unwrap();
        assert_eq!(remedy.action, Action::Crop { pixels: [51, 50] });
        assert!((remedy.predicted_s.unwrap() - 0.4 * 51.0 / 101.0).abs() < 1e-9);
        assert_eq!(remedy.basis, Some(Basis::Level { level: Level::Copy }));
    }

    #[test]
    fn a_data_loader_gets_the_workers_that_were_measured_to_help() {
        let times = [(Level::Step, 0.1), (Level::Load, 0.5)];
        let loader = |more_threads, more_threads_s| Facts {
            kind: Kind::Dataloader,
            threads: 2,
            cores: 2,
            computing: Some(0.2),
            more_threads,
            more_threads_s,
            ..Facts::default()
        };
        let helped = of(&times, loader(8, Some(0.125))).unwrap();
        assert_eq!(helped.action, Action::Threads { threads: 8 }, "beyond the cores: it waits");
        assert_eq!((helped.predicted_s, helped.predicted_gain), (Some(0.125), Some(4.0)));
        assert_eq!(helped.basis, Some(Basis::MoreThreads));
        assert!(helped.advice[0].contains("80 % waiting"), "{helped:?}");
        let vain = of(&times, loader(8, Some(0.5))).unwrap();
        assert_eq!((&vain.action, vain.predicted_s), (&Action::Other, None));
        assert!(vain.advice[1].contains("with 8 workers it was 1.00 times"), "{vain:?}");
        assert_eq!(of(&times, loader(0, None)).unwrap().action, Action::Other);
    }

    #[test]
    fn heavy_augmentation_of_samples_and_a_slow_collate_function_are_named() {
        let loader = Facts { kind: Kind::Dataloader, ..Facts::default() };
        let times = [(Level::Step, 0.1), (Level::Load, 0.5)];
        let heavy = of(&times, Facts { augmenting: Some(0.6), ..loader.clone() }).unwrap();
        let advice = "augmentation is 60 % of loading a sample: hsipack.augment";
        assert!(heavy.advice[0].starts_with(advice), "{heavy:?}");
        let light = of(&times, Facts { augmenting: Some(0.1), ..loader.clone() }).unwrap();
        assert!(!light.advice.concat().contains("hsipack.augment"), "{light:?}");

        let times = [(Level::Step, 0.1), (Level::Collate, 0.3), (Level::Load, 0.3)];
        let of_cost = |batch_s, threads| {
            let collate = Some(CollateCost { name: "pad_all".into(), batch_s });
            of(&times, Facts { collate, threads, ..loader.clone() }).unwrap().advice[0].clone()
        };
        assert_eq!(of_cost(0.15, 0), "collate_fn (pad_all) alone takes 150 ms for a batch");
        assert!(of_cost(0.01, 0).contains("copied into batches"));
        assert!(of_cost(0.15, 4).contains("copied into batches"), "workers share it");
    }
}
