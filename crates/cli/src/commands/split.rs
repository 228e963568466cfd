//! `hsipack split`.

use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::split::{self, ClassReport, Report, SampleReport, SplitOptions};

use crate::task::Task;
use crate::{output, typed};

/// Divide samples, or labelled pixels, into train, val and test.
///
/// --by samples and groups give each sample a split, which takes the place of a column split in a
/// table. With a mask, each split becomes a mask of the dataset, named after the mask and the split
/// (gt_train, gt_test). It has the class ids of its pixels, and 0 elsewhere.
/// `hsipack read --patch 9x9 --mask gt_train` and LabelledPatches(9, mask="gt_train") read its
/// patches. The other files of the dataset do not change, and all masks appear at once.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: SplitOptions,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack split pavia.hsipack --mask gt --by blocks --shares train=0.1,val=0.1,test=rest --buffer auto
  hsipack split pavia.hsipack --mask gt --by pixels --shares train=0.1,test=rest --per-class 50 --name gt_random
  hsipack split fruit.hsipack --by groups --shares train=0.7,val=0.15,test=rest
  hsipack split trees.hsipack --mask species --by regions --shares train=0.6,val=0.2,test=0.2 --dry-run";

/// Runs the command.
///
/// # Errors
/// The errors of [`split::split`], and an error if options contradict each other.
pub fn run(args: Args) -> Result<ExitCode> {
    let command = typed::command_line(&["--force", "--json"], &[]);
    let options = SplitOptions { command, ..args.options };
    let task = Task::start("divided");
    if options.by.is_of_samples() {
        let result = split::split_samples(&options, &task.progress);
        task.finish();
        output::report(&result?, args.json, print_samples);
        return Ok(ExitCode::SUCCESS);
    }
    let result = split::split(&options, &task.progress);
    task.finish();
    output::report(&result?, args.json, print);
    Ok(ExitCode::SUCCESS)
}

fn print_samples(report: &SampleReport) {
    say!(
        "{}: {} by {}, seed {}{}",
        report.dataset,
        output::count(report.samples, "sample"),
        report.by,
        report.seed,
        if report.dry_run { " (nothing was written)" } else { "" }
    );
    let names = report.splits.iter().map(|split| split.name.clone());
    let heads = ["label".to_owned(), "samples".to_owned()].into_iter();
    let mut lines: Vec<Vec<String>> = vec![heads.chain(names).collect()];
    for label in &report.labels {
        let name = label.label.as_str().map_or_else(|| label.label.to_string(), str::to_owned);
        let counts = label.splits.iter().map(ToString::to_string);
        lines.push([name, label.samples.to_string()].into_iter().chain(counts).collect());
    }
    let all = ["all".to_owned(), report.samples.to_string()].into_iter();
    lines.push(all.chain(report.splits.iter().map(|split| split.samples.to_string())).collect());
    let shares = report.splits.iter().map(|split| percent(split.share));
    lines.push([String::new(), String::new()].into_iter().chain(shares).collect());
    aligned(&lines).iter().for_each(|line| say!("  {line}"));
    if report.unused > 0 {
        say!("  {} in no split", output::count(report.unused, "sample"));
    }
    report.notes.iter().for_each(|note| say!("  note: {note}"));
}

