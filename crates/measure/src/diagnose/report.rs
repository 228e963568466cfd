//! A diagnosis, as JSON and for people.

use std::fmt::Write;

use hsipack_format::Opt;
use hsipack_format::remedy::{Value, current};
use hsipack_read::{CacheKind, Statistics};
use serde::Serialize;

use super::action::Action;
use super::facts::{Facts, Kind};
use super::level::Level;
use super::remedy::Remedy;
use super::verdict::{Limits, Verdict};
use super::words::{percent, time};

/// The measurements, the culprit and the remedy.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// The subject of the diagnosis.
    pub subject: String,
    /// Samples per batch, if known.
    pub batch_size: Option<usize>,
    /// The levels and the culprit.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// When a drop counts.
    pub limits: Limits,
    /// Facts besides the times.
    pub facts: Facts,
    /// Remedies.
    pub remedy: Option<Remedy>,
    /// The result of trying the remedy.
    pub verified: Option<Verified>,
    /// Statistics of the loader with everything real, if it is hsipack's.
    pub statistics: Option<Statistics>,
    /// Number of times that everything was measured. It is more than 1 if the speed of the machine
    /// changed between the levels and the trial of the remedy.
    pub attempts: usize,
    /// Levels that could not be measured, with the reason.
    pub notes: Vec<String>,
}

/// The result of trying a remedy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verified {
    /// Seconds per batch without the remedy, measured again in the same rounds.
    pub before_s: f64,
    /// Seconds per batch with the remedy.
    pub after_s: f64,
    /// The measured speed-up.
    pub gain: f64,
    /// Relative error of the prediction: predicted gain divided by measured gain, minus 1.
    pub error: Option<f64>,
    /// Seconds per batch for the basis of the prediction: when the levels were measured, and beside
    /// the remedy. `None` if the basis cannot be measured by itself.
    pub basis_s: Option<[f64; 2]>,
    /// Whether a batch without the remedy took as long as when the levels were measured, and the
    /// basis still predicts the same gain. If not, the speed of the machine changed in between, and
    /// prediction and measurement cannot be compared.
    pub steady: bool,
}

/// Seconds per batch, as medians over the same rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Without the remedy.
    pub before_s: f64,
    /// With the remedy.
    pub after_s: f64,
    /// For the basis of the prediction, if it can be measured by itself.
    pub basis_s: Option<f64>,
}

impl Verified {
    /// Compares the time of a batch without and with the remedy, and checks both times without it
    /// against those from when the levels were measured.
    pub fn new(
        trial: Trial,
        remedy: &Remedy,
        verdict: &Verdict,
        facts: &Facts,
        limits: Limits,
    ) -> Self {
        let Trial { before_s, after_s, .. } = trial;
        let gain = before_s / after_s.max(f64::MIN_POSITIVE);
        // Files were in the system's cache then, as they are now.
        let real_s = verdict.last(Level::Load).map_or(0.0, |row| row.batch_s);
        let then = remedy.basis.and_then(|basis| basis.batch_s(verdict, facts));
        let basis_s = then.zip(trial.basis_s).map(|(then, now)| [then, now]);
        // The predicted gain is a ratio: both times may have become longer by the same factor.
        let promised =
            basis_s.is_none_or(|[then, now]| limits.agree(real_s * now, before_s * then));
        Self {
            before_s,
            after_s,
            gain,
            error: remedy.predicted_gain.map(|predicted| predicted / gain - 1.0),
            basis_s,
            steady: limits.agree(before_s, real_s) && promised,
        }
    }
}

