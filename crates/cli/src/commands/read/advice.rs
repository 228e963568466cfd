//! Options that could make reading faster.

use hsipack_measure::diagnose::{Facts, Kind, Limit};

use super::source::Source;
use super::{Args, StoreKind, Verify, machine};

/// Changes to try, best first; empty if the loader is as fast as the consumer.
pub fn advice(limit: Limit, loader: &Source, args: &Args) -> Vec<String> {
    let dataset = loader.dataset();
    let chosen = Some(loader.cache().clone()).filter(|cache| cache.chosen);
    let facts = Facts {
        stored_bytes: Some(machine::dataset_bytes(dataset)),
        decoded_bytes: Some(dataset.decoded_bytes()),
        rate_limited: !args.link.is_free(),
        mapped: args.store == StoreKind::Mapped,
        // Data from a server are checked each time anyway.
        always_verified: args.verify == Verify::Always && dataset.traffic().is_none(),
        auto: chosen,
        ..Facts::of(dataset, loader.options(), &loader.workload())
    };
    let (options, advice) = limit.remedies(&facts);
    let typed = options.iter().filter_map(|option| option.spelled(Kind::Hsipack));
    typed.chain(advice).collect()
}
