//! A page that animates runs.

use std::fmt::Write;

use serde::Serialize;

use super::bounds::Limit;
use super::model::Order;
use super::report::{Outcome, Report, Scenario};
use super::timeline::{AXIS_LEFT, AXIS_RIGHT, timeline};
use super::trace::Trace;
use crate::page::chart::Chart;
use crate::page::svg::SvgTarget;
use crate::page::{Page, escape, table};

/// The page's data.
#[derive(Serialize)]
struct Data<'a> {
    report: &'a Report,
    /// In the order of the runs: first the base, then the changes.
    names: Vec<&'a str>,
    traces: Vec<&'a Trace>,
    /// Where time begins and ends in the timelines, in SVG units.
    timeline: [f64; 2],
}

/// A page that compares the base with what-if changes: an animation, timelines and a table. An
/// empty list has no base and gives an empty page.
pub fn page(scenarios: &[Scenario]) -> String {
    let page = Page::new("Loaders, queue and model over time");
    let Some(report) = Report::new(scenarios) else { return page.render() };
    let data = Data {
        report: &report,
        names: scenarios.iter().map(|scenario| scenario.name.as_str()).collect(),
        traces: scenarios.iter().map(|scenario| &scenario.run.trace).collect(),
        timeline: [AXIS_LEFT, AXIS_RIGHT],
    };
    let timelines: String = scenarios.iter().enumerate().map(timeline_box).collect();
    let mut page = page
        .lead(&lead(&report.base))
        .style(include_str!("page.css"))
        .section("", &stage(scenarios))
        .section("Timeline", &timelines)
        .section("Results", &results(scenarios))
        .section("Model", &models(scenarios));
    if let Some(course) = course(scenarios) {
        page = page.section("The whole run", &course);
    }
    page.data(&data).script(include_str!("page.js")).render()
}

fn lead(base: &Outcome) -> String {
    let loaders = match base.options.loaders {
        1 => "1 loader loads".to_owned(),
        many => format!("{many} loaders load"),
    };
    let device =
        [(&base.options.copy, "the copy"), (&base.options.decode, "decoding on the device")];
    let device: String = device
        .iter()
        .filter_map(|(times, name)| {
            Some(format!("{name} takes {} s; ", short(times.as_ref()?.mean_s())))
        })
        .collect();
    format!(
        "{loaders} batches, {} s each on average; {device}the model takes {} s for a step. In {} s it did {} batches and was \
         idle {} of the time.",
        short(base.options.load.mean_s()),
        short(base.options.step.mean_s()),
        short(base.duration_s),
        base.batches,
        percent(base.consumer_idle),
    )
}

/// Whether a run of these has a device.
fn has_device(scenarios: &[Scenario]) -> bool {
    scenarios.iter().any(|scenario| scenario.run.outcome.device.is_some())
}

/// Controls, and the area in which the script draws.
fn stage(scenarios: &[Scenario]) -> String {
    let mut html = String::from("<div class=\"controls\">\n");
    if scenarios.len() > 1 {
        html.push_str("<label>Run <select id=\"run\">");
        for (number, scenario) in scenarios.iter().enumerate() {
            let _ = write!(html, "<option value=\"{number}\">{}</option>", escape(&scenario.name));
        }
        html.push_str("</select></label>\n");
    }
    html.push_str(
        "<button id=\"play\" type=\"button\">Play</button>\n<label>Speed <select id=\"speed\">\
         <option value=\"0.1\">0.1×</option><option value=\"0.25\">0.25×</option><option value=\"0.5\">0.5×</option>\
         <option value=\"1\" selected>1×</option><option value=\"2\">2×</option><option value=\"5\">5×</option>\
         <option value=\"20\">20×</option><option value=\"100\">100×</option></select></label>\n</div>\n\
         <label class=\"scrub\">Time<input id=\"time\" type=\"range\" min=\"0\" max=\"1000\" value=\"0\" step=\"1\"></label>\n\
         <dl class=\"figures\">\n<div><dt>Time</dt><dd id=\"now\">–</dd></div>\n\
         <div><dt>Batches done</dt><dd id=\"done\">–</dd></div>\n\
         <div><dt>Rate so far</dt><dd id=\"rate\">–</dd></div>\n\
         <div><dt>Model idle so far</dt><dd id=\"idle\">–</dd></div>\n</dl>\n\
         <div class=\"stage\">\n<div><h3>Loaders</h3><div id=\"loaders\"></div></div>\n\
         <div><h3 id=\"queue-name\">Queue</h3><div id=\"queue\"></div></div>\n",
    );
    if has_device(scenarios) {
        html.push_str(
            "<div><h3 id=\"device-name\">Device</h3><div id=\"stages\"></div><div id=\"slots\"></div></div>\n",
        );
    }
    html.push_str(
        "<div><h3>Model</h3><div id=\"model\"></div></div>\n</div>\n\
         <p class=\"muted\" id=\"note\"></p>\n<noscript><p>The animation needs JavaScript; everything else is below.</p></noscript>",
    );
    html
}

