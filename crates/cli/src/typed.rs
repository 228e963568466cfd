//! The command as it was typed, which datasets record.

/// The words of the command line, quoted for a shell, without the options in `left_out`, and
/// without the options in `with_value` and their values. These options do not affect the result, so
/// the text is the same with and without them.
pub fn command_line(left_out: &[&str], with_value: &[&str]) -> String {
    let words = kept(std::env::args().skip(1), left_out, with_value);
    std::iter::once("hsipack".to_owned()).chain(words.map(quoted)).collect::<Vec<_>>().join(" ")
}

fn kept(
    mut words: impl Iterator<Item = String>,
    left_out: &[&str],
    with_value: &[&str],
) -> impl Iterator<Item = String> {
    std::iter::from_fn(move || {
        loop {
            let word = words.next()?;
            match word.split_once('=') {
                Some((option, _)) if with_value.contains(&option) => {}
                _ if with_value.contains(&word.as_str()) => drop(words.next()),
                _ if left_out.contains(&word.as_str()) => {}
                _ => return Some(word),
            }
        }
    })
}

fn quoted(word: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {

    #[test]
    fn options_that_decide_nothing_are_left_out_with_their_values() {
        let kept = |typed: &str| -> String {
            let words = typed.split(' ').map(str::to_owned);
            super::kept(words, &["--resume"], &["--plan"]).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(kept("convert a --plan p.json -o b --resume"), "convert a -o b");
        assert_eq!(kept("convert --plan=p.json a --planned -o b"), "convert a --planned -o b");
    }
}
