//! When the server ends.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use hsipack_view::{End, Options, Subject, View};

use crate::common::{Viewed, write_envi};

/// Waits until the server has ended by itself, at most for a while.
fn ends_by_itself(view: &View) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if view.is_ended() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn it_ends_when_it_is_told_and_when_the_page_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write_envi(&path, 0);
    let path = path.with_extension("hdr");
    let short = Options { linger: Some(Duration::from_millis(300)), ..Options::default() };
    let viewed = Viewed::with(&path, &short);
    std::thread::sleep(Duration::from_millis(800));
    assert!(!viewed.view.is_ended(), "nobody has opened the page yet");
    assert_eq!(viewed.get("api/ping").status, 200);
    assert!(ends_by_itself(&viewed.view));
    assert_eq!(viewed.view.wait().unwrap(), End::Closed);
    assert!(TcpStream::connect(&viewed.host).is_err());

    let kept = Viewed::with(&path, &Options { linger: None, ..Options::default() });
    assert_eq!(kept.get("api/ping").status, 200);
    // A connection without a request does not delay the end.
    let _idle = TcpStream::connect(&kept.host).unwrap();
    kept.view.stop();
    assert!(ends_by_itself(&kept.view));
    assert_eq!(kept.view.wait().unwrap(), End::Stopped);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write_envi(&path, 0);
    let path = path.with_extension("hdr");
    let viewed = Viewed::of(&path);
    let port = viewed.host.rsplit(':').next().unwrap().parse().unwrap();
    let subject = Subject::open(&path.to_string_lossy(), None).unwrap();
    let refused = View::start(subject, &Options { port, ..Options::default() }).unwrap_err();
    assert!(refused.to_string().contains(&format!("port {port}")), "{refused}");
}
