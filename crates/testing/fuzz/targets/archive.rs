//! Directories of zip archives and headers of tar archives: whatever they say, members are files
//! below the archive.
#![no_main]

use hsipack_store::archive::{Kind, MOST_MEMBERS, list_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for kind in [Kind::Zip, Kind::Tar] {
        let Ok(members) = list_bytes(kind, bytes) else { continue };
        assert!(members.len() <= MOST_MEMBERS);
        let mut names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        for name in &names {
            assert!(name.split('/').all(|part| !["", ".", ".."].contains(&part)), "{name:?}");
            assert!(!name.contains('\0'));
        }
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
});
