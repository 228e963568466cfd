//! The index at the end of a shard: spans lie inside the shard, and come back as they were.
#![no_main]

use hsipack_format::codec::append_checksum;
use hsipack_format::shard::ShardIndex;
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8], data_len: u64) {
    let Ok(index) = ShardIndex::decode(bytes, data_len) else { return };
    for span in index.0.iter().flatten() {
        assert!(span.offset + span.len <= data_len);
    }
    assert_eq!(index.encode(), bytes);
}

fuzz_target!(|input: (u64, &[u8])| {
    let (data_len, bytes) = input;
    check(bytes, data_len);
    // No mutation hits a checksum by chance.
    let mut sound = bytes.to_vec();
    append_checksum(&mut sound);
    check(&sound, data_len);
});
