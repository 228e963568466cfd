//! Credentials, endpoints and similar options that a user gives for a URL (`storage_options`), in addition to those of
//! the environment.
//!
//! They are stored separately from the datasets, so that no dataset, report or error can reveal them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use hsipack_format::Result;

use super::url::Address;

/// Names and values. They are never displayed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct StorageOptions(pub(super) BTreeMap<String, String>);

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Options by the URL of the bucket, container or host. Not behind a lock, because a forked child may find any lock
/// taken for ever.
static OPTIONS: LazyLock<ArcSwap<BTreeMap<String, Arc<StorageOptions>>>> =
    LazyLock::new(ArcSwap::default);

/// Sets options for all URLs of the bucket, container or host that `url` names, in this process. They take precedence
/// over the environment. Names are those of the cloud providers (`access_key_id`, `secret_access_key`, `endpoint`,
/// `region`, `account_name`, `allow_http`, …), in lower case, with or without the provider's prefix. For S3, fsspec's
/// `key`, `secret`, `token` and `anon` also work.
///
/// # Errors
/// If `url` is not a URL, an option is unknown, or a value is invalid.
pub fn set_options(url: &Path, options: impl IntoIterator<Item = (String, String)>) -> Result<()> {
    let address = Address::of(url)?;
    let options: StorageOptions = StorageOptions(options.into_iter().collect());
    super::network::check(&address, &options).map_err(|error| error.at(url))?;
    let (base, options) = (address.base(), Arc::new(options));
    OPTIONS.rcu(|all| {
        let mut all = BTreeMap::clone(all);
        all.insert(base.clone(), options.clone());
        all
    });
    Ok(())
}

/// The options for an address.
pub(super) fn options(base: &str) -> Arc<StorageOptions> {
    OPTIONS.load().get(base).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_hold_for_their_bucket_and_are_not_shown() {
        let url = Path::new("s3://ours/a");
        let with = |name: &str| {
            let options = [("key", "me"), (name, "hunter2")];
            set_options(url, options.map(|(name, value)| (name.to_owned(), value.to_owned())))
        };
        with("secret_access_key").unwrap();
        assert_eq!(options("s3://ours").0["secret_access_key"], "hunter2");
        assert!(options("s3://theirs").0.is_empty());
        assert_eq!(format!("{:?}", options("s3://ours")), r#"{"key", "secret_access_key"}"#);
        with("secret").unwrap();
        set_options(url, [("anon".to_owned(), "true".to_owned())]).unwrap();
        let error = with("secret_acess_key").unwrap_err();
        assert!(error.what().contains("secret_acess_key"), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        for endpoint in ["127.0.0.1:9000", "localhost:9000", "ftp://a", "http://"] {
            let given = ("endpoint".to_owned(), endpoint.to_owned());
            let error = set_options(url, [given]).unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:9000"), "{error}");
        }
        set_options(url, [("endpoint".to_owned(), " http://127.0.0.1:9000\n".to_owned())]).unwrap();
        let two_lines = [("access_key_id".to_owned(), "a\nb".to_owned())];
        let error = set_options(url, two_lines).unwrap_err();
        assert!(error.what().contains("access_key_id contains a line feed"), "{error}");
        let missing = with("region").unwrap_err();
        assert!(!missing.to_string().contains("hunter2"), "{missing}");
    }
}
