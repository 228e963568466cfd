//! The batches of several plans, one for each dataset that a loader reads, in one order.
//!
//! Every batch comes whole from one plan. The order of the plans' turns is drawn from seed and
//! epoch, so it is the same on every rank; the batches of one plan keep the order of that plan. If
//! the plans are not shuffled, they come one after the other. In a mix, plans take turns evenly
//! instead. An epoch that is resumed with the same batch size and world size goes on with the same
//! turns. With other sizes, new turns are drawn for what is left.
//!
//! If a mix mixes items, every batch has items of all plans. Batches are then runs of one order of
//! all items ([`Interleaved`]), which does not depend on the sizes of batches. So an epoch can go
//! on at any item with any sizes.

use std::ops::Range;

use super::batches::{LastBatch, global_batch};
use super::interleaved::Interleaved;
use super::{EpochPlan, Order, Plan, Segment, Share, all_dropped, plural};
use crate::{Error, Result};
use hsipack_format::random::{Random, Stream};

/// The plans of the datasets that a loader reads, at least one.
#[derive(Clone, Debug)]
pub(crate) struct JoinedPlan {
    plans: Vec<Plan>,
    seed: u64,
}

/// One rank's remaining batches of an epoch, of all plans.
#[derive(Clone, Debug)]
pub(crate) struct JoinedEpoch {
    epochs: Vec<EpochPlan>,
    /// Plan of each batch, and number of the batch among those of its plan. Empty if there is only
    /// one plan.
    turns: Vec<(u32, u32)>,
    /// The batches, if each has items of several plans.
    mixed: Option<MixedBatches>,
}

/// One rank's remaining batches of an epoch, of items of all plans.
#[derive(Clone, Debug)]
struct MixedBatches {
    order: Interleaved,
    /// Number of items in the batches that came before.
    start: usize,
    batches: usize,
    /// Number of items in a full batch of all ranks.
    global: usize,
    share: Share,
    last: LastBatch,
}

/// Items of one plan that follow one another in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanRun {
    pub plan: usize,
    /// Their places in the plan's epoch.
    pub places: Range<u32>,
    /// Whether they only fill up the batch.
    pub padding: bool,
}

/// The plans whose batches come next, for batches of one size.
#[derive(Default)]
struct Turns {
    sizes: Option<(usize, usize)>,
    plans: Vec<u32>,
    next: usize,
}

/// The seed of a plan. The seeds differ, so that samples with the same id in two datasets are
/// cropped and augmented differently.
pub(crate) fn seed_of(seed: u64, number: usize) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    seed.wrapping_add((number as u64).wrapping_mul(STEP))
}

/// The number of items of each plan in an epoch of `total` items, in proportion to the weights.
/// Items that rounding down leaves over go to the plans that lose most.
pub(crate) fn lengths(weights: &[f64], total: usize) -> Vec<usize> {
    let sum: f64 = weights.iter().sum();
    let exact: Vec<f64> = weights.iter().map(|weight| weight * (total as f64 / sum)).collect();
    let mut lengths: Vec<usize> = exact.iter().map(|exact| exact.floor() as usize).collect();
    let mut by_loss: Vec<usize> = (0..weights.len()).collect();
    let loss = |plan: &usize| exact[*plan].floor() - exact[*plan];
    by_loss.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
    let missing = total.saturating_sub(lengths.iter().sum());
    by_loss.iter().cycle().take(missing).for_each(|plan| lengths[*plan] += 1);
    lengths
}

impl JoinedPlan {
    /// Joins plans with the same batch size. `seed` decides the order of their turns.
    pub(crate) fn new(plans: Vec<Plan>, seed: u64) -> Self {
        Self { plans, seed }
    }

