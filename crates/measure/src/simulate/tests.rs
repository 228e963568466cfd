//! Tests the engine against a naive model and the published runs.

use proptest::prelude::*;

use super::engine;
use super::event::{Event, Observer};
use super::random::Use;
use super::times::nanoseconds;
use super::*;

/// Records all events in order.
#[derive(Default)]
struct Events(Vec<(u64, Event, u64, usize)>);

impl Observer for Events {
    fn see(&mut self, time: u64, event: Event, batch: u64, loader: usize) {
        self.0.push((time, event, batch, loader));
    }
}

/// A batch of the naive model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Naive {
    begun: u64,
    loaded: u64,
    queued: u64,
    taken: u64,
    copying: u64,
    copied: u64,
    decoding: u64,
    decoded: u64,
    stepping: u64,
    done: u64,
}

/// Batches in the order in which they are taken, computed by recursion: without events, queue or
/// clock. A batch is taken once it is loaded and the first stage is done with the batch before it.
/// A stage begins once the stage before it and the batch before it are done; the first one also
/// needs a slot, which the batch `device_slots` before has until it is done. A batch is queued once
/// it is loaded and the batch `queue` places before it is taken. Then its loader begins the next
/// batch.
fn naive(model: &Model, batches: usize) -> Vec<Naive> {
    let load = model.load.drawer(model.seed, Use::Load);
    let step = model.step.drawer(model.seed, Use::Step);
    let copy = model.copy.as_ref().map(|times| times.drawer(model.seed, Use::Copy));
    let decode = model.decode.as_ref().map(|times| times.drawer(model.seed, Use::Decode));
    let mut out: Vec<Naive> = Vec::new();
    // For each loader: when its batch is loaded, the batch's number, and when it was begun.
    let mut under_way: Vec<_> =
        (0..model.loaders as u64).map(|batch| (load(batch), batch, 0)).collect();
    for number in 0..batches {
        let next = match model.order {
            Order::FirstCome => (0..model.loaders).min_by_key(|loader| under_way[*loader]).unwrap(),
            Order::InOrder => number % model.loaders,
        };
        let (loaded, _, begun) = under_way[next];
        let before = out.last().copied().unwrap_or_default();
        let release = match (&model.copy, &model.decode) {
            (Some(_), _) => before.copied,
            (None, Some(_)) => before.decoded,
            (None, None) => before.done,
        };
        let taken = loaded.max(release);
        let slot = number.checked_sub(model.device_slots).map_or(0, |before| out[before].done);
        let copying = taken.max(slot).max(before.copied);
        let copied = copying + copy.as_ref().map_or(0, |draw| draw(number as u64));
        let decoding = copied.max(before.decoded);
        let decoded = decoding + decode.as_ref().map_or(0, |draw| draw(number as u64));
        let stepping = decoded.max(before.done);
        let done = stepping + step(number as u64);
        let queued = match number.checked_sub(model.queue) {
            _ if model.queue == 0 => taken,
            None => loaded,
            Some(before) => loaded.max(out[before].taken),
        };
        out.push(Naive {
            begun,
            loaded,
            queued,
            taken,
            copying,
            copied,
            decoding,
            decoded,
            stepping,
            done,
        });
        // First come, batches are numbered in the order in which they are begun. The number of a batch only affects its
        // load time.
        let batch = (number + model.loaders) as u64;
        under_way[next] = (queued + load(batch), batch, queued);
    }
    out
}

fn models() -> impl Strategy<Value = Model> {
    let times = (1u64..40, 0u64..20)
        .prop_map(|(mean, sd)| Times::new(mean as f64 / 1e9 * 50.0, sd as f64 / 1e9 * 50.0));
    let order = prop_oneof![Just(Order::FirstCome), Just(Order::InOrder)];
    let stage = prop::option::of(times.clone());
    let device = (stage.clone(), stage, 1usize..5);
    (1usize..6, times.clone(), device, times, 0usize..6, order, any::<u64>()).prop_map(
        |(loaders, load, (copy, decode, device_slots), step, queue, order, seed)| Model {
            loaders,
            load,
            copy,
            decode,
            device_slots,
            step,
            queue,
            order,
            seed,
            end: End::Batches(60),
            threads: None,
        },
    )
}

