//! The network threads and connections of this process.
//!
//! They are created with the first request, and created again in a forked child. The child has its parent's memory, but
//! none of its threads, and must not use its connections.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use hsipack_format::{Error, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use super::auth::{self, Lookup};
use super::cloud::Cloud;
use super::hub::{self, Repository};
use super::options::{self, StorageOptions, variable};
use super::profile;
use super::url::{Address, Scheme};
use crate::process::OfProcess;
use crate::stopping;

/// How long a server may be unreachable or answer with errors, in the middle of reading, before this is an error.
pub(super) const MAX_OUTAGE: Duration = Duration::from_secs(150);
/// The same for the first request, where the most likely reason is a wrong URL or endpoint.
const FIRST: Duration = Duration::from_secs(8);
/// How long a connection may deliver no byte.
const STALL: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Network {
    runtime: Runtime,
    /// Clients by the URL of the bucket, container or host.
    clients: Mutex<HashMap<String, Known>>,
}

/// A client, and the options that it was created with.
#[derive(Debug)]
struct Known {
    made_with: Arc<StorageOptions>,
    client: Client,
}

/// A client for one bucket, container or host.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) objects: Arc<dyn ObjectStore>,
    /// For uploading large objects in parts; `None` for a web server, which does not accept objects.
    pub(super) parts: Option<Arc<dyn MultipartStore>>,
}

impl Client {
    fn of_cloud(client: impl ObjectStore + MultipartStore) -> Self {
        let client = Arc::new(client);
        Self { objects: client.clone(), parts: Some(client) }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("objects", &self.objects).finish_non_exhaustive()
    }
}

static NETWORK: ArcSwapOption<OfProcess<Network>> = ArcSwapOption::const_empty();

/// Runs `run` with the network of this process.
fn with<T>(run: impl FnOnce(&Network) -> T) -> Result<T> {
    loop {
        let network = NETWORK.load_full();
        if let Some(network) = network.as_deref().and_then(OfProcess::get) {
            return Ok(run(network));
        }
        let started = Some(Arc::new(OfProcess::new(Network::start()?)));
        // If another thread was faster, its network is used, and this one is dropped.
        NETWORK.compare_and_swap(&network, started);
    }
}

/// Waits for `future`, but only until this thread has to end ([`stopping`]).
///
/// # Errors
/// If the network's threads cannot be started, if this thread has to end, or if it is a tokio thread, which must not
/// wait.
pub(crate) fn wait<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    if Handle::try_current().is_ok() {
        return Err(Error::unsupported("a tokio thread must not wait for a server")
            .with_remedy("call hsipack from a thread of its own: tokio::task::spawn_blocking"));
    }
    let until_stopped = async {
        let mut future = pin!(future);
        loop {
            match tokio::time::timeout(stopping::POLL_INTERVAL, &mut future).await {
                Ok(done) => return done,
                Err(_) if stopping::stopped() => return Err(stopping::interrupted()),
                Err(_) => {}
            }
        }
    };
    with(|network| network.runtime.block_on(until_stopped))?
}

/// Waits up to `most` for `future`, whether or not this thread has to end. Used for cleaning up.
///
/// # Errors
/// If the network's threads cannot be started, or it takes longer.
pub(super) fn wait_at_most<T>(most: Duration, future: impl Future<Output = T>) -> Result<T> {
    let in_time = async { tokio::time::timeout(most, future).await.ok() };
    let done = with(|network| network.runtime.block_on(in_time))?;
    done.ok_or_else(|| Error::new(hsipack_format::ErrorKind::Io, "the server takes too long"))
}

/// Runs `future` in the background.
///
/// # Errors
/// If the network's threads cannot be started.
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<JoinHandle<T>> {
    with(|network| network.runtime.spawn(future))
}

/// The client for an address, with its connections.
pub(super) fn client(address: &Address) -> Result<Client> {
    let base = address.base();
    let options = options::of(&address.account());
    with(|network| {
        let mut clients = network.clients.lock().unwrap_or_else(PoisonError::into_inner);
        match clients.get(&base) {
            Some(entry) if entry.made_with == options => Ok(entry.client.clone()),
            _ => {
                let client = build(address, &options)?;
                clients.insert(base, Known { made_with: options, client: client.clone() });
                Ok(client)
            }
        }
    })?
}

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
    build(&address, &options).map_err(|error| error.at(url))?;
    options::store(address.account(), options);
    Ok(())
}

impl Network {
    fn start() -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let runtime = Builder::new_multi_thread()
            // These threads only pass bytes on and decrypt TLS. Other threads decode.
            .worker_threads(cores.clamp(1, 4))
            .thread_name("hsipack-network")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(
                    hsipack_format::ErrorKind::Io,
                    format!("cannot start the network's threads: {error}"),
                )
                .with_remedy(
                    "raise the limits of threads and open files (`ulimit -u`, `ulimit -n`)",
                )
            })?;
        Ok(Self { runtime, clients: Mutex::default() })
    }
}

/// A client with the settings that the cloud providers' own tools would use, except where `options` says otherwise.
fn build(address: &Address, options: &StorageOptions) -> Result<Client> {
    prepare_tls();
    /// The builders have no common trait. `$own` are options that override those of the environment.
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
        return hub::client(&repository, options);
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

/// The settings of a cloud's client in the environment: those of all variables that begin with `prefix` and that the client
/// knows. `other` is a variable without the prefix, with the name of its setting; the ones with the prefix override it. The
/// client's own reader of the environment takes every value as it is, and then panics.
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

/// Refuses a value with line feeds or other control characters. The key of a service account of Google is JSON, which may
/// have several lines.
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

/// Installs a TLS provider, which clients need. This fails only if the program has installed one already, which works as well.
pub(super) fn prepare_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Timeouts, unless the user sets others.
pub(super) fn defaults() -> impl Iterator<Item = (String, String)> {
    let seconds = |time: Duration| format!("{} seconds", time.as_secs());
    [("read_timeout".to_owned(), seconds(STALL)), ("timeout".to_owned(), seconds(MAX_OUTAGE))]
        .into_iter()
}

pub(super) fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: 100,
        retry_timeout: FIRST,
    }
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
        assert_eq!(options::of("s3://ours").0["secret_access_key"], "hunter2");
        assert!(options::of("s3://theirs").0.is_empty());
        assert_eq!(format!("{:?}", options::of("s3://ours")), r#"{"key", "secret_access_key"}"#);
        with("secret").unwrap();
        set_options(url, [("anon".to_owned(), "true".to_owned())]).unwrap();
        let error = with("secret_acess_key").unwrap_err();
        assert!(error.what().contains("secret_acess_key"), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        for endpoint in ["127.0.0.1:9000", "localhost:9000", "ftp://a", "http://"] {
            let option = ("endpoint".to_owned(), endpoint.to_owned());
            let error = set_options(url, [option]).unwrap_err();
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
