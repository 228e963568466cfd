//! Checks the names of members: that a local file can have the name, and that no two names
//! conflict. Pure: touches no files.
//!
//! Names in archives may be any text. If a name leads out of the archive, or if two members share a
//! name, no guess could repair it, so the archive is refused.

use hsipack_format::{Error, Result};

/// Maximum length of a member's name in bytes. It is less than the 4096 of a path on Linux, to
/// leave room for the temporary folder in front.
const LONGEST: usize = 3000;
/// Maximum length in bytes of the name of one folder or file.
const LONGEST_PART: usize = 255;

/// Remedy for an archive that cannot be read as it is.
pub(super) const UNPACK: &str =
    "unpack it with a tool that you trust, check the files, and give the folder";

/// The name of a member as a path in the archive, with parts joined by `/`. Empty if it stands for
/// the archive's top folder, like `./`.
///
/// # Errors
/// If it is absolute, leads out of the archive, is not UTF-8, or cannot be the name of a file.
pub(super) fn checked(raw: &[u8]) -> Result<String> {
    let refuse = |what: &str| {
        let name = String::from_utf8_lossy(&raw[..raw.len().min(LONGEST)]).into_owned();
        Err(Error::unsupported(format!("a member named {name:?}, which {what}"))
            .with_remedy(UNPACK))
    };
    let Ok(name) = std::str::from_utf8(raw) else { return refuse("is not UTF-8") };
    if name.starts_with('/') {
        return refuse("is an absolute path");
    }
    if name.is_empty() || name.contains('\0') || name.len() > LONGEST {
        return refuse("no file can have");
    }
    let mut whole = String::with_capacity(name.len());
    for part in name.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            return refuse("leads out of the archive");
        }
        if part.len() > LONGEST_PART {
            return refuse("no file can have");
        }
        if !whole.is_empty() {
            whole.push('/');
        }
        whole.push_str(part);
    }
    Ok(whole)
}

/// Refuses two files with the same name, and a file with the name of a folder. `names` are
/// [`checked`]; each comes with whether it is a folder.
///
/// # Errors
/// If there are such names.
pub(super) fn check_distinct(names: &[(&str, bool)]) -> Result<()> {
    let mut sorted: Vec<&(&str, bool)> = names.iter().collect();
    // Sort the slash first, so that the content of a folder directly follows the folder.
    let key = |name: &str| name.bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect();
    sorted.sort_by_cached_key(|(name, _)| -> Vec<u8> { key(name) });
    for pair in sorted.windows(2) {
        let ((first, first_is_folder), (second, second_is_folder)) = (pair[0], pair[1]);
        let wrong = if first == second {
            match (first_is_folder, second_is_folder) {
                (true, true) => continue,
                (false, false) => "two members",
                _ => "a file and a folder",
            }
        } else if !first_is_folder
            && second.strip_prefix(first).is_some_and(|suffix| suffix.starts_with('/'))
        {
            "a file and a folder"
        } else {
            continue;
        };
        return Err(Error::unsupported(format!("{wrong} named {first:?}")).with_remedy(UNPACK));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_archive() {
        for (raw, name) in
            [("a/b.tif", "a/b.tif"), ("./a//b/", "a/b"), ("./", ""), ("..a/b..", "..a/b..")]
        {
            assert_eq!(checked(raw.as_bytes()).unwrap(), name);
        }
        let long = "x".repeat(LONGEST_PART + 1);
        let deep = "x/".repeat(LONGEST);
        for raw in [
            b"../x".as_slice(),
            b"a/../../x",
            b"a/..",
            b"/etc/passwd",
            b"",
            b"a\0b",
            b"caf\xe9.tif",
            long.as_bytes(),
            deep.as_bytes(),
        ] {
            let error = checked(raw).unwrap_err();
            assert!(error.what().contains("a member named"), "{error}");
        }
    }

    #[test]
    fn no_two_members_get_in_each_other_s_way() {
        let check = |names: &[(&str, bool)]| check_distinct(names);
        assert!(
            check(&[("a", true), ("a/b", false), ("a", true), ("a-b", false), ("a.b", false)])
                .is_ok()
        );
        for names in [
            &[("a/b", false), ("c", false), ("a/b", false)][..],
            &[("a", false), ("a-b", false), ("a/b", false)],
            &[("a/b/c/d", false), ("a.x", false), ("a/b", false)],
            &[("a", false), ("a", true)],
        ] {
            assert!(check(names).is_err(), "{names:?}");
        }
    }
}