    /// One rank's part of what is left of an epoch after the `delivered` segments; see
    /// [`Plan::epoch`].
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub(crate) fn epoch(
        &self,
        epoch: u64,
        delivered: &[Segment],
        share: Share,
    ) -> Result<JoinedEpoch> {
        if self.plans[0].options().mixes_items {
            let mixed = MixedBatches::new(self.interleaved(epoch), delivered, self.sizes(share))?;
            let epochs = self.plans.iter().map(|plan| plan.unbatched(epoch)).collect();
            return Ok(JoinedEpoch { epochs, turns: Vec::new(), mixed: Some(mixed) });
        }
        if let [plan] = &*self.plans {
            return Ok(plan.epoch(epoch, delivered, share)?.into());
        }
        let mut of_plans = vec![Vec::new(); self.plans.len()];
        let mut turns = Turns::default();
        for (number, segment) in delivered.iter().enumerate() {
            let sizes = (segment.batch_size, segment.world_size);
            self.renew(&mut turns, (epoch, number), &of_plans, sizes)?;
            for (plan, batches) in turns.take(segment.batches, self.plans.len())? {
                of_plans[plan].push(Segment { batches, ..*segment });
            }
        }
        let sizes = (self.plans[0].options().batch_size, share.world_size);
        self.renew(&mut turns, (epoch, delivered.len()), &of_plans, sizes)?;
        let epochs = self.plans.iter().zip(&of_plans);
        let epochs = epochs.map(|(plan, delivered)| plan.epoch(epoch, delivered, share));
        let mut numbers = vec![0; self.plans.len()];
        let turns = turns.plans[turns.next..].iter().map(|plan| {
            let number = &mut numbers[*plan as usize];
            *number += 1;
            (*plan, *number - 1)
        });
        let epochs = epochs.collect::<Result<_>>()?;
        Ok(JoinedEpoch { turns: turns.collect(), epochs, mixed: None })
    }

    /// Number of batches that every rank gets in an epoch: those of the `delivered` segments, and
    /// what is left after them.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub(crate) fn batches(&self, epoch: u64, delivered: &[Segment], share: Share) -> Result<usize> {
        let before: usize = delivered.iter().map(|segment| segment.batches).sum();
        Ok(before + self.epoch(epoch, delivered, share)?.batches())
    }

    /// The order of the items of all plans.
    fn interleaved(&self, epoch: u64) -> Interleaved {
        let phase = |number: usize, plan: &Plan| match plan.options().order {
            Order::Sequential => 0.5,
            _ => Random::keyed(Stream::PlanTurns, [self.seed, epoch, number as u64]).unit(),
        };
        let plans = self.plans.iter().enumerate();
        Interleaved::new(plans.map(|(number, plan)| (plan.items(), phase(number, plan))))
    }

    /// Batch size, share and last batch.
    fn sizes(&self, share: Share) -> (usize, Share, LastBatch) {
        let options = self.plans[0].options();
        (options.batch_size, share, options.last)
    }

    /// Draws the turns of batches of these sizes, unless they were drawn. `delivered` are the
    /// batches of each plan that came before; (epoch, number of the segment) is the key.
    fn renew(
        &self,
        turns: &mut Turns,
        (epoch, number): (u64, usize),
        delivered: &[Vec<Segment>],
        sizes: (usize, usize),
    ) -> Result<()> {
        if turns.sizes == Some(sizes) {
            return Ok(());
        }
        let (batch_size, world_size) = sizes;
        let mut plans = Vec::new();
        for (number, (plan, delivered)) in self.plans.iter().zip(delivered).enumerate() {
            let unread =
                plan.epoch_in(epoch, delivered, batch_size, Share { rank: 0, world_size })?;
            plans.resize(plans.len() + unread.batches(), number as u32);
        }
        let options = self.plans[0].options();
        let random = match options.order {
            Order::Sequential => None,
            _ => Some(Random::keyed(Stream::PlanTurns, [self.seed, epoch, number as u64])),
        };
        match (options.is_mix, random) {
            (true, random) => spread(&mut plans, self.plans.len(), random),
            (false, Some(mut random)) => random.shuffle(&mut plans),
            (false, None) => {}
        }
        *turns = Turns { sizes: Some(sizes), plans, next: 0 };
        Ok(())
    }
}

/// Puts turns into an order in which any run of them has every plan in proportion. `turns` has the
/// turns of one plan after those of another. Each of the `n` turns of a plan falls into its own
/// `n`th of the epoch: somewhere in it if the order is random, otherwise in its middle.
fn spread(turns: &mut Vec<u32>, plans: usize, mut random: Option<Random>) {
    let mut counts = vec![0usize; plans];
    turns.iter().for_each(|plan| counts[*plan as usize] += 1);
    let mut placed = Vec::with_capacity(turns.len());
    for (plan, count) in counts.into_iter().enumerate() {
        for turn in 0..count {
            let within = random.as_mut().map_or(0.5, Random::unit);
            placed.push(((turn as f64 + within) / count as f64, plan as u32));
        }
    }
    placed.sort_by(|(time, plan), (later, other)| time.total_cmp(later).then(plan.cmp(other)));
    *turns = placed.into_iter().map(|(_, plan)| plan).collect();
}

