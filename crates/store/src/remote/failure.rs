//! Why a request for an object failed, as an error without secrets.
//!
//! A library's error about a failed request may contain the whole URL, with signatures, and the
//! server's whole answer. Only parts that are known to be harmless are used: the status, the
//! server's code for it, and the system's message.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::Path;

use hsipack_format::{Error, ErrorKind};

use super::cloud::Cloud;
use super::hub::repository::{Repository, TOKEN};
use super::url::{Address, Scheme};

/// Why an object, or a span of it, could not be fetched. It can be cloned for several readers that
/// wait for the same span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no such object.
    Missing,
    /// There is no such bucket or container.
    NoBucket,
    /// The server refused: missing, wrong or expired credentials.
    Denied(String),
    /// No credentials were found, so the server was not asked. `may_pass` says whether a later
    /// look-up may succeed.
    Credentials { cloud: Cloud, text: String, may_pass: bool },
    /// Another object is there than when it was opened.
    Replaced,
    /// An object exists already where there should be none.
    Exists,
    /// The server sends only whole objects, no ranges.
    NoRanges,
    /// The answer repeatedly had the wrong length.
    Cut,
    /// The server cannot be reached, does not answer, or answers only with errors.
    Away(String),
    /// The server's certificate is not valid, with the reason in brackets if it is known.
    Untrusted(String),
    /// Anything else.
    Other(String),
    /// There is not enough memory.
    Memory(u64),
}

impl Failure {
    /// Converts the library's error.
    pub(super) fn from_library(error: &object_store::Error) -> Self {
        use object_store::Error as Library;
        if let Some(LookupFailed(failure)) = cause(error) {
            return failure.clone();
        }
        let text = chain(error);
        let status = status_of(&text);
        match (error, status) {
            (Library::NotFound { .. }, _) | (_, Some(404)) => match code(&text) {
                Some("NoSuchBucket" | "ContainerNotFound") => Self::NoBucket,
                _ => Self::Missing,
            },
            (Library::PermissionDenied { .. } | Library::Unauthenticated { .. }, _)
            | (_, Some(401 | 403)) => Self::Denied(told(&text, status)),
            (Library::AlreadyExists { .. }, _) => Self::Exists,
            (Library::Precondition { .. }, _) | (_, Some(412)) => Self::Replaced,
            (Library::NotSupported { .. }, _) => Self::NoRanges,
            _ if text.contains("non-partial response") => Self::NoRanges,
            _ if text.contains("redirect") => Self::Other(
                "the server redirects to another address; is the region right?".to_owned(),
            ),
            _ if text.contains("InvalidGetRange") || status == Some(416) => Self::Replaced,
            (_, Some(_)) => Self::Away(told(&text, status)),
            _ => match system(error) {
                Some(detail) => Self::Away(detail),
                None if text.contains("dns error") => {
                    Self::Away("the server's name is not known".to_owned())
                }
                None if text.contains("invalid peer certificate") => Self::Untrusted(fault(&text)),
                None if text.contains("received corrupt message") => Self::Other(
                    "the server does not answer with TLS; is its address http:// instead of https://?"
                        .to_owned(),
                ),
                None if text.contains("timed out") || text.contains("deadline has elapsed") => {
                    Self::Away("no answer in time".to_owned())
                }
                None if text.contains("redential") => {
                    Self::Denied("no credentials were found".to_owned())
                }
                // The client has tried it again for seconds; a later try may succeed.
                None if text.contains("retry_timeout") => {
                    Self::Away("the request failed".to_owned())
                }
                None => Self::Other("the request failed".to_owned()),
            },
        }
    }

    /// The error of reading the object at `url`.
    pub(crate) fn of(&self, url: &Path) -> Error {
        self.of_doing("cannot read", url)
    }

    /// The error of writing the object at `url`.
    pub(crate) fn of_writing(&self, url: &Path) -> Error {
        match self {
            Self::Missing | Self::NoBucket => {
                Error::new(ErrorKind::Io, "cannot write: there is no such bucket").at(url).with_remedy(
                    "check the URL, and create the bucket or container with the cloud's own tool",
                )
            }
            Self::Denied(detail) => {
                Error::new(ErrorKind::Io, format!("cannot write: the server refuses ({detail})")).at(url).with_remedy(
                    "check the credentials, which may have expired, and whether they allow writing there",
                )
            }
            _ => self.of_doing("cannot write", url),
        }
    }

