//! The server: when it starts, which requests it accepts, when it ends.

use std::future::IntoFuture;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use hsipack_format::{Error, Result};
use hsipack_store::threads;
use tokio::sync::Notify;

use crate::answer::Answer;
use crate::auth::{Auth, Refused};
use crate::routes::{self, Routes};
use crate::subject::Subject;
use crate::workers::Workers;

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port of this machine; 0 for any free port.
    pub port: u16,
    /// How long the server continues after the last request of the page; forever if `None`. It does
    /// not end before a page was opened.
    pub linger: Option<Duration>,
}

impl Options {
    /// The default for `linger`. Pages send a request every ten seconds, but browsers limit pages
    /// in the background to one per minute.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(180);
}

impl Default for Options {
    fn default() -> Self {
        Self { port: 0, linger: Some(Self::IDLE_TIMEOUT) }
    }
}

/// Why a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to stop.
    Stopped,
    /// The page was closed.
    Closed,
}

/// A running server. It ends when this value is dropped.
#[derive(Debug)]
pub struct View {
    url: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<End>>>,
}

/// State that the server shares with those who wait for it.
#[derive(Debug)]
struct Shared {
    stop: Notify,
    /// When the last request of the page came, in milliseconds since the start, plus 1; 0 if there
    /// was none.
    heard: AtomicU64,
    began: Instant,
}

/// State for answering requests.
#[derive(Clone)]
struct Answering {
    auth: Arc<Auth>,
    routes: Arc<Routes>,
    workers: Workers,
    shared: Arc<Shared>,
}

impl View {
    /// Starts a server that shows `subject`, on this machine only.
    ///
    /// # Errors
    /// If the port is taken, or the system refuses threads.
    pub fn start(subject: Subject, options: &Options) -> Result<Self> {
        let refused = |error: std::io::Error| {
            Error::conflict(format!(
                "cannot listen on port {} of this machine: {error}",
                options.port
            ))
            .with_remedy("choose another port, or none")
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let port = listener.local_addr().map_err(refused)?.port();
        let auth = Arc::new(Auth::new(port)?);
        let url = auth.url();
        let shared = Arc::new(Shared {
            stop: Notify::new(),
            heard: AtomicU64::new(0),
            began: Instant::now(),
        });
        let answering = Answering {
            auth,
            routes: Arc::new(Routes::new(subject)),
            workers: Workers::start()?,
            shared: Arc::clone(&shared),
        };
        let linger = options.linger;
        let thread = threads::start("view", move || serve(listener, answering, linger))?;
        Ok(Self { url, shared, thread: Some(thread) })
    }

    /// The address of the page, with the token that lets it in.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the server. Answers that are under way are still sent if they are ready within a
    /// moment.
    pub fn stop(&self) {
        self.shared.stop.notify_one();
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If the server could not start.
    pub fn wait(mut self) -> Result<End> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(end)) => end,
            Some(Err(panic)) => Err(Error::panicked(&*panic)),
            None => Ok(End::Stopped),
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn hear(&self) {
        let now = self.began.elapsed().as_millis();
        self.heard.store(u64::try_from(now).unwrap_or(u64::MAX - 1) + 1, Ordering::Relaxed);
    }

    /// The time since the last request of the page; `None` if there was none.
    fn silence(&self) -> Option<Duration> {
        let heard = self.heard.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.began.elapsed().saturating_sub(Duration::from_millis(heard)))
    }

    /// Waits until the server is told to stop, or the page is gone.
    async fn ended(&self, linger: Option<Duration>) -> End {
        loop {
            let look_again = linger.map_or(Duration::from_secs(60), |linger| {
                (linger / 10).clamp(Duration::from_millis(20), Duration::from_secs(5))
            });
            // A stop from before this wait began is not lost.
            if tokio::time::timeout(look_again, self.stop.notified()).await.is_ok() {
                return End::Stopped;
            }
            if linger.zip(self.silence()).is_some_and(|(linger, silence)| silence > linger) {
                return End::Closed;
            }
        }
    }
}

/// How long to wait for answers that are under way.
const GRACE: Duration = Duration::from_millis(500);

fn serve(listener: TcpListener, answering: Answering, linger: Option<Duration>) -> Result<End> {
    let fail = |error: std::io::Error| Error::unsupported(format!("the server ended: {error}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
    let end = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(fail)?;
        let shared = Arc::clone(&answering.shared);
        let service = axum::Router::new().fallback(answer).with_state(answering);
        let ending = Arc::new(Notify::new());
        let stop = Arc::clone(&ending);
        let server = axum::serve(listener, service)
            .with_graceful_shutdown(async move { stop.notified().await });
        let server = tokio::spawn(server.into_future());
        let end = shared.ended(linger).await;
        ending.notify_one();
        let _ = tokio::time::timeout(GRACE, server).await;
        Ok(end)
    });
    runtime.shutdown_background();
    end
}

async fn answer(State(answering): State<Answering>, request: Request) -> Response<Body> {
    // Do not read request bodies: nothing can be sent to this server.
    let (request, _) = request.into_parts();
    let answer = answer_to(&answering, &request).await;
    into_response(answer, request.method == Method::HEAD)
}

async fn answer_to(answering: &Answering, request: &Parts) -> Answer {
    let header = |name| request.headers.get(name).map(HeaderValue::to_str);
    let (Ok(host), Ok(origin)) =
        (header(header::HOST).transpose(), header(header::ORIGIN).transpose())
    else {
        return Answer::refusal(400, "a header is not text", None);
    };
    let path = match answering.auth.authorize(request.uri.path(), host, origin) {
        Ok(path) => path,
        Err(Refused::Token) => {
            let remedy = "open the address that hsipack view printed, all of it";
            return Answer::refusal(403, "the address lacks its token", Some(remedy));
        }
        Err(Refused::Stranger) => {
            return Answer::refusal(403, "only the page of hsipack view may send requests", None);
        }
    };
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Answer::refusal(405, "the viewer cannot change anything", None);
    }
    answering.shared.hear();
    if let Some(answer) = routes::at_once(path) {
        return answer;
    }
    let (routes, path) = (Arc::clone(&answering.routes), path.to_owned());
    let query = request.uri.query().unwrap_or_default().to_owned();
    answering.workers.answer(move || routes.answer(&path, &query)).await
}

/// Resources that pages may load (none from elsewhere), and sites that may embed them (notebooks on
/// this machine).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'self' http://localhost:* http://127.0.0.1:* https://localhost:* vscode-webview:";

fn into_response(answer: Answer, head: bool) -> Response<Body> {
    let Answer { status, content_type, body, shape, stays } = answer;
    let mut headers = HeaderMap::new();
    let mut set = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, content_type);
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // The address contains the token.
    set(header::REFERRER_POLICY, "no-referrer");
    set(
        header::CACHE_CONTROL,
        if stays { "private, max-age=86400, immutable" } else { "no-store" },
    );
    set(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if let Some(shape) = shape {
        set(header::HeaderName::from_static("x-shape"), &shape);
    }
    set(header::CONTENT_LENGTH, &body.len().to_string());
    let mut response = Response::new(if head { Body::empty() } else { Body::from(body) });
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}
