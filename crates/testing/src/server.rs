//! A web server for tests: serves the files of a folder, by ranges, with any server fault on
//! demand.

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::http::{Head, Port};

/// Bytes of a body that pass the link at a time.
const PIECE: usize = 128 << 10;

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of the request at this server, from 0.
    pub number: usize,
    /// `GET` or `HEAD`.
    pub method: String,
    /// The path of the file, relative to the folder.
    pub path: String,
    /// The first and the last byte requested; `None` for the whole file.
    pub range: Option<(u64, u64)>,
    /// Number of bytes requested from the end instead.
    pub tail: Option<u64>,
}

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is answered normally.
    None,
    /// The answer has this status.
    Status(u16),
    /// The connection is closed without an answer.
    Reset,
    /// The connection is closed after this many bytes of the body.
    CutAfter(usize),
    /// One bit in the middle of the body is flipped.
    Corrupt,
    /// The whole file is sent, whatever range was requested.
    NoRange,
    /// Bytes requested from the end are sent from the start, as some servers do.
    WrongTail,
    /// The answer is delayed by this time.
    Late(Duration),
}

type Faults = dyn Fn(&Request) -> Fault + Send + Sync;

/// The link between the server and its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    /// Time from a request to the first byte of its answer.
    pub latency: Duration,
    /// Bytes per second over all connections together; unlimited if `None`.
    pub rate: Option<u64>,
}

/// A link, and its current load.
pub struct Lane {
    link: Link,
    /// The time at which everything sent so far has passed.
    passed: Mutex<Instant>,
}

impl Lane {
    /// A link with no load yet.
    pub fn new(link: Link) -> Self {
        Self { link, passed: Mutex::new(Instant::now()) }
    }

    /// The properties of the link.
    pub const fn link(&self) -> Link {
        self.link
    }

    /// Waits until this many more bytes have passed the link.
    pub fn pass(&self, bytes: usize) {
        let Some(rate) = self.link.rate else { return };
        let now = Instant::now();
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        *passed = (*passed).max(now) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        let until = *passed;
        drop(passed);
        std::thread::sleep(until.saturating_duration_since(now));
    }
}

/// A server of a folder's files on a port of this machine; it stops when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    port: Port,
}

struct Shared {
    folder: PathBuf,
    lane: Lane,
    faults: Box<Faults>,
    requests: Mutex<Vec<Request>>,
    number: AtomicUsize,
}

impl Server {
    /// Serves the files in `folder`.
    pub fn start(folder: &Path) -> Self {
        Self::with_faults(folder, |_| Fault::None)
    }

    /// Serves the files in `folder`; `faults` decides the fault of each request.
    ///
    /// # Panics
    /// If no port is available.
    pub fn with_faults(
        folder: &Path,
        faults: impl Fn(&Request) -> Fault + Send + Sync + 'static,
    ) -> Self {
        Self::with(folder, Link::default(), faults)
    }

    /// Serves the files in `folder` over a slow link.
    ///
    /// # Panics
    /// If no port is available.
    pub fn behind(folder: &Path, link: Link) -> Self {
        Self::with(folder, link, |_| Fault::None)
    }

