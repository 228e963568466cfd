//! `SHA256SUMS`: one line per metadata file, in the form that `sha256sum -c` reads.

use std::io::{self, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// Name of the file.
pub const SHA256SUMS: &str = "SHA256SUMS";

/// SHA-256 of `bytes`, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&digest(bytes))
}

/// SHA-256 of bytes that arrive piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The SHA-256 of all bytes, in hexadecimal.
    pub fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// SHA-256 of `bytes`.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of a `SHA256SUMS` file for files given as (path relative to the dataset, content).
pub fn encode<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    encode_sums(files.into_iter().map(|(path, content)| (path, sha256(content))))
}

/// The text of a `SHA256SUMS` file for files given as (path relative to the dataset, checksum).
pub fn encode_sums<'a>(files: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut lines: Vec<(&str, String)> = files.into_iter().collect();
    lines.sort_unstable();
    lines.iter().map(|(path, sum)| format!("{sum}  {path}\n")).collect()
}

/// The lines of a `SHA256SUMS` file as (path relative to the dataset, checksum).
///
/// # Errors
/// If a line is not a checksum and a path, or if a path leads out of the dataset.
pub fn parse(text: &[u8]) -> Result<Vec<(String, String)>> {
    let text = std::str::from_utf8(text).map_err(|_| Error::damaged("not text"))?;
    if !text.ends_with('\n') {
        return Err(Error::damaged("the last line is cut short"));
    }
    let bad =
        |number: usize| Error::damaged(format!("line {} is not a sum and a path", number + 1));
    let lines = text.lines().enumerate().map(|(number, line)| {
        let (sum, path) = line.split_once("  ").ok_or_else(|| bad(number))?;
        let hex =
            sum.len() == 64 && sum.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let inside = Path::new(path)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if hex && inside && !path.is_empty() {
            Ok((path.to_owned(), sum.to_owned()))
        } else {
            Err(bad(number))
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        let text = encode([("b", b"abc".as_slice()), ("a/zarr.json", b"")]);
        assert_eq!(
            text,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a/zarr.json\n\
             ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n"
        );
        assert_eq!(parse(text.as_bytes()).unwrap()[1].0, "b");
    }

    #[test]
    fn pieces_have_the_sum_of_the_whole() {
        let mut hasher = Hasher::default();
        hasher.update(b"ab");
        hasher.write_all(b"c").unwrap();
        assert_eq!(hasher.finish(), sha256(b"abc"));
    }

    #[test]
    fn paths_out_of_the_dataset_are_refused() {
        let sum = sha256(b"");
        for path in ["../x", "/etc/passwd", ""] {
            assert!(parse(format!("{sum}  {path}\n").as_bytes()).is_err(), "{path}");
        }
    }
}
