//! Advice if every window decodes its chunks by itself: the default of loaders.
//!
//! For crops and patches, a cache is the first advice and the default. Other chunks, codecs and
//! threads come after it, because they only make work cheaper that a cache avoids.

use hsipack_format::remedy::Part;
use hsipack_format::{Command, Opt};
use hsipack_read::{CacheKind, Shuffled};

use super::action::Action;
use super::facts::{Facts, WindowCost};
use super::level::Level;
use super::prediction::Prediction;
use super::verdict::Verdict;
use super::words::bytes;

/// The default of a loader with this many windows, and the predicted time of a batch. `None` if it
/// already does so, or cannot.
pub(super) fn by_default(verdict: &Verdict, facts: &Facts) -> Option<(Action, Prediction, String)> {
    let (window, auto) = (facts.window.as_ref()?, facts.auto.as_ref()?);
    if facts.cache == "decoded" || auto.kind != CacheKind::Decoded {
        return None;
    }
    let copied = Prediction::level(verdict, Level::Collate);
    let all = bytes(auto.needed_bytes);
    let Some(Shuffled { bytes: held, decoded, .. }) = auto.shuffle_window else {
        let action = Action::Cache { cache: CacheKind::Auto, bytes: auto.needed_bytes };
        let what =
            format!("loaders keep all {all} decoded by default, so windows only have to be copied");
        return Some((action, copied, what));
    };
    let part = (decoded / window.decoded.max(f64::MIN_POSITIVE)).min(1.0);
    let load = facts.load_s.unwrap_or(verdict.real_s()) * part;
    let what = format!(
        "decoded, all chunks take {all} and do not fit, so loaders hold a shuffle window of {} by default: each chunk is decoded {decoded:.1} times per epoch instead of {:.1} times",
        bytes(held),
        window.decoded
    );
    Some((Action::ShuffleWindow { bytes: held, decoded }, copied.slowest(load.into()), what))
}

/// The cost of a window that decodes its chunks by itself.
pub(super) fn cost(facts: &Facts) -> Option<String> {
    let window = facts.window.as_ref().filter(|_| facts.cache != "decoded")?;
    let WindowCost { rows, columns, bytes: window_bytes, chunks, chunk_bytes, .. } = *window;
    let times = chunks * chunk_bytes as f64 / window_bytes.max(1) as f64;
    Some(format!(
        "a window of {rows}x{columns} pixels lies in {chunks:.2} chunks of {}, so {times:.1} times its own bytes are decoded",
        bytes(chunk_bytes)
    ))
}

/// How to find other chunks, if memory cannot hold enough of the present ones.
pub(super) fn other_chunks(facts: &Facts) -> Option<String> {
    let auto = facts.auto.as_ref().filter(|auto| auto.kind != CacheKind::Decoded)?;
    facts.window.as_ref()?;
    Some(format!(
        "{} finds chunks that decode faster, or are small enough for a shuffle window: neither all present chunks ({}) nor two cubes fit into memory",
        tune(facts),
        bytes(auto.needed_bytes)
    ))
}

/// The command that finds chunks and codec for these windows, or cubes.
pub(super) fn tune(facts: &Facts) -> Part {
    match &facts.window {
        Some(WindowCost { rows, columns, .. }) => {
            Command::Tune.with(Opt::Patch.to([*rows, *columns].map(u64::from)))
        }
        None => Command::Tune.into(),
    }
}

#[cfg(test)]
mod tests {
    use hsipack_read::CacheChoice;

    use super::super::prediction::Basis;
    use super::super::remedy::{Remedy, remedy};
    use super::super::verdict::{Limits, Measured, verdict};
    use super::*;

    const TIMES: [(Level, f64); 4] =
        [(Level::Step, 0.1), (Level::Collate, 0.11), (Level::Decode, 0.6), (Level::Read, 0.61)];

    fn window() -> WindowCost {
        WindowCost {
            rows: 9,
            columns: 9,
            bytes: 20_000,
            chunks: 1.25,
            chunk_bytes: 4_000_000,
            decoded: 50.0,
        }
    }

    fn auto(kind: CacheKind, shuffle_window: Option<Shuffled>) -> Option<CacheChoice> {
        Some(CacheChoice {
            kind,
            chosen: true,
            limit_bytes: 0,
            needed_bytes: 812_000_000,
            shared: false,
            shuffle_window,
            why: String::new(),
        })
    }

    fn shuffled(decoded: f64) -> Option<Shuffled> {
        Some(Shuffled { bytes: 200_000_000, blocks: 4, of_blocks: 60, decoded })
    }

