//! The network threads and connections of this process.
//!
//! They are created with the first request, and created again in a forked child. The child has its
//! parent's memory, but none of its threads, and must not use its connections.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use hsipack_format::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use super::client::Client;
use super::clients::build;
use super::options::{self, StorageOptions};
use super::url::Address;
use crate::process::OfProcess;
use crate::stopping;

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
/// If the network's threads cannot be started, if this thread has to end, or if it is a tokio
/// thread, which must not wait.
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

/// Sets options for all URLs of the bucket, container or host that `url` names, in this process.
/// They take precedence over the environment. Names are those of the cloud providers
/// (`access_key_id`, `secret_access_key`, `endpoint`, `region`, `account_name`, `allow_http`, …),
/// in lower case, with or without the provider's prefix. For S3, fsspec's `key`, `secret`, `token`
/// and `anon` also work.
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
