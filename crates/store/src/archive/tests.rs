use std::io::{Seek, SeekFrom, Write};

use ::tar::{Builder, EntryType, Header};
use ::zip::CompressionMethod;
use ::zip::ZipWriter;
use ::zip::write::SimpleFileOptions;
use flate2::Compression;
use flate2::write::GzEncoder;
use hsipack_format::ErrorKind as Kinds;

use super::*;

/// Three files: an empty one, and two with different content that deflate can compress.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let image = |seed: u32| (0..40_000u32).flat_map(|n| (n / 7 * seed).to_le_bytes()).collect();
    vec![("in/a.bin", image(3)), ("in/none", Vec::new()), ("in/deep/b.bin", image(5))]
}

fn zipped(method: CompressionMethod, large: bool) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method).large_file(large);
    zip.add_directory("in/", options).unwrap();
    for (name, bytes) in files() {
        zip.start_file(name, options).unwrap();
        zip.write_all(&bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn tarred(add: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, bytes) in files() {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    add(&mut tar);
    tar.into_inner().unwrap()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

struct Written {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn write(name: &str, bytes: &[u8]) -> Written {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    Written { _folder: folder, path }
}

fn open(written: &Written) -> Result<Archive> {
    Archive::open(&written.path, Path::new("told/x"), crate::bounded_read::open, false)
}

fn copied(archive: &Archive, number: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let take = &mut |bytes: &[u8]| {
        out.extend_from_slice(bytes);
        Ok(())
    };
    if archive.is_stream() {
        archive.copy_on_the_way(&mut archive.stream(), number, &mut |at, member| {
            if at == number { member.copy(take) } else { Ok(()) }
        })?;
    } else {
        archive.copy(number, take)?;
    }
    Ok(out)
}

#[test]
fn kinds_are_known_by_their_names() {
    for (name, kind) in [
        ("a.zip", Some(Kind::Zip)),
        ("a.b.ZIP", Some(Kind::Zip)),
        ("x/a.tar", Some(Kind::Tar)),
        ("a.Tar.Gz", Some(Kind::TarGz)),
        ("a.tgz", Some(Kind::TarGz)),
        ("a.gz", None),
        (".zip", None),
        ("a.npz", None),
        ("a.zip.txt", None),
    ] {
        assert_eq!(Kind::of(Path::new(name)), kind, "{name}");
    }
}

#[test]
fn members_come_out_as_they_went_in() {
    let tar = tarred(|_| {});
    for (name, bytes, is_in_place) in [
        ("a.zip", zipped(CompressionMethod::Stored, false), true),
        ("a.zip", zipped(CompressionMethod::Stored, true), true),
        ("a.zip", zipped(CompressionMethod::Deflated, false), false),
        (
            "a.zip",
            [b"#!/bin/sh".repeat(40), zipped(CompressionMethod::Deflated, false)].concat(),
            false,
        ),
        (
            "a.zip",
            [b"#!/bin/sh".repeat(40), zipped(CompressionMethod::Stored, false)].concat(),
            true,
        ),
        ("a.tar", tar.clone(), true),
        ("a.tgz", gzipped(&tar), false),
    ] {
        let written = write(name, &bytes);
        let archive = open(&written).unwrap();
        assert_eq!(archive.members().len(), 3);
        // In any order, and repeatedly.
        for number in [2, 0, 1, 0, 2, 2] {
            let (name, want) = &files()[number];
            assert_eq!(&archive.members()[number].name, name);
            assert_eq!(archive.members()[number].size, want.len() as u64);
            assert!(copied(&archive, number).unwrap() == *want, "{name}");
            let head = archive.head(number, 50).unwrap().unwrap();
            assert_eq!(head, want[..want.len().min(50)]);
            archive.verify(number).unwrap();
            let window = archive.in_place(number).unwrap();
            assert_eq!(window.is_some(), is_in_place);
            if let Some(mut window) = window {
                let mut read = Vec::new();
                window.read_to_end(&mut read).unwrap();
                assert!(read == *want);
            }
        }
        if archive.is_stream() {
            assert!(archive.head(0, 100_000).unwrap().is_none());
        }
    }
}

#[test]
fn names_and_sizes_may_stand_in_members_of_their_own() {
    let long = format!("{}/c.bin", "long".repeat(40));
    let bytes = tarred(|tar| {
        let mut header = Header::new_gnu();
        header.set_size(3);
        tar.append_data(&mut header, &long, b"abc".as_slice()).unwrap();
        tar.append_pax_extensions([("path", b"in/pax.bin".as_slice()), ("size", b"4")]).unwrap();
        let mut header = Header::new_ustar();
        header.set_path("other").unwrap();
        header.set_size(4);
        header.set_cksum();
        tar.append(&header, b"defg".as_slice()).unwrap();
    });
    let written = write("a.tar", &bytes);
    let archive = open(&written).unwrap();
    let names: Vec<&str> = archive.members().iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names[3..], [long.as_str(), "in/pax.bin"]);
    assert_eq!(copied(&archive, 4).unwrap(), b"defg");
}

/// Lists an invalid archive, and returns the reason for the refusal.
fn refusal(name: &str, bytes: &[u8]) -> String {
    let error = open(&write(name, bytes)).map(|_| ()).unwrap_err();
    assert_eq!(error.path(), Some(Path::new("told/x")), "{error}");
    assert!(error.remedy().is_some(), "{error}");
    error.to_string()
}

#[test]
fn cut_short_archives_are_errors() {
    let tar = tarred(|_| {});
    for (name, bytes) in [
        ("a.zip", zipped(CompressionMethod::Stored, false)),
        ("a.tar", tar.clone()),
        ("a.tgz", gzipped(&tar)),
    ] {
        for len in [0, 1, 300, 512, bytes.len() / 2, bytes.len() - 1030, bytes.len() - 9] {
            if name == "a.tar" && len > bytes.len() - 1024 {
                continue;
            }
            let error = refusal(name, &bytes[..len]);
            assert!(error.contains("copy the file again"), "{name} {len}: {error}");
        }
    }
    for name in ["a.zip", "a.tar", "a.tgz"] {
        assert!(refusal(name, &b"something else".repeat(99)).contains("copy the file again"));
    }
}

#[test]
fn links_devices_and_names_that_lead_out_are_errors() {
    let entry = |kind: EntryType, name: &[u8]| {
        tarred(|tar| {
            let mut header = Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name);
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_cksum();
            tar.append(&header, std::io::empty()).unwrap();
        })
    };
    for (bytes, what) in [
        (entry(EntryType::Regular, b"../x"), "leads out"),
        (entry(EntryType::Regular, b"/etc/x"), "absolute"),
        (entry(EntryType::Regular, b"caf\xe9"), "not UTF-8"),
        (entry(EntryType::Regular, b"in/a.bin"), "two members named \"in/a.bin\""),
        (entry(EntryType::Regular, b"in"), "a file and a folder named \"in\""),
        (entry(EntryType::Symlink, b"x"), "a symbolic link"),
        (entry(EntryType::Link, b"x"), "a link"),
        (entry(EntryType::Char, b"x"), "a device"),
        (entry(EntryType::Fifo, b"x"), "a pipe"),
        (entry(EntryType::GNUSparse, b"x"), "sparse"),
        (entry(EntryType::new(b'M'), b"x"), "split"),
    ] {
        for (name, bytes) in [("a.tar", bytes.clone()), ("a.tar.gz", gzipped(&bytes))] {
            let error = refusal(name, &bytes);
            assert!(error.contains(what) && error.contains("unpack it"), "{what}: {error}");
        }
    }
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.add_symlink("x", "/etc", SimpleFileOptions::default()).unwrap();
    assert!(refusal("a.zip", &zip.finish().unwrap().into_inner()).contains("a symbolic link"));
    let mut bytes = zipped(CompressionMethod::Stored, false);
    // In the directory. The header before the member is not used.
    let at = bytes.windows(8).rposition(|window| window == b"in/a.bin").unwrap();
    bytes[at..at + 8].copy_from_slice(b"../a.bin");
    assert!(refusal("a.zip", &bytes).contains("leads out"));
    bytes[at..at + 8].copy_from_slice(b"in/none/");
    assert!(refusal("a.zip", &bytes).contains("a file and a folder"));
}

#[test]
fn zip_members_that_differ_from_their_headers_are_errors() {
    let entry = |bytes: &[u8], name: &[u8]| {
        bytes.windows(name.len()).rposition(|window| window == name).unwrap() - 46
    };
    let member = |bytes: &[u8]| {
        let written = write("a.zip", bytes);
        let archive = open(&written)?;
        let error = copied(&archive, 0).map(|bytes| bytes.len()).unwrap_err();
        assert_eq!(error.path(), Some(Path::new("told/x/in/a.bin")), "{error}");
        Err::<(), Error>(error)
    };
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let sound = zipped(method, false);
        let at = entry(&sound, b"in/a.bin");
        let with = |offset: usize, patch: &[u8]| {
            let mut bytes = sound.clone();
            bytes[offset..offset + patch.len()].copy_from_slice(patch);
            member(&bytes).unwrap_err()
        };
        assert!(with(at + 16, b"\x01\x02\x03\x04").to_string().contains("checksum"));
        assert!(with(200, b"\x55\xaa").what().contains("damaged"), "{method}");
        let header = sound.windows(8).position(|window| window == b"in/a.bin").unwrap() - 30;
        assert!(with(header, b"PK..").what().contains("no header"));
        let encrypted = with(at + 8, &[1]);
        assert_eq!(encrypted.kind(), Kinds::Unsupported);
        assert!(encrypted.what().contains("encrypted"));
        assert!(with(at + 10, &[14]).what().contains("LZMA"));
        // Impossible sizes are detected when the archive is listed.
        assert!(with(at + 20, &[0xff, 0xff, 0xff, 0x7f]).what().contains("contradict"));
    }
    let sound = zipped(CompressionMethod::Deflated, false);
    let at = entry(&sound, b"in/a.bin") + 24;
    for (size, what) in [(159_999u32, "longer than"), (160_001, "shorter than the archive says")] {
        let mut bytes = sound.clone();
        bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
        let error = member(&bytes).unwrap_err();
        assert!(error.what().contains(what) || error.what().contains("checksum"), "{error}");
    }
    let mut bytes = sound;
    bytes[at..at + 4].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    assert!(refusal("a.zip", &bytes).contains("'in/a.bin': its sizes"));
}

#[test]
fn archives_that_promise_too_much_are_refused_before_memory_is_taken() {
    // A sparse file of a terabyte that claims to contain as many members as would fit.
    let written = write("a.zip", &[]);
    let mut file = File::options().write(true).open(&written.path).unwrap();
    file.set_len(1 << 40).unwrap();
    let end = 1u64 << 40;
    file.seek(SeekFrom::Start(end)).unwrap();
    let entries = (end / 46).to_le_bytes();
    let mut record = b"PK\x06\x06".to_vec();
    record.extend([44, 0, 0, 0, 0, 0, 0, 0, 45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    record.extend(entries.iter().chain(&entries).chain(&end.to_le_bytes()).chain(&[0; 8]));
    record.extend(b"PK\x06\x07\0\0\0\0");
    record.extend(end.to_le_bytes().iter().chain(&[1, 0, 0, 0]));
    record.extend(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0");
    file.write_all(&record).unwrap();
    let error = open(&written).unwrap_err();
    assert!(error.what().contains("fewer files"), "{error}");

    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    (0..MAX_MEMBERS + 1).for_each(|number| zip.start_file(number.to_string(), options).unwrap());
    assert!(refusal("a.zip", &zip.finish().unwrap().into_inner()).contains("more than 100000"));

    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    assert!(refusal("a.tar", header.as_bytes()).contains("more than 1 MiB"));
}

#[test]
fn an_archive_that_changes_is_an_error() {
    let written = write("a.tar", &tarred(|_| {}));
    let archive = open(&written).unwrap();
    copied(&archive, 0).unwrap();
    std::fs::write(
        &written.path,
        tarred(|tar| {
            tar.append_data(&mut Header::new_gnu(), "more", std::io::empty()).unwrap();
        }),
    )
    .unwrap();
    let error = copied(&archive, 0).unwrap_err();
    assert!(error.what().contains("replaced or changed"), "{error}");
    assert!(archive.in_place(0).is_err());
}

proptest::proptest! {
    /// A short version of what crates/testing/fuzz does for hours: changes bytes of valid archives.
    /// Nothing may panic.
    #[test]
    fn changed_archives_are_errors_or_archives(
        kind in 0usize..4,
        changes in proptest::collection::vec((0usize..1 << 20, 0u8..255), 1..6),
        at_the_end in proptest::bool::ANY,
    ) {
        let (name, mut bytes) = match kind {
            0 => ("a.zip", zipped(CompressionMethod::Stored, true)),
            1 => ("a.zip", zipped(CompressionMethod::Deflated, false)),
            2 => ("a.tar", tarred(|_| {})),
            _ => ("a.tgz", gzipped(&tarred(|_| {}))),
        };
        for (offset, byte) in changes {
            // The directory of a zip archive is short and at the end.
            let len = if at_the_end { bytes.len().min(400) } else { bytes.len() };
            let at = bytes.len() - 1 - offset % len;
            bytes[at] = byte;
        }
        let written = write(name, &bytes);
        if let Ok(archive) = open(&written) {
            for (number, member) in archive.members().iter().enumerate() {
                assert!(member.name.split('/').all(|part| !["", ".", ".."].contains(&part)));
                assert!(copied(&archive, number).is_ok_and(|out| out.len() as u64 == member.size)
                    || copied(&archive, number).is_err());
            }
        }
    }
}
