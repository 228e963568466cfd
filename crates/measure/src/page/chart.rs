//! Charts: lines, steps, stacked areas, scatter with labels, grouped bars with error bars.
//!
//! ```
//! use hsipack_measure::page::chart::{Bar, Chart};
//! use hsipack_measure::page::svg::SvgTarget;
//!
//! let bars = [Bar::new(92.7), Bar::new(26.0).error(1.5)];
//! let svg = Chart::new("Seconds an epoch", "Original 92.7 s, ring buffer 26.0 s.")
//!     .y_label("s/epoch")
//!     .categories(&["original", "ring buffer"])
//!     .bars("1000 MB/s", &bars)
//!     .render(SvgTarget::File);
//! assert!(svg.contains("ring buffer"));
//! ```
//!
//! Numbers that are not finite are skipped, and a line is interrupted there. All names and labels
//! are plain text.

use std::fmt::Write;

use super::escape;
use super::svg::{self, SvgTarget, text_width};
use super::ticks::Ticks;

/// A chart under construction.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    description: String,
    size: [f64; 2],
    labels: [String; 2],
    from_zero: bool,
    x_range: Option<[f64; 2]>,
    y_range: Option<[f64; 2]>,
    categories: Vec<String>,
    series: Vec<Series>,
}

/// A bar, with an optional error bar.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    value: f64,
    error: f64,
}

impl Bar {
    /// A bar without an error bar.
    pub fn new(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// Adds an error bar to both sides of the bar's end, e.g. a standard deviation.
    #[must_use]
    pub fn error(mut self, error: f64) -> Self {
        self.error = error;
        self
    }
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Line(Vec<[f64; 2]>),
    Steps(Vec<[f64; 2]>),
    Area(Vec<[f64; 2]>),
    Scatter(Vec<([f64; 2], String)>),
    Bars(Vec<Bar>),
}

/// The plot area inside the axes, and the values at its edges.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: [f64; 2],
    y: [f64; 2],
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.y[0]) / (self.y[1] - self.y[0]);
        self.bottom - share.clamp(-0.01, 1.01) * (self.bottom - self.top)
    }
}

/// Size of normal text.
const TEXT: f64 = 13.0;
/// Size of tick labels.
const SMALL: f64 = 12.0;
/// Size of titles.
const HEAD: f64 = 15.0;
/// Line height of titles.
const HEAD_ROW: f64 = 19.0;
/// Width of bold letters in titles, relative to normal ones.
const BOLD: f64 = 1.15;
/// Half the size of a point.
const DOT: f64 = 5.0;
/// Width of charts on narrow pages.
const PHONE_WIDTH: f64 = 328.0;

impl Chart {
    /// A chart with a visible title, and a description for people who cannot see the chart.
    pub fn new(title: &str, description: &str) -> Self {
        Self {
            title: title.to_owned(),
            description: description.to_owned(),
            size: [720.0, 360.0],
            labels: Default::default(),
            from_zero: true,
            x_range: None,
            y_range: None,
            categories: Vec::new(),
            series: Vec::new(),
        }
    }

    /// Sets the size in pixels; the default is 720 by 360.
    #[must_use]
    pub fn size(mut self, width: f64, height: f64) -> Self {
        self.size = [width, height];
        self
    }

    /// Sets the label of the horizontal axis, with its unit.
    #[must_use]
    pub fn x_label(mut self, text: &str) -> Self {
        text.clone_into(&mut self.labels[0]);
        self
    }

    /// Sets the label of the vertical axis, with its unit.
    #[must_use]
    pub fn y_label(mut self, text: &str) -> Self {
        text.clone_into(&mut self.labels[1]);
        self
    }

    /// Lets the vertical axis begin near the smallest value instead of at 0. Bars and areas need 0.
    #[must_use]
    pub fn not_from_zero(mut self) -> Self {
        self.from_zero = false;
        self
    }

    /// Sets the ends of the horizontal axis, e.g. so that several charts share the same axis.
    #[must_use]
    pub fn x_range(mut self, low: f64, high: f64) -> Self {
        self.x_range = Some([low, high]);
        self
    }

