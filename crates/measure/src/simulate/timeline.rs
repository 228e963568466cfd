//! A picture of a run: what each loader did, how many batches were ready, what the stages after the
//! queue did.

use std::fmt::Write;

use super::report::{Outcome, Scenario};
use super::times::seconds;
use super::trace::BatchTrace;
use crate::page::escape;
use crate::page::svg::{self, SvgTarget};
use crate::page::ticks::Ticks;

/// Left end of the time axis in the picture, in pixels.
pub(super) const AXIS_LEFT: f64 = 84.0;
pub(super) const AXIS_RIGHT: f64 = 1080.0;
const WIDTH: f64 = 1100.0;
/// Maximum number of loaders that get a row.
const ROWS: usize = 24;
const ROW: f64 = 18.0;
const READY: f64 = 64.0;

/// Draws the first batches of a run, as far as its trace reaches, with time from left to right.
pub fn timeline(scenario: &Scenario, target: SvgTarget) -> String {
    let trace = &scenario.run.trace;
    let outcome = &scenario.run.outcome;
    let loaders = outcome.per_loader.len();
    let rows = loaders.min(ROWS);
    let until = seconds(trace.until).max(1e-9);
    let x = |time: u64| AXIS_LEFT + (AXIS_RIGHT - AXIS_LEFT) * (seconds(time) / until).min(1.0);
    let mut out = String::new();
    let part = if trace.whole { String::new() } else { format!(", the first {:.3} s", until) };
    let heading = format!(
        "{}: {} batches in {:.3} s{part}",
        scenario.name, outcome.batches, outcome.duration_s
    );
    label(&mut out, [16.0, 26.0], "head", &heading);
    legend(&mut out, outcome);

    let mut y = 68.0;
    for loader in 0..rows {
        label(&mut out, [16.0, y + 13.0], "small", &format!("loader {}", loader + 1));
        let batches = || trace.batches.iter().filter(|batch| batch.loader == loader);
        let loading = batches().filter_map(|batch| batch.begun.map(|from| (from, batch.loaded)));
        bars(&mut out, "f0", loading, trace.until, x, [y, ROW - 4.0]);
        let holding = batches().filter_map(|batch| batch.loaded.map(|from| (from, batch.queued)));
        bars(&mut out, "f1", holding, trace.until, x, [y, ROW - 4.0]);
        y += ROW;
    }
    if loaders > rows {
        label(
            &mut out,
            [AXIS_LEFT, y + 13.0],
            "small",
            &format!("and {} loaders more", loaders - rows),
        );
        y += ROW;
    }
    y += 10.0;
    ready(&mut out, &trace.batches, trace.until, x, y);
    y += READY + 14.0;
    for (class, name, span) in stages(outcome) {
        label(&mut out, [16.0, y + 13.0], "small", name);
        let spans = trace.batches.iter().filter_map(|batch| {
            let (from, to) = span(batch);
            Some((from?, to))
        });
        bars(&mut out, class, spans, trace.until, x, [y, ROW - 4.0]);
        y += ROW;
    }
    let ticks = Ticks::within(0.0, until, 12);
    for tick in &ticks.at {
        let at = AXIS_LEFT + (AXIS_RIGHT - AXIS_LEFT) * tick / until;
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{at:.1} {y:.1}v5\"/>");
        let text = ticks.label(*tick);
        let _ = writeln!(
            out,
            "<text class=\"small\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            y + 19.0
        );
    }
    let _ = writeln!(out, "<path class=\"axis\" d=\"M{AXIS_LEFT} {y:.1}H{AXIS_RIGHT}\"/>");
    label(&mut out, [16.0, y + 19.0], "small", "time in s");
    let description = format!(
        "{loaders} loaders, {} places in the queue; the model was idle {:.0}% of the time.",
        outcome.options.queue,
        outcome.consumer_idle * 100.0
    );
    svg::picture(target, [WIDTH, y + 30.0], [&heading, &description], "", &out)
}

/// When a batch was in a stage.
type Span = fn(&BatchTrace) -> (Option<u64>, Option<u64>);

