//! The report for people.

use hsipack_measure::simulate::{
    Bounds, DeviceShare, Limit, Options, Order, Outcome, Report, Times,
};

use crate::output;

/// Prints the report.
pub fn print(report: &Report) {
    let Report { base, what_if } = report;
    say!("{}, {} s", model(&base.options), short(base.duration_s));
    line("batches", format!("{} done, {}", base.batches, rate(base.batches_per_s)));
    line("at most", bounds(&base.bounds));
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
    if let Some(device) = base.device {
        line("device", activity(base, device));
    }
    line("limited by", limit(base));
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
        limit(outcome)
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
    let device = match options.device_slots {
        Some(slots) => format!("{}; ", stages(options, slots)),
        None => String::new(),
    };
    format!(
        "{}{threads}, {} a batch; {queue}, {order}; {device}{} a step",
        output::count(options.loaders, "loader"),
        times(&options.load),
        times(&options.step)
    )
}

/// The stages on the device.
fn stages(options: &Options, slots: usize) -> String {
    let copy = options.copy.as_ref().map(|copy| format!("{} a copy", times(copy)));
    let decode = options.decode.as_ref().map(|decode| format!("{} to decode", times(decode)));
    let slots = Some(output::count(slots, "device slot"));
    [copy, decode, slots].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn bounds(bounds: &Bounds) -> String {
    let Bounds { loading, copy, decode, device_slots, step } = *bounds;
    let all = [
        (Some(loading), "loading"),
        (copy, "the copy"),
        (decode, "decoding"),
        (device_slots, "the device slots"),
        (Some(step), "the step"),
    ];
    let each = |(bound, name): (Option<f64>, &str)| Some(format!("{} by {name}", rate(bound?)));
    all.into_iter().filter_map(each).collect::<Vec<_>>().join(", ")
}

/// Activity of the stages on the device.
fn activity(outcome: &Outcome, device: DeviceShare) -> String {
    let Options { copy, decode, .. } = &outcome.options;
    let copying = copy.as_ref().map(|_| format!("{} copying", percent(device.copying)));
    let decoding = decode.as_ref().map(|_| format!("{} decoding", percent(device.decoding)));
    let waiting = Some(format!("{} waiting for a free slot", percent(device.waiting)));
    [copying, decoding, waiting].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn times(times: &Times) -> String {
    match times.sd_s() {
        0.0 => format!("{} s", short(times.mean_s())),
        sd => format!("{} ± {} s", short(times.mean_s()), short(sd)),
    }
}

fn limit(outcome: &Outcome) -> &'static str {
    match outcome.limit {
        Limit::Loading => "loading",
        Limit::Copy => "the copy",
        Limit::Decode => "decoding",
        Limit::DeviceSlots => "the device slots",
        Limit::Step => "the step",
        Limit::Balanced if outcome.device.is_some() => "several stages alike",
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
