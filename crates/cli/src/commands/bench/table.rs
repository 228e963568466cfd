//! The report for people.

use hsipack_measure::bench::{Augment, FIGURES, Report};
use hsipack_measure::step::StepKind;

use crate::output;

/// Prints a table for each rate.
pub fn print(report: &Report) {
    say!("{}", heading(report));
    let mut rates: Vec<Option<u64>> =
        report.strategies.iter().map(|entry| entry.rate_limit).collect();
    rates.dedup();
    for rate in rates {
        say!();
        match rate {
            Some(rate) => say!("reads at {}/s", output::bytes(rate)),
            None => say!("reads unlimited"),
        }
        let entries = report.strategies.iter().filter(|entry| entry.rate_limit == rate);
        let rows: Vec<[String; 8]> = entries.map(|entry| entry.figures(size)).collect();
        columns(&rows);
    }
    say!();
    for note in &report.notes {
        say!("note: {note}");
    }
}

fn size(bytes: f64) -> String {
    output::bytes(bytes.round() as u64)
}

fn heading(report: &Report) -> String {
    let settings = &report.settings;
    let step = match settings.step {
        StepKind::Time(seconds) => format!("a step of {:.4} ms", seconds * 1e3),
        StepKind::Network => "a small network".to_owned(),
    };
    let step = step.replace(".0000", "");
    let augment = match settings.augment {
        Augment::None => "not augmented",
        Augment::Published => "the published augmentations",
        Augment::Pipeline(_) => "your augmentations",
    };
    let device = report.gpu.as_ref().unwrap_or(&report.device);
    format!(
        "{}, {} of {} in batches of {}, {}, {augment}, {step} on {device}\nfiles: {}\n{} of {}, after {} or more each",
        report.data.source,
        output::count(report.data.cubes, "cube"),
        report.data.shape,
        settings.batch_size,
        output::count(settings.workers, "worker"),
        report.data.files(size),
        output::count(report.repeats, "repeat"),
        output::count(settings.epochs, "epoch"),
        output::count(settings.warmup_epochs, "warm-up"),
    )
}

/// Names to the left, numbers to the right.
fn columns(rows: &[[String; 8]]) {
    let head = FIGURES.map(str::to_owned);
    let width = |column: usize| {
        std::iter::once(&head).chain(rows).map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let widths: [usize; 8] = std::array::from_fn(width);
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        say!("  {}", cells.collect::<Vec<_>>().join("  "));
    }
}
