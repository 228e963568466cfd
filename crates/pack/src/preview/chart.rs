//! Draws spectra: mean lines with a band of one standard deviation, axes, and a legend.

use super::canvas::Canvas;
use super::palette::{BAD, Colour, GRID, INK, MUTED};
use super::text;
use crate::spectra::Curve;

const TICK_SIZE: f32 = 13.0;
const TITLE_SIZE: f32 = 14.0;
const LEGEND_SIZE: f32 = 13.0;
const LEGEND_LINE: f32 = 21.0;
const LEGEND_WIDTH: f32 = 210.0;

/// One line of the chart.
pub struct Line {
    /// The label in the legend.
    pub label: String,
    /// A second, fainter text after the label.
    pub detail: String,
    /// Its colour.
    pub colour: Colour,
    /// Position of every band on the x axis.
    pub x: Vec<f64>,
    /// Which bands are drawn. The others are gaps.
    pub drawn: Vec<bool>,
    /// Its values.
    pub curve: Curve,
}

/// A chart of spectra.
pub struct Chart {
    /// The lines. The first ones are drawn last, on top of the others.
    pub lines: Vec<Line>,
    /// Name of the x axis, with its unit.
    pub x_title: String,
    /// Whether only whole numbers have a meaning on the x axis.
    pub whole: bool,
    /// Name of the values.
    pub y_title: String,
    /// Further text in the legend, below the lines.
    pub remarks: Vec<String>,
}

/// Ticks of an axis: their positions and labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticks {
    places: Vec<f64>,
    labels: Vec<String>,
}

struct Frame {
    left: f32,
    top: f32,
    width: f32,
    height: f32,
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    fn x(&self, value: f64) -> f32 {
        self.left + ((value - self.x.0) / (self.x.1 - self.x.0)) as f32 * self.width
    }

    fn y(&self, value: f64) -> f32 {
        let y = self.top + ((self.y.1 - value) / (self.y.1 - self.y.0)) as f32 * self.height;
        y.clamp(self.top, self.top + self.height)
    }
}

impl Chart {
    /// Height of the legend in pixels.
    pub fn legend_height(&self) -> f32 {
        let remarks: usize =
            self.remarks.iter().map(|text| text::wrap(text, LEGEND_SIZE, LEGEND_WIDTH).len()).sum();
        self.lines.len() as f32 * LEGEND_LINE + remarks as f32 * 18.0 + 30.0
    }

    /// Draws the chart into a rectangle.
    pub fn draw(&self, canvas: &mut Canvas, left: f32, top: f32, width: f32, height: f32) {
        let x = self.x_range();
        let y = padded(self.y_range());
        let y_ticks = ticks(y.0, y.1, 6);
        let gutter =
            y_ticks.labels.iter().map(|label| text::width(label, TICK_SIZE)).fold(0.0, f32::max);
        let frame = Frame {
            left: left + gutter + 12.0,
            top: top + 26.0,
            width: width - gutter - 12.0 - LEGEND_WIDTH - 24.0,
            height: height - 26.0 - 50.0,
            x,
            y,
        };
        canvas.text(&self.y_title, left, top + 12.0, TITLE_SIZE, INK);
        self.draw_gaps(canvas, &frame);
        draw_axes(canvas, &frame, &y_ticks, &x_ticks(&frame, self.whole));
        let middle = frame.left + frame.width / 2.0;
        canvas.text_centred(
            &self.x_title,
            middle,
            frame.top + frame.height + 42.0,
            TITLE_SIZE,
            INK,
        );
        // If many bands of standard deviation overlap, they must be fainter, because they would hide the lines.
        let opacity = (0.5 / self.lines.len().max(1) as f32).clamp(0.06, 0.16);
        for line in self.lines.iter().rev() {
            line.draw_band(canvas, &frame, opacity);
        }
        if self.lines.iter().all(|line| line.runs().is_empty()) {
            let y = frame.top + frame.height / 2.0;
            canvas.text_centred("no finite values", middle, y, TITLE_SIZE, MUTED);
        }
        for line in self.lines.iter().rev() {
            line.draw_mean(canvas, &frame);
        }
        self.draw_legend(canvas, left + width - LEGEND_WIDTH, frame.top);
    }