/// The stages after the queue, with their classes and names.
fn stages(outcome: &Outcome) -> impl Iterator<Item = (&'static str, &'static str, Span)> {
    let copy: Span = |batch| (batch.copying, batch.copied);
    let decode: Span = |batch| (batch.decoding, batch.decoded);
    let step: Span = |batch| (batch.stepping, batch.done);
    let copies = outcome.options.copy.as_ref().map(|_| ("f4", "copy", copy));
    let decodes = outcome.options.decode.as_ref().map(|_| ("f3", "decoding", decode));
    [copies, decodes, Some(("f2", "model", step))].into_iter().flatten()
}

fn label(out: &mut String, [x, y]: [f64; 2], class: &str, text: &str) {
    let _ =
        writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
}

fn legend(out: &mut String, outcome: &Outcome) {
    let mut x = 16.0;
    let options = &outcome.options;
    let names = [
        Some(("f0", "a loader loads")),
        Some(("f1", "it holds its batch and waits")),
        options.copy.as_ref().map(|_| ("f4", "the copy to the device")),
        options.decode.as_ref().map(|_| ("f3", "the device decodes")),
        Some(("f2", "the model's step")),
        Some(("f5", "batches ready, queued or held")),
    ];
    for (class, name) in names.into_iter().flatten() {
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"40\" width=\"12\" height=\"12\" rx=\"2\"/>"
        );
        label(out, [x + 18.0, 50.5], "", name);
        x += 18.0 + svg::text_width(name, 13.0) + 20.0;
    }
}

/// Draws bars of one colour as a single path, to keep files small. A span without an end reaches to
/// the end of the picture.
fn bars(
    out: &mut String,
    class: &str,
    spans: impl Iterator<Item = (u64, Option<u64>)>,
    until: u64,
    x: impl Fn(u64) -> f64,
    [y, height]: [f64; 2],
) {
    let mut path = String::new();
    for (from, to) in spans.filter(|(from, to)| *from < until && to.is_none_or(|to| to > *from)) {
        let (left, right) = (x(from), x(to.unwrap_or(until).min(until)));
        // Leave a gap between batches if there is room for it.
        let gap = if right - left < 3.0 { 0.0 } else { 0.7 };
        let wide = (right - left - gap).max(0.05);
        let _ = write!(path, "M{left:.2} {y:.1}h{wide:.2}v{height}h-{wide:.2}z");
    }
    if !path.is_empty() {
        let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
    }
}

/// Draws the number of batches that are loaded and not taken.
fn ready(out: &mut String, batches: &[BatchTrace], until: u64, x: impl Fn(u64) -> f64, top: f64) {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for batch in batches {
        changes.extend(batch.loaded.filter(|time| *time <= until).map(|time| (time, 1)));
        changes.extend(batch.taken.filter(|time| *time <= until).map(|time| (time, -1)));
    }
    changes.sort_unstable();
    let mut levels: Vec<(u64, i64)> = vec![(0, 0)];
    for (time, change) in changes {
        let level = levels[levels.len() - 1].1 + change;
        match levels.last_mut() {
            Some(last) if last.0 == time => last.1 = level,
            _ => levels.push((time, level)),
        }
    }
    let most = levels.iter().map(|(_, level)| *level).max().unwrap_or(0).max(1);
    let bottom = top + READY;
    let y = |level: i64| bottom - READY * level as f64 / most as f64;
    let mut path = format!("M{AXIS_LEFT} {bottom:.1}");
    for (time, level) in &levels {
        let _ = write!(path, "H{:.2}V{:.1}", x(*time), y(*level));
    }
    let _ = writeln!(out, "<path class=\"f5\" d=\"{path}H{AXIS_RIGHT}V{bottom:.1}z\"/>");
    let _ = writeln!(
        out,
        "<path class=\"rule\" d=\"M{AXIS_LEFT} {top:.1}H{AXIS_RIGHT}M{AXIS_LEFT} {bottom:.1}H{AXIS_RIGHT}\"/>"
    );
    label(out, [16.0, top + READY / 2.0 + 4.0], "small", "ready");
    for (level, base) in [(most, top + 4.0), (0, bottom + 4.0)] {
        let _ = writeln!(
            out,
            "<text class=\"small\" x=\"{}\" y=\"{base:.1}\" text-anchor=\"end\">{level}</text>",
            AXIS_LEFT - 8.0
        );
    }
}
