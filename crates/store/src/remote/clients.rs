//! Makes the client of a server from its URL, the options of the user and the environment.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use hsipack_format::{Error, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ClientOptions};

use super::auth::{self, Lookup};
use super::client::{Client, defaults, prepare_tls, retry};
use super::cloud::Cloud;
use super::hub::client as hub_client;
use super::hub::repository::Repository;
use super::options::{StorageOptions, variable};
use super::profile;
use super::url::{Address, Scheme};

/// A client with the settings that the cloud providers' own tools would use, except where `options`
/// says otherwise.
///
/// # Errors
/// If an option is unknown, or a value is invalid.
pub(super) fn build(address: &Address, options: &StorageOptions) -> Result<Client> {
    prepare_tls();
    /// The builders have no common trait. `$own` are options that override those of the
    /// environment.
    macro_rules! built {
        ($builder:ty, $key:ty, $cloud:expr, $prefix:literal, $other:expr, $own:expr) => {{
            let own_options: Vec<_> = $own.into_iter().collect();
            let mut builder = <$builder>::new().with_url(address.base()).with_retry(retry());
            for (name, value) in environment::<$key>($prefix, $other)?.iter().chain(&own_options) {
                let key = name.parse::<$key>().map_err(|_| unknown(name))?;
                builder = builder.with_config(key, value);
            }
            builder.clone().build().and_then(|client| {
                let may_ask = || {
                    let options = own_options.iter().map(|(name, _)| name.as_str());
                    auth::has_metadata_service($cloud, options, variable, Path::new("/"))
                };
                match Lookup::in_place_of(client.credentials(), $cloud, may_ask) {
                    Some(lookup) => builder.with_credentials(Arc::new(lookup)).build(),
                    None => Ok(client),
                }
                .map(Client::of_cloud)
            })
        }};
    }
    let trimmed = options.0.iter().map(|(name, value)| (name.clone(), value.trim().to_owned()));
    for (name, value) in trimmed.clone() {
        check_printable(&name, &value)?;
    }
    if address.scheme == Scheme::Hf {
        let repository = Repository::of_authority(&address.authority).expect("a checked address");
        return hub_client::client(&repository, options);
    }
    let built = match address.scheme {
        Scheme::S3 => {
            let renamed: Vec<_> = trimmed.map(|(name, value)| (of_fsspec(name), value)).collect();
            let profile = profile::of_environment();
            let mut options: Vec<_> = defaults().chain(profile).chain(renamed).collect();
            let endpoint = options
                .iter()
                .rev()
                .find(|(name, _)| name.ends_with("endpoint") || name.ends_with("endpoint_url"));
            let endpoint = endpoint.map(|(_, value)| value.clone());
            let endpoint = endpoint
                .or_else(|| variable("AWS_ENDPOINT_URL_S3"))
                .or_else(|| variable("AWS_ENDPOINT_URL"));
            if let Some(endpoint) = endpoint {
                check_endpoint(&endpoint)?;
                if endpoint.starts_with("http://") {
                    // A user who gives such an endpoint wants plain HTTP.
                    options.push(("allow_http".to_owned(), "true".to_owned()));
                }
            }
            let other = Some(("AWS_EC2_METADATA_SERVICE_ENDPOINT", "metadata_endpoint"));
            built!(AmazonS3Builder, AmazonS3ConfigKey, Cloud::Aws, "AWS_", other, options)
        }
        Scheme::Gs => {
            let options = defaults().chain(trimmed);
            let other = Some(("SERVICE_ACCOUNT", "service_account"));
            built!(
                GoogleCloudStorageBuilder,
                GoogleConfigKey,
                Cloud::Google,
                "GOOGLE_",
                other,
                options
            )
        }
        Scheme::Az => {
            let options = defaults().chain(trimmed);
            let other = Some(("IDENTITY_ENDPOINT", "msi_endpoint"));
            built!(MicrosoftAzureBuilder, AzureConfigKey, Cloud::Azure, "AZURE_", other, options)
        }
        Scheme::Hf => unreachable!("its client was made above"),
        Scheme::Http | Scheme::Https => {
            let mut client = ClientOptions::new().with_allow_http(address.scheme == Scheme::Http);
            for (name, value) in defaults().chain(trimmed) {
                let key = name.parse::<ClientConfigKey>().map_err(|_| unknown(&name))?;
                client = client.with_config(key, value);
            }
            let builder = HttpBuilder::new().with_url(address.base()).with_client_options(client);
            let built = builder.with_retry(retry()).build();
            built.map(|client| Client { objects: Arc::new(client), parts: None })
        }
    };
    // The library's message may contain values.
    built.map_err(|_| {
        Error::malformed("no connection can be made with these options").with_remedy(
            "check the values of storage_options and the environment variables for this cloud",
        )
    })
}

/// The settings of a cloud's client in the environment: those of all variables that begin with
/// `prefix` and that the client knows. `other` is a variable without the prefix, with the name of
/// its setting; the ones with the prefix override it. The client's own reader of the environment
/// takes every value as it is, and then panics.
fn environment<K: FromStr>(
    prefix: &str,
    other: Option<(&str, &str)>,
) -> Result<Vec<(String, String)>> {
    let other = other.map(|(name, key)| (name.to_owned(), key.to_owned()));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let prefixed = names.filter(|name| name.starts_with(prefix));
    let lowercase = prefixed.map(|name| (name.clone(), name.to_ascii_lowercase()));
    let mut settings = Vec::new();
    for (name, key) in other.into_iter().chain(lowercase) {
        if let Some(value) = variable(&name).filter(|_| key.parse::<K>().is_ok()) {
            check_printable(&name, &value)?;
            settings.push((key, value));
        }
    }
    Ok(settings)
}

/// Refuses a value with line feeds or other control characters. The key of a service account of
/// Google is JSON, which may have several lines.
fn check_printable(name: &str, value: &str) -> Result<()> {
    let is_json = name.to_ascii_lowercase().ends_with("service_account_key");
    if is_json || !value.contains(char::is_control) {
        return Ok(());
    }
    Err(Error::malformed(format!(
        "the value of {name} contains a line feed or another control character"
    ))
    .with_remedy("set it again, on one line"))
}

/// Refuses an endpoint that is not a URL. It is not shown, because it may contain a password.
fn check_endpoint(endpoint: &str) -> Result<()> {
    let is_http = |url: &reqwest::Url| ["http", "https"].contains(&url.scheme()) && url.has_host();
    match reqwest::Url::parse(endpoint) {
        Ok(url) if is_http(&url) => Ok(()),
        _ => Err(Error::malformed("the endpoint is not a URL").with_remedy(
            "set AWS_ENDPOINT_URL, or endpoint in storage_options, to a URL such as http://127.0.0.1:9000",
        )),
    }
}

/// The object store's name for an option, if fsspec (s3fs) uses another name.
fn of_fsspec(name: String) -> String {
    let option = match name.as_str() {
        "key" => "access_key_id",
        "secret" => "secret_access_key",
        "anon" => "skip_signature",
        _ => return name,
    };
    option.to_owned()
}

fn unknown(name: &str) -> Error {
    Error::unsupported(format!("no storage option is named {name}")).with_remedy(
        "use the names of the clouds' settings in lower case: access_key_id, secret_access_key, token, region, \
         endpoint, skip_signature; account_name, account_key; service_account; allow_http, timeout",
    )
}
