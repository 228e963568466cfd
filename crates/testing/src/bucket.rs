//! An S3-compatible bucket in memory, for tests of writing: conditional puts, uploads in parts,
//! lists, and any fault on demand. Signatures are not checked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::{self, BufReader, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::http::{Head, Port};

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketRequest {
    /// Number of the request at this bucket, from 0.
    pub number: usize,
    /// `GET`, `HEAD`, `PUT`, `POST` or `DELETE`.
    pub method: String,
    /// The object's name, without that of the bucket.
    pub key: String,
    /// Whether it changes anything.
    pub writes: bool,
}

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketFault {
    /// The request is executed and answered.
    None,
    /// The request is not executed, and the answer has this status.
    Status(u16),
    /// The request is executed, but the connection is closed without an answer.
    LostAnswer,
}

type Faults = Arc<dyn Fn(&BucketRequest) -> BucketFault + Send + Sync>;

/// A bucket on a port of this machine; it stops when it is dropped.
pub struct Bucket {
    shared: Arc<Shared>,
    port: Port,
    name: String,
}

struct Shared {
    state: Mutex<State>,
    faults: Mutex<Faults>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Stored>,
    /// Open uploads by id: the object's name, and parts by number.
    uploads: HashMap<String, (String, BTreeMap<usize, Vec<u8>>)>,
    requests: Vec<BucketRequest>,
    /// Counter for tags and ids.
    counter: usize,
}

#[derive(Clone)]
struct Stored {
    bytes: Arc<Vec<u8>>,
    tag: String,
}

/// Status and headers, and the body.
struct Answer {
    status: &'static str,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: &'static str) -> Self {
        Self { status, headers: String::new(), body: Vec::new() }
    }

    fn xml(body: String) -> Self {
        let headers = "Content-Type: application/xml\r\n".to_owned();
        Self { headers, body: body.into_bytes(), ..Self::new("200 OK") }
    }

    fn code(status: &'static str, code: &str) -> Self {
        Self { status, ..Self::xml(format!("<Error><Code>{code}</Code></Error>")) }
    }
}

impl Bucket {
    /// An empty bucket with this name.
    ///
    /// # Panics
    /// If no port is available.
    pub fn start(name: &str) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            faults: Mutex::new(Arc::new(|_: &BucketRequest| BucketFault::None)),
        });
        let served = shared.clone();
        let port = Port::open(move |stream, closed| served.serve(stream, closed));
        Self { shared, port, name: name.to_owned() }
    }

    /// Sets the function that decides the fault of each request.
    pub fn set_faults(
        &self,
        faults: impl Fn(&BucketRequest) -> BucketFault + Send + Sync + 'static,
    ) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(faults);
    }

    /// The URL of an object.
    pub fn url(&self, key: &str) -> PathBuf {
        format!("s3://{}/{key}", self.name).into()
    }

    /// The options with which a client finds it.
    pub fn options(&self) -> Vec<(String, String)> {
        let pairs = [
            ("endpoint", format!("http://{}", self.port.address)),
            ("region", "us-east-1".to_owned()),
            ("access_key_id", "somebody".to_owned()),
            ("secret_access_key", "planted-7f3a-secret".to_owned()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// All requests received so far.
    pub fn requests(&self) -> Vec<BucketRequest> {
        self.shared.state().requests.clone()
    }

    /// Names of all objects.
    pub fn keys(&self) -> Vec<String> {
        self.shared.state().objects.keys().cloned().collect()
    }

    /// The bytes of an object.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.shared.state().objects.get(key).map(|stored| stored.bytes.to_vec())
    }

    /// Stores an object.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        self.shared.state().put(key, bytes);
    }

    /// Deletes an object.
    pub fn remove(&self, key: &str) {
        self.shared.state().objects.remove(key);
    }

    /// Deletes all objects.
    pub fn clear(&self) {
        *self.shared.state() = State::default();
    }

    /// Number of uploads that were begun and neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        self.shared.state().uploads.len()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the requests of one connection.
    fn serve(&self, mut stream: &TcpStream, closed: &AtomicBool) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut lines = BufReader::new(stream);
        while let Some(head) = Head::read(&mut lines)? {
            let body = head.body(&mut lines)?;
            if closed.load(Ordering::SeqCst) {
                return Ok(());
            }
            let request = self.note(&head);
            // Not under the lock, because the function may send requests itself.
            let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let fault = faults(&request);
            let answer = match fault {
                BucketFault::Status(status) => {
                    write!(stream, "HTTP/1.1 {status} Planned\r\nContent-Length: 0\r\n\r\n")?;
                    continue;
                }
                _ => self.state().answer(&head, &request.key, body),
            };
            if fault == BucketFault::LostAnswer {
                return stream.shutdown(Shutdown::Both);
            }
            let Answer { status, headers, mut body } = answer;
            if head.method == "HEAD" {
                body.clear();
            }
            let len = body.len();
            write!(stream, "HTTP/1.1 {status}\r\n{headers}")?;
            if headers.contains("Content-Length") {
                // The length of a body that is not sent.
                write!(stream, "\r\n")?;
            } else {
                write!(stream, "Content-Length: {len}\r\n\r\n")?;
            }
            stream.write_all(&body)?;
        }
        Ok(())
    }

    fn note(&self, head: &Head) -> BucketRequest {
        let mut state = self.state();
        let key = head.path.split_once('/').map_or("", |(_, key)| key).to_owned();
        let method = head.method.clone();
        let writes = !["GET", "HEAD"].contains(&method.as_str());
        let request = BucketRequest { number: state.requests.len(), method, key, writes };
        state.requests.push(request.clone());
        request
    }
}

