//! An epoch's items in order: as a list, or, for windows and blocks, computed place by place.

use std::sync::Arc;

use hsipack_format::random::{Random, Stream, fold};

use super::blocks::{BlockOrder, PlannedBlocks};
use super::index_set::IndexSet;
use super::order::{Entry, Order, Pool};
use super::permutation::{Network, Permutation};
use super::windows::{WindowNumber, Windows};

/// An epoch's items in order.
#[derive(Clone, Debug)]
pub(super) enum Sequence {
    /// One by one.
    Listed(Arc<[Entry]>),
    /// Block by block.
    Blocks { order: BlockOrder, length: usize },
    /// Windows, computed.
    Windows { windows: Arc<Windows>, order: Computed, length: usize },
}

/// How windows are ordered.
#[derive(Clone, Debug)]
pub(super) enum Computed {
    /// In the order of their numbers.
    Numbered,
    /// Newly shuffled in every round.
    Shuffled(Arc<[Permutation]>),
    /// Classes take turns, in a new order every time. The windows of a class are newly shuffled
    /// whenever all of them have come.
    Balanced { classes: Arc<[IndexSet]>, key: u64 },
}

/// An item of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    /// The sample's place in the plan's list.
    pub sample: u32,
    /// Which item of the sample it is in this epoch.
    pub repeat: u32,
    /// Which of the sample's windows it is, if these are numbered.
    pub window: u32,
}

impl Sequence {
    /// Draws the `length` items of an epoch. `blocks` is given if windows come block by block;
    /// `windows` if they are numbered. Their samples are those of the pool.
    pub(super) fn draw(
        pool: &Pool,
        blocks: Option<&Arc<PlannedBlocks>>,
        windows: Option<&PlannedWindows>,
        order: Order,
        [seed, epoch]: [u64; 2],
        length: usize,
    ) -> Self {
        if let Some(blocks) = blocks {
            let order = BlockOrder::draw(blocks, [seed, epoch], length);
            return Self::Blocks { order, length };
        }
        let listed = || Self::Listed(pool.draw(order, seed, epoch, length).into());
        let Some(PlannedWindows { windows, by_class }) = windows else { return listed() };
        let items = windows.len();
        let order = match order {
            Order::Sequential => Computed::Numbered,
            Order::Shuffled => {
                let round = |round| {
                    let parts = [seed, epoch, round as u64];
                    Permutation::draw(items, length.max(items), Stream::Windows, parts)
                };
                Computed::Shuffled((0..length.div_ceil(items)).map(round).collect())
            }
            Order::ClassBalanced if !by_class.is_empty() => Computed::Balanced {
                classes: by_class.clone(),
                key: fold([Stream::Turns as u64, seed, epoch]),
            },
            _ => return listed(),
        };
        Self::Windows { windows: windows.clone(), order, length }
    }

    /// Number of items.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Listed(entries) => entries.len(),
            Self::Blocks { length, .. } | Self::Windows { length, .. } => *length,
        }
    }

    /// The sample of the item at a position, as its index in the plan's list.
    pub(super) fn sample(&self, position: u32) -> u32 {
        match self {
            Self::Listed(entries) => entries[position as usize].sample,
            Self::Blocks { .. } | Self::Windows { .. } => self.get(position).sample,
        }
    }

    /// The item at a position.
    #[inline]
    pub(super) fn get(&self, position: u32) -> Drawn {
        let position = position as usize;
        let (windows, order) = match self {
            Self::Listed(entries) => {
                let Entry { sample, repeat } = entries[position];
                return Drawn { sample, repeat, window: repeat };
            }
            Self::Blocks { order, .. } => {
                let (round, number) = order.at(position);
                let (sample, window) = order.planned().item(number);
                let repeat = repeat(round, order.planned().of_sample(sample), window);
                return Drawn { sample, repeat, window };
            }
            Self::Windows { windows, order, .. } => (windows, order),
        };
        let (round, offset) = (position / windows.len(), position % windows.len());
        let (round, number) = match order {
            Computed::Numbered => (round, offset),
            Computed::Shuffled(rounds) => (round, rounds[round].at(offset)),
            Computed::Balanced { classes, key } => balanced(classes, *key, position),
        };
        let WindowNumber { sample, window } = windows.place(number);
        let repeat = repeat(round, windows.of_sample(sample as usize), window);
        Drawn { sample, repeat, window }
    }

    /// The order, if windows come block by block.
    pub(super) fn blocks(&self) -> Option<&BlockOrder> {
        match self {
            Self::Blocks { order, .. } => Some(order),
            _ => None,
        }
    }
}

/// Counts the items of a sample through the rounds. A round has `of_sample` of them. A rare class
/// may have more rounds than 32 bits can count; the same repeats then come again, which does no
/// harm.
fn repeat(round: usize, of_sample: u32, window: u32) -> u32 {
    (round as u32).wrapping_mul(of_sample).wrapping_add(window)
}

/// Round and number of the window at a position.
fn balanced(classes: &[IndexSet], key: u64, position: usize) -> (usize, usize) {
    let (turn, offset) = (position / classes.len(), position % classes.len());
    let order = |parts: [u64; 3], items: usize| {
        Network::new(items as u64, &mut Random::from_key(fold(parts.into_iter().chain([key]))))
    };
    let class = order([0, turn as u64, 0], classes.len()).at(offset as u64) as usize;
    // Every turn before this one took one window of the class.
    let numbers = &classes[class];
    let (round, offset) = (turn / numbers.len(), turn % numbers.len());
    let member = order([1, class as u64, round as u64], numbers.len()).at(offset as u64);
    (round, numbers.get(member as usize) as usize)
}

/// Windows, and what orders need to know about them.
#[derive(Clone, Debug)]
pub(super) struct PlannedWindows {
    pub windows: Arc<Windows>,
    /// For every class, the numbers of its windows, if the order balances classes.
    pub by_class: Arc<[IndexSet]>,
}

impl PlannedWindows {
    pub(super) fn new(windows: Arc<Windows>, order: Order) -> Self {
        let by_class = if order == Order::ClassBalanced { windows.by_class() } else { Vec::new() };
        Self { windows, by_class: by_class.into() }
    }
}
