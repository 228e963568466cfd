//! The report as a page: epoch times, device load over time, a table, machine and settings.

use std::fmt::Write;

use super::augment::Augment;
use super::busy::WINDOW_S;
use super::report::{Entry, FIGURES, Report, digits};
use crate::page::chart::{Bar, Chart};
use crate::page::{Page, escape, table};
use crate::step::StepKind;

/// The longest part of a run that is shown over time, in seconds: beyond it, windows are too narrow
/// to see.
const SHOWN_S: f64 = 30.0;

impl Report {
    /// The page.
    pub fn page(&self) -> String {
        let mut page = Page::new("What each strategy brings")
            .lead(&self.lead())
            .section("Epoch time", &format!("{}{}", self.figures(), self.epochs()))
            .style(STYLE)
            .data(self);
        for rate in self.rates() {
            let heading = format!("The device over time, {}", rate_name(rate));
            page = page.section(&heading, &self.over_time(rate));
        }
        let tables = self.rates().into_iter().map(|rate| {
            let rows: Vec<Vec<String>> =
                self.at(rate).map(|entry| entry.figures(bytes).to_vec()).collect();
            format!("<h3>{}</h3>\n{}", escape(&capital(&rate_name(rate))), table(&FIGURES, &rows))
        });
        page.section("All figures", &tables.collect::<String>())
            .section("Machine and settings", &self.settings())
            .render()
    }

    fn rates(&self) -> Vec<Option<u64>> {
        let mut rates: Vec<_> = self.strategies.iter().map(|entry| entry.rate_limit).collect();
        rates.dedup();
        rates
    }

    fn at(&self, rate: Option<u64>) -> impl Iterator<Item = &Entry> {
        self.strategies.iter().filter(move |entry| entry.rate_limit == rate)
    }

    fn lead(&self) -> String {
        format!(
            "{} cubes of {} in batches of {}: from float32 files to a ring buffer that is never empty, \
             on the same cubes and the same machine. Each strategy keeps what the ones before it brought.",
            self.data.cubes,
            self.data.shape.to_string().replace('x', " × "),
            self.settings.batch_size
        )
    }

    /// The last strategy's gain at each rate limit.
    fn figures(&self) -> String {
        let mut out = String::new();
        for rate in self.rates() {
            let Some(last) = self.at(rate).last() else { continue };
            let name = escape(&format!("{}, {}", last.name, rate_name(rate)));
            if let Some(speedup) = &last.speedup {
                let _ = write!(out, "<div><dt>{name}</dt><dd>{:.1} ×</dd></div>", speedup.mean);
            }
            let busy = last.utilisation.mean * 100.0;
            let _ = write!(
                out,
                "<div><dt>device busy, {}</dt><dd>{busy:.1} %</dd></div>",
                escape(&rate_name(rate))
            );
        }
        format!("<dl class=\"figures\">{out}</dl>\n")
    }

    fn epochs(&self) -> String {
        let rates = self.rates();
        let mut names: Vec<&str> = self.strategies.iter().map(|entry| entry.name.name()).collect();
        names.dedup();
        names.truncate(self.at(rates.first().copied().flatten()).count());
        let times = self.strategies.iter().map(|entry| {
            format!(
                "{}, {}: {} s",
                entry.name,
                rate_name(entry.rate_limit),
                digits(entry.epoch_s.mean)
            )
        });
        let description = times.collect::<Vec<_>>().join("; ");
        let mut chart =
            Chart::new("Seconds an epoch", &description).y_label("s/epoch").categories(&names);
        for rate in rates {
            let bars: Vec<Bar> = self
                .at(rate)
                .map(|entry| Bar::new(entry.epoch_s.mean).error(entry.epoch_s.sd))
                .collect();
            chart = chart.bars(&rate_name(rate), &bars);
        }
        let spread = if self.repeats < 2 {
            "Measured once.".to_owned()
        } else {
            format!(
                "Means of {} repeats, taken in turns; lines are standard deviations.",
                self.repeats
            )
        };
        format!("{}\n<p class=\"muted\">{spread}</p>", chart.for_page(300.0))
    }