    fn of_doing(&self, doing: &str, url: &Path) -> Error {
        if let Some(error) = hub_error(self, doing, url) {
            return error;
        }
        let io = |what: &str| Error::new(ErrorKind::Io, format!("{doing}: {what}")).at(url);
        match self {
            Self::Missing => {
                let source = io::Error::new(io::ErrorKind::NotFound, "there is no such object");
                Error::io(url, doing, source).with_remedy("check the URL")
            }
            Self::NoBucket => {
                io("there is no such bucket").with_remedy("check the URL, the endpoint and the region")
            }
            Self::Exists => Error::conflict("the object exists").at(url).with_remedy("choose another name"),
            Self::Denied(detail) => io(&format!("the server refuses ({detail})")).with_remedy(
                "check the credentials: environment variables, profile or storage_options; they may have expired",
            ),
            Self::Credentials { cloud, text, .. } => {
                io(&format!("no credentials were found: {text}")).with_remedy(cloud.remedy())
            }
            Self::Replaced => Error::conflict("the object was replaced while it was open")
                .at(url)
                .with_remedy("open the dataset again"),
            Self::NoRanges => Error::unsupported("the server sends only whole files, not parts of them")
                .at(url)
                .with_remedy("use a server that supports range requests, such as nginx or an object store"),
            Self::Cut => io("the answer of the server is cut short").with_remedy("check the server and the network"),
            Self::Away(detail) => io(&format!("the server is not available ({detail})"))
                .with_remedy("check the URL, the endpoint and the network; try again"),
            Self::Untrusted(fault) => io(&format!("the server's certificate is not valid{fault}"))
                .with_remedy("check the server's name in the URL or endpoint, and its certificate"),
            Self::Other(detail) => io(detail).with_remedy("check the URL, the endpoint and the network"),
            Self::Memory(bytes) => Error::memory(format!("there is no memory for {bytes} bytes"))
                .at(url)
                .with_remedy("raise the memory limit"),
        }
    }
}

/// The error of a request for a file of the Hub, if it needs other words than those of other
/// servers.
fn hub_error(failure: &Failure, doing: &str, url: &Path) -> Option<Error> {
    let authority = Address::of(url).ok().filter(|address| address.scheme == Scheme::Hf)?.authority;
    let repository = Repository::of_authority(&authority)?;
    match failure {
        Failure::Missing => {
            let source =
                std::io::Error::new(std::io::ErrorKind::NotFound, "the Hub has no such file");
            Some(Error::io(url, doing, source).with_remedy(format!(
                "check the path and the revision; {}/tree/{} lists the files",
                repository.page(),
                repository.encoded_revision()
            )))
        }
        Failure::Denied(status) => Some(
            Error::new(ErrorKind::Io, format!("{doing}: the Hub refuses ({status})"))
                .at(url)
                .with_remedy(format!("{TOKEN}, {}", repository.page())),
        ),
        _ => None,
    }
}

/// The cause of this type.
fn cause<T: std::error::Error + 'static>(error: &object_store::Error) -> Option<&T> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<T>() {
            return Some(error);
        }
        next = error.source();
    }
    None
}

/// The text of an error and of all its causes.
fn chain(error: &object_store::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(error) = next {
        text.push('\n');
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

/// The status code in the text of a failed request.
fn status_of(text: &str) -> Option<u16> {
    let (_, after) = text.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}

/// The status with the server's own short code for it (letters only).
fn told(text: &str, status: Option<u16>) -> String {
    let status =
        status.map_or_else(|| "no permission".to_owned(), |status| format!("status {status}"));
    match code(text) {
        Some(code) => format!("{status}, {code}"),
        None => status,
    }
}

/// The server's own short code, if it is only letters and digits.
fn code(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("<Code>")?;
    let (code, _) = after.split_once("</Code>")?;
    is_word(code).then_some(code)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() < 64 && text.chars().all(char::is_alphanumeric)
}

/// The fault of a certificate, in brackets, if it is a word such as `UnknownIssuer`.
fn fault(text: &str) -> String {
    let after = text.split_once("invalid peer certificate: ").map_or("", |(_, after)| after);
    let word = after.lines().next().unwrap_or_default();
    if is_word(word) { format!(" ({word})") } else { String::new() }
}

/// The system's message, if a system error is the cause.
fn system(error: &object_store::Error) -> Option<String> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.raw_os_error().is_some()
        {
            return Some(error.to_string());
        }
        next = error.source();
    }
    None
}

