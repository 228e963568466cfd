//! The live view on stderr: in a terminal a bar and two lines, otherwise a line now and then.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::figures::{Counts, Figures, Look, unit};
use super::source::Source;
use crate::output;

/// Time between looks.
const REFRESH: Duration = Duration::from_millis(200);
/// Rates are averaged over this many looks: two seconds.
const LOOKS: usize = 10;
/// Time between lines if there is no terminal.
const LINES: Duration = Duration::from_secs(10);

/// The live view.
pub struct View {
    bar: ProgressBar,
    unit: &'static str,
    epochs: u64,
    epoch: u64,
    /// Batches of a whole epoch.
    length: u64,
    /// Batches of this epoch.
    batches: u64,
    looks: Vec<Look>,
    looked: Instant,
    printed: Instant,
}

impl View {
    pub fn new(loader: &Source, start: Look, epoch: u64, epochs: u64) -> Self {
        let length = loader.batches_per_epoch().unwrap_or(0) as u64;
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        let style = "{prefix}  {bar:24}  {pos} of {len} batches  {msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        let before: usize = loader.state().delivered.iter().map(|segment| segment.batches).sum();
        let now = Instant::now();
        let mut view = Self {
            bar,
            unit: unit(loader),
            epochs,
            epoch,
            length,
            batches: 0,
            looks: vec![start],
            looked: now,
            printed: now,
        };
        view.begin(epoch);
        view.batches = before as u64;
        view
    }

    /// Begins an epoch.
    pub fn begin(&mut self, epoch: u64) {
        (self.epoch, self.batches) = (epoch, 0);
        if epoch < self.epochs {
            self.bar.set_position(0);
            self.bar.set_prefix(format!("epoch {} of {}", epoch + 1, self.epochs));
        }
    }

    /// Counts a batch that was taken.
    pub fn batch(&mut self, loader: &Source, taken: Counts) {
        self.batches += 1;
        self.tick(loader, taken);
    }

    /// Updates the view if enough time has passed.
    pub fn tick(&mut self, loader: &Source, taken: Counts) {
        if self.looked.elapsed() < REFRESH {
            return;
        }
        self.looked = Instant::now();
        let now = Look::at(loader, taken);
        let recent = Figures::between(&self.looks[0], &now);
        if self.looks.len() == LOOKS {
            self.looks.remove(0);
        }
        self.looks.push(now);
        if self.bar.is_hidden() {
            self.tell(&recent);
        } else {
            self.draw(&recent, loader.options().slots);
        }
    }

    fn draw(&self, recent: &Figures, slots: usize) {
        self.bar.set_position(self.batches);
        self.bar.set_message(format!(
            "{}\n{}",
            recent.rates(self.unit),
            second_line(recent, slots)
        ));
    }

    fn tell(&mut self, recent: &Figures) {
        if self.printed.elapsed() >= LINES {
            self.printed = Instant::now();
            note!(
                "note: epoch {} of {}: {} of {}, {}, limit: {}",
                self.epoch + 1,
                self.epochs,
                self.batches,
                output::count(self.length as usize, "batch"),
                recent.rates(self.unit),
                recent.limit.name()
            );
        }
    }

    /// Prints a line for an epoch that has ended.
    pub fn end(&self, epoch: &Figures) {
        if self.epochs > 1 {
            let line = format!(
                "epoch {}: {} in {:.1} s, {}",
                self.epoch + 1,
                output::count(epoch.samples as usize, self.unit),
                epoch.seconds,
                epoch.rates(self.unit)
            );
            // This does nothing if there is no terminal.
            self.bar.println(line);
        }
    }

    /// Removes the view.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// `ring ■■□□ 1.8 of 4 ready   threads 80% decoding, 15% reading, 5% idle   limit: decode`.
fn second_line(recent: &Figures, slots: usize) -> String {
    const WIDTH: usize = 16;
    // One slot is the consumer's.
    let most = slots - 1;
    let cells = most.min(WIDTH);
    let full = (recent.mean_ready / most as f64 * cells as f64).round() as usize;
    let percent = |share: f64| (share * 100.0).round();
    format!(
        "ring {}{} {:.1} of {most} ready   threads {}% decoding, {}% reading, {}% idle   limit: {}",
        "■".repeat(full.min(cells)),
        "□".repeat(cells - full.min(cells)),
        recent.mean_ready,
        percent(recent.decode_busy - recent.read),
        percent(recent.read),
        percent(recent.idle),
        recent.limit.name()
    )
}