/// The engine's times of each batch, in the order in which batches were taken. A stage that there
/// is not takes no time after the one before.
fn taken(events: &Events) -> Vec<Naive> {
    let mut all = std::collections::HashMap::<u64, Naive>::new();
    let mut order = Vec::new();
    for (time, event, batch, _) in &events.0 {
        let times = all.entry(*batch).or_default();
        match event {
            Event::Begun => times.begun = *time,
            Event::Loaded => times.loaded = *time,
            Event::Queued => times.queued = *time,
            Event::Taken => {
                times.taken = *time;
                order.push(*batch);
            }
            Event::Copying => times.copying = *time,
            Event::Copied => times.copied = *time,
            Event::Decoding => times.decoding = *time,
            Event::Decoded => times.decoded = *time,
            Event::Stepping => times.stepping = *time,
            Event::Done => times.done = *time,
        }
    }
    order.iter().map(|batch| all[batch]).filter(|times| times.done > 0).collect()
}

proptest! {
    #[test]
    fn events_are_those_of_the_naive_model(model in models()) {
        let mut events = Events::default();
        engine::run(&model, &mut events).unwrap();
        let got = taken(&events);
        let want = naive(&model, 60);
        // Batches with equal times may come in either order, and the load time of a batch depends on its number.
        let ties = model.order == Order::FirstCome && want.windows(2).any(|pair| pair[0].loaded == pair[1].loaded || pair[0].queued == pair[1].queued);
        if !ties || model.load.sd_s() == 0.0 {
            prop_assert_eq!(got.len(), 60);
            for (got, want) in got.iter().zip(&want) {
                prop_assert_eq!((got.loaded, got.taken, got.done), (want.loaded, want.taken, want.done));
                prop_assert_eq!((got.begun, got.queued), (want.begun, want.queued));
                prop_assert_eq!(got.stepping, want.stepping);
                if model.copy.is_some() {
                    prop_assert_eq!((got.copying, got.copied), (want.copying, want.copied));
                }
                if model.decode.is_some() {
                    prop_assert_eq!((got.decoding, got.decoded), (want.decoding, want.decoded));
                }
            }
        }
    }

    #[test]
    fn no_bound_is_broken_and_nothing_is_lost(model in models(), end in 1u64..20_000) {
        let model = Model { end: End::Seconds(end as f64 / 1e9), ..model };
        let mut events = Events::default();
        let ended = engine::run(&model, &mut events).unwrap();
        let (mut loading, mut holding, mut queued, mut stepping) = (0i64, 0i64, 0i64, 0i64);
        let (mut waiting, mut copying, mut decoding, mut on_device, mut ahead) = (0i64, 0i64, 0i64, 0i64, 0i64);
        let [first, _] = model.first_stage();
        let mut before = 0;
        let mut next = 0;
        for (time, event, batch, _) in events.0 {
            prop_assert!(time >= before && time <= ended);
            before = time;
            match event {
                Event::Begun => loading += 1,
                Event::Loaded => (loading, holding) = (loading - 1, holding + 1),
                Event::Queued => (holding, queued) = (holding - 1, queued + 1),
                Event::Taken => {
                    (queued, waiting, ahead) = (queued - 1, waiting + 1, ahead + 1);
                    prop_assert!(model.order == Order::FirstCome || batch == next, "in order");
                    next += 1;
                }
                Event::Copying => copying += 1,
                Event::Copied => copying -= 1,
                Event::Decoding => decoding += 1,
                Event::Decoded => decoding -= 1,
                Event::Stepping => (stepping, ahead) = (stepping + 1, ahead - 1),
                Event::Done => (stepping, on_device) = (stepping - 1, on_device - 1),
            }
            if event == first {
                (waiting, on_device) = (waiting - 1, on_device + 1);
            }
            prop_assert!([waiting, copying, decoding].iter().all(|count| (0..=1).contains(count)));
            prop_assert!((0..=model.device_slots as i64).contains(&on_device));
            prop_assert!(loading + holding <= model.loaders as i64 + 1, "between queued and begun");
            // Without a queue, a batch passes through it in no time.
            prop_assert!((0..=model.queue.max(1) as i64).contains(&queued));
            prop_assert!((0..=1).contains(&stepping));
        }
        prop_assert_eq!(loading + holding, model.loaders as i64);
        let outcome = simulate(&model).unwrap().outcome;
        let on_device = outcome.device.map_or(0, |device| device.batches);
        prop_assert_eq!(on_device, ahead as u64);
        prop_assert_eq!(outcome.loaded, outcome.batches + outcome.stepping + on_device + outcome.queued + outcome.held);
        prop_assert_eq!((outcome.queued, outcome.held), (queued as u64, holding as u64));
        prop_assert!((outcome.loaders_busy + outcome.loaders_blocked - 1.0).abs() < 1e-9);
        prop_assert!(outcome.queue_max <= model.queue as u64);
        let busy: f64 = outcome.per_loader.iter().map(|loader| loader.busy).sum();
        prop_assert!((busy / model.loaders as f64 - outcome.loaders_busy).abs() < 1e-9);
    }

    #[test]
    fn the_course_has_the_means_of_the_whole(model in models(), end in 1000u64..200_000) {
        let model = Model { end: End::Seconds(end as f64 / 1e9), ..model };
        let outcome = simulate(&model).unwrap().outcome;
        let Series { span_s, queue, copy, decode, model: busy, .. } = &outcome.series;
        let mean = |course: &[f64]| -> f64 {
            let weight = |number: usize| (outcome.duration_s - number as f64 * span_s).min(*span_s);
            course.iter().enumerate().map(|(number, value)| value * weight(number)).sum::<f64>() / outcome.duration_s
        };
        prop_assert!((mean(queue) - outcome.queue_mean).abs() < 1e-3);
        prop_assert!((1.0 - mean(busy) - outcome.consumer_idle).abs() < 1e-3);
        prop_assert_eq!([copy.is_empty(), decode.is_empty()], [model.copy.is_none(), model.decode.is_none()]);
        let device = outcome.device.map_or([0.0; 2], |device| [device.copying, device.decoding]);
        prop_assert!((mean(copy) - device[0]).abs() < 1e-3 && (mean(decode) - device[1]).abs() < 1e-3);
    }

    /// If times do not vary, more loaders, places or speed never lose batches. (If they vary, first
    /// come, other loaders may load some batches, and that may cost a batch.)
    #[test]
    fn more_of_anything_gives_no_less(model in models()) {
        let steady = |times: &Times| Times::new(times.mean_s(), 0.0);
        let end = End::Seconds(5e-6);
        let [copy, decode] = [&model.copy, &model.decode].map(|times| times.as_ref().map(steady));
        let model = Model { load: steady(&model.load), copy, decode, step: steady(&model.step), end, ..model };
        let batches = |model: &Model| simulate(model).unwrap().outcome.batches;
        let base = batches(&model);
        let more = batches(&Model { queue: model.queue + 1, ..model.clone() });
        prop_assert!(more >= base);
        let more = batches(&Model { loaders: model.loaders + 1, ..model.clone() });
        prop_assert!(more >= base);
        let more = batches(&Model { load: model.load.times(0.5), ..model.clone() });
        prop_assert!(more >= base);
        let more = batches(&Model { step: model.step.times(0.5), ..model.clone() });
        prop_assert!(more >= base);
        let half = |times: &Option<Times>| times.as_ref().map(|times| times.times(0.5));
        let more = batches(&Model { copy: half(&model.copy), ..model.clone() });
        prop_assert!(more >= base);
        let more = batches(&Model { decode: half(&model.decode), ..model.clone() });
        prop_assert!(more >= base);
        let more = batches(&Model { device_slots: model.device_slots + 1, ..model.clone() });
        prop_assert!(more >= base);
    }

    /// In order, each time is a maximum of sums of other times, whatever the spread.
    #[test]
    fn in_order_a_larger_queue_and_faster_loads_give_no_less(model in models()) {
        let model = Model { order: Order::InOrder, end: End::Seconds(5e-6), ..model };
        let batches = |model: &Model| simulate(model).unwrap().outcome.batches;
        let base = batches(&model);
        let more = batches(&Model { queue: model.queue + 1, ..model.clone() });
        prop_assert!(more >= base);
        let more = batches(&Model { load: model.load.times(0.5), ..model.clone() });
        prop_assert!(more >= base);
        let more = batches(&Model { device_slots: model.device_slots + 1, ..model.clone() });
        prop_assert!(more >= base);
    }

    #[test]
    fn runs_repeat(model in models()) {
        prop_assert_eq!(simulate(&model).unwrap(), simulate(&model).unwrap());
    }
}