fn timeline_box((number, scenario): (usize, &Scenario)) -> String {
    let hidden = if number == 0 { "" } else { " hidden" };
    format!(
        "<div class=\"scroll timeline\" tabindex=\"0\" role=\"group\" aria-label=\"Timeline\"{hidden}>\n{}</div>\n",
        timeline(scenario, SvgTarget::Page).replacen("<svg ", "<svg class=\"wide\" ", 1)
    )
}

type Row<'a> = (&'a str, fn(&Outcome) -> String);

/// A table with one column per run.
fn columns(scenarios: &[Scenario], rows: &[Row<'_>]) -> String {
    let names = scenarios.iter().map(|scenario| scenario.name.as_str());
    let head: Vec<&str> = std::iter::once("").chain(names).collect();
    let row = |(name, cell): &Row<'_>| {
        let cells = scenarios.iter().map(|scenario| cell(&scenario.run.outcome));
        std::iter::once((*name).to_owned()).chain(cells).collect()
    };
    table(&head, &rows.iter().map(row).collect::<Vec<_>>())
}

fn results(scenarios: &[Scenario]) -> String {
    let mut rows: Vec<Row<'_>> = vec![
        ("Batches done", |outcome| outcome.batches.to_string()),
        ("Time", |outcome| format!("{} s", short(outcome.duration_s))),
        ("Rate", |outcome| format!("{} batches/s", short(outcome.batches_per_s))),
        ("Bound by loading", |outcome| format!("{} batches/s", short(outcome.bounds.loading))),
        ("Bound by the step", |outcome| format!("{} batches/s", short(outcome.bounds.step))),
        ("Limited by", |outcome| limit(outcome).to_owned()),
        ("Model idle", |outcome| percent(outcome.consumer_idle)),
        ("Loaders loading", |outcome| percent(outcome.loaders_busy)),
        ("Loaders holding a batch", |outcome| percent(outcome.loaders_blocked)),
        ("Batches in the queue, mean", |outcome| short(outcome.queue_mean)),
        ("Least and most", |outcome| format!("{} to {}", outcome.queue_min, outcome.queue_max)),
        ("Loaded and not done", |outcome| (outcome.loaded - outcome.batches).to_string()),
    ];
    if has_device(scenarios) {
        let [shares, bounds] = [9, 4];
        rows.splice(shares..shares, DEVICE_SHARES);
        rows.splice(bounds..bounds, DEVICE_BOUNDS);
    }
    columns(scenarios, &rows)
}

/// Bounds of runs with a device. A run without one has dashes.
const DEVICE_BOUNDS: [Row<'_>; 3] = [
    ("Bound by the copy", |outcome| bound(outcome.bounds.copy)),
    ("Bound by decoding", |outcome| bound(outcome.bounds.decode)),
    ("Bound by device slots", |outcome| bound(outcome.bounds.device_slots)),
];

/// Activity of the device, with dashes for stages that a run does not have.
const DEVICE_SHARES: [Row<'_>; 3] = [
    ("Link copying", |outcome| {
        let device = outcome.device.filter(|_| outcome.options.copy.is_some());
        dash(device.map(|device| percent(device.copying)))
    }),
    ("Device decoding", |outcome| {
        let device = outcome.device.filter(|_| outcome.options.decode.is_some());
        dash(device.map(|device| percent(device.decoding)))
    }),
    ("Waiting for a device slot", |outcome| {
        dash(outcome.device.map(|device| percent(device.waiting)))
    }),
];

fn bound(bound: Option<f64>) -> String {
    dash(bound.map(|bound| format!("{} batches/s", short(bound))))
}

fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

fn models(scenarios: &[Scenario]) -> String {
    let mut rows: Vec<Row<'_>> = vec![
        ("Loaders", |outcome| match outcome.options.threads {
            Some(threads) => format!("{} of {threads} threads", outcome.options.loaders),
            None => outcome.options.loaders.to_string(),
        }),
        ("Load time", |outcome| time(&outcome.options.load)),
        ("Step time", |outcome| time(&outcome.options.step)),
        ("Places in the queue", |outcome| outcome.options.queue.to_string()),
        ("Order", |outcome| match outcome.options.order {
            Order::FirstCome => "first come, first served".to_owned(),
            Order::InOrder => "in order".to_owned(),
        }),
        ("Seed", |outcome| outcome.options.seed.to_string()),
    ];
    if has_device(scenarios) {
        rows.splice(2..2, DEVICE_MODEL);
    }
    columns(scenarios, &rows)
}

