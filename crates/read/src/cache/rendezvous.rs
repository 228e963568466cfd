//! How processes of the same user on one machine find the memory that they share.
//!
//! The first process creates the memory and listens on an abstract Unix socket, whose name says
//! what the memory is for. The other processes ask there for the file. Such a socket is not a file:
//! it disappears when the process that listens ends, however it ends. A process that comes after
//! that creates new memory. Processes that have the old memory keep it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hsipack_store::threads;

pub(super) use super::segment::ChunksOf;
use super::segment::Segment;

/// How long to wait for an answer. The process that listens answers at once, unless it is stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How often to try to create or to join: the process that listened may end in between.
const TRIES: usize = 3;

/// Memory that processes share.
#[derive(Debug)]
pub(super) struct Rendezvous {
    segment: Arc<Segment>,
    /// Only in the process that created the memory: tells the others where it is.
    _host: Option<Host>,
}

impl Rendezvous {
    /// Joins the processes that share the chunks of these arrays, or is the first of them. `key`
    /// identifies the chunks. Returns `None` if this system cannot share memory, or the process
    /// that has the name does not answer.
    pub(super) fn join(key: u64, arrays: &[ChunksOf]) -> Option<Self> {
        // SAFETY: the call gives a number, and cannot fail.
        let user = unsafe { libc::getuid() };
        let address =
            SocketAddr::from_abstract_name(format!("hsipack-{user}-{key:016x}").as_bytes()).ok()?;
        for _ in 0..TRIES {
            match Self::try_join(&address, user, key, arrays) {
                // The process that had the name has just ended.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                joined => return joined.ok().flatten(),
            }
        }
        None
    }

    fn try_join(
        address: &SocketAddr,
        user: u32,
        key: u64,
        arrays: &[ChunksOf],
    ) -> io::Result<Option<Self>> {
        match UnixListener::bind_addr(address) {
            Ok(listener) => {
                let segment = Arc::new(Segment::create(key, arrays)?);
                let host = Host::start(listener, address.clone(), segment.clone())?;
                Ok(Some(Self { segment, _host: Some(host) }))
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let file = ask(address, user)?;
                let segment = Segment::join(file, key, arrays)?;
                Ok(segment.map(|segment| Self { segment: segment.into(), _host: None }))
            }
            Err(error) => Err(error),
        }
    }

    /// The memory.
    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }
}

/// The file of the process that listens, which has to belong to the same user.
fn ask(address: &SocketAddr, user: u32) -> io::Result<File> {
    let mut stream = UnixStream::connect_addr(address)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    if user_of(&stream)? != user {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let numbers = answer.split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| io::ErrorKind::InvalidData);
    let (process, file) = (number(numbers.0)?, number(numbers.1)?);
    File::options().read(true).write(true).open(format!("/proc/{process}/fd/{file}"))
}

/// The user of the process at the other end.
fn user_of(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the call fills the struct, whose size it is given, and the length.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if done == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// Tells other processes where the memory is, until it is dropped.
#[derive(Debug)]
struct Host {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    fn start(
        listener: UnixListener,
        address: SocketAddr,
        segment: Arc<Segment>,
    ) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let tell = move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                // The process that asks may have ended, or may never read the answer.
                let _ = stream.set_write_timeout(Some(ANSWER_TIMEOUT));
                let _ = write!(stream, "{} {}", std::process::id(), segment.file().as_raw_fd());
            }
        };
        let thread = threads::start("shared cache", tell).map_err(io::Error::other)?;
        Ok(Self { address, over, thread: Some(thread) })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // The thread waits for a connection.
        let woken = UnixStream::connect_addr(&self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAYS: [ChunksOf; 1] = [ChunksOf { count: 3, bytes: 100 }];

    /// A key that only this process uses.
    fn key(number: u64) -> u64 {
        u64::from(std::process::id()) << 8 | number
    }

    #[test]
    fn those_who_come_later_find_the_memory_even_when_the_first_has_gone() {
        let first = Rendezvous::join(key(1), &ARRAYS).unwrap();
        let second = Rendezvous::join(key(1), &ARRAYS).unwrap();
        assert!(first._host.is_some() && second._host.is_none());
        first.segment().keep(0, 1, &[3; 100], u64::MAX);
        assert_eq!(second.segment().get(0, 1), Some(&[3; 100][..]));
        drop(first);
        assert_eq!(second.segment().get(0, 1), Some(&[3; 100][..]));
        let third = Rendezvous::join(key(1), &ARRAYS).unwrap();
        assert!(third._host.is_some(), "nobody tells of the old one any more");
        assert_eq!(third.segment().get(0, 1), None);
    }

    #[test]
    fn others_have_other_memory() {
        let first = Rendezvous::join(key(2), &ARRAYS).unwrap();
        let second = Rendezvous::join(key(3), &ARRAYS).unwrap();
        first.segment().keep(0, 0, &[1; 100], u64::MAX);
        assert_eq!(second.segment().get(0, 0), None);
        // The name is in use for other arrays, so the memory cannot be shared.
        assert!(Rendezvous::join(key(2), &[ChunksOf { count: 4, bytes: 100 }]).is_none());
    }

    #[test]
    fn a_silent_owner_of_the_name_is_not_waited_for() {
        // SAFETY: the call gives a number, and cannot fail.
        let name = format!("hsipack-{}-{:016x}", unsafe { libc::getuid() }, key(4));
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let _silent = UnixListener::bind_addr(&address).unwrap();
        assert!(Rendezvous::join(key(4), &ARRAYS).is_none());
    }
}
