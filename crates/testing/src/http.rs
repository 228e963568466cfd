//! The common part of the test servers: a port, connections, and parsing of requests.

use std::io::{self, BufRead};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A port of this machine with a server; it is closed when it is dropped.
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Port {
    /// Lets `serve` answer each connection in its own thread. Its second argument tells whether the
    /// port was closed.
    pub(crate) fn open(
        serve: impl Fn(&TcpStream, &AtomicBool) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
        let address = listener.local_addr().expect("the port that was given");
        let (closed, serve) = (Arc::new(AtomicBool::new(false)), Arc::new(serve));
        let stop = closed.clone();
        let accept = move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (stop, serve) = (stop.clone(), serve.clone());
                // If a client closes the connection, that is not an error.
                std::thread::spawn(move || serve(&stream, &stop).unwrap_or_default());
            }
        };
        let thread = std::thread::Builder::new().name("test server".into());
        let thread = Some(thread.spawn(accept).expect("a thread"));
        Self { address, closed, thread }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The head of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) method: String,
    /// Decoded, without the first slash.
    pub(crate) path: String,
    /// The part after the question mark, decoded.
    pub(crate) query: Vec<(String, String)>,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl Head {
    /// The next request of a connection; `None` at its end.
    pub(crate) fn read(lines: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().trim_start_matches('/');
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        let mut head =
            Self { method, path: decoded(path), query: query.collect(), headers: Vec::new() };
        loop {
            let mut header = String::new();
            if lines.read_line(&mut header)? == 0 || header.trim().is_empty() {
                return Ok(Some(head));
            }
            if let Some((name, value)) = header.split_once(':') {
                head.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first and the last byte requested.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        first.parse().ok().zip(last.parse().ok())
    }

    /// Number of bytes requested from the end.
    pub(crate) fn tail(&self) -> Option<u64> {
        self.header("range")?.strip_prefix("bytes=-")?.parse().ok()
    }

    /// The body that follows the head.
    pub(crate) fn body(&self, lines: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let len = self.header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
        let mut body = vec![0; len];
        lines.read_exact(&mut body)?;
        Ok(body)
    }
}

/// Decodes `%20` and the like in a part of a URL to bytes.
fn decoded(text: &str) -> String {
    let (mut bytes, mut remaining) = (Vec::new(), text.bytes());
    while let Some(byte) = remaining.next() {
        let hex = |digit: Option<u8>| digit.and_then(|digit| char::from(digit).to_digit(16));
        match byte {
            b'%' => {
                let (high, low) = (hex(remaining.next()), hex(remaining.next()));
                bytes.push((16 * high.unwrap_or(0) + low.unwrap_or(0)) as u8);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
