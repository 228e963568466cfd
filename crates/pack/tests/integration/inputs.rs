//! Inputs that are not packed: hidden files, and everything that is not a regular file.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_pack::convert::{self, ConvertOptions, ValueOptions};
use hsipack_pack::fingerprint::fingerprint;
use hsipack_pack::input::Input;
use hsipack_pack::progress::Progress;
use hsipack_pack::search;
use hsipack_pack::table::{Table, read_list};
use hsipack_pack::target::Target;
use hsipack_source::{OpenOptions, RowBuffer};
use hsipack_store::is_packed;

use crate::conversion::{cubes, options};

/// Returns the result of `work`, which must not wait for the other end of a pipe.
fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(work()));
    receive.recv_timeout(Duration::from_secs(60)).expect("it waits")
}

fn pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn names(found: &[Input], folder: &Path) -> Vec<String> {
    let below = |input: &Input| input.file.strip_prefix(folder).unwrap().display().to_string();
    found.iter().map(below).collect()
}

#[test]
fn hidden_files_are_packed_only_if_they_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for within in [".ipynb_checkpoints", "__MACOSX", "day1/.hidden", "day1"] {
        std::fs::create_dir_all(at(within)).unwrap();
        cubes(&at(within), 1, 0);
    }
    cubes(folder.path(), 1, 0);
    for name in ["._cube000.hdr", ".cube000.hdr"] {
        std::fs::copy(at("cube000.hdr"), at(name)).unwrap();
    }
    let expand = |pattern: &str| {
        let text = at(pattern).display().to_string();
        search::expand(&[text], &[], &ValueOptions::default())
            .map(|found| names(&found, folder.path()))
    };
    assert_eq!(expand("").unwrap(), ["cube000.hdr", "day1/cube000.hdr"]);
    assert_eq!(expand("*.hdr").unwrap(), ["cube000.hdr"]);
    assert_eq!(expand("*/*.hdr").unwrap(), ["day1/cube000.hdr"]);
    assert_eq!(expand("**/*.hdr").unwrap(), ["cube000.hdr", "day1/cube000.hdr"]);
    assert!(expand("._*").is_ok_and(|found| found == ["._cube000.hdr"]));
    // Hidden files are read if they are named, as a file, in a folder or in a pattern.
    assert_eq!(expand(".cube000.hdr").unwrap(), [".cube000.hdr"]);
    assert_eq!(expand("day1/.hidden").unwrap(), ["day1/.hidden/cube000.hdr"]);
    assert_eq!(expand("__MACOSX").unwrap(), ["__MACOSX/cube000.hdr"]);
    assert_eq!(expand("__MACOSX/*.hdr").unwrap(), ["__MACOSX/cube000.hdr"]);
    std::fs::create_dir_all(at("only/.hidden")).unwrap();
    cubes(&at("only/.hidden"), 1, 0);
    let error = expand("only").unwrap_err();
    assert!(error.to_string().contains("hidden"), "{error}");
}

/// A folder with a pipe and a device under every name that a cube can have.
fn trap() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let names = ["npy", "npz", "mat", "h5", "nc", "tif", "png", "blosc", "img", "csv", "hdr"];
    for suffix in names {
        pipe(&folder.path().join(format!("pipe.{suffix}")));
        let link = folder.path().join(format!("zero.{suffix}"));
        std::os::unix::fs::symlink("/dev/zero", link).unwrap();
    }
    for name in ["pipe", "zero"] {
        let cube = folder.path().join(format!("{name}_SpecCube.dat"));
        std::fs::rename(folder.path().join(format!("{name}.img")), cube).unwrap();
    }
    folder
}

fn refused(error: &Error, path: &Path) {
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
    assert_eq!(error.path(), Some(path), "{error}");
    let what = if path.file_name().unwrap().to_string_lossy().starts_with("pipe") {
        "a pipe, not a file"
    } else {
        "a device, not a file"
    };
    assert_eq!(error.what(), what);
    assert!(error.remedy().is_some());
}

#[test]
fn pipes_and_devices_are_refused_wherever_a_file_is_read() {
    let folder = trap();
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert_eq!(paths.len(), 22);
    at_once(move || {
        for path in &paths {
            for mask in [false, true] {
                let options = OpenOptions { mask, ..OpenOptions::default() };
                refused(&hsipack_source::open(path, &options).err().unwrap(), path);
            }
            refused(&Target::open(&path.display().to_string(), None).err().unwrap(), path);
            refused(&Table::read(path, "name").unwrap_err(), path);
            refused(&read_list(path).unwrap_err(), path);
            refused(&fingerprint(std::slice::from_ref(path)).unwrap_err(), path);
        }
    });
}

