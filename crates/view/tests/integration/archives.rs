//! Cubes in archives.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::answers::check_cube;
use crate::common::{Viewed, write_envi};

/// An archive with the cube of sample `sample`, stored or deflated.
fn zipped(folder: &Path, sample: usize, method: CompressionMethod) -> Vec<u8> {
    let cube = folder.join("cube");
    write_envi(&cube, sample);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for ending in ["hdr", "raw"] {
        zip.start_file(format!("in/cube.{ending}"), options).unwrap();
        let file = cube.with_extension(ending);
        zip.write_all(&fs::read(&file).unwrap()).unwrap();
        fs::remove_file(file).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_cube_in_an_archive_is_shown_and_called_by_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let path = folder.path().join(format!("{method}.zip"));
        fs::write(&path, zipped(folder.path(), 5, method)).unwrap();
        let viewed = Viewed::of(&path);
        check_cube(&viewed, 0, 5);
        let facts = viewed.get("api/cube/0").json();
        let file = path.join("in/cube.hdr").to_string_lossy().into_owned();
        let files: Vec<_> =
            facts["fields"].as_array().unwrap().iter().map(|field| &field[1]).collect();
        assert!(files.contains(&&file.into()), "{facts}");
    }
}

#[test]
fn no_band_is_shown_of_a_member_that_does_not_match_its_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = zipped(folder.path(), 5, CompressionMethod::Stored);
    // A value of the cube, which is before the directory.
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    let path = folder.path().join("damaged.zip");
    fs::write(&path, bytes).unwrap();
    let viewed = Viewed::of(&path);
    let inside = path.join("in/cube.raw").to_string_lossy().into_owned();
    for question in ["planes?bands=0", "spectrum?rows=0:1&columns=0:1"] {
        let answer = viewed.get(&format!("api/cube/0/{question}"));
        let error = answer.error();
        assert!(error.contains("checksum") && error.contains(&inside), "{error}");
        assert_eq!(answer.status, 422);
    }
}
