//! All output to standard output and standard error, and numbers as people read them.
//!
//! Output may contain names from files, so control characters are escaped here. If standard output
//! cannot be written, the command ends with a plain message and status 1, because the reader has
//! only part of the output. If standard error (notes, progress, messages) cannot be written, the
//! text is lost: there is nowhere left to report it.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_format::text;

/// Prints a line to standard output, as `println!` does, through
/// [`output::line`](crate::output::line).
macro_rules! say {
    () => { $crate::output::line(format_args!("")) };
    ($($words:tt)*) => { $crate::output::line(format_args!($($words)*)) };
}

/// Prints a line to standard error, as `eprintln!` does, through
/// [`output::note`](crate::output::note).
macro_rules! note {
    ($($words:tt)*) => { $crate::output::note(format_args!($($words)*)) };
}

/// Prints a line to standard output.
pub fn line(words: std::fmt::Arguments<'_>) {
    show(&format!("{words}\n"));
}

/// Prints whole lines to standard output.
pub fn show(lines: &str) {
    write(text::printable_lines(lines).as_bytes());
}

/// Writes bytes unchanged to standard output. Used for our own scripts and JSON.
pub fn write(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    if let Err(error) = open_output().and_then(|()| out.write_all(bytes)) {
        std::process::exit(i32::from(refused(&error)));
    }
}

/// Prints a line to standard error.
pub fn note(words: std::fmt::Arguments<'_>) {
    let line = format!("{words}\n");
    let _ = io::stderr().lock().write_all(text::printable_lines(&line).as_bytes());
}

/// Returns `code` once all output is written, or the exit code of a failed write.
pub fn finish(code: ExitCode) -> ExitCode {
    io::stdout().flush().map_or_else(|error| ExitCode::from(refused(&error)), |()| code)
}

/// Prints a message of clap: help and version to standard output, wrong usage to standard error.
pub fn clap(message: &clap::Error) -> ExitCode {
    let code = ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(2));
    let is_error = message.use_stderr();
    let printed =
        if is_error { message.print() } else { open_output().and_then(|()| message.print()) };
    match printed {
        Err(error) if !is_error => ExitCode::from(refused(&error)),
        _ => finish(code),
    }
}

/// Reports that standard output cannot be written. Returns the exit status.
fn refused(error: &io::Error) -> u8 {
    note!(
        "hsipack: cannot write to standard output: {error} (free some space, or write somewhere else)"
    );
    1
}

/// # Errors
/// If standard output was closed when the command began. Before `main`, Rust opens the null device
/// in its place, and all output would be lost silently.
fn open_output() -> io::Result<()> {
    match CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}

/// Whether standard output was closed when the process began.
static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_output() {
    // SAFETY: asks for the flags of a descriptor. The descriptor need not be open.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Called before `main`, and before Rust's own preparations.
// SAFETY: the loader calls the functions in this section, which have this signature, in the only thread of the process.
// The function needs nothing of Rust's runtime: it does a system call and stores an atomic.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static LOOK_AT_OUTPUT: extern "C" fn() = look_at_output;

/// `1.2 GB`: powers of 1000, three significant digits.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// `1 cube`, `2 cubes`, `2 batches`, `2 classes`, `2 boxes`.
pub fn count(number: usize, what: &str) -> String {
    let ending = if ["tch", "ss", "x"].iter().any(|end| what.ends_with(end)) { "es" } else { "s" };
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}{ending}") }
}

/// Prints a report to standard output: as one JSON object (`--json`), or with `print` for people.
pub fn report<R: serde::Serialize>(report: &R, json: bool, print: impl FnOnce(&R)) {
    if json {
        self::json(report);
    } else {
        print(report);
    }
}

/// Prints a value as one line of JSON to standard output.
pub fn json<R: serde::Serialize>(value: &R) {
    let json = serde_json::to_string(value).expect("reports have string keys");
    write(format!("{}\n", text::printable_json(&json)).as_bytes());
}

/// A number with up to five significant digits, without trailing zeros.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e7).contains(&magnitude) {
        let text = format!("{value:.4e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let whole = if magnitude >= 1.0 { magnitude.log10().floor() as usize + 1 } else { 0 };
    let text = format!("{value:.*}", 5usize.saturating_sub(whole).max(usize::from(whole == 0) * 6));
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.032427, 1234.5678, 65504.0, 1e-9, 400.0, -9999.0, 366.55].map(number);
        assert_eq!(shown, ["0", "0.032427", "1234.6", "65504", "1e-9", "400", "-9999", "366.55"]);
    }

    #[test]
    fn sizes_have_three_digits() {
        let shown = [0, 999, 1000, 9999, 123_456, 999_600, 61_440_000, 5_000_000_000].map(bytes);
        assert_eq!(
            shown,
            ["0 B", "999 B", "1.00 kB", "10.0 kB", "123 kB", "1.00 MB", "61.4 MB", "5.00 GB"]
        );
    }
}