    /// One strip per strategy; all cover the same time.
    fn over_time(&self, rate: Option<u64>) -> String {
        let longest = self.at(rate).map(|entry| entry.timeline.busy.len()).max().unwrap_or(0);
        let end = (longest as f64 * WINDOW_S).clamp(WINDOW_S, SHOWN_S);
        if longest == 0 {
            return format!(
                "<p>Every run took less than {WINDOW_S} s, too short for charts. Use more epochs for charts.</p>"
            );
        }
        let mut out = String::new();
        for entry in self.at(rate) {
            let windows = entry.timeline.busy.iter().enumerate();
            let mut points: Vec<[f64; 2]> =
                windows.map(|(number, busy)| [number as f64 * WINDOW_S, busy * 100.0]).collect();
            let mean = format!("{}: {:.1} % busy", entry.name, entry.utilisation.mean * 100.0);
            let Some([_, last]) = points.last().copied() else {
                let _ = writeln!(
                    out,
                    "<div><h3>{}</h3><p class=\"muted\">The run took less than {WINDOW_S} s, too short for a chart. \
                     Use more epochs for charts.</p></div>",
                    escape(&mean)
                );
                continue;
            };
            points.push([points.len() as f64 * WINDOW_S, last]);
            points.retain(|[at, _]| *at <= end + 1e-9);
            let chart = Chart::new(&mean, &format!("{mean} on average, {}", rate_name(rate)))
                .size(720.0, 150.0)
                .x_range(0.0, end)
                .y_range(0.0, 100.0)
                .y_label("% busy")
                .steps("", &points);
            let _ = writeln!(out, "<div>{}</div>", chart.for_page(130.0));
        }
        let source = match self.at(rate).next().map(|entry| entry.timeline.source.as_str()) {
            Some("nvml") => "the load of the GPU as reported by NVML",
            _ => "the share of the time in which the device augmented or trained",
        };
        format!(
            "<div class=\"strips\">{out}</div>\n<p class=\"muted\">Seconds of the last repeat, in windows of {WINDOW_S} s: \
             {source}. A fast strategy ends sooner. \"Busy\" beside each name is the mean of all repeats.</p>"
        )
    }

    fn settings(&self) -> String {
        let (machine, settings, data) = (&self.machine, &self.settings, &self.data);
        let step = match settings.step {
            StepKind::Time(seconds) => {
                format!("{} ms of waiting for each batch", number(seconds * 1e3))
            }
            StepKind::Network => "a small network is trained".to_owned(),
        };
        let augment = match &settings.augment {
            Augment::None => "none".to_owned(),
            Augment::Published => {
                "the published chain: affine map (p 0.5), flips (p 0.25 each)".to_owned()
            }
            Augment::Pipeline(pipeline) => {
                pipeline.ops.iter().map(|op| op.name()).collect::<Vec<_>>().join(", ")
            }
        };
        let memory = machine.memory_bytes.map_or("-".to_owned(), |memory| bytes(memory as f64));
        let load = machine.load_average.map_or("-".to_owned(), |load| format!("{load:.2}"));
        let device = self.gpu.clone().unwrap_or_else(|| self.device.clone());
        let rows = [
            ("processor", format!("{} ({} cores)", machine.processor, machine.cores)),
            ("memory", memory),
            ("system", machine.system.clone()),
            ("load average at the end", load),
            ("device", device),
            ("cubes", format!("{} of {}, {}", data.cubes, data.shape, data.source)),
            ("files", data.files(bytes)),
            ("batches", format!("{} cubes", settings.batch_size)),
            ("workers or decoding threads", settings.workers.to_string()),
            (
                "epochs",
                format!("{} after {} or more to warm up", settings.epochs, settings.warmup_epochs),
            ),
            ("step", step),
            ("augmentations", augment),
            (
                "file cache",
                if settings.drop_cache { "dropped after every epoch" } else { "warm" }.to_owned(),
            ),
            ("wait before every read", format!("{} ms", settings.latency_s * 1e3)),
        ];
        let mut out = String::from("<dl class=\"settings\">");
        for (name, value) in rows {
            let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value));
        }
        out.push_str("</dl>\n");
        for note in &self.notes {
            let _ = writeln!(out, "<p class=\"muted\">Note: {}.</p>", escape(note));
        }
        out
    }
}

const STYLE: &str = "
h3 { margin: 1rem 0 0.25rem; font-size: 1rem; }
.strips { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 32rem), 1fr)); gap: 0.25rem 1rem; }
.strips > div { min-width: 0; }
.settings { display: grid; grid-template-columns: minmax(7rem, 14rem) 1fr; gap: 0.25rem 1rem; margin: 0; }
.settings dt { color: var(--muted); }
.settings dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .settings { grid-template-columns: 1fr; }
  .settings dd { margin-bottom: 0.4rem; }
}
";

fn rate_name(rate: Option<u64>) -> String {
    rate.map_or_else(
        || "reads unlimited".to_owned(),
        |rate| format!("reads at {} MB/s", number(rate as f64 / 1e6)),
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn bytes(count: f64) -> String {
    match count {
        count if count < 1e6 => format!("{:.0} kB", count / 1e3),
        count if count < 1e9 => format!("{:.0} MB", count / 1e6),
        count => format!("{:.2} GB", count / 1e9),
    }
}

/// Formats a number without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([number(50.0), number(0.1), number(1000.0)], ["50", "0.1", "1000"]);
        assert_eq!(rate_name(Some(1_000_000_000)), "reads at 1000 MB/s");
        assert_eq!([bytes(2e5), bytes(3.4e8), bytes(1.5e9)], ["200 kB", "340 MB", "1.50 GB"]);
    }
}