impl Turns {
    /// Takes the next batches. Returns the number of batches of each plan.
    fn take(
        &mut self,
        batches: usize,
        plans: usize,
    ) -> Result<impl Iterator<Item = (usize, usize)>> {
        let remaining = self.plans.len() - self.next;
        if batches > remaining {
            return Err(Error::state(format!(
                "the training state belongs to another epoch: {} were read, but the epoch had only {remaining} left",
                plural(batches, "batch"),
            ))
            .with_remedy("resume with the datasets and options of the saved state"));
        }
        let taken: Range<usize> = self.next..self.next + batches;
        self.next = taken.end;
        let mut counts = vec![0; plans];
        self.plans[taken].iter().for_each(|plan| counts[*plan as usize] += 1);
        Ok(counts.into_iter().enumerate().filter(|(_, count)| *count > 0))
    }
}

impl MixedBatches {
    /// The batches that are left after these segments.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    fn new(
        order: Interleaved,
        segments: &[Segment],
        (batch_size, share, last): (usize, Share, LastBatch),
    ) -> Result<Self> {
        share.check()?;
        let batches = |items: usize, global: usize| match last {
            LastBatch::Drop => items / global,
            LastBatch::Pad | LastBatch::Short => items.div_ceil(global),
        };
        let mut items_given = 0;
        for segment in segments {
            let global = global_batch(segment.batch_size, segment.world_size)?;
            let remaining = batches(order.items() - items_given, global);
            if segment.batches > remaining {
                return Err(segment.is_too_long(remaining));
            }
            let items = segment.batches.saturating_mul(global);
            items_given = order.items().min(items_given.saturating_add(items));
        }
        let global = global_batch(batch_size, share.world_size)?;
        let batches = batches(order.items() - items_given, global);
        if batches == 0 && items_given == 0 {
            return Err(all_dropped(order.items(), 1, global));
        }
        Ok(Self { order, start: items_given, batches, global, share, last })
    }

    /// This rank's part of batch `n`, plan by plan.
    fn runs(&self, n: usize) -> Vec<PlanRun> {
        let start = self.start + n * self.global;
        let items = self.global.min(self.order.items() - start);
        let part = self.share.part(self.last.padded(items, self.global, self.share.world_size));
        let mut runs = Vec::new();
        self.push_runs(
            start + part.start.min(items)..start + part.end.min(items),
            false,
            &mut runs,
        );
        // Padding repeats the items from the epoch's start, as often as needed.
        let (mut padding, end) = (part.start.max(items) - items, part.end.max(items) - items);
        while padding < end {
            let round = padding % self.order.items();
            let count = (end - padding).min(self.order.items() - round);
            self.push_runs(round..round + count, true, &mut runs);
            padding += count;
        }
        runs.sort_by_key(|run| run.plan);
        runs
    }

    /// Adds the items at some positions of the order.
    fn push_runs(&self, positions: Range<usize>, padding: bool, runs: &mut Vec<PlanRun>) {
        let [from, to] = [positions.start, positions.end].map(|end| self.order.counts(end));
        let ranges = from.into_iter().zip(to).map(|(from, to)| from as u32..to as u32);
        let ranges = ranges.enumerate().filter(|(_, range)| !range.is_empty());
        runs.extend(ranges.map(|(plan, range)| PlanRun { plan, places: range, padding }));
    }
}

impl From<EpochPlan> for JoinedEpoch {
    fn from(epoch: EpochPlan) -> Self {
        Self { epochs: vec![epoch], turns: Vec::new(), mixed: None }
    }
}

impl JoinedEpoch {
    /// The epoch's number.
    pub(crate) fn epoch(&self) -> u64 {
        self.epochs[0].epoch()
    }

    /// Number of batches left, the same on every rank.
    pub(crate) fn batches(&self) -> usize {
        if let Some(mixed) = &self.mixed {
            return mixed.batches;
        }
        self.epochs.iter().map(EpochPlan::batches).sum()
    }

