//! The report for people.

use hsipack_measure::simulate::{Limit, Options, Order, Outcome, Report, Times};

use crate::output;

/// Prints the report.
pub fn print(report: &Report) {
    let Report { base, what_if } = report;
    say!("{}, {} s", model(&base.options), short(base.duration_s));
    line("batches", format!("{} done, {}", base.batches, rate(base.batches_per_s)));
    let bounds = base.bounds;
    line(
        "at most",
        format!("{} by loading, {} by the step", rate(bounds.loading), rate(bounds.step)),
    );
    line("model", format!("idle {} of the time", percent(base.consumer_idle)));
    line(
        "loaders",
        format!(
            "{} loading, {} holding a batch",
            percent(base.loaders_busy),
            percent(base.loaders_blocked)
        ),
    );
    if base.options.queue > 0 {
        let queue = format!(
            "{:.1} of {} on average, {} to {} since the first was taken",
            base.queue_mean, base.options.queue, base.queue_min, base.queue_max
        );
        line("queue", queue);
    }
    line("limited by", limit(base.limit));
    if what_if.is_empty() {
        return;
    }
    let width = what_if
        .iter()
        .map(|scenario| scenario.name.chars().count())
        .max()
        .unwrap_or(0)
        .clamp(7, 48);
    say!();
    say!(
        "  {:width$}  batches   batches/s  times  model idle  loaders hold  limited by",
        "what if"
    );
    row(width, "base", base, Some(1.0));
    what_if
        .iter()
        .for_each(|scenario| row(width, &scenario.name, &scenario.outcome, scenario.speedup));
}

fn row(width: usize, name: &str, outcome: &Outcome, speedup: Option<f64>) {
    let speedup = speedup.map_or_else(|| "–".to_owned(), |speedup| format!("{speedup:.2}x"));
    say!(
        "  {name:width$}  {:>7}  {:>10.2}  {speedup:>5}  {:>10}  {:>12}  {}",
        outcome.batches,
        outcome.batches_per_s,
        percent(outcome.consumer_idle),
        percent(outcome.loaders_blocked),
        limit(outcome.limit)
    );
}

fn model(options: &Options) -> String {
    let queue = match options.queue {
        0 => "no queue".to_owned(),
        places => format!("queue of {places}"),
    };
    let order = match options.order {
        Order::FirstCome => "first come, first served",
        Order::InOrder => "in order",
    };
    let threads = match options.threads {
        Some(threads) => format!(" of {}", output::count(threads, "thread")),
        None => String::new(),
    };
    format!(
        "{}{threads}, {} a batch; {queue}, {order}; {} a step",
        output::count(options.loaders, "loader"),
        times(&options.load),
        times(&options.step)
    )
}

fn times(times: &Times) -> String {
    match times.sd_s() {
        0.0 => format!("{} s", short(times.mean_s())),
        sd => format!("{} ± {} s", short(times.mean_s()), short(sd)),
    }
}

fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::Loading => "loading",
        Limit::Step => "the step",
        Limit::Balanced => "loading and the step alike",
    }
}

fn line(name: &str, text: impl std::fmt::Display) {
    say!("  {name:<12} {text}");
}

fn rate(rate: f64) -> String {
    format!("{} batches/s", short(rate))
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// A number with three significant digits, without trailing zeros.
fn short(value: f64) -> String {
    let digits =
        if value == 0.0 { 0.0 } else { (2.0 - value.abs().log10().floor()).clamp(0.0, 9.0) };
    let text = format!("{value:.*}", digits as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
