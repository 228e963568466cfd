//! URLs that are used as paths.

use std::path::Path;

use hsipack_format::{Error, Result};
use object_store::path::Path as Key;

use super::hub::repository::Repository;

/// Kinds of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    S3,
    Gs,
    Az,
    Hf,
    Http,
    Https,
}

impl Scheme {
    const ALL: [Scheme; 6] = [Self::S3, Self::Gs, Self::Az, Self::Hf, Self::Http, Self::Https];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Az => "az",
            Self::Hf => "hf",
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Whether a path is a URL from which datasets can be read: `s3://`, `gs://`, `az://`, `hf://`,
/// `http://` or `https://`.
pub fn is_url(path: &Path) -> bool {
    split(path).is_some()
}

/// Whether a path is a URL of a web server.
pub fn is_of_web_server(path: &Path) -> bool {
    matches!(split(path), Some((Scheme::Http | Scheme::Https, _)))
}

/// Whether a path is a URL of the Hub.
pub(super) fn is_hub(path: &Path) -> bool {
    Address::of(path).is_ok_and(|address| address.scheme == Scheme::Hf)
}

/// The scheme, and the part after `://`.
fn split(path: &Path) -> Option<(Scheme, &str)> {
    let bytes = path.as_os_str().as_encoded_bytes();
    // Most paths are not URLs, and they need not be UTF-8.
    let colon = bytes.iter().take(6).position(|byte| *byte == b':')?;
    let scheme = Scheme::ALL
        .into_iter()
        .find(|scheme| scheme.name().as_bytes().eq_ignore_ascii_case(&bytes[..colon]))?;
    let location = path.to_str()?.get(colon..)?.strip_prefix("://")?;
    Some((scheme, location))
}

/// A bucket (S3, Google), container (Azure) or host, and the name of an object there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) scheme: Scheme,
    /// Bucket, container, host with its port, or `datasets/OWNER/NAME[@REVISION]` of the Hugging
    /// Face Hub.
    pub(super) authority: String,
    pub(super) key: Key,
}

impl Address {
    /// Splits a URL.
    ///
    /// # Errors
    /// If it is not a URL, or contains a possible secret: a user name or a query.
    pub(super) fn of(url: &Path) -> Result<Self> {
        let (scheme, location) = split(url).ok_or_else(|| {
            Error::malformed("not a URL that datasets can be read from").at(url).with_remedy(
                "write s3://, gs://, az://, hf://, http:// or https://; storage_options are only for URLs",
            )
        })?;
        let (authority, key) = match scheme {
            Scheme::Hf => split_repository(location),
            _ => location.split_once('/').unwrap_or((location, "")),
        };
        let wrong = |what: &str, remedy: &'static str| {
            // The error does not contain the whole URL, because errors are logged.
            let shown = format!(
                "{}://{}/…",
                scheme.name(),
                authority.rsplit('@').next().unwrap_or_default()
            );
            Err(Error::malformed(what.to_owned()).at(shown).with_remedy(remedy))
        };
        if scheme == Scheme::Hf && Repository::of_authority(authority).is_none() {
            return wrong(
                "the URL names no dataset of the Hugging Face Hub",
                "write hf://datasets/OWNER/NAME/PATH or hf://datasets/OWNER/NAME@REVISION/PATH",
            );
        }
        if scheme != Scheme::Hf && authority.contains('@') {
            return wrong(
                "the URL contains a user name or password",
                "give credentials in environment variables or storage_options",
            );
        }
        if location.contains(['?', '#']) {
            return wrong(
                "the URL has a query or a fragment, which cannot be part of the name of a file or folder",
                "leave out what follows ? or #, such as ?download=true, and give signatures in environment variables or storage_options",
            );
        }
        if authority.is_empty() {
            return wrong(
                "the URL names no bucket or host",
                "write s3://BUCKET/FOLDER or https://HOST/FOLDER",
            );
        }
        let key = key.trim_end_matches('/');
        let parsed = match scheme {
            Scheme::Http | Scheme::Https => Key::from_url_path(key),
            _ => Key::parse(key),
        };
        match parsed {
            Ok(key) => Ok(Self { scheme, authority: authority.to_owned(), key }),
            Err(error) => wrong(
                &format!("this cannot be the name of an object: {error}"),
                "write names without `//`, `.` and `..`",
            ),
        }
    }

    /// The URL of the bucket, container, host or revision of a dataset.
    pub(super) fn base(&self) -> String {
        format!("{}://{}", self.scheme.name(), self.authority)
    }

    /// The URL to which options belong: they hold for all revisions of a dataset.
    pub(super) fn account(&self) -> String {
        let base = self.base();
        match self.scheme {
            Scheme::Hf => base.split('@').next().unwrap_or_default().to_owned(),
            _ => base,
        }
    }
}

/// `datasets/OWNER/NAME[@REVISION]`, and the path in that dataset.
fn split_repository(location: &str) -> (&str, &str) {
    match location.match_indices('/').nth(2) {
        Some((at, _)) => (&location[..at], &location[at + 1..]),
        None => (location, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for url in
            ["s3://b/d", "gs://b", "az://c/d", "http://h:80/d", "https://h/d", "S3://b/d", "hf://d"]
        {
            assert!(is_url(Path::new(url)), "{url}");
        }
        for path in
            ["/s3://b", "s3:/b", "s3", "", "ftp://h/d", "a.hsipack", "C:\\d", "dataset:/x", "s3:"]
        {
            assert!(!is_url(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_url_is_joined_like_a_path() {
        let file = Path::new("s3://b/d.hsipack/").join("s/image").join("c/0/0");
        assert!(is_url(&file));
        let address = Address::of(&file).unwrap();
        assert_eq!(
            (address.base().as_str(), address.key.as_ref()),
            ("s3://b", "d.hsipack/s/image/c/0/0")
        );
        let address =
            Address::of(Path::new("hf://datasets/ada/leaves@v1/a/leaves.hsipack/")).unwrap();
        let base = "hf://datasets/ada/leaves@v1";
        assert_eq!((address.base().as_str(), address.key.as_ref()), (base, "a/leaves.hsipack"));
        assert_eq!(address.account(), "hf://datasets/ada/leaves");
        let address = Address::of(Path::new("http://h:8000/a%20b/c d")).unwrap();
        assert_eq!((address.base().as_str(), address.key.as_ref()), ("http://h:8000", "a b/c d"));
    }

    #[test]
    fn urls_with_secrets_are_refused_without_repeating_them() {
        for url in [
            "https://me:hunter2@h/d",
            "https://h/d?sig=hunter2",
            "s3://hunter2@b/d",
            "https://h/d#hunter2",
            "hf://hunter2@datasets/a/b",
            "hf://datasets/a/b/c?token=hunter2",
        ] {
            let error = Address::of(Path::new(url)).unwrap_err();
            assert!(error.remedy().is_some());
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        for url in
            ["s3://", "s3:///d", "s3://b/a//b", "s3://b/../c", "hf://a/b/c", "hf://datasets/a"]
        {
            assert!(Address::of(Path::new(url)).is_err(), "{url}");
        }
    }
}