/// Copy, decoding and slots of a device; a time of 0 is a stage that there is not.
#[derive(Clone, Copy, Debug, Default)]
struct TickDevice {
    copy: u64,
    decode: u64,
    slots: usize,
}

/// A ring of slots as in `hsipack_read`: free → filling → ready → leased → free, tick by tick, with
/// integer times. Workers begin the next batch when a slot is free. The consumer returns its slot,
/// asks for the next batch, and receives it when it is ready. The consumer is the model or, with a
/// device, the first stage there, which leases the slot until it is done. Returns when each batch
/// is done.
fn ring(
    workers: usize,
    slots: usize,
    load: u64,
    device: Option<TickDevice>,
    step: u64,
    batches: usize,
) -> Vec<u64> {
    let stages = match device {
        Some(TickDevice { copy, decode, .. }) => vec![copy, decode, step],
        None => vec![step],
    };
    let stages: Vec<u64> = stages.into_iter().filter(|time| *time > 0).collect();
    let mut free = device.map_or(batches + 1, |device| device.slots);
    let mut filling: Vec<(usize, u64)> = Vec::new(); // batch, and when it is ready
    let mut ready = std::collections::BTreeSet::new();
    let (mut begun, mut next) = (0, 0);
    let mut is_leased = false;
    // For each stage: batches that wait for it, and until when it works.
    let mut waiting = vec![0; stages.len()];
    let mut until: Vec<Option<u64>> = vec![None; stages.len()];
    let mut done = Vec::new();
    for now in 0.. {
        filling.retain(|(batch, at)| {
            let over = *at <= now;
            if over {
                ready.insert(*batch);
            }
            !over
        });
        for stage in (0..stages.len()).rev() {
            if until[stage] != Some(now) {
                continue;
            }
            until[stage] = None;
            if stage == 0 {
                is_leased = false;
            }
            if stage + 1 == stages.len() {
                free += 1;
                done.push(now);
            } else {
                waiting[stage + 1] += 1;
            }
        }
        if !is_leased && ready.remove(&next) {
            is_leased = true;
            waiting[0] += 1;
            next += 1;
        }
        for stage in 0..stages.len() {
            if until[stage].is_none() && waiting[stage] > 0 && (stage > 0 || free > 0) {
                waiting[stage] -= 1;
                until[stage] = Some(now + stages[stage]);
                free -= usize::from(stage == 0);
            }
        }
        while filling.len() < workers
            && filling.len() + ready.len() + usize::from(is_leased) < slots
        {
            filling.push((begun, now + load));
            begun += 1;
        }
        if done.len() >= batches {
            return done;
        }
    }
    done
}