impl Diagnosis {
    /// The report for people, with options spelled for the surface in use. It has several lines,
    /// and the last one ends with a newline.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        wrapped(out, "", &self.subject)?;
        writeln!(
            out,
            "  {:<30}{:>18}  {:>9}  {:>12}",
            "stages that run", "batch", "batches/s", "drop"
        )?;
        for row in &self.verdict.rows {
            let drop = match row.level {
                Level::Step => String::new(),
                _ if row.counts => format!("+{} {}", time(row.cost_s), percent(row.share)),
                _ => "-".to_owned(),
            };
            let batch = format!("{} ± {}", time(row.batch_s), time(row.spread_s));
            let rate = 1.0 / row.batch_s.max(f64::MIN_POSITIVE);
            let plus = if row.level == Level::Step { "" } else { "+ " };
            let name = format!("{plus}{}", row.adds);
            writeln!(
                out,
                "{}",
                format!("  {name:<30}{batch:>18}  {rate:>9.2}  {drop:>12}").trim_end()
            )?;
        }
        self.write_culprit(out)?;
        if !self.verdict.settled {
            let unsure = "the rounds differ a lot, or the drop is barely large enough";
            line(out, "unsure", unsure)?;
            line(
                out,
                "",
                &format!("end other programs on this machine, or use more {}", Opt::Rounds),
            )?;
        }
        if let Some(remedy) = &self.remedy {
            self.write_remedy(remedy, out)?;
        }
        if let Some(verified) = &self.verified {
            let Verified { before_s, after_s, gain, .. } = verified;
            let gain =
                format!("{gain:.2} times as fast ({} -> {})", time(*before_s), time(*after_s));
            line(out, "measured", &gain)?;
            if !verified.steady {
                let real_s = self.verdict.real_s();
                let (what, [then, now]) = match verified.basis_s {
                    Some(times) if self.limits.agree(real_s, *before_s) => {
                        ("the basis of the prediction", times)
                    }
                    _ => ("a batch", [real_s, *before_s]),
                };
                let (then, now) = (time(then), time(now));
                let changed =
                    format!("the speed of the machine changed: {what} took {then}, then {now}");
                line(out, "unsure", &changed)?;
                line(out, "", "end other programs on this machine, and run it again")?;
            }
        }
        self.notes.iter().try_for_each(|note| line(out, "note", note))
    }

    fn write_culprit(&self, out: &mut String) -> std::fmt::Result {
        let Some(row) = self.verdict.culprit.and_then(|level| self.verdict.row(level)) else {
            let dominates =
                "nobody: the training step takes all of the time; loading keeps up with it";
            return line(out, "to blame", dominates);
        };
        let share = percent(row.share);
        line(out, "to blame", &format!("{}: {share} of the time of a batch", row.adds))
    }

    fn write_remedy(&self, remedy: &Remedy, out: &mut String) -> std::fmt::Result {
        let action = remedy.action.spelled(self.facts.kind);
        let mut first = true;
        for advice in action.iter().chain(&remedy.advice) {
            line(out, if first { "try" } else { "" }, advice)?;
            first = false;
        }
        match (remedy.predicted_gain, remedy.predicted_s) {
            (Some(gain), Some(batch)) => line(
                out,
                "predicted",
                &format!(
                    "{gain:.2} times as fast ({} -> {})",
                    time(self.verdict.real_s()),
                    time(batch)
                ),
            ),
            _ => line(out, "predicted", "unknown until it is tried"),
        }
    }
}

impl Action {
    /// The options of the loader, as the surface in use spells them; `None` if no option does this.
    pub fn spelled(&self, kind: Kind) -> Option<String> {
        Some(match self {
            Action::Cache { cache: CacheKind::Auto, .. } => {
                current().together(&[Opt::Cache.to("auto")])
            }
            Action::ShuffleWindow { .. } => {
                current().together(&[Opt::Cache.to("auto"), Opt::ShuffleWindow.to("auto")])
            }
            Action::Cache { cache, bytes } => {
                let name = if *cache == CacheKind::Decoded { "decoded" } else { "compressed" };
                // A little more than needed, rounded up to megabytes.
                let megabytes = (*bytes as f64 * 1.01 / 1e6).ceil() as u64;
                let size = Opt::CacheSize.to(Value::Bytes(megabytes * 1_000_000));
                current().together(&[Opt::Cache.to(name), size])
            }
            Action::Threads { threads } => match kind {
                Kind::Hsipack => Opt::Threads.to(*threads as u64).to_string(),
                _ => format!("num_workers={threads}"),
            },
            Action::Without { name, .. } => format!("a cheaper augmentation than {name}, or none"),
            Action::Crop { pixels } => Opt::Crop.to(pixels.map(u64::from)).to_string(),
            Action::Pin => "pin_memory=True".to_owned(),
            Action::Other => return None,
        })
    }
}

fn line(out: &mut String, name: &str, text: &str) -> std::fmt::Result {
    wrapped(out, &format!("  {name:<11}"), text)
}

/// Width of a terminal in columns.
const COLUMNS: usize = 80;