    /// The items of batch `n`, where 0 is the next batch, if it has items of several plans: those
    /// of each plan, and then the padding from this plan. `None` if batches are of one plan each
    /// ([`turn`](Self::turn)).
    pub(crate) fn runs(&self, n: usize) -> Option<Vec<PlanRun>> {
        self.mixed.as_ref().map(|mixed| mixed.runs(n))
    }

    /// The plan that batch `n` belongs to, where 0 is the next batch, and its number among the
    /// batches of this plan.
    pub(crate) fn turn(&self, n: usize) -> (usize, usize) {
        match self.turns.get(n) {
            Some((plan, number)) => (*plan as usize, *number as usize),
            None => (0, n),
        }
    }

    /// The remainder of each plan.
    pub(crate) fn epochs(&self) -> &[EpochPlan] {
        &self.epochs
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Item, PlanOptions, PlanSample};

    fn plan(samples: usize, batch_size: usize, order: Order, seed: u64) -> Plan {
        let samples = (0..samples).map(|sample| PlanSample::new(sample, 4, 4, 2)).collect();
        Plan::new(samples, PlanOptions { order, seed, ..PlanOptions::new(batch_size) }).unwrap()
    }

    fn joined(counts: &[usize], batch_size: usize, order: Order) -> JoinedPlan {
        let plans = counts.iter().enumerate();
        let plans =
            plans.map(|(number, count)| plan(*count, batch_size, order, seed_of(5, number)));
        JoinedPlan::new(plans.collect(), 5)
    }

    /// The items of all batches left on a rank: plan and items of each.
    fn items(epoch: &JoinedEpoch) -> Vec<(usize, Vec<Item>)> {
        let batch = |n| {
            let (plan, number) = epoch.turn(n);
            let mut items = Vec::new();
            epoch.epochs()[plan].batch(number, None, &mut items).unwrap();
            (plan, items)
        };
        (0..epoch.batches()).map(batch).collect()
    }

    #[test]
    fn unshuffled_plans_come_one_after_the_other() {
        let epoch = joined(&[5, 3], 2, Order::Sequential).epoch(0, &[], Share::ALL).unwrap();
        let plans: Vec<usize> = items(&epoch).into_iter().map(|(plan, _)| plan).collect();
        assert_eq!(plans, [0, 0, 0, 1, 1]);
    }

    #[test]
    fn shuffled_turns_depend_on_seed_and_epoch_and_cover_everything() {
        let plan = joined(&[40, 30, 20], 2, Order::Shuffled);
        let turns = |epoch| items(&plan.epoch(epoch, &[], Share::ALL).unwrap());
        let plans = |epoch| turns(epoch).iter().map(|(plan, _)| *plan).collect::<Vec<_>>();
        assert_eq!(plans(0), plans(0));
        assert_ne!(plans(0), plans(1));
        assert!(plans(0).windows(2).filter(|pair| pair[0] != pair[1]).count() > 15);
        let samples: HashSet<(usize, usize)> = turns(3)
            .into_iter()
            .flat_map(|(plan, items)| items.into_iter().map(move |item| (plan, item.sample)))
            .collect();
        assert_eq!(samples.len(), 90);
    }

    /// A mix whose plans have these numbers of batches of two.
    fn mix(counts: &[usize], order: Order) -> JoinedPlan {
        let plans = counts.iter().enumerate().map(|(number, count)| {
            let samples = (0..2 * count).map(|sample| PlanSample::new(sample, 4, 4, 2)).collect();
            let seed = seed_of(5, number);
            let options = PlanOptions { order, seed, is_mix: true, ..PlanOptions::new(2) };
            Plan::new(samples, options).unwrap()
        });
        JoinedPlan::new(plans.collect(), 5)
    }