#[test]
fn slots_are_loaders_and_places_in_the_queue() {
    let devices = [(3, 0, 1), (3, 0, 2), (6, 2, 1), (2, 6, 2), (4, 4, 3), (0, 5, 1), (0, 5, 2)];
    let devices = devices.map(|(copy, decode, slots)| Some(TickDevice { copy, decode, slots }));
    for (workers, slots) in [(1, 2), (1, 3), (1, 6), (2, 3), (2, 5), (3, 7)] {
        for (load, step) in [(3, 5), (5, 3), (4, 4), (1, 9), (9, 1), (10, 4)] {
            for device in [None].into_iter().chain(devices) {
                let loaders = workers.min(slots - 1);
                let tick = |ticks: u64| Times::new(ticks as f64 * 1e-9, 0.0);
                let stage = |ticks: u64| (ticks > 0).then(|| tick(ticks));
                let on_device = device.unwrap_or_default();
                let model = Model {
                    loaders,
                    load: tick(load),
                    copy: stage(on_device.copy),
                    decode: stage(on_device.decode),
                    device_slots: on_device.slots.max(1),
                    step: tick(step),
                    queue: slots - 1 - loaders,
                    order: Order::InOrder,
                    seed: 0,
                    end: End::Batches(40),
                    threads: None,
                };
                let mut events = Events::default();
                engine::run(&model, &mut events).unwrap();
                let got: Vec<u64> = taken(&events).iter().map(|times| times.done).collect();
                let want = ring(workers, slots, load, device, step, 40);
                assert_eq!(
                    got, want,
                    "{workers} workers, {slots} slots, load {load}, {device:?}, step {step}"
                );
            }
        }
    }
}