    fn x_range(&self) -> (f64, f64) {
        let all = || self.lines.iter().flat_map(|line| line.x.iter().copied());
        let (low, high) = range(all()).unwrap_or((0.0, 1.0));
        if low < high { (low, high) } else { (low - 0.5, high + 0.5) }
    }

    fn y_range(&self) -> (f64, f64) {
        let ends = self.lines.iter().flat_map(|line| {
            let bands = (0..line.x.len()).filter(|band| line.is_drawn(*band));
            bands.flat_map(|band| {
                let (mean, std) = (line.curve.mean[band], line.curve.std[band]);
                [mean - std, mean + std]
            })
        });
        range(ends).unwrap_or((0.0, 1.0))
    }

    /// Shades bad bands, if they are the same for all lines.
    fn draw_gaps(&self, canvas: &mut Canvas, frame: &Frame) {
        let [line, others @ ..] = self.lines.as_slice() else { return };
        if others.iter().any(|other| other.x != line.x || other.drawn != line.drawn) {
            return;
        }
        let order = line.order();
        let mid = |a: usize, b: usize| frame.x((line.x[a] + line.x[b]) / 2.0);
        for (index, band) in order.iter().enumerate().filter(|(_, band)| !line.drawn[**band]) {
            let from = index.checked_sub(1).map_or(frame.left, |before| mid(order[before], *band));
            let to =
                order.get(index + 1).map_or(frame.left + frame.width, |next| mid(*band, *next));
            // Whole pixels are filled, so that there are no seams between neighbours.
            let (from, to) = (from.round(), to.round());
            canvas.fill(from, frame.top, (to - from).max(1.0), frame.height, BAD, 1.0);
        }
    }

    fn draw_legend(&self, canvas: &mut Canvas, left: f32, top: f32) {
        let mut y = top + 8.0;
        for line in &self.lines {
            canvas.fill(left, y - 4.0, 16.0, 8.0, line.colour, 0.22);
            canvas.line(&[(left, y), (left + 16.0, y)], line.colour, 2.0);
            let detail = text::width(&line.detail, LEGEND_SIZE);
            let room = LEGEND_WIDTH - 24.0 - if detail > 0.0 { detail + 8.0 } else { 0.0 };
            canvas.text(
                &text::fit(&line.label, LEGEND_SIZE, room),
                left + 24.0,
                y + 4.5,
                LEGEND_SIZE,
                INK,
            );
            canvas.text_right(&line.detail, left + LEGEND_WIDTH, y + 4.5, LEGEND_SIZE, MUTED);
            y += LEGEND_LINE;
        }
        y += 8.0;
        for remark in &self.remarks {
            for line in text::wrap(remark, LEGEND_SIZE, LEGEND_WIDTH) {
                canvas.text(&line, left, y + 4.5, LEGEND_SIZE, MUTED);
                y += 18.0;
            }
        }
    }
}

impl Line {
    /// The greatest absolute mean that is drawn; 0 if none is drawn.
    pub fn magnitude(&self) -> f64 {
        let drawn = (0..self.x.len()).filter(|band| self.is_drawn(*band));
        drawn.map(|band| self.curve.mean[band].abs()).fold(0.0, f64::max)
    }

    fn is_drawn(&self, band: usize) -> bool {
        self.drawn[band] && self.curve.mean[band].is_finite() && self.curve.std[band].is_finite()
    }