/// The device of a model. A run without one has dashes.
const DEVICE_MODEL: [Row<'_>; 3] = [
    ("Copy time", |outcome| dash(outcome.options.copy.as_ref().map(time))),
    ("Decode time", |outcome| dash(outcome.options.decode.as_ref().map(time))),
    ("Device slots", |outcome| dash(outcome.options.device_slots.map(|slots| slots.to_string()))),
];

fn time(times: &super::Times) -> String {
    match times.sd_s() {
        0.0 => format!("{} s", short(times.mean_s())),
        sd => format!("{} ± {} s", short(times.mean_s()), short(sd)),
    }
}

/// Time series of the runs that are longer than their traces.
fn course(scenarios: &[Scenario]) -> Option<String> {
    let long: Vec<_> = scenarios.iter().filter(|scenario| !scenario.run.trace.whole).collect();
    let charts = long.iter().map(|scenario| {
        let series = &scenario.run.outcome.series;
        let points = |values: &[f64]| -> Vec<[f64; 2]> {
            let at = |(number, value): (usize, &f64)| [number as f64 * series.span_s, *value];
            let mut points: Vec<_> = values.iter().enumerate().map(at).collect();
            // The last step extends to the end of the run.
            points.extend(values.last().map(|value| [scenario.run.outcome.duration_s, *value]));
            points
        };
        let title = format!("{}: means of each {} s", scenario.name, short(series.span_s));
        let mut chart = Chart::new(
            &title,
            "Batches in the queue, loaders that hold a batch, and the load of model and device over time.",
        )
        .size(1100.0, 320.0)
        .x_label("time in s")
        .steps("batches in the queue", &points(&series.queue))
        .steps("loaders that hold a batch", &points(&series.holding))
        .steps("share of the model that is busy", &points(&series.model));
        if !series.copy.is_empty() {
            chart = chart.steps("share of the link that is busy", &points(&series.copy));
        }
        if !series.decode.is_empty() {
            chart = chart.steps("share of decoding on the device", &points(&series.decode));
        }
        let svg = chart.for_page(320.0);
        format!("<div>{svg}</div>\n")
    });
    (!long.is_empty()).then(|| charts.collect())
}

/// The name of the limit of a run.
fn limit(outcome: &Outcome) -> &'static str {
    match outcome.limit {
        Limit::Loading => "loading",
        Limit::Copy => "the copy",
        Limit::Decode => "decoding",
        Limit::DeviceSlots => "the device slots",
        Limit::Step => "the step",
        Limit::Balanced if outcome.device.is_some() => "several alike",
        Limit::Balanced => "both alike",
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// At most four significant digits, without trailing zeros.
fn short(value: f64) -> String {
    let digits =
        if value == 0.0 { 0.0 } else { (3.0 - value.abs().log10().floor()).clamp(0.0, 9.0) };
    let text = format!("{value:.*}", digits as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{End, Model, simulate};

    fn scenario(name: &str, model: &Model) -> Scenario {
        Scenario { name: name.to_owned(), run: simulate(model).unwrap() }
    }

    #[test]
    fn pages_are_whole_and_names_are_text() {
        let model = Model::new(3, 0.3, 0.1);
        let html = page(&[scenario("base", &model), scenario("</script><b>", &model)]);
        assert!(!html.contains("<b>") && html.contains("&lt;b&gt;"));
        assert_eq!(html.matches("<svg class=\"wide\"").count(), 2);
        assert!(page(&[]).contains("<!doctype html>"));
        assert!(!html.contains("The whole run"));
    }

    #[test]
    fn devices_have_a_place_and_rows_if_a_run_has_one() {
        let model = Model::new(3, 0.3, 0.1);
        let copy = Some(crate::simulate::Times::new(0.05, 0.0));
        let device = Model { copy, ..model.clone() };
        let html = page(&[scenario("base", &model), scenario("copy=50ms", &device)]);
        for words in ["id=\"slots\"", "Bound by the copy", "Copy time", "<td>–</td>"] {
            assert!(html.contains(words), "{words}");
        }
        let html = page(&[scenario("base", &model)]);
        assert!(!html.contains("id=\"slots\"") && !html.contains("Copy time"));
    }

    #[test]
    fn long_runs_make_no_large_pages() {
        let model = Model { end: End::Batches(200_000), queue: 5, ..Model::new(7, 0.7, 0.1) };
        let long = scenario("base", &model);
        assert!(!long.run.trace.whole && long.run.trace.batches.len() == 1000);
        let html = page(&[long]);
        assert!(html.len() < 400_000, "{}", html.len());
        let (_, course) = html.split_once("The whole run").unwrap();
        assert!(
            course.contains("<div class=\"phone\"><svg"),
            "shrunk to a phone, no text could be read"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.1, 1234.56, 3.5, 0.000_123_456, 98.0].map(short),
            ["0", "0.1", "1235", "3.5", "0.0001235", "98"]
        );
    }
}