/// Results of models without a device, of the version before there were devices.
#[test]
fn models_without_a_device_give_the_results_of_before() {
    let recorded = [
        (
            (7, 700, 30),
            (100, 0),
            7,
            Order::InOrder,
            (342, 349, 0.14399829317500001, 5.086519586, 0.11331821017857142),
        ),
        (
            (3, 90, 150),
            (30, 60),
            0,
            Order::FirstCome,
            (1000, 1002, 0.24946710297499997, 0.0, 0.20936992705),
        ),
        (
            (1, 50, 5),
            (50, 10),
            4,
            Order::InOrder,
            (797, 800, 0.009604401574999977, 0.860958329825, 0.0),
        ),
        (
            (16, 900, 30),
            (60, 20),
            20,
            Order::FirstCome,
            (653, 676, 0.015099994574999998, 16.1602804826, 0.0604527916625),
        ),
        ((2, 33, 0), (7, 0), 1, Order::FirstCome, (2422, 2424, 0.57605, 0.212025, 0.0)),
        (
            (5, 400, 100),
            (80, 30),
            2,
            Order::InOrder,
            (299, 301, 0.41237589394999996, 1.22236062745, 0.39691038777),
        ),
    ];
    for (seed, ((loaders, load, load_spread), (step, step_spread), queue, order, want)) in
        recorded.into_iter().enumerate()
    {
        let times = |ms: u32, percent: u32| {
            let mean = f64::from(ms) / 1e3;
            Times::new(mean, f64::from(percent) / 100.0 * mean)
        };
        let model = Model {
            load: times(load, load_spread),
            step: times(step, step_spread),
            queue,
            order,
            seed: seed as u64,
            end: End::Seconds(40.0),
            ..Model::new(loaders, 1.0, 1.0)
        };
        let got = simulate(&model).unwrap().outcome;
        let got = (got.batches, got.loaded, got.consumer_idle, got.queue_mean, got.loaders_blocked);
        assert_eq!(got, want, "model {seed}");
    }
}