    fn facts(auto: Option<CacheChoice>) -> Facts {
        Facts {
            threads: 2,
            cores: 2,
            available_memory: Some(1 << 30),
            decoded_bytes: Some(1 << 40),
            load_s: Some(0.6),
            cache: "none".into(),
            window: Some(window()),
            auto,
            tiles: Some([32, 32]),
            ..Facts::default()
        }
    }

    fn of(facts: &Facts, times: &[(Level, f64)]) -> Remedy {
        let measured =
            times.iter().map(|(level, time)| Measured { level: *level, batch_s: vec![*time; 3] });
        remedy(&verdict(&measured.collect::<Vec<_>>(), Limits::default()), facts).unwrap()
    }

    #[test]
    fn windows_whose_chunks_all_fit_get_the_default_first_and_other_chunks_after_it() {
        let remedy = of(&facts(auto(CacheKind::Decoded, None)), &TIMES);
        let bytes = 812_000_000;
        assert_eq!(remedy.action, Action::Cache { cache: CacheKind::Auto, bytes });
        assert_eq!(remedy.predicted_s, Some(0.11));
        assert_eq!(remedy.basis, Some(Basis::Level { level: Level::Collate }));
        assert_eq!(
            remedy.advice[..2],
            [
                "loaders keep all 812 MB decoded by default, so windows only have to be copied",
                "a window of 9x9 pixels lies in 1.25 chunks of 4.00 MB, so 250.0 times its own bytes are decoded"
            ]
        );
        let tiles = remedy.advice.iter().position(|line| line.contains("whole rows"));
        assert!(tiles.is_some_and(|index| index > 1), "{remedy:?}");
        // If files are slow, the remedy is the same: chunks that are kept need not be read again.
        let disk = [(Level::Step, 0.1), (Level::Decode, 0.12), (Level::Read, 0.6)];
        let remedy = of(&facts(auto(CacheKind::Decoded, None)), &disk);
        assert_eq!(remedy.action, Action::Cache { cache: CacheKind::Auto, bytes });
    }

    #[test]
    fn a_shuffle_window_decodes_each_chunk_as_often_as_it_says() {
        let remedy = of(&facts(auto(CacheKind::Decoded, shuffled(1.1))), &TIMES);
        assert_eq!(remedy.action, Action::ShuffleWindow { bytes: 200_000_000, decoded: 1.1 });
        assert_eq!(remedy.predicted_s, Some(0.11), "decoding is no longer what is waited for");
        let line = "decoded, all chunks take 812 MB and do not fit, so loaders hold a shuffle window of 200 MB";
        assert!(remedy.advice[0].starts_with(line), "{remedy:?}");
        assert!(
            remedy.advice[0].ends_with("1.1 times per epoch instead of 50.0 times"),
            "{remedy:?}"
        );
        // A third of today's decoding remains, and so a third of the loading time.
        let few = WindowCost { decoded: 3.0, ..window() };
        let facts = Facts { window: Some(few), ..facts(auto(CacheKind::Decoded, shuffled(1.0))) };
        let remedy = of(&facts, &TIMES);
        assert!((remedy.predicted_s.unwrap() - 0.2).abs() < 1e-9, "{remedy:?}");
        assert_eq!(remedy.basis, None);
    }

    #[test]
    fn other_chunks_come_first_if_no_cache_fits() {
        for kind in [CacheKind::Compressed, CacheKind::None] {
            let remedy = of(&facts(auto(kind, None)), &TIMES);
            assert_eq!(remedy.action, Action::Other);
            assert!(remedy.advice[1].contains("neither all present chunks (812 MB)"), "{remedy:?}");
            assert!(remedy.advice[1].contains("tune"), "{remedy:?}");
        }
    }

    #[test]
    fn loops_that_only_copy_windows_get_no_advice_about_crops() {
        let times = [(Level::Step, 0.1), (Level::Collate, 0.5), (Level::Decode, 0.5)];
        let remedy = of(&facts(auto(CacheKind::Decoded, None)), &times);
        assert_eq!(remedy.action, Action::Other);
        assert!(remedy.advice[0].starts_with("windows are copied one by one"), "{remedy:?}");
    }

    #[test]
    fn loaders_that_keep_everything_or_read_whole_cubes_get_no_advice() {
        let kept = Facts { cache: "decoded".into(), ..facts(auto(CacheKind::Decoded, None)) };
        let whole = Facts { window: None, ..facts(auto(CacheKind::Decoded, None)) };
        for facts in [kept, whole] {
            let remedy = of(&facts, &TIMES);
            assert_eq!(remedy.action, Action::Other);
            let text = remedy.advice.concat();
            assert!(!text.contains("by default") && !text.contains("lies in"), "{remedy:?}");
        }
    }
}