#[test]
fn pipes_and_devices_in_a_folder_are_passed_over() {
    let folder = trap();
    let path = folder.path().to_owned();
    cubes(&path, 1, 0);
    for name in ["store", "store.zarr"] {
        std::fs::create_dir(path.join(name)).unwrap();
        pipe(&path.join(name).join("zarr.json"));
    }
    at_once(move || {
        let found =
            search::expand(&[path.display().to_string()], &[], &ValueOptions::default()).unwrap();
        assert_eq!(names(&found, &path), ["cube000.hdr"]);
        assert!(!is_packed(&path.join("store")));
        assert!(hsipack_source::open(&path.join("store.zarr"), &OpenOptions::default()).is_err());
    });
}

fn convert(options: ConvertOptions) -> Result<convert::Report> {
    at_once(move || convert::convert(&options, &Progress::default(), &|_| {}))
}

#[test]
fn pipes_and_devices_beside_a_cube_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cubes_folder = folder.path().join("in");
    std::fs::create_dir(&cubes_folder).unwrap();
    cubes(&cubes_folder, 1, 0);
    let options = || options(&cubes_folder, &folder.path().join("out"));
    // The table.
    let table = folder.path().join("pipe.csv");
    pipe(&table);
    refused(
        &convert(ConvertOptions { table: vec![table.clone()], ..options() }).unwrap_err(),
        &table,
    );
    // The mask.
    let mask = cubes_folder.join("cube000.png");
    std::fs::remove_file(&mask).unwrap();
    pipe(&mask);
    let error = convert(options()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Malformed, Some(&*mask)), "{error}");
    std::fs::remove_file(&mask).unwrap();
    // The data of a header, and the header of data.
    let data = cubes_folder.join("cube000.img");
    let header = cubes_folder.join("cube000.hdr");
    std::fs::rename(&data, folder.path().join("kept.img")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &data).unwrap();
    let error = convert(options()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Malformed, Some(&*header)), "{error}");
    assert!(error.what().contains("missing"), "{error}");
    std::fs::remove_file(&data).unwrap();
    std::fs::rename(folder.path().join("kept.img"), &data).unwrap();
    std::fs::remove_file(&header).unwrap();
    pipe(&header);
    let error =
        at_once(move || hsipack_source::open(&data, &OpenOptions::default()).err().unwrap());
    assert!(error.what().contains("without an ENVI header"), "{error}");
}

#[test]
fn a_chunk_that_is_a_pipe_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let array = folder.path().join("a.zarr");
    std::fs::create_dir_all(array.join("c/0/0")).unwrap();
    let metadata = r#"{"zarr_format": 3, "node_type": "array", "shape": [4, 3, 6], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 3, 6]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}]}"#;
    std::fs::write(array.join("zarr.json"), metadata).unwrap();
    pipe(&array.join("c/0/0/0"));
    at_once(move || {
        let source = hsipack_source::open(&array, &OpenOptions::default()).unwrap();
        let error = source.read_rows(0..4, &mut RowBuffer::new()).unwrap_err();
        assert!(error.to_string().contains("a pipe, not a file"), "{error}");
    });
}

#[test]
fn large_side_files_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    // Sparse files, because only their size is checked.
    let sparse = |name: &str, len: u64| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(len).unwrap();
        path
    };
    let table = sparse("table.csv", 1 << 40);
    let error = Table::read(&table, "name").unwrap_err();
    assert!(error.what().contains("larger than 256 MiB"), "{error}");
    std::fs::create_dir(folder.path().join("store")).unwrap();
    sparse("store/zarr.json", 1 << 40);
    let error =
        hsipack_source::open(&folder.path().join("store"), &OpenOptions::default()).err().unwrap();
    assert!(error.what().contains(&format!("at most {}", 64 << 20)), "{error}");
    assert!(!is_packed(&folder.path().join("store")));
    let header = sparse("cube.hdr", 1 << 40);
    let error = hsipack_source::open(&header, &OpenOptions::default()).err().unwrap();
    assert!(error.what().contains(&format!("at most {}", 4 << 20)), "{error}");
}
