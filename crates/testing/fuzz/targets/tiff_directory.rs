//! The directories and tags of TIFF files.
#![no_main]

use hsipack_source::flat::MemoryBytes;
use hsipack_source::tiff::directory::Directories;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let len = bytes.len() as u64;
    let file = MemoryBytes(bytes.to_vec());
    let Ok((directories, pages)) = Directories::read(&file, len) else { return };
    for page in &pages {
        assert!(page.width > 0 && page.height > 0 && page.samples > 0);
        let down = page.height.div_ceil(page.chunk.1);
        let across = page.width.div_ceil(page.chunk.0);
        if let Some(chunks) = down.checked_mul(across) {
            let _ = directories.chunks(page, chunks);
        }
        let _ = directories.description(page);
        let _ = directories.gdal_metadata(page);
        let _ = directories.gdal_nodata(page);
    }
});
