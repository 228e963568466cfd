//! The command as it was typed, which datasets record.

/// The words of the command line, quoted for a shell, without those in `left_out`: options that decide nothing about the
/// result, so that it is the same with and without them.
pub fn command_line(left_out: &[&str]) -> String {
    let words = std::env::args().skip(1).filter(|word| !left_out.contains(&word.as_str()));
    std::iter::once("hsipack".to_owned()).chain(words.map(quoted)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
