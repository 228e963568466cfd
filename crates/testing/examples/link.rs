//! A slow link in front of an HTTP server: every request arrives later, and the rate of all answers
//! together is limited.
//!
//! Bytes pass unchanged, so that signed requests stay valid for a server that is reached under the
//! address that this prints. Requests may have a body with a `Content-Length`. A client must send
//! the next request after the last answer, as all clients do.
//!
//! ```text
//! cargo run --release -p hsipack-testing --example link -- SERVER:PORT MILLISECONDS [BYTES_PER_SECOND]
//! ```
//!
//! Prints its own `ADDRESS:PORT` and ends when its input ends.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use hsipack_testing::server::{Lane, Link};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

/// Bytes of an answer that pass the link at a time.
const PIECE: usize = 64 << 10;

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let server = words.next().expect("the address of a server");
    let latency = words.next().and_then(|word| word.parse().ok()).expect("milliseconds");
    let rate = words.next().map(|word| word.parse().expect("bytes a second"));
    let link = Link { latency: Duration::from_millis(latency), rate };
    let lane = Arc::new(Lane::new(link));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (server, lane) = (server.clone(), lane.clone());
            // Clients close the connection when they have what they need.
            std::thread::spawn(move || connect(client, &server, &lane).unwrap_or_default());
        }
    });
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

/// Connects a client with its own connection to the server, until either of them closes.
fn connect(client: TcpStream, server: &str, lane: &Arc<Lane>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to, back_lane) = (server.try_clone()?, client.try_clone()?, lane.clone());
    let back = std::thread::spawn(move || {
        answers(&from, &to, &back_lane).unwrap_or_default();
        let _ = to.shutdown(Shutdown::Both);
    });
    let sent = requests(&client, &server, lane.link().latency);
    let _ = server.shutdown(Shutdown::Write);
    let _ = back.join();
    sent
}

/// Forwards requests, each after the latency.
fn requests(client: &TcpStream, mut server: &TcpStream, latency: Duration) -> io::Result<()> {
    let mut lines = BufReader::new(client);
    let mut head = Vec::new();
    loop {
        head.clear();
        let mut body = 0;
        loop {
            let start = head.len();
            if lines.read_until(b'\n', &mut head)? == 0 {
                return Ok(());
            }
            let line = String::from_utf8_lossy(&head[start..]).to_ascii_lowercase();
            if let Some(length) = line.strip_prefix("content-length:") {
                body = length.trim().parse().map_err(io::Error::other)?;
            } else if line.starts_with("transfer-encoding:") {
                return Err(io::Error::other(
                    "a request in chunks, whose end nobody looks for here",
                ));
            } else if line.trim().is_empty() {
                break;
            }
        }
        std::thread::sleep(latency);
        server.write_all(&head)?;
        io::copy(&mut (&mut lines).take(body), &mut server)?;
    }
}

/// Forwards answers through a pipe of the system, so that this process never reads them.
fn answers(server: &TcpStream, client: &TcpStream, lane: &Lane) -> io::Result<()> {
    let (pipe, into) = pipe_with(PipeFlags::CLOEXEC)?;
    loop {
        let mut waiting = splice(server, None, &into, None, PIECE, SpliceFlags::MOVE)?;
        if waiting == 0 {
            return Ok(());
        }
        lane.pass(waiting);
        while waiting > 0 {
            waiting -= splice(&pipe, None, client, None, waiting, SpliceFlags::MOVE)?;
        }
    }
}