/// The failure of a look-up, inside an error of the library.
#[derive(Debug)]
pub(super) struct LookupFailed(pub(super) Failure);

impl fmt::Display for LookupFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no credentials were found")
    }
}

impl std::error::Error for LookupFailed {}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn the_status_and_the_server_s_code_are_told_and_nothing_else() {
        let text = "Error performing GET https://b.s3/k?X-Amz-Signature=hunter2 in 3ms - Server returned non-2xx \
                    status code: 403 Forbidden: <Error><Code>ExpiredToken</Code><Message>hunter2</Message></Error>";
        let failure = Failure::from_library(&generic(text));
        assert_eq!(failure, Failure::Denied("status 403, ExpiredToken".to_owned()));
        let error = failure.of(Path::new("s3://b/k")).to_string();
        assert!(error.contains("expired") && !error.contains("hunter2"), "{error}");
        let text = "status code: 503 Slow: <Code>hunter2 and more</Code>";
        assert_eq!(Failure::from_library(&generic(text)), Failure::Away("status 503".to_owned()));
        let other = Failure::from_library(&generic("hunter2"));
        assert!(!other.of(Path::new("s3://b/k")).to_string().contains("hunter2"));
    }

    #[test]
    fn a_missing_object_is_a_missing_file() {
        let error = Failure::Missing.of(Path::new("s3://b/k"));
        assert!(crate::bounded_read::is_missing(&error));
        assert_eq!(Failure::from_library(&generic("status code: 404 Not Found")), Failure::Missing);
    }

    #[test]
    fn missing_buckets_differ_from_missing_files() {
        let text = "status code: 404 Not Found: <Error><Code>NoSuchBucket</Code></Error>";
        let error = Failure::from_library(&generic(text)).of(Path::new("s3://b/k"));
        assert!(error.to_string().contains("there is no such bucket"), "{error}");
        assert!(!crate::bounded_read::is_missing(&error));
        let text = "status code: 404 Not Found: <Error><Code>NoSuchKey</Code></Error>";
        assert_eq!(Failure::from_library(&generic(text)), Failure::Missing);
    }

    #[test]
    fn names_certificates_and_servers_without_tls_are_told_apart() {
        let failed =
            "after 33 retries, max_retries: 100, retry_timeout: 8s - error sending request";
        let message = |cause: &str| {
            let failure = Failure::from_library(&generic(&format!("{failed}\n{cause}")));
            failure.of(Path::new("https://h/k")).to_string()
        };
        assert!(message("dns error\nfailed to lookup address").contains("name is not known"));
        assert!(message("received corrupt message of type X").contains("does not answer with TLS"));
        let certificate = message("invalid peer certificate: UnknownIssuer");
        assert!(certificate.contains("certificate is not valid (UnknownIssuer)"), "{certificate}");
        assert!(!message("invalid peer certificate: hunter 2").contains("hunter"));
        assert!(message("operation timed out").contains("no answer in time"));
        // What the client has tried again may pass, so it counts as a server that is not available.
        assert!(message("connection closed").contains("not available (the request failed)"));
        let other = Failure::from_library(&generic("something else"));
        assert_eq!(other, Failure::Other("the request failed".to_owned()));
    }

    #[test]
    fn system_errors_are_reported() {
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        let error = object_store::Error::Generic { store: "S3", source: Box::new(refused) };
        // The library's own error is the first in the chain.
        let Failure::Away(detail) = Failure::from_library(&error) else { panic!() };
        assert!(detail.contains("refused"), "{detail}");
    }
}