    /// Bands from left to right.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.x.len()).collect();
        order.sort_by(|a, b| self.x[*a].total_cmp(&self.x[*b]));
        order
    }

    /// Runs of bands between gaps, from left to right.
    fn runs(&self) -> Vec<Vec<usize>> {
        let order = self.order();
        let runs = order.chunk_by(|a, b| self.is_drawn(*a) == self.is_drawn(*b));
        runs.filter(|run| self.is_drawn(run[0])).map(<[usize]>::to_vec).collect()
    }

    fn draw_band(&self, canvas: &mut Canvas, frame: &Frame, opacity: f32) {
        for run in self.runs() {
            let edge = |band: &usize, sign: f64| {
                let value = self.curve.mean[*band] + sign * self.curve.std[*band];
                (frame.x(self.x[*band]), frame.y(value))
            };
            let upper = run.iter().map(|band| edge(band, 1.0));
            let points: Vec<(f32, f32)> =
                upper.chain(run.iter().rev().map(|band| edge(band, -1.0))).collect();
            match run.as_slice() {
                // A single band has no width to fill, so it becomes a bar.
                [_] => canvas.line(&points, self.colour, 1.0),
                _ => canvas.polygon(&points, self.colour, opacity),
            }
        }
    }

    fn draw_mean(&self, canvas: &mut Canvas, frame: &Frame) {
        for run in self.runs() {
            let point = |band: &usize| (frame.x(self.x[*band]), frame.y(self.curve.mean[*band]));
            let points: Vec<(f32, f32)> = run.iter().map(point).collect();
            canvas.line(&points, self.colour, 1.8);
        }
    }
}

fn draw_axes(canvas: &mut Canvas, frame: &Frame, y_ticks: &Ticks, x_ticks: &Ticks) {
    let (right, bottom) = (frame.left + frame.width, frame.top + frame.height);
    for (value, label) in y_ticks.places.iter().zip(&y_ticks.labels) {
        let y = frame.y(*value).round();
        canvas.fill(frame.left, y, frame.width, 1.0, GRID, 1.0);
        canvas.text_right(label, frame.left - 8.0, y + 5.0, TICK_SIZE, MUTED);
    }
    for (value, label) in x_ticks.places.iter().zip(&x_ticks.labels) {
        let x = frame.x(*value).round();
        canvas.fill(x, bottom, 1.0, 5.0, MUTED, 1.0);
        canvas.text_centred(label, x, bottom + 19.0, TICK_SIZE, MUTED);
    }
    canvas.fill(frame.left, bottom, right - frame.left, 1.0, MUTED, 1.0);
}

/// Ticks of the x axis: as many as there is room for, at whole numbers if only those have a
/// meaning.
fn x_ticks(frame: &Frame, whole: bool) -> Ticks {
    let most = (frame.width / 70.0).max(2.0) as usize;
    let (low, high) = frame.x;
    ticks(low, high, if whole { most.min((high - low).max(1.0) as usize) } else { most })
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    (low <= high).then_some((low, high))
}

/// A range with some room above and below; never empty.
fn padded((low, high): (f64, f64)) -> (f64, f64) {
    let room = (high - low) * 0.04;
    // If the difference is only a rounding error of the values, the range counts as empty.
    if room > low.abs().max(high.abs()) * 1e-12 {
        // If the axis would begin just above zero, it begins at zero.
        let from = if low >= 0.0 && low < (high - low) * 0.25 { 0.0 } else { low - room };
        return (from, high + room);
    }
    let room = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
    (low - room, high + room)
}

/// About `most` ticks at multiples of 1, 2 or 5 times a power of ten, within the range.
pub fn ticks(low: f64, high: f64, most: usize) -> Ticks {
    let raw = (high - low) / most.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= raw * 0.999)
        .unwrap_or(raw);
    let (first, last) = ((low / step).ceil(), (high / step).floor());
    let count =
        if (0.0..1000.0).contains(&(last - first)) { (last - first) as usize + 1 } else { 0 };
    let places: Vec<f64> = (0..count).map(|i| (first + i as f64) * step).collect();
    let largest = low.abs().max(high.abs());
    let label = |value: &f64| {
        if !(1e-3..1e6).contains(&largest) {
            let digits = (largest.log10().floor() - step.log10().floor()).clamp(0.0, 12.0) as usize;
            if *value == 0.0 { "0".to_owned() } else { format!("{value:.digits$e}") }
        } else {
            let digits = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
            format!("{value:.digits$}").replace('-', "\u{2212}")
        }
    };
    let labels = places.iter().map(label).collect();
    Ticks { places, labels }
}