    #[test]
    fn any_run_of_a_mix_has_its_plans_in_proportion() {
        let counts = [600, 200, 50];
        for order in [Order::Shuffled, Order::Sequential] {
            for epoch in 0..3 {
                let mixed = mix(&counts, order).epoch(epoch, &[], Share::ALL).unwrap();
                let turns: Vec<usize> = (0..mixed.batches()).map(|n| mixed.turn(n).0).collect();
                assert_eq!(turns.len(), 850);
                for (plan, count) in counts.iter().enumerate() {
                    assert_eq!(turns.iter().filter(|turn| **turn == plan).count(), *count);
                    for run in turns.windows(100) {
                        let count_in_run = run.iter().filter(|turn| **turn == plan).count() as f64;
                        let wanted = 100.0 * *count as f64 / 850.0;
                        let difference = (count_in_run - wanted).abs();
                        assert!(difference <= 3.0, "{plan}: {count_in_run} of {wanted}");
                    }
                }
            }
        }
        // Every hundred from the start has them exactly, if whole batches can.
        let mixed = mix(&[700, 200, 100], Order::Shuffled).epoch(4, &[], Share::ALL).unwrap();
        let turns: Vec<usize> = (0..1000).map(|n| mixed.turn(n).0).collect();
        for hundred in turns.chunks(100) {
            let counts = [0, 1, 2].map(|plan| hundred.iter().filter(|turn| **turn == plan).count());
            assert_eq!(counts, [70, 20, 10]);
        }
        let turns = |epoch| {
            let mixed = mix(&counts, Order::Shuffled).epoch(epoch, &[], Share::ALL).unwrap();
            (0..mixed.batches()).map(|n| mixed.turn(n).0).collect::<Vec<_>>()
        };
        assert_eq!(turns(1), turns(1));
        assert_ne!(turns(1), turns(2));
        let other = joined(&[600, 200, 50], 2, Order::Shuffled);
        assert_ne!(
            other.plans[0].digest(),
            mix(&[300, 200, 50], Order::Shuffled).plans[0].digest()
        );
    }

    /// A mix of items of plans with these numbers of items.
    fn items_mix(counts: &[usize], batch_size: usize, order: Order, last: LastBatch) -> JoinedPlan {
        let plans = counts.iter().enumerate().map(|(number, count)| {
            let samples = (0..*count).map(|sample| PlanSample::new(sample, 4, 4, 2)).collect();
            let seed = seed_of(5, number);
            let options = PlanOptions::new(batch_size);
            let options = PlanOptions { order, seed, last, is_mix: true, ..options };
            Plan::new(samples, PlanOptions { mixes_items: true, ..options }).unwrap()
        });
        JoinedPlan::new(plans.collect(), 5)
    }

    /// The items of a batch that has items of several plans: plan and item of each.
    fn mixed_items(epoch: &JoinedEpoch, n: usize) -> Vec<(usize, Item)> {
        let mut mixed = Vec::new();
        for run in epoch.runs(n).unwrap() {
            let mut items = Vec::new();
            epoch.epochs()[run.plan].push_items(run.places, run.padding, None, &mut items).unwrap();
            mixed.extend(items.into_iter().map(|item| (run.plan, item)));
        }
        mixed
    }

    #[test]
    fn mixed_batches_have_their_plans_in_proportion_on_every_rank() {
        let counts = [6000, 2500, 1500];
        for (order, world_size) in
            [(Order::Shuffled, 1), (Order::Sequential, 3), (Order::Shuffled, 8)]
        {
            let plan = items_mix(&counts, 8, order, LastBatch::Drop);
            let mut visited = HashSet::new();
            for rank in 0..world_size {
                let epoch = plan.epoch(1, &[], Share { rank, world_size }).unwrap();
                assert_eq!(epoch.batches(), 10_000 / (8 * world_size));
                let of_batch = |n| {
                    let items = mixed_items(&epoch, n);
                    assert_eq!(items.len(), 8);
                    assert!(items.is_sorted_by_key(|(plan, _)| *plan));
                    let mut counts = [0usize; 3];
                    items.iter().for_each(|(plan, _)| counts[*plan] += 1);
                    assert!(
                        items.into_iter().all(|(plan, item)| visited.insert((plan, item.sample)))
                    );
                    counts
                };
                let drawn: Vec<[usize; 3]> = (0..epoch.batches()).map(of_batch).collect();
                let in_run = |run: &[[usize; 3]]| {
                    for (plan, count) in counts.iter().enumerate() {
                        let drawn_items: usize = run.iter().map(|counts| counts[plan]).sum();
                        let exact = 8.0 * run.len() as f64 * *count as f64 / 10_000.0;
                        let bound = if run.len() == 1 || world_size == 1 { 2.0 } else { 100.0 };
                        assert!(
                            (drawn_items as f64 - exact).abs() < bound,
                            "{plan}: {drawn_items} of {exact}"
                        );
                    }
                };
                drawn.windows(1).for_each(in_run);
                drawn.windows(100).for_each(in_run);
            }
        }
        let epoch =
            |plan: &JoinedPlan, epoch| mixed_items(&plan.epoch(epoch, &[], Share::ALL).unwrap(), 7);
        let plan = items_mix(&counts, 8, Order::Shuffled, LastBatch::Drop);
        assert_eq!(epoch(&plan, 1), epoch(&plan, 1));
        assert_ne!(epoch(&plan, 1), epoch(&plan, 2));
        assert_ne!(
            plan.plans[0].digest(),
            mix(&[3000, 2500, 1500], Order::Shuffled).plans[0].digest()
        );
    }