/// Writes `before` and then `text`, wrapped at blanks to fit a terminal. Further lines are indented
/// by the width of `before`.
fn wrapped(out: &mut String, before: &str, text: &str) -> std::fmt::Result {
    let indent = before.chars().count();
    let (mut at, mut first) = (indent, true);
    out.push_str(before);
    for word in text.split(' ') {
        let width = word.chars().count();
        if !first && at + 1 + width > COLUMNS {
            write!(out, "\n{:indent$}", "")?;
            at = indent;
        } else if !first {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        (at, first) = (at + width, false);
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::super::remedy::remedy;
    use super::super::verdict::{Measured, verdict};
    use super::*;

    fn diagnosis(read: f64) -> Diagnosis {
        let times = [(Level::Step, 0.04), (Level::Decode, 0.05), (Level::Read, read)];
        let measured = times.map(|(level, time)| Measured { level, batch_s: vec![time; 3] });
        let verdict = verdict(&measured, Limits::default());
        let facts = Facts {
            available_memory: Some(1 << 30),
            stored_bytes: Some(50_000_000),
            ..Facts::default()
        };
        let remedy = remedy(&verdict, &facts);
        let promised = Remedy { predicted_gain: Some(4.4), ..remedy.clone().unwrap() };
        let limits = Limits::default();
        Diagnosis {
            subject: "tissue.hsipack".into(),
            batch_size: Some(6),
            verified: Some(Verified::new(TRIAL, &promised, &verdict, &facts, limits)),
            remedy,
            verdict,
            limits,
            facts,
            statistics: None,
            attempts: 1,
            notes: Vec::new(),
        }
    }

    const TRIAL: Trial = Trial { before_s: 0.2, after_s: 0.05, basis_s: Some(0.05) };

    /// The diagnosis of `diagnosis(0.2)` with this trial.
    fn tried(trial: Trial) -> Diagnosis {
        let Diagnosis { facts, .. } = diagnosis(0.2);
        let times = [(Level::Step, 0.04), (Level::Decode, 0.05), (Level::Read, 0.2)];
        let measured = times.map(|(level, time)| Measured { level, batch_s: vec![time; 3] });
        let limits = Limits::default();
        let verdict = verdict(&measured, limits);
        let remedy = remedy(&verdict, &facts).unwrap();
        let verified = Some(Verified::new(trial, &remedy, &verdict, &facts, limits));
        Diagnosis { verified, verdict, remedy: Some(remedy), ..diagnosis(0.2) }
    }

    #[test]
    fn the_report_names_culprit_remedy_and_gain() {
        let diagnosis = diagnosis(0.2);
        let text = diagnosis.text();
        for part in [
            "to blame   reading files: 75% of the time",
            "cache=compressed, cache_size=51000000",
            "predicted  4.00 times as fast (200 ms -> 50.0 ms)",
            "measured   4.00 times as fast",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!((diagnosis.verified.unwrap().error.unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn the_report_fits_a_terminal() {
        let levels = [
            Level::Step,
            Level::Augment,
            Level::Prepare,
            Level::Copy,
            Level::Collate,
            Level::Decode,
            Level::Read,
            Level::Cold,
        ];
        let slower = |index: usize| 0.9991 * 1.4f64.powi(index as i32);
        let measured = levels.iter().enumerate().map(|(index, level)| {
            let batch_s = vec![slower(index), slower(index) * 1.1, slower(index) * 0.9];
            Measured { level: *level, batch_s }
        });
        let verdict = verdict(&measured.collect::<Vec<_>>(), Limits::default());
        let mut diagnosis = Diagnosis { verdict, ..diagnosis(0.2) };
        diagnosis.verdict.settled = false;
        diagnosis.subject = "a packed dataset with a long name: ".repeat(4);
        diagnosis.notes = vec!["what could not be measured, and why that is so ".repeat(5)];
        let text = diagnosis.text();
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
        for level in levels {
            assert!(text.contains(level.adds()), "{text}");
        }
    }

    #[test]
    fn a_verdict_that_did_not_settle_says_so() {
        assert!(!diagnosis(0.2).text().contains("unsure"));
        let mut unsure = diagnosis(0.2);
        unsure.verdict.settled = false;
        let text = unsure.text();
        assert!(text.contains("unsure") && text.contains("use more rounds"), "{text}");
    }

    #[test]
    fn a_machine_that_changed_its_speed_is_told() {
        let changed = tried(Trial { before_s: 0.15, ..TRIAL });
        let text = changed.text();
        let expected =
            "unsure     the speed of the machine changed: a batch took 200 ms, then 150 ms";
        assert!(text.contains(expected), "{text}");
        let steady = |before_s| {
            let trial = Trial { before_s, basis_s: None, ..TRIAL };
            tried(trial).verified.unwrap().steady
        };
        assert!(steady(0.213) && !steady(0.22) && !steady(0.18));
    }

    #[test]
    fn a_verification_needs_the_basis_to_take_as_long_as_before() {
        let verified = |before_s, basis_s| {
            let trial = Trial { before_s, basis_s: Some(basis_s), ..TRIAL };
            tried(trial).verified.unwrap()
        };
        let same = verified(0.2, 0.051);
        assert!(same.steady && same.basis_s == Some([0.05, 0.051]), "{same:?}");
        assert!(!verified(0.2, 0.055).steady && !verified(0.2, 0.045).steady);
        // Both are a little slower: the predicted ratio stays the same.
        assert!(verified(0.213, 0.0545).steady);
        assert!(!verified(0.19, 0.0525).steady);
        let text = tried(Trial { basis_s: Some(0.06), ..TRIAL }).text();
        let expected = "the speed of the machine changed: the basis of the prediction took 50.0 ms, then 60.0 ms";
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(expected), "{text}");
    }

    #[test]
    fn nobody_is_accused_if_the_step_dominates() {
        let times = [(Level::Step, 0.05), (Level::Read, 0.05)];
        let measured = times.map(|(level, time)| Measured { level, batch_s: vec![time; 3] });
        let verdict = verdict(&measured, Limits::default());
        let diagnosis = Diagnosis { verdict, remedy: None, verified: None, ..diagnosis(0.2) };
        let text = diagnosis.text();
        assert!(text.contains("to blame   nobody") && !text.contains("try"), "{text}");
        assert!(serde_json::to_value(&diagnosis).unwrap()["culprit"].is_null());
    }
}