#[cfg(test)]
mod tests {
    use super::super::palette::{PAGE, WHOLE};
    use super::*;

    fn line(x: Vec<f64>, mean: Vec<f64>, drawn: Vec<bool>) -> Line {
        let std = vec![0.0; mean.len()];
        Line {
            label: "a".into(),
            detail: String::new(),
            colour: WHOLE,
            x,
            drawn,
            curve: Curve { mean, std },
        }
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(ticks(0.0, 1.0, 5).labels, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(ticks(366.0, 1048.0, 8).labels[0], "400");
        assert_eq!(ticks(-30.0, 30.0, 3).labels, ["\u{2212}20", "0", "20"]);
        assert_eq!(ticks(0.0, 4e6, 2).labels, ["0", "2e6", "4e6"]);
        assert!(!ticks(1e300, 2e300, 5).labels.is_empty());
    }

    #[test]
    fn band_numbers_are_whole() {
        let labels = |low: f64, high: f64| {
            let frame = Frame {
                left: 0.0,
                top: 0.0,
                width: 640.0,
                height: 9.0,
                x: (low, high),
                y: (0.0, 1.0),
            };
            x_ticks(&frame, true).labels
        };
        assert_eq!(labels(0.0, 1.0), ["0", "1"]);
        assert_eq!(labels(-0.5, 0.5), ["0"]);
        assert_eq!(labels(0.0, 3.0), ["0", "1", "2", "3"]);
        assert_eq!(labels(0.0, 82.0)[1], "10");
    }

    #[test]
    fn ranges_are_never_empty() {
        for value in [0.0, 5.0, -3.0, 1e-30, 1e30] {
            let (low, high) = padded((value, value));
            assert!(low < value && value < high, "{value}");
        }
        assert_eq!(padded((0.1, 1.0)).0, 0.0);
        assert!(padded((0.9, 1.0)).0 > 0.8);
    }

    #[test]
    fn gaps_part_the_line_whatever_the_order_of_the_bands() {
        let rising = line(vec![1.0, 2.0, 3.0, 4.0], vec![1.0; 4], vec![true, true, false, true]);
        assert_eq!(rising.runs(), [vec![0, 1], vec![3]]);
        let falling = line(vec![4.0, 3.0, 2.0, 1.0], vec![1.0, f64::NAN, 1.0, 1.0], vec![true; 4]);
        assert_eq!(falling.runs(), [vec![3, 2], vec![0]]);
    }

    #[test]
    fn a_bad_band_leaves_a_gap_in_the_picture() {
        let chart = Chart {
            lines: vec![line(
                (0..11).map(f64::from).collect(),
                vec![1.0; 11],
                (0..11).map(|b| b != 5).collect(),
            )],
            x_title: String::new(),
            whole: true,
            y_title: String::new(),
            remarks: Vec::new(),
        };
        let mut canvas = Canvas::new(800.0, 300.0).unwrap();
        chart.draw(&mut canvas, 0.0, 0.0, 800.0, 300.0);
        let inked = |x: usize| (30..240).any(|y| canvas.at(x, y) == WHOLE);
        let columns: Vec<usize> = (0..540).filter(|x| inked(*x)).collect();
        let (first, last) = (columns[0], columns[columns.len() - 1]);
        assert!(!inked((first + last) / 2), "the gap is drawn over");
        assert!(inked(first + (last - first) / 4) && inked(first + (last - first) * 3 / 4));
        assert_eq!(canvas.at((first + last) / 2, 60), BAD);
        assert_eq!(canvas.at(first + 20, 60), PAGE);
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        for lines in [Vec::new(), vec![line(vec![3.0], vec![f64::NAN], vec![true])]] {
            let chart = Chart {
                lines,
                x_title: "x".into(),
                whole: true,
                y_title: "y".into(),
                remarks: Vec::new(),
            };
            chart.draw(&mut Canvas::new(500.0, 200.0).unwrap(), 0.0, 0.0, 500.0, 200.0);
        }
    }
}