    /// Sets the range that the vertical axis covers at least.
    #[must_use]
    pub fn y_range(mut self, low: f64, high: f64) -> Self {
        self.y_range = Some([low, high]);
        self
    }

    /// Sets the names of the groups of bars.
    #[must_use]
    pub fn categories(mut self, names: &[&str]) -> Self {
        self.categories = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Adds points joined by a line.
    #[must_use]
    pub fn line(self, name: &str, points: &[[f64; 2]]) -> Self {
        self.add(name, Kind::Line(points.to_vec()))
    }

    /// Adds steps: each value holds until the next point.
    #[must_use]
    pub fn steps(self, name: &str, points: &[[f64; 2]]) -> Self {
        self.add(name, Kind::Steps(points.to_vec()))
    }

    /// Adds an area on top of the areas before it. The points of all areas must have the same x
    /// values.
    #[must_use]
    pub fn area(self, name: &str, points: &[[f64; 2]]) -> Self {
        self.add(name, Kind::Area(points.to_vec()))
    }

    /// Adds points, each with a label that may be empty. If a label would overlap another, it is
    /// shown only when the pointer is on the point.
    #[must_use]
    pub fn scatter(self, name: &str, points: &[([f64; 2], &str)]) -> Self {
        let points = points.iter().map(|(point, label)| (*point, (*label).to_owned())).collect();
        self.add(name, Kind::Scatter(points))
    }

    /// Adds a bar to each category, in order.
    #[must_use]
    pub fn bars(self, name: &str, bars: &[Bar]) -> Self {
        self.add(name, Kind::Bars(bars.to_vec()))
    }

    fn add(mut self, name: &str, kind: Kind) -> Self {
        self.series.push(Series { name: name.to_owned(), kind });
        self
    }

    /// Draws the chart.
    pub fn render(&self, target: SvgTarget) -> String {
        let [width, _] = self.size;
        let mut out = String::new();
        // Narrow charts wrap their title; bold letters are wider.
        let title = wrapped(&self.title, HEAD * BOLD, width - 32.0);
        for (row, line) in title.iter().enumerate() {
            text(&mut out, [16.0, 24.0 + row as f64 * HEAD_ROW], "start", "head", line);
        }
        let under_title = 46.0 + title.len().saturating_sub(1) as f64 * HEAD_ROW;
        let top = self.legend(&mut out, under_title)
            + if self.labels[1].is_empty() { 14.0 } else { 30.0 };
        let (frame, y_ticks, category_lines) = self.frame(top);
        self.axes(&mut out, &frame, &y_ticks, &category_lines);
        self.areas(&mut out, &frame);
        let groups =
            self.series.iter().filter(|series| matches!(series.kind, Kind::Bars(_))).count();
        let mut group = 0;
        // Labels avoid all points, including those of later series.
        let mut taken = self.dots(&frame);
        for (number, series) in self.series.iter().enumerate() {
            let colour = number % svg::SERIES;
            match &series.kind {
                Kind::Line(points) => line(&mut out, &frame, points, colour, false),
                Kind::Steps(points) => line(&mut out, &frame, points, colour, true),
                Kind::Area(_) => {}
                Kind::Scatter(points) => scatter(&mut out, &frame, points, colour, &mut taken),
                Kind::Bars(bars) => {
                    self.bar_series(&mut out, &frame, bars, [group, groups], [number, colour]);
                    group += 1;
                }
            }
        }
        svg::picture(target, self.size, [&self.title, &self.description], "", &out)
    }

    /// The chart for a page: at its own size if the page is wide. On a narrow page it is as wide as
    /// a phone and `phone_height` high, so that text keeps its size.
    pub fn for_page(&self, phone_height: f64) -> String {
        let phone = self.clone().size(PHONE_WIDTH, phone_height).render(SvgTarget::Page);
        let desk = self.render(SvgTarget::Page);
        format!("<div class=\"phone\">{phone}</div><div class=\"desk\">{desk}</div>")
    }

    /// The places of all scatter points.
    fn dots(&self, frame: &Frame) -> Vec<Box4> {
        let points = self.series.iter().flat_map(|series| match &series.kind {
            Kind::Scatter(points) => points.as_slice(),
            _ => &[],
        });
        let finite = points.map(|(point, _)| *point).filter(is_finite);
        finite
            .map(|[x, y]| [frame.x(x), frame.y(y)])
            .map(|[x, y]| [x - DOT, y - DOT, x + DOT, y + DOT])
            .collect()
    }

    /// Writes the names of the series from the line `first` on, in as many lines as they need, and
    /// returns where they end. A single series needs no name.
    fn legend(&self, out: &mut String, first: f64) -> f64 {
        let named: Vec<_> =
            self.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty()).collect();
        if named.len() < 2 {
            return first - 14.0;
        }
        let (mut x, mut y) = (16.0, first);
        for (number, series) in named {
            let name = fitting(&series.name, TEXT, self.size[0] - 60.0);
            let wide = 18.0 + text_width(&name, TEXT);
            if x > 16.0 && x + wide > self.size[0] - 16.0 {
                (x, y) = (16.0, y + 20.0);
            }
            let colour = number % svg::SERIES;
            let _ = writeln!(
                out,
                "<rect class=\"f{colour}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"2\"/>",
                y - 10.5
            );
            text(out, [x + 18.0, y], "start", "", &name);
            x += wide + 18.0;
        }
        y + 4.0
    }

