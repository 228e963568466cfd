//! The door to C-Blosc: a damaged frame behind a header that goes with it.
#![no_main]

#[path = "../support.rs"]
mod support;

use hsipack_store::codec::decode_frame;
use libfuzzer_sys::fuzz_target;

const HEADER: usize = 16;

/// `pickle.dumps(((rows, 1, 1), np.dtype('u1')), 4)`.
fn pickle(rows: u32) -> Vec<u8> {
    let mut bytes = b"\x80\x04J".to_vec();
    bytes.extend(rows.to_le_bytes());
    bytes.extend(b"K\x01K\x01\x87\x8c\x05numpy\x8c\x05dtype\x93\x8c\x02u1\x89\x88\x87R\x86.");
    bytes
}

/// The other door, for chunks of packed datasets.
fn decode_chunk(frame: &[u8]) {
    let size = u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]) as usize;
    if size <= 1 << 20 {
        let _ = decode_frame(frame, &mut vec![0; size]);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return };
    let [_, _, _, _, a, b, c, d, ..] = *header;
    let mut file = pickle(u32::from_le_bytes([a, b, c, d]));
    file.extend(&bytes[..12]);
    // The length that the frame states is always right; what it says within is not.
    file.extend((bytes.len() as u32).to_le_bytes());
    file.extend(&bytes[HEADER..]);
    support::read_file("frame.blosc", &file, &Default::default());
    decode_chunk(bytes);
});