    /// χ² of 10^5 draws in batches of 10: of the plans by their weights, and of the samples of each
    /// plan.
    #[test]
    fn mixed_draws_have_the_weights() {
        let (samples, weights) = ([40, 30, 10], [5.0, 3.0, 2.0]);
        let lengths = lengths(&weights, 100_000);
        let plans = items_mix(&samples, 10, Order::Shuffled, LastBatch::Short).plans.into_iter();
        let plans = plans.zip(&lengths).map(|(plan, length)| plan.of_length(*length).unwrap());
        let epoch = JoinedPlan::new(plans.collect(), 9).epoch(0, &[], Share::ALL).unwrap();
        let mut drawn = samples.map(|samples| vec![0.0f64; samples]);
        (0..epoch.batches())
            .flat_map(|n| mixed_items(&epoch, n))
            .for_each(|(plan, item)| drawn[plan][item.sample] += 1.0);
        let square = |drawn: f64, expected: f64| (drawn - expected).powi(2) / expected;
        let plans = drawn.iter().zip(weights).map(|(drawn, weight)| (drawn.iter().sum(), weight));
        let of_plans: f64 = plans.map(|(drawn, weight)| square(drawn, weight * 10_000.0)).sum();
        // The 99 % quantile with 2 degrees of freedom.
        assert!(of_plans < 9.21, "{of_plans}");
        for (drawn, length) in drawn.iter().zip(lengths) {
            let expected = length as f64 / drawn.len() as f64;
            let of_samples: f64 = drawn.iter().map(|drawn| square(*drawn, expected)).sum();
            assert!(of_samples < drawn.len() as f64, "{of_samples}");
        }
    }