impl State {
    fn next(&mut self) -> usize {
        self.counter += 1;
        self.counter
    }

    fn put(&mut self, key: &str, bytes: Vec<u8>) -> String {
        let tag = format!("\"{:x}\"", self.next());
        self.objects.insert(key.to_owned(), Stored { bytes: Arc::new(bytes), tag: tag.clone() });
        tag
    }

    fn answer(&mut self, head: &Head, key: &str, body: Vec<u8>) -> Answer {
        let upload = head.query("uploadId").map(str::to_owned);
        match (head.method.as_str(), upload) {
            ("GET", _) if key.is_empty() => self.list(head),
            ("GET" | "HEAD", _) => self.get(head, key),
            ("PUT", Some(id)) => {
                let number = head.query("partNumber").and_then(|number| number.parse().ok());
                let tag = self.next();
                match (self.uploads.get_mut(&id), number) {
                    (Some((_, parts)), Some(number)) => {
                        parts.insert(number, body);
                        let headers = format!("ETag: \"{tag:x}\"\r\n");
                        Answer { headers, ..Answer::new("200 OK") }
                    }
                    _ => Answer::code("404 Not Found", "NoSuchUpload"),
                }
            }
            ("PUT", None) => {
                if head.header("if-none-match") == Some("*") && self.objects.contains_key(key) {
                    return Answer::code("412 Precondition Failed", "PreconditionFailed");
                }
                let tag = self.put(key, body);
                Answer { headers: format!("ETag: {tag}\r\n"), ..Answer::new("200 OK") }
            }
            ("POST", Some(id)) => match self.uploads.remove(&id) {
                Some((key, parts)) => {
                    let tag = self.put(&key, parts.into_values().flatten().collect());
                    Answer::xml(format!(
                        "<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
                    ))
                }
                None => Answer::code("404 Not Found", "NoSuchUpload"),
            },
            ("POST", None) if head.query("uploads").is_some() => {
                let id = format!("upload{}", self.next());
                self.uploads.insert(id.clone(), (key.to_owned(), BTreeMap::new()));
                Answer::xml(format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            ("POST", None) if head.query("delete").is_some() => {
                let text = String::from_utf8_lossy(&body).into_owned();
                let mut deleted = String::new();
                for part in text.split("<Key>").skip(1) {
                    let key = part.split("</Key>").next().unwrap_or_default();
                    self.objects.remove(key);
                    let _ = write!(deleted, "<Deleted><Key>{key}</Key></Deleted>");
                }
                Answer::xml(format!("<DeleteResult>{deleted}</DeleteResult>"))
            }
            ("DELETE", Some(id)) => {
                self.uploads.remove(&id);
                Answer::new("204 No Content")
            }
            ("DELETE", None) => {
                self.objects.remove(key);
                Answer::new("204 No Content")
            }
            _ => Answer::code("400 Bad Request", "InvalidRequest"),
        }
    }

    fn get(&self, head: &Head, key: &str) -> Answer {
        let Some(Stored { bytes, tag }) = self.objects.get(key) else {
            return Answer::code("404 Not Found", "NoSuchKey");
        };
        let len = bytes.len() as u64;
        let tail = head.tail().filter(|_| len > 0);
        let range = head.range().or(tail.map(|tail| (len.saturating_sub(tail), len - 1)));
        let (first, end) = range.map_or((0, len), |(first, last)| (first, last.min(len - 1) + 1));
        if first > end || end > len {
            return Answer::code("416 Range", "InvalidRange");
        }
        let mut headers =
            format!("ETag: {tag}\r\nLast-Modified: Wed, 25 Nov 2026 00:00:00 GMT\r\n");
        let status = if range.is_some() {
            let _ = write!(headers, "Content-Range: bytes {first}-{}/{len}\r\n", end - 1);
            "206 Part"
        } else {
            "200 OK"
        };
        if head.method == "HEAD" {
            let _ = write!(headers, "Content-Length: {}\r\n", end - first);
            return Answer { status, headers, body: Vec::new() };
        }
        Answer { status, headers, body: bytes[first as usize..end as usize].to_vec() }
    }

    /// All objects at once: no test has more objects than fit on one page.
    fn list(&self, head: &Head) -> Answer {
        let prefix = head.query("prefix").unwrap_or_default();
        let delimiter = head.query("delimiter").filter(|delimiter| !delimiter.is_empty());
        let (mut contents, mut folders) = (String::new(), BTreeSet::new());
        for (key, stored) in self.objects.iter().filter(|(key, _)| key.starts_with(prefix)) {
            let below = delimiter.and_then(|delimiter| key[prefix.len()..].split_once(delimiter));
            if let Some((folder, _)) = below {
                folders.insert(format!("{prefix}{folder}/"));
                continue;
            }
            let _ = write!(
                contents,
                "<Contents><Key>{key}</Key><LastModified>2026-11-25T00:00:00.000Z</LastModified>\
                 <ETag>{}</ETag><Size>{}</Size></Contents>",
                stored.tag,
                stored.bytes.len()
            );
        }
        for folder in folders {
            let _ = write!(contents, "<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
        }
        Answer::xml(format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
        ))
    }
}
