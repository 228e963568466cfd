//! `samples.index`: whatever lies there, nothing that is asked of it panics; an index of a text
//! says what the text says.
#![no_main]

use std::sync::Arc;

use hsipack_format::checksums::digest;
use hsipack_format::samples::index::{Index, Origin};
use hsipack_format::samples::{Samples, index_of};
use libfuzzer_sys::fuzz_target;

const STACKS: [&str; 2] = ["2x3x4", "5x6x7"];

/// Asks for everything; gives the list if there is one.
fn ask(index: Vec<u8>, text: &[u8]) -> Option<Samples> {
    let index = Index::read(Arc::new(index)).ok()?;
    let list = Samples::new(index, Arc::new(text.to_vec()), &STACKS).ok()?;
    for id in 0..list.len() {
        let _ = (list.get(id), list.line(id), list.name(id).len());
        assert_eq!(list.id_at(list.stack(id), list.index(id)), Some(id));
        let _ = (list.splits().get(id), list.groups().get(id), list.labels().get(id));
    }
    let half = list.len() / 2;
    if let Ok(first) = list.clone().first(half, &STACKS) {
        assert!(first.names().eq(list.names().take(half)));
    }
    Some(list)
}

fuzz_target!(|input: (&[u8], &[u8])| {
    let (index, text) = input;
    // No mutation hits a checksum by chance.
    let mut sound = index.to_vec();
    if sound.len() > 16 {
        sound[..12].copy_from_slice(b"HSIPIDX\n\x01\0\0\0");
        let sum = hsipack_format::crc::crc32c(&sound[16..]);
        sound[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    ask(sound, text);
    let _ = Origin::of(index);
    let Ok(samples) = Samples::decode(text.to_vec(), &STACKS) else { return };
    let list = ask(index_of(&samples, digest(text)), text).expect("what was made can be read");
    assert!(list.names().eq(samples.names()) && list.columns() == samples.columns());
    for (listed, other) in list.iter().zip(samples.iter()) {
        assert_eq!(listed.expect("of this text"), other.expect("of this text"));
    }
});