fn print(report: &Report) {
    let by = match report.block {
        Some(side) => format!("blocks of {side}x{side}"),
        None => report.by.to_owned(),
    };
    let masks: Vec<&str> = report.splits.iter().map(|split| split.mask.as_str()).collect();
    say!(
        "{}: {} by {by}, seed {}: {}{}",
        report.dataset,
        report.mask,
        report.seed,
        masks.join(", "),
        if report.dry_run { " (nothing was written)" } else { "" }
    );
    table(report).iter().for_each(|line| say!("  {line}"));
    let [rows, columns] = report.patch;
    let first = &report.splits[0].name;
    for leak in report.seen.iter().filter(|leak| leak.pixels > 0) {
        say!(
            "  {first} patches of {rows}x{columns} see {} of the {split} pixels, and overlap {} of the {split} patches",
            percent(leak.inside_share),
            percent(leak.overlapping_share),
            split = leak.split
        );
    }
    if let Some([rows, columns]) = report.buffer {
        let all = report.splits[0].pixels + report.buffered;
        say!(
            "  the buffer of {rows} rows and {columns} columns took {} of {all} pixels from {first}",
            report.buffered
        );
    }
    if report.seen.iter().any(|leak| leak.inside > 0) {
        say!(
            "  note: accuracies on pixels that training patches contain are too high; {}",
            match report.by {
                "blocks" => "--buffer auto keeps them apart",
                _ => "--by blocks --buffer auto keeps them apart",
            }
        );
    }
    report.notes.iter().for_each(|note| say!("  note: {note}"));
}

/// A heading, and a number for each class.
type Column = (String, Vec<u64>);

/// A line per class, and one for all classes: names on the left, numbers on the right.
fn table(report: &Report) -> Vec<String> {
    let column = |head: &str, of: &dyn Fn(&ClassReport) -> u64| -> Column {
        (head.to_owned(), report.classes.iter().map(of).collect())
    };
    let mut columns = vec![column("pixels", &|class| class.pixels)];
    let splits = report.splits.iter().enumerate();
    columns.extend(splits.map(|(index, split)| column(&split.name, &|class| class.splits[index])));
    let more = [column("buffer", &|class| class.buffered), column("unused", &|class| class.unused)];
    columns.extend(more.into_iter().filter(|(_, pixels)| pixels.iter().any(|count| *count > 0)));
    let line = |first: String, of: &dyn Fn(&Column) -> String| -> Vec<String> {
        std::iter::once(first).chain(columns.iter().map(of)).collect()
    };
    let mut lines = vec![line("class".to_owned(), &|(head, _)| head.clone())];
    for (index, class) in report.classes.iter().enumerate() {
        let name = class.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let first = format!("{}{name}", class.id);
        lines.push(line(first, &|(_, pixels)| pixels[index].to_string()));
    }
    lines.push(line("all".to_owned(), &|(_, pixels)| pixels.iter().sum::<u64>().to_string()));
    let shares = report.splits.iter().map(|split| percent(split.share));
    lines.push([String::new(), String::new()].into_iter().chain(shares).collect());
    aligned(&lines)
}

fn aligned(lines: &[Vec<String>]) -> Vec<String> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |cells: &Vec<String>| {
        let cells =
            cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}

/// `12.3 %`. Only a share of exactly none or all is shown as 0 % or 100 %.
fn percent(share: f64) -> String {
    match share * 100.0 {
        none if none <= 0.0 => "0 %".to_owned(),
        all if all >= 100.0 => "100 %".to_owned(),
        few if few < 0.1 => "< 0.1 %".to_owned(),
        many if many > 99.9 => "> 99.9 %".to_owned(),
        share => format!("{share:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use hsipack_pack::split::PATCH;

    use super::*;

    #[test]
    fn shares_do_not_look_like_nothing_or_all() {
        let shown = [0.0, 1e-6, 0.1234, 0.99999, 1.0].map(percent);
        assert_eq!(shown, ["0 %", "< 0.1 %", "12.3 %", "> 99.9 %", "100 %"]);
    }

    #[test]
    fn the_patch_is_the_library_s() {
        use clap::CommandFactory;
        let words = ["hsipack", "split", "d", "--mask", "m", "--by", "pixels", "--shares", "a=1"];
        let matches = crate::Cli::command().try_get_matches_from(words).unwrap();
        let split = matches.subcommand_matches("split").unwrap();
        assert_eq!(split.get_one::<[u32; 2]>("patch"), Some(&PATCH));
    }
}
