//! Credentials, endpoints and the like that a user gives for a URL (`storage_options`), beside those of the environment.
//!
//! They are kept apart from the datasets: no dataset, report or error can show what it does not have.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use hsipack_format::Result;

use super::url::Address;

/// Names and values, which nothing shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct StorageOptions(pub(super) BTreeMap<String, String>);

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// By the URL of the bucket, container or host. Never waited for: a forked child may find any lock taken for ever.
static OPTIONS: LazyLock<ArcSwap<BTreeMap<String, Arc<StorageOptions>>>> =
    LazyLock::new(ArcSwap::default);

/// From now on, `options` hold for all URLs of the bucket, container or host that `url` names, in this process; they go
/// before what the environment says. Names are those of the clouds (`access_key_id`, `secret_access_key`, `endpoint`,
/// `region`, `account_name`, `allow_http`, …), in lower case, also with the clouds' prefixes, and fsspec's `key`,
/// `secret`, `token` and `anon` for S3.
///
/// # Errors
/// If `url` is none, an option is not known, or a value makes no sense.
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

/// Those that hold for an address.
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
        let missing = with("region").unwrap_err();
        assert!(!missing.to_string().contains("hunter2"), "{missing}");
    }
}