    fn frame(&self, top: f64) -> (Frame, Ticks, Vec<Vec<String>>) {
        let [width, height] = self.size;
        let [low, high] = self.y_numbers();
        let y_ticks = Ticks::around(low, high, ((height - top) / 55.0).clamp(2.0, 8.0) as usize);
        let label = |tick: &f64| text_width(&y_ticks.label(*tick), SMALL);
        let left = 24.0 + y_ticks.at.iter().map(label).fold(0.0, f64::max);
        let right = width - 20.0;
        let room = (right - left) / self.categories.len().max(1) as f64 - 2.0;
        let lines: Vec<_> = self.categories.iter().map(|name| wrapped(name, SMALL, room)).collect();
        let rows = lines.iter().map(Vec::len).max().unwrap_or(1);
        let under = 14.0 + rows as f64 * 15.0 + if self.labels[0].is_empty() { 0.0 } else { 20.0 };
        let (first, last) = y_ticks.ends();
        let bottom = (height - under).max(top + 20.0);
        let x = self.x_range.unwrap_or_else(|| self.x_numbers());
        (Frame { left, right, top, bottom, x, y: [first, last] }, y_ticks, lines)
    }

    fn points(&self) -> impl Iterator<Item = [f64; 2]> + '_ {
        let all =
            self.series.iter().flat_map(|series| -> Box<dyn Iterator<Item = [f64; 2]> + '_> {
                match &series.kind {
                    Kind::Line(points) | Kind::Steps(points) => Box::new(points.iter().copied()),
                    Kind::Scatter(points) => Box::new(points.iter().map(|(point, _)| *point)),
                    Kind::Area(_) => Box::new(std::iter::empty()),
                    Kind::Bars(bars) => Box::new(bars.iter().flat_map(|bar| {
                        [
                            [0.0, bar.value],
                            [0.0, bar.value + bar.error],
                            [0.0, bar.value - bar.error],
                        ]
                    })),
                }
            });
        all.chain(self.stacks().into_iter().flatten())
            .filter(|[x, y]| x.is_finite() && y.is_finite())
    }

    /// The upper edges of the stacked areas.
    fn stacks(&self) -> Vec<Vec<[f64; 2]>> {
        let mut edges: Vec<Vec<[f64; 2]>> = Vec::new();
        for series in &self.series {
            let Kind::Area(points) = &series.kind else { continue };
            let below = edges.last();
            let height =
                |at: usize| below.and_then(|edge| edge.get(at)).map_or(0.0, |[_, y]: &[f64; 2]| *y);
            let stacked =
                points.iter().enumerate().map(|(at, [x, y])| [*x, y + height(at)]).collect();
            edges.push(stacked);
        }
        edges
    }

    fn y_numbers(&self) -> [f64; 2] {
        let [mut low, mut high] = self.y_range.unwrap_or([f64::INFINITY, f64::NEG_INFINITY]);
        let filled = |series: &Series| matches!(series.kind, Kind::Area(_) | Kind::Bars(_));
        if self.from_zero || self.series.iter().any(filled) {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        for [_, y] in self.points() {
            (low, high) = (low.min(y), high.max(y));
        }
        [low, high]
    }

    fn x_numbers(&self) -> [f64; 2] {
        let numbers = self.points().map(|[x, _]| x);
        let (low, high) = numbers
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let scatter = self.series.iter().any(|series| matches!(series.kind, Kind::Scatter(_)));
        if scatter || low >= high || !low.is_finite() {
            let low = if self.from_zero { low.min(0.0) } else { low };
            let (low, high) = Ticks::around(low, high, 6).ends();
            [low, high]
        } else {
            [low, high]
        }
    }

    fn axes(&self, out: &mut String, frame: &Frame, y_ticks: &Ticks, categories: &[Vec<String>]) {
        let Frame { left, right, top, bottom, .. } = *frame;
        for tick in &y_ticks.at {
            let y = frame.y(*tick);
            let class = if *tick == 0.0 { "axis" } else { "rule" };
            let _ = writeln!(out, "<path class=\"{class}\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
            text(out, [left - 8.0, y + 4.0], "end", "small", &y_ticks.label(*tick));
        }
        if !self.labels[1].is_empty() {
            text(out, [16.0, top - 14.0], "start", "small", &self.labels[1]);
        }
        if !self.labels[0].is_empty() {
            let label = &self.labels[0];
            text(out, [(left + right) / 2.0, self.size[1] - 10.0], "middle", "small", label);
        }
        if categories.is_empty() {
            self.x_ticks(out, frame);
        }
        let step = (right - left) / categories.len().max(1) as f64;
        for (number, lines) in categories.iter().enumerate() {
            for (row, line) in lines.iter().enumerate() {
                let x = left + (number as f64 + 0.5) * step;
                text(out, [x, bottom + 18.0 + row as f64 * 15.0], "middle", "small", line);
            }
        }
    }

    fn x_ticks(&self, out: &mut String, frame: &Frame) {
        let Frame { left, right, bottom, x: [low, high], .. } = *frame;
        // As many ticks as fit, given the widest label.
        let mut ticks = Ticks::within(low, high, ((right - left) / 70.0).max(1.0) as usize);
        let widest = |ticks: &Ticks| {
            ticks.at.iter().map(|tick| text_width(&ticks.label(*tick), SMALL)).fold(0.0, f64::max)
        };
        let fits = (right - left) / (widest(&ticks) + 16.0);
        if (ticks.at.len() as f64) > fits {
            ticks = Ticks::within(low, high, (fits * 0.6).max(1.0) as usize);
        }
        for tick in &ticks.at {
            let x = frame.x(*tick);
            let _ = writeln!(out, "<path class=\"axis\" d=\"M{x:.1} {bottom:.1}v5\"/>");
            // Half of the last label may extend beyond the axis, but not beyond the picture.
            let half = text_width(&ticks.label(*tick), SMALL) / 2.0;
            let x = x.min(self.size[0] - half - 2.0);
            text(out, [x, bottom + 19.0], "middle", "small", &ticks.label(*tick));
        }
    }

    fn areas(&self, out: &mut String, frame: &Frame) {
        let numbers = self.series.iter().enumerate();
        let areas = numbers.filter(|(_, series)| matches!(series.kind, Kind::Area(_)));
        let mut below: Option<Vec<[f64; 2]>> = None;
        for ((number, _), edge) in areas.zip(self.stacks()) {
            let floor =
                below.take().unwrap_or_else(|| edge.iter().map(|[x, _]| [*x, 0.0]).collect());
            let ring = edge.iter().chain(floor.iter().rev());
            let _ = writeln!(
                out,
                "<path class=\"area f{}\" d=\"{}Z\"/>",
                number % svg::SERIES,
                path(frame, ring.copied().filter(is_finite), false)
            );
            below = Some(edge);
        }
    }

    fn bar_series(
        &self,
        out: &mut String,
        frame: &Frame,
        bars: &[Bar],
        [group, groups]: [usize; 2],
        [number, colour]: [usize; 2],
    ) {
        let step = (frame.right - frame.left) / self.categories.len().max(bars.len()).max(1) as f64;
        let width = (step * 0.75 / groups as f64).min(64.0);
        for (at, bar) in bars.iter().enumerate().filter(|(_, bar)| bar.value.is_finite()) {
            let middle = frame.left + (at as f64 + 0.5) * step;
            let x = middle + (group as f64 - groups as f64 / 2.0) * width;
            let (y, zero) = (frame.y(bar.value), frame.y(0.0));
            let category = self.categories.get(at).map_or("", String::as_str);
            let series = &self.series[number].name;
            let names =
                [category, series].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
            let _ = writeln!(
                out,
                "<rect class=\"f{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
                 <title>{}: {}</title></rect>",
                x + 1.0,
                y.min(zero),
                (width - 2.0).max(1.0),
                (y - zero).abs().max(0.5),
                escape(&names.join(", ")),
                rounded(bar.value, 3),
            );
            let mut end = y.min(zero);
            if bar.error > 0.0 && bar.error.is_finite() {
                let (high, low) = (frame.y(bar.value + bar.error), frame.y(bar.value - bar.error));
                let (x, cap) = (x + width / 2.0, (width / 4.0).min(6.0));
                let _ = writeln!(
                    out,
                    "<path class=\"error\" d=\"M{x:.1} {high:.1}V{low:.1}M{:.1} {high:.1}h{:.1}M{:.1} {low:.1}h{:.1}\"/>",
                    x - cap,
                    2.0 * cap,
                    x - cap,
                    2.0 * cap
                );
                end = end.min(high);
            }
            // The label must leave some space to that of the next bar.
            let fits = |label: &String| text_width(label, SMALL) <= width - 3.0;
            if let Some(label) =
                [3, 2].map(|digits| rounded(bar.value, digits)).into_iter().find(fits)
            {
                text(out, [x + width / 2.0, end - 5.0], "middle", "small", &label);
            }
        }
    }
}

/// Formats with this many significant digits, counting only digits after the point.
fn rounded(value: f64, digits: i32) -> String {
    let places = |of: f64| match of.abs() {
        0.0 => digits - 1,
        other => digits - 1 - other.log10().floor() as i32,
    };
    // 9.996 rounds to 10.0, which has one decimal less.
    let unit = 10f64.powi(places(value));
    let places = places((value * unit).round() / unit).clamp(0, 9) as usize;
    format!("{value:.places$}")
}

fn text(out: &mut String, [x, y]: [f64; 2], anchor: &str, class: &str, words: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(
        out,
        "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(words)
    );
}

/// The text, cut if it is wider than the space.
fn fitting(words: &str, size: f64, room: f64) -> String {
    if text_width(words, size) <= room {
        return words.to_owned();
    }
    let mut cut = words.to_owned();
    while !cut.is_empty() && text_width(&cut, size) + size > room {
        cut.pop();
    }
    format!("{}…", cut.trim_end())
}

/// The text in up to three lines, broken at spaces and after hyphens. Lines that are still too wide
/// are cut.
fn wrapped(words: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let parts = words.split_whitespace().flat_map(|word| {
        word.split_inclusive('-').zip(std::iter::once(" ").chain(std::iter::repeat("")))
    });
    for (part, gap) in parts {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line}{gap}{part}"), size) <= room => {
                line.push_str(gap);
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    if lines.len() > 3 {
        let remaining = lines.split_off(2).join(" ");
        lines.push(remaining);
    }
    lines.iter().map(|line| fitting(line, size, room)).collect()
}

fn path(frame: &Frame, points: impl Iterator<Item = [f64; 2]>, steps: bool) -> String {
    let mut path = String::new();
    let mut begun = false;
    for [x, y] in points {
        let (x, y) = (frame.x(x), frame.y(y));
        let _ = match (begun, steps) {
            (false, _) => write!(path, "M{x:.1} {y:.1}"),
            (true, true) => write!(path, "H{x:.1}V{y:.1}"),
            (true, false) => write!(path, "L{x:.1} {y:.1}"),
        };
        begun = true;
    }
    path
}

fn is_finite([x, y]: &[f64; 2]) -> bool {
    x.is_finite() && y.is_finite()
}

/// Draws lines through consecutive points without gaps; a single point becomes a dot.
fn line(out: &mut String, frame: &Frame, points: &[[f64; 2]], colour: usize, steps: bool) {
    let runs = points.split(|point| !is_finite(point)).filter(|run| !run.is_empty());
    let path: String = runs
        .map(|run| {
            let dot = if run.len() == 1 { "h0" } else { "" };
            path(frame, run.iter().copied(), steps) + dot
        })
        .collect();
    if !path.is_empty() {
        let _ = writeln!(out, "<path class=\"l{colour}\" d=\"{path}\"/>");
    }
}

/// Left, top, right and bottom of a drawn element.
type Box4 = [f64; 4];

fn scatter(
    out: &mut String,
    frame: &Frame,
    points: &[([f64; 2], String)],
    colour: usize,
    taken: &mut Vec<Box4>,
) {
    let finite = |point: &&([f64; 2], String)| point.0.iter().all(|number| number.is_finite());
    let placed: Vec<_> = points
        .iter()
        .filter(finite)
        .map(|([x, y], label)| ([frame.x(*x), frame.y(*y)], label))
        .collect();
    for ([x, y], label) in placed {
        let _ = writeln!(
            out,
            "<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{DOT}\"><title>{}</title></circle>",
            escape(label)
        );
        let wide = text_width(label, SMALL);
        let free = [
            (x + 9.0, y + 4.0),
            (x - 9.0 - wide, y + 4.0),
            (x - wide / 2.0, y - 10.0),
            (x - wide / 2.0, y + 20.0),
        ];
        let spot = free.into_iter().find_map(|(start, base)| {
            let area = [start, base - 11.0, start + wide, base + 3.0];
            let inside = area[0] >= frame.left - 4.0
                && area[2] <= frame.right + 16.0
                && area[1] >= frame.top - 12.0
                && area[3] <= frame.bottom;
            let clear = taken.iter().all(|other| !overlap(&area, other));
            (inside && clear).then_some((start, base, area))
        });
        if let Some((start, base, area)) = spot.filter(|_| !label.is_empty()) {
            taken.push(area);
            text(out, [start, base], "start", "small", label);
        }
    }
}

fn overlap(a: &Box4, b: &Box4) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_would_lie_on_each_other_are_left_to_a_pointer() {
        let here = [1.0, 1.0];
        let many: Vec<_> = (0..9).map(|_| (here, "the same place")).collect();
        let svg = Chart::new("T", "D").scatter("s", &many).render(SvgTarget::Page);
        assert_eq!(svg.matches("<circle").count(), 9);
        let labels = svg.matches("<text class=\"small\"").count();
        assert!(svg.matches(">the same place</text>").count() <= 4, "{labels}");
    }

    #[test]
    fn labels_keep_off_points_of_later_series() {
        // The preferred place of a label is to the right of its point. The other series has a point there.
        let chart = |other: f64| {
            Chart::new("T", "D")
                .scatter("a", &[([1.0, 1.0], "label")])
                .scatter("b", &[([other, 1.0], "")])
                .x_range(0.0, 2.0)
                .render(SvgTarget::Page)
        };
        let anchor = |svg: String| {
            let (before, _) = svg.split_once(">label</text>").unwrap();
            let (_, x) = before.rsplit_once(" x=\"").unwrap();
            x.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        let (free, moved) = (anchor(chart(2.0)), anchor(chart(1.05)));
        assert!(moved < free, "{moved} {free}");
    }

    #[test]
    fn long_titles_take_more_lines_where_the_picture_is_narrow() {
        let chart =
            Chart::new("Real information of each mantissa bit", "D").line("", &[[0.0, 1.0]]);
        let titles = |svg: &str| svg.matches("<text class=\"head\"").count();
        assert_eq!(titles(&chart.render(SvgTarget::Page)), 1);
        let narrow = chart.size(PHONE_WIDTH, 300.0).render(SvgTarget::Page);
        assert_eq!(titles(&narrow), 2);
        assert!(!narrow.contains('…'), "nothing is cut: {narrow}");
    }

    #[test]
    fn numbers_that_are_none_are_left_out() {
        let points = [[0.0, 1.0], [1.0, f64::NAN], [f64::INFINITY, 2.0], [2.0, 3.0]];
        let bars = [Bar::new(f64::NAN), Bar::new(2.0).error(f64::NAN)];
        let lines = Chart::new("T", "D").line("a", &points).steps("b", &points).area("c", &[]);
        let bars = Chart::new("T", "D").categories(&["x", "y"]).bars("a", &bars);
        for svg in [
            lines.render(SvgTarget::File),
            bars.render(SvgTarget::File),
            Chart::new("", "").render(SvgTarget::Page),
        ] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn numbers_have_as_many_digits_as_asked_for() {
        let three = [0.0, 0.0325, 0.9996, 0.951, 2.874, 9.996, 99.96, 1234.0, -0.5, 1e-300];
        let written = ["0.00", "0.0325", "1.00", "0.951", "2.87", "10.0", "100", "1234", "-0.500"];
        for (value, text) in three.into_iter().zip(written.into_iter().chain(["0.000000000"])) {
            assert_eq!(rounded(value, 3), text);
        }
        assert_eq!([0.951, 8.07, 99.6].map(|value| rounded(value, 2)), ["0.95", "8.1", "100"]);
    }

    #[test]
    fn areas_stand_on_each_other() {
        let chart = Chart::new("T", "D").area("a", &[[0.0, 1.0]]).area("b", &[[0.0, 2.0]]);
        assert_eq!(chart.stacks(), [vec![[0.0, 1.0]], vec![[0.0, 3.0]]]);
        assert_eq!(chart.y_numbers(), [0.0, 3.0]);
    }

    #[test]
    fn lines_are_broken_where_nothing_is_known() {
        let gap =
            [[0.0, 1.0], [1.0, 2.0], [2.0, f64::NAN], [3.0, 1.0], [4.0, f64::NAN], [5.0, 2.0]];
        let svg =
            Chart::new("T", "D").line("", &gap).line("whole", &gap[..2]).render(SvgTarget::File);
        let paths: Vec<&str> = svg.split("class=\"l0\" d=\"").skip(1).collect();
        let drawn = paths[0].split('"').next().unwrap();
        assert_eq!(drawn.matches('M').count(), 3, "{drawn}");
        assert_eq!((drawn.matches('L').count(), drawn.matches("h0").count()), (1, 2), "{drawn}");
        let nothing = Chart::new("T", "D").line("", &[[0.0, f64::NAN]]).render(SvgTarget::File);
        assert!(!nothing.contains("class=\"l0\" d="), "{nothing}");
    }

    #[test]
    fn names_are_text() {
        let svg = Chart::new("<T>", "D")
            .categories(&["<c>"])
            .bars("<a>", &[Bar::new(1.0)])
            .bars("<b>", &[Bar::new(2.0)])
            .render(SvgTarget::File);
        assert!(
            !svg.contains("<a>")
                && !svg.contains("<b>")
                && !svg.contains("<c>")
                && !svg.contains("<T>")
        );
    }

    #[test]
    fn long_names_are_wrapped_and_cut() {
        assert_eq!(wrapped("one two", SMALL, 1000.0), ["one two"]);
        assert_eq!(wrapped("one two", SMALL, 20.0).len(), 2);
        assert_eq!(wrapped("+ring-buffer", SMALL, 50.0), ["+ring-", "buffer"]);
        assert_eq!(wrapped("+ring-buffer", SMALL, 1000.0), ["+ring-buffer"]);
        assert!(fitting(&"long ".repeat(50), 13.0, 100.0).ends_with('…'));
    }
}