#[test]
fn devices_known_by_hand() {
    let of = |copy_s: f64, decode_s: Option<f64>, step_s: f64, device_slots: usize| {
        let steady = |mean: f64| Times::new(mean, 0.0);
        let model = Model {
            load: steady(0.001),
            copy: Some(steady(copy_s)),
            decode: decode_s.map(steady),
            device_slots,
            end: End::Batches(1000),
            ..Model::new(1, 0.001, step_s)
        };
        simulate(&model).unwrap().outcome
    };
    // With one slot nothing overlaps: batches take the sum of all stages.
    let single = of(0.02, Some(0.03), 0.05, 1);
    assert!((single.batches_per_s - 10.0).abs() < 0.01, "{}", single.batches_per_s);
    assert_eq!((single.limit, single.bounds.device_slots), (Limit::DeviceSlots, Some(10.0)));
    let device = single.device.unwrap();
    assert!((device.copying - 0.2).abs() < 1e-3 && (device.decoding - 0.3).abs() < 1e-3);
    assert!((device.waiting - 0.8).abs() < 1e-3, "{device:?}");
    // With a slot for each stage, the slowest stage is the limit.
    for (copy, decode, step, limit) in [
        (0.05, 0.03, 0.02, Limit::Copy),
        (0.02, 0.05, 0.03, Limit::Decode),
        (0.02, 0.03, 0.05, Limit::Step),
    ] {
        let outcome = of(copy, Some(decode), step, 3);
        assert!((outcome.batches_per_s - 20.0).abs() < 0.1, "{}", outcome.batches_per_s);
        assert_eq!((outcome.limit, outcome.bounds.device_slots), (limit, None));
    }
    // Two slots for two stages of the same time: both are always busy.
    let outcome = of(0.05, None, 0.05, 2);
    assert!((outcome.batches_per_s - 20.0).abs() < 0.1, "{}", outcome.batches_per_s);
    assert_eq!(outcome.limit, Limit::Balanced);
}

/// Sellner et al., "Dealing with I/O bottlenecks in high-throughput model training": 7 loaders, a
/// step of 100 ms, 30 s.
const PUBLISHED: [(f64, f64); 3] = [(2.0, 98.0), (0.7, 275.0), (0.35, 295.0)];

#[test]
fn published_runs_come_out() {
    for order in [Order::FirstCome, Order::InOrder] {
        for (load, published) in PUBLISHED {
            let batches = |seed| {
                let model = Model { seed, order, ..Model::new(7, load, 0.1) };
                simulate(&model).unwrap().outcome.batches as f64
            };
            let runs: Vec<f64> = (0..200).map(batches).collect();
            let mean = runs.iter().sum::<f64>() / 200.0;
            let (least, most) =
                runs.iter().fold((f64::MAX, 0f64), |(a, b), run| (a.min(*run), b.max(*run)));
            println!("{order:?} {load} s: seed 0 {}, mean {mean:.1}, {least} to {most}", runs[0]);
            assert!((mean / published - 1.0).abs() < 0.03, "{order:?} {load} {mean}");
            assert!((runs[0] / published - 1.0).abs() < 0.03, "{order:?} {load} {}", runs[0]);
        }
    }
}

#[test]
fn runs_known_by_hand() {
    let steady = |loaders, load_s, step_s| Model {
        load: Times::new(load_s, 0.0),
        ..Model::new(loaders, load_s, step_s)
    };
    let of = |model: &Model| simulate(model).unwrap().outcome;
    // 14 rounds of 7 batches: the last round is loaded at 28 s and done by 28.7 s. The round of 30 s is not done.
    let slow = of(&steady(7, 2.0, 0.1));
    assert_eq!((slow.batches, slow.limit), (98, Limit::Loading));
    // One batch at a time, one after the other.
    let single = of(&Model { end: End::Batches(10), ..steady(1, 1.0, 0.25) });
    assert_eq!((single.batches, single.duration_s), (10, 10.25));
    assert!((single.consumer_idle - (1.0 - 2.5 / 10.25)).abs() < 1e-12);
    // The model is slow: the queue fills up, and the loader is blocked.
    let full = of(&Model { queue: 3, end: End::Seconds(1000.0), ..steady(1, 0.1, 1.0) });
    assert_eq!(
        (full.batches, full.queue_min, full.queue_max, full.limit),
        (999, 0, 3, Limit::Step)
    );
    assert!(full.loaders_blocked > 0.89 && full.queue_mean > 2.9);
}

