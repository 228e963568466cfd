//! The settings that the clients of all servers share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use super::retry::MAX_OUTAGE;

/// How long a server may be unreachable or answer with errors to the first request, where the most
/// likely reason is a wrong URL or endpoint.
const FIRST: Duration = Duration::from_secs(8);
/// How long a connection may deliver no byte.
const STALL: Duration = Duration::from_secs(20);

/// A client for one bucket, container or host.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) objects: Arc<dyn ObjectStore>,
    /// For uploading large objects in parts; `None` for a web server, which does not accept
    /// objects.
    pub(super) parts: Option<Arc<dyn MultipartStore>>,
}

impl Client {
    pub(super) fn of_cloud(client: impl ObjectStore + MultipartStore) -> Self {
        let client = Arc::new(client);
        Self { objects: client.clone(), parts: Some(client) }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("objects", &self.objects).finish_non_exhaustive()
    }
}

/// Installs a TLS provider, which clients need. This fails only if the program has installed one
/// already, which works as well.
pub(super) fn prepare_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Timeouts, unless the user sets others.
pub(super) fn defaults() -> impl Iterator<Item = (String, String)> {
    let seconds = |time: Duration| format!("{} seconds", time.as_secs());
    [("read_timeout".to_owned(), seconds(STALL)), ("timeout".to_owned(), seconds(MAX_OUTAGE))]
        .into_iter()
}

/// How requests are repeated by the client itself.
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