    #[test]
    fn last_mixed_batches_are_as_asked_for() {
        let counts = [7, 4];
        for (last, sizes) in
            [(LastBatch::Short, [[3, 3], [3, 2]]), (LastBatch::Pad, [[3, 3], [3, 3]])]
        {
            let plan = items_mix(&counts, 3, Order::Shuffled, last);
            for (rank, batch) in [0, 1].into_iter().flat_map(|rank| [(rank, 0), (rank, 1)]) {
                let epoch = plan.epoch(0, &[], Share { rank, world_size: 2 }).unwrap();
                let items = mixed_items(&epoch, batch);
                assert_eq!(items.len(), sizes[batch][rank]);
                let padding = items.iter().filter(|(_, item)| item.padding).count();
                let missing = usize::from(last == LastBatch::Pad && (rank, batch) == (1, 1));
                assert_eq!(padding, missing);
            }
        }
        let plan = items_mix(&[1, 1], 2, Order::Shuffled, LastBatch::Pad);
        let epoch = plan.epoch(0, &[], Share { rank: 3, world_size: 4 }).unwrap();
        let items = mixed_items(&epoch, 0);
        assert!(items.len() == 2 && items.iter().all(|(_, item)| item.padding));
        let error = items_mix(&[1, 1], 3, Order::Shuffled, LastBatch::Drop)
            .epoch(0, &[], Share::ALL)
            .unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Conflict);
        let before = [Segment { batch_size: 2, world_size: 1, batches: 99 }];
        let error = plan.epoch(0, &before, Share::ALL).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::State);
    }

    /// 1,000 interruptions: with the same sizes, the same batches come; with others, no item is
    /// lost or comes twice.
    #[test]
    fn interrupted_mixed_epochs_go_on_with_the_next_item() {
        let mut random = Random::keyed(Stream::PlanTurns, [1, 2, 3]);
        let mut below = |end: usize| random.below(end as u64) as usize;
        for round in 0..1000 {
            let counts: Vec<usize> = (0..below(4) + 1).map(|_| below(60) + 1).collect();
            let sizes = [[below(5) + 1, below(8) + 1], [below(5) + 1, below(8) + 1]];
            let plan =
                |sizes: [usize; 2]| items_mix(&counts, sizes[0], Order::Shuffled, LastBatch::Short);
            let epoch = |sizes: [usize; 2], before: &[Segment], rank| {
                let share = Share { rank, world_size: sizes[1] };
                plan(sizes).epoch(round, before, share).unwrap()
            };
            let all = epoch(sizes[0], &[], 0).batches();
            let batches = below(all + 1);
            let [batch_size, world_size] = sizes[0];
            let before = [Segment { batch_size, world_size, batches }];
            let mut visited = Vec::new();
            for rank in 0..world_size {
                let (whole, resumed) = (epoch(sizes[0], &[], rank), epoch(sizes[0], &before, rank));
                assert_eq!(resumed.batches(), all - batches);
                for n in batches..all {
                    assert_eq!(mixed_items(&whole, n), mixed_items(&resumed, n - batches));
                }
                visited.extend((0..batches).flat_map(|n| mixed_items(&whole, n)));
            }
            for rank in 0..sizes[1][1] {
                let resumed = epoch(sizes[1], &before, rank);
                visited.extend((0..resumed.batches()).flat_map(|n| mixed_items(&resumed, n)));
            }
            visited.retain(|(_, item)| !item.padding);
            let distinct: HashSet<(usize, usize)> =
                visited.iter().map(|(plan, item)| (*plan, item.sample)).collect();
            assert_eq!((visited.len(), distinct.len()), (counts.iter().sum(), visited.len()));
        }
    }

    #[test]
    fn more_batches_than_there_are_are_refused() {
        let delivered = [Segment { batch_size: 2, world_size: 1, batches: 99 }];
        let error =
            joined(&[5, 3], 2, Order::Shuffled).epoch(0, &delivered, Share::ALL).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::State);
    }

    #[test]
    fn lengths_are_proportional_and_complete() {
        assert_eq!(lengths(&[1.0, 2.0], 15), [5, 10]);
        assert_eq!(lengths(&[1.0, 1.0, 1.0], 10), [4, 3, 3]);
        assert_eq!(lengths(&[0.0, 3.0], 7), [0, 7]);
    }

    proptest! {
        /// Any sequence of interruptions, with the same or other sizes, gives every item once.
        #[test]
        fn no_item_is_lost_or_comes_twice(
            counts in prop::collection::vec(1usize..30, 1..4),
            stops in prop::collection::vec((1usize..4, 1usize..4, 0usize..6), 0..4),
            epoch in 0u64..3,
        ) {
            let mut delivered: Vec<Segment> = Vec::new();
            let mut samples = Vec::new();
            let last = (2, 1, usize::MAX);
            for (batch_size, world_size, most) in stops.into_iter().chain([last]) {
                let plan = joined(&counts, batch_size, Order::Shuffled);
                let ranks: Vec<_> = (0..world_size)
                    .map(|rank| plan.epoch(epoch, &delivered, Share { rank, world_size }).unwrap())
                    .collect();
                let batches = ranks[0].batches().min(most);
                for rank in &ranks {
                    prop_assert_eq!(rank.batches(), ranks[0].batches());
                    for (plan, items) in items(rank).into_iter().take(batches) {
                        let new = items.into_iter().filter(|item| !item.padding);
                        samples.extend(new.map(|item| (plan, item.sample)));
                    }
                }
                delivered.push(Segment { batch_size, world_size, batches });
            }
            let mut once = samples.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), samples.len());
            prop_assert_eq!(samples.len(), counts.iter().sum::<usize>());
        }

        /// An epoch that is interrupted with the same sizes goes on with the batches that would
        /// have come.
        #[test]
        fn the_rest_is_the_same(delivered in 0usize..23) {
            let plan = joined(&[20, 11, 15], 2, Order::Shuffled);
            let all = items(&plan.epoch(1, &[], Share::ALL).unwrap());
            let segment = [Segment { batch_size: 2, world_size: 1, batches: delivered }];
            let resumed = items(&plan.epoch(1, &segment, Share::ALL).unwrap());
            prop_assert_eq!(&all[delivered..], &resumed);
        }
    }
}