    fn with(
        folder: &Path,
        link: Link,
        faults: impl Fn(&Request) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            lane: Lane::new(link),
            faults: Box::new(faults),
            requests: Mutex::default(),
            number: AtomicUsize::new(0),
        });
        let served = shared.clone();
        Self { shared, port: Port::open(move |stream, closed| served.serve(stream, closed)) }
    }

    /// The URL of a file or folder, relative to the server's folder.
    pub fn url(&self, path: &str) -> PathBuf {
        format!("http://{}/{path}", self.port.address).into()
    }

    /// All requests received so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    /// Answers the requests of one connection.
    fn serve(&self, mut stream: &TcpStream, closed: &AtomicBool) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut lines = BufReader::new(stream);
        while let Some(request) = self.next(&mut lines)? {
            if closed.load(Ordering::SeqCst) {
                return Ok(());
            }
            self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
            std::thread::sleep(self.lane.link.latency);
            let fault = (self.faults)(&request);
            match fault {
                Fault::Reset => return stream.shutdown(Shutdown::Both),
                Fault::Status(status) => {
                    write!(stream, "HTTP/1.1 {status} Planned\r\nContent-Length: 0\r\n\r\n")?;
                    continue;
                }
                Fault::Late(late) => std::thread::sleep(late),
                _ => {}
            }
            if !self.answer(stream, &request, fault)? {
                return stream.shutdown(Shutdown::Both);
            }
        }
        Ok(())
    }

    fn next(&self, lines: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
        let Some(head) = Head::read(lines)? else { return Ok(None) };
        let (range, tail) = (head.range(), head.tail());
        let number = self.number.fetch_add(1, Ordering::SeqCst);
        Ok(Some(Request { number, method: head.method, path: head.path, range, tail }))
    }

    /// Sends a file, or a part of it; returns `false` if the connection must be closed.
    fn answer(&self, mut stream: &TcpStream, request: &Request, fault: Fault) -> io::Result<bool> {
        let found = File::open(self.folder.join(&request.path));
        let Some(file) = found.ok().filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))
        else {
            write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            return Ok(true);
        };
        let meta = file.metadata()?;
        let tag = format!("\"{:x}-{:x}-{:x}\"", meta.ino(), meta.mtime_nsec(), meta.len());
        let tail = request.tail.filter(|_| meta.len() > 0);
        let tail = tail.map(|tail| match fault {
            Fault::WrongTail => (0, tail.min(meta.len() - 1)),
            _ => (meta.len().saturating_sub(tail), meta.len() - 1),
        });
        let range = request.range.or(tail).filter(|_| fault != Fault::NoRange);
        let (first, end) = range.map_or((0, meta.len()), |(first, last)| (first, last + 1));
        if end > meta.len() || first > end {
            write!(stream, "HTTP/1.1 416 Range\r\nContent-Length: 0\r\n\r\n")?;
            return Ok(true);
        }
        match range {
            Some((first, last)) => write!(
                stream,
                "HTTP/1.1 206 Part\r\nContent-Range: bytes {first}-{last}/{}\r\n",
                meta.len()
            )?,
            None => write!(stream, "HTTP/1.1 200 OK\r\n")?,
        }
        write!(
            stream,
            "ETag: {tag}\r\nLast-Modified: Wed, 25 Nov 2026 00:00:00 GMT\r\nContent-Length: {}\r\n\r\n",
            end - first
        )?;
        if request.method == "HEAD" {
            return Ok(true);
        }
        let mut body = vec![0; (end - first) as usize];
        file.read_exact_at(&mut body, first)?;
        match fault {
            Fault::CutAfter(bytes) => {
                stream.write_all(&body[..bytes.min(body.len())])?;
                return Ok(false);
            }
            Fault::Corrupt if !body.is_empty() => {
                let middle = body.len() / 2;
                body[middle] ^= 1;
            }
            _ => {}
        }
        for piece in body.chunks(PIECE) {
            self.lane.pass(piece.len());
            stream.write_all(piece)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn get(server: &Server, head: &str) -> String {
        let mut stream = TcpStream::connect(server.port.address).unwrap();
        write!(stream, "{head}\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn ranges_missing_files_and_faults_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a b"), "0123456789").unwrap();
        let faults = |request: &Request| match request.number {
            3 => Fault::Status(503),
            4 => Fault::CutAfter(3),
            5 => Fault::Corrupt,
            _ => Fault::None,
        };
        let server = Server::with_faults(folder.path(), faults);
        let part = get(&server, "GET /a%20b HTTP/1.1\r\nRange: bytes=2-4");
        assert!(part.starts_with("HTTP/1.1 206") && part.ends_with("\r\n\r\n234"), "{part}");
        assert!(get(&server, "HEAD /a%20b HTTP/1.1").ends_with("Content-Length: 10\r\n\r\n"));
        assert!(get(&server, "GET /c HTTP/1.1").starts_with("HTTP/1.1 404"));
        assert!(get(&server, "GET /a%20b HTTP/1.1").starts_with("HTTP/1.1 503"));
        assert!(get(&server, "GET /a%20b HTTP/1.1").ends_with("\r\n\r\n012"));
        assert!(get(&server, "GET /a%20b HTTP/1.1").ends_with("\r\n\r\n0123446789"));
        let tail = get(&server, "GET /a%20b HTTP/1.1\r\nRange: bytes=-3");
        assert!(tail.contains("bytes 7-9/10") && tail.ends_with("\r\n\r\n789"), "{tail}");
        let first = &server.requests()[0];
        assert_eq!((first.path.as_str(), first.range), ("a b", Some((2, 4))));
    }
}