#[test]
fn changes_scale_loaders_threads_or_stages() {
    let base = Model { queue: 7, ..Model::new(7, 2.0, 0.1) };
    let workers = WhatIf { workers: Some(14), ..WhatIf::default() };
    let more = base.changed(&workers).unwrap();
    assert_eq!((more.loaders, more.queue, more.load.mean_s()), (14, 14, 2.0));
    let ring = Model { loaders: 1, threads: Some(7), queue: 2, ..base.clone() };
    let more = ring.changed(&workers).unwrap();
    assert_eq!((more.loaders, more.queue, more.load.mean_s(), more.threads), (1, 2, 1.0, Some(14)));
    let other = WhatIf {
        load: Some(Change::Factor(0.5)),
        step: Some(Change::Seconds(0.2)),
        queue: Some(1),
        ..WhatIf::default()
    };
    let other = base.changed(&other).unwrap();
    assert_eq!((other.load.mean_s(), other.step.mean_s(), other.queue), (1.0, 0.2, 1));
    assert!(base.changed(&WhatIf { workers: Some(0), ..WhatIf::default() }).is_err());
    let device =
        WhatIf { copy: Some(Change::Seconds(0.3)), device_slots: Some(4), ..WhatIf::default() };
    let device = base.changed(&device).unwrap();
    assert_eq!((device.copy.clone(), device.device_slots), (Some(Times::new(0.3, 0.0)), 4));
    let half = WhatIf { copy: Some(Change::Factor(0.5)), ..WhatIf::default() };
    assert_eq!(device.changed(&half).unwrap().copy, Some(Times::new(0.15, 0.0)));
    assert!(base.changed(&half).is_err());
    let decode = WhatIf { decode: Some(Change::Seconds(0.1)), ..WhatIf::default() };
    assert_eq!(device.changed(&decode).unwrap().device_slots, 5);
}

#[test]
fn absurd_models_are_refused() {
    let base = Model::new(7, 2.0, 0.1);
    let bad = [
        Model { loaders: 0, ..base.clone() },
        Model { loaders: MAX_LOADERS + 1, ..base.clone() },
        Model { queue: usize::MAX, ..base.clone() },
        Model { device_slots: 0, ..base.clone() },
        Model { device_slots: MAX_DEVICE_SLOTS + 1, ..base.clone() },
        Model { copy: Some(Times::new(0.0, 0.0)), ..base.clone() },
        Model { decode: Some(Times::new(-1.0, 0.0)), ..base.clone() },
        Model { end: End::Seconds(0.0), ..base.clone() },
        Model { end: End::Seconds(f64::NAN), ..base.clone() },
        Model { end: End::Batches(0), ..base.clone() },
        Model { end: End::Batches(u64::MAX), ..base.clone() },
        Model::new(7, 0.0, 0.1),
        Model::new(7, -1.0, 0.1),
        Model::new(7, 1.0, f64::INFINITY),
        Model { end: End::Seconds(3e8), ..Model::new(1000, 1e-9, 1e-9) },
        Model { end: End::Batches(1_000_000), ..Model::new(1, 1e6, 1.0) },
    ];
    for model in bad {
        let error = simulate(&model).unwrap_err();
        assert!(error.remedy().is_some(), "{error}");
    }
    assert_eq!(nanoseconds(super::times::LONGEST_S).leading_zeros(), 5);
}
