//! Random access: samples, crops, bands, masks.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use half::f16;
use hsipack_format::codec::CHECKSUM_LEN;
use hsipack_format::{Codec, Compressor, Shuffle};
use hsipack_read::store::{ReadBuffer, Store, StoreKind, StoredFile};
use hsipack_read::{Dataset, ErrorKind, OpenOptions, Result, Values, Verify};
use ndarray::s;
use proptest::prelude::*;
use serde_json::json;

use crate::support::{LZ4, StackSpec, Written, write_dataset, write_sums};

fn made(stacks: &[StackSpec]) -> (tempfile::TempDir, Written, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let written = write_dataset(&folder.path().join("made"), stacks, |_| json!({}));
    let dataset = Dataset::open(&written.path).unwrap();
    (folder, written, dataset)
}

/// Every layout that the format allows.
fn layouts() -> Vec<StackSpec> {
    let base = StackSpec::new(17, 13, 5, 6).masks(&["labels"]);
    let mut layouts = vec![
        base.clone().tile(17, 13),
        base.clone().tile(6, 13),
        base.clone().tile(5, 4),
        base.clone().tile(1, 1),
        base.clone().tile(5, 4).band_group(2),
        base.clone().tile(6, 13).band_group(1),
        base.clone().band_group(9),
        StackSpec { sharded: false, ..base.clone().tile(5, 4).band_group(3) },
        StackSpec { omit_zeros: true, ..base.clone().tile(4, 13).band_group(2) },
        StackSpec { sharded: false, ..base.clone() },
        StackSpec { sharded: false, omit_zeros: true, ..base.clone().tile(4, 13) },
        StackSpec { omit_zeros: true, ..base.clone().tile(4, 13) },
        StackSpec { checksum: false, ..base.clone() },
        StackSpec { codec: None, ..base.clone() },
        StackSpec { codec: None, checksum: false, ..base.clone() },
        StackSpec { per_shard: 1, ..base.clone() },
    ];
    for compressor in Compressor::ALL {
        for shuffle in Shuffle::ALL {
            layouts.push(StackSpec {
                codec: Some(Codec { compressor, shuffle, ..LZ4 }),
                ..base.clone()
            });
        }
    }
    layouts
}

#[test]
fn every_layout_gives_the_values_that_were_written() {
    for layout in layouts() {
        let (_folder, written, dataset) = made(std::slice::from_ref(&layout));
        for sample in 0..dataset.len() {
            let cube = dataset.sample(sample).unwrap();
            assert_eq!(cube.shape, layout.shape);
            assert!(cube.bytes() == written.image(sample, 0..17, 0..13, None));
            let mask = dataset.mask(sample, "labels").unwrap();
            assert!(mask.bytes() == written.mask(sample, 0..17, 0..13));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_window_and_any_bands_come_as_cut_from_the_whole(
        tile in (1usize..12, 1usize..14), group in 1usize..12, row in 0usize..11, column in 0usize..13,
        height in 1usize..12, width in 1usize..14, bands in prop::option::of(prop::collection::vec(0usize..9, 1..12))
    ) {
        let spec = StackSpec::new(11, 13, 9, 2).tile(tile.0.min(11), tile.1.min(13)).band_group(group);
        let (_folder, written, dataset) = made(&[spec]);
        let rows = row..(row + height).min(11);
        let columns = column..(column + width).min(13);
        let cube = dataset.crop_bands(1, rows.clone(), columns.clone(), bands.as_deref()).unwrap();
        prop_assert_eq!(cube.bytes(), written.image(1, rows, columns, bands.as_deref()));
    }
}

#[test]
fn values_are_seen_as_arrays() {
    let (_folder, written, dataset) = made(&[StackSpec::new(5, 7, 3, 2).masks(&["labels"])]);
    let cube = dataset.crop(1, 1..4, 2..7).unwrap();
    let values = cube.values::<f16>().unwrap();
    assert_eq!(values.dim(), (3, 5, 3));
    assert!(cube.values::<f32>().is_none());
    let want = written.image(1, 2..3, 4..5, None);
    let spectrum: Vec<u8> =
        values.slice(s![1, 2, ..]).iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(spectrum, want);
    let mask = dataset.mask(1, "labels").unwrap();
    let ids = mask.values::<u8>().unwrap();
    assert_eq!((ids.dim(), ids[[3, 6, 0]]), ((5, 7, 1), written.mask(1, 3..4, 6..7)[0]));

    let array = dataset.load_image(1, 1..4, 2..7, None).unwrap();
    assert_eq!(array.values::<f16>().unwrap(), values.into_dyn());
}

#[test]
fn a_window_as_wide_as_a_tile_but_between_two_is_put_together() {
    let (_folder, written, dataset) = made(&[StackSpec::new(4, 13, 3, 1).tile(1, 7)]);
    let cube = dataset.crop(0, 0..4, 3..10).unwrap();
    assert_eq!(cube.bytes(), written.image(0, 0..4, 3..10, None));
}

#[test]
fn missing_names_are_refused_with_the_existing_ones() {
    let (_folder, _, dataset) = made(&[StackSpec::new(10, 8, 4, 3).masks(&["organ"])]);
    let text = |error: hsipack_read::Error| {
        assert_eq!(error.kind(), ErrorKind::Conflict);
        error.to_string()
    };
    assert!(text(dataset.sample(3).unwrap_err()).contains("from 0 to 2"));
    assert!(text(dataset.crop(0, 5..11, 0..8).unwrap_err()).contains("10 rows and 8 columns"));
    assert!(text(dataset.crop(0, 5..5, 0..8).unwrap_err()).contains("rows 5..5"));
    #[allow(clippy::reversed_empty_ranges)]
    let backwards = dataset.crop(0, 5..3, 0..8);
    assert!(backwards.is_err());
    assert!(
        text(dataset.crop(0, usize::MAX - 1..usize::MAX, 0..8).unwrap_err())
            .contains("there are no rows")
    );
    assert!(text(dataset.crop_bands(0, 0..1, 0..1, Some(&[4])).unwrap_err()).contains("4 bands"));
    assert!(text(dataset.mask(0, "organs").unwrap_err()).contains("organ"));
    assert!(
        text(dataset.read_image(0, 0..1, 0..1, None, &mut [0; 7]).unwrap_err()).contains("8 bytes")
    );
}

#[test]
fn a_damaged_chunk_is_named_with_sample_and_shard() {
    let (_folder, written, _) = made(&[StackSpec::new(9, 8, 4, 6)]);
    let shard = written.path.join("9x8x4/image/c/1/0/0/0");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[40] ^= 1; // the first chunk of sample 4
    std::fs::write(&shard, bytes).unwrap();
    let open = |verify| {
        Dataset::open_with(&written.path, OpenOptions { verify, ..Default::default() }).unwrap()
    };
    for verify in [Verify::Once, Verify::Always] {
        let dataset = open(verify);
        let error = dataset.sample(4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert_eq!(error.path(), Some(shard.as_path()));
        assert!(
            error.to_string().contains("sample 4 (cube 4), image chunk 0: the checksum"),
            "{error}"
        );
        assert!(dataset.sample(5).is_ok());
        // `Once` means that a chunk was verified once, not that this was tried once.
        assert!(dataset.sample(4).is_err());
    }
    let _ = open(Verify::Never).sample(4);
}

#[test]
fn a_shard_cut_short_is_an_error_that_names_it() {
    let (_folder, written, _) = made(&[StackSpec::new(9, 8, 4, 6)]);
    let shard = written.path.join("9x8x4/image/c/1/0/0/0");
    let bytes = std::fs::read(&shard).unwrap();
    for len in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&shard, &bytes[..len]).unwrap();
        let error = Dataset::open(&written.path).unwrap().sample(4).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Damaged, Some(shard.as_path())));
        assert!(error.to_string().contains("sample 4 (cube 4)"), "{error}");
        assert!(error.remedy().is_some());
    }
    std::fs::remove_file(&shard).unwrap();
    let error = Dataset::open(&written.path).unwrap().sample(4).unwrap_err();
    assert_eq!(error.path(), Some(shard.as_path()));
}

#[test]
fn a_dataset_that_is_replaced_is_noticed() {
    let (folder, written, dataset) = made(&[StackSpec::new(9, 8, 4, 6)]);
    dataset.sample(0).unwrap();
    let other =
        write_dataset(&folder.path().join("other"), &[StackSpec::new(9, 8, 4, 6)], |_| json!({}));
    std::fs::rename(&written.path, folder.path().join("old")).unwrap();
    let error = dataset.sample(0).unwrap_err();
    assert!(error.to_string().contains("removed or renamed"), "{error}");
    std::fs::rename(&other.path, &written.path).unwrap();
    let error = dataset.sample(0).unwrap_err();
    assert!(error.to_string().contains("replaced while it was open (open it again)"), "{error}");
}

#[test]
fn a_dataset_of_another_library_needs_no_sums_but_one_of_ours_does() {
    let (_folder, written, _) = made(&[StackSpec::new(9, 8, 4, 2)]);
    std::fs::remove_file(written.path.join("SHA256SUMS")).unwrap();
    let error = Dataset::open(&written.path).unwrap_err();
    assert!(error.to_string().contains("SHA256SUMS is missing"), "{error}");
    let root = written.path.join("zarr.json");
    let text = std::fs::read_to_string(&root).unwrap().replace("hsipack test", "somebody");
    std::fs::write(&root, text).unwrap();
    let dataset = Dataset::open(&written.path).unwrap();
    assert!(dataset.sample(1).unwrap().bytes() == written.image(1, 0..9, 0..8, None));
    let before = dataset.fingerprint().to_owned();
    // Different metadata have a different fingerprint.
    let lines = written.path.join("samples.jsonl");
    let text = std::fs::read_to_string(&lines).unwrap().replace("cube 1", "cube one");
    std::fs::write(&lines, text).unwrap();
    assert_ne!(Dataset::open(&written.path).unwrap().fingerprint(), before);
    write_sums(&written.path);
}

#[test]
fn labels_groups_and_splits_are_numbered() {
    let folder = tempfile::tempdir().unwrap();
    let extra = |id: usize| {
        let label = if id.is_multiple_of(2) { "tumour" } else { "healthy" };
        json!({ "split": if id < 4 { "train" } else { "test" }, "group": format!("p{}", id / 2), "label": label })
    };
    let written = write_dataset(&folder.path().join("made"), &[StackSpec::new(4, 4, 2, 6)], extra);
    let dataset = Dataset::open(&written.path).unwrap();
    let labels = dataset.labels();
    assert_eq!(labels.splits(), ["test", "train"]);
    assert_eq!(labels.groups(), ["p0", "p1", "p2"]);
    assert_eq!(labels.classes()[0].label, "healthy");
    assert_eq!(labels.classes().iter().map(|class| class.count).collect::<Vec<_>>(), [3, 3]);
    assert_eq!((labels.class_of(0), labels.group_of(5)), (Some(1), Some(2)));
}

/// A call of a store.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Ask(Range<u64>),
    Read(Range<u64>),
}

type Log = Arc<Mutex<Vec<Told>>>;

#[derive(Debug)]
struct Recording(Log);

#[derive(Debug)]
struct RecordingFile(Arc<dyn StoredFile>, Log);

impl Store for Recording {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let file = StoreKind::Pread.store().open(path)?;
        Ok(Arc::new(RecordingFile(file, self.0.clone())))
    }
}

impl StoredFile for RecordingFile {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn with_bytes(
        &self,
        span: Range<u64>,
        buffer: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.1.lock().unwrap().push(Told::Read(span.clone()));
        self.0.with_bytes(span, buffer, take)
    }

    fn prefetch(&self, span: Range<u64>) {
        self.1.lock().unwrap().push(Told::Ask(span));
    }
}

#[test]
fn of_a_large_window_all_but_the_first_chunk_is_asked_for_ahead() {
    // One shard with two samples of four chunks of half a MiB.
    let spec = StackSpec::new(256, 64, 64, 2).tile(64, 64);
    let (_folder, written, _) = made(&[StackSpec { codec: None, per_shard: 2, ..spec }]);
    let chunk = (64 * 64 * 64 * 2 + CHECKSUM_LEN) as u64;
    let log = Log::default();
    let options =
        OpenOptions { store: Some(Arc::new(Recording(log.clone()))), ..Default::default() };
    let dataset = Dataset::open_with(&written.path, options).unwrap();
    let requests = |rows: Range<usize>| {
        let cube = dataset.crop(1, rows.clone(), 0..64).unwrap();
        assert!(cube.bytes() == written.image(1, rows, 0..64, None));
        std::mem::take(&mut *log.lock().unwrap())
    };
    requests(0..1); // which opens the shard
    let whole = requests(0..256);
    let [Told::Ask(ahead), Told::Read(first), remaining @ ..] = &whole[..] else {
        panic!("{whole:?}")
    };
    let starts = (0..4).map(|number| first.start + number * chunk);
    let chunks: Vec<_> = starts.map(|start| start..start + chunk).collect();
    assert_eq!((first, ahead), (&chunks[0], &(chunks[1].start..chunks[3].end)));
    assert_eq!(remaining, chunks[1..].iter().cloned().map(Told::Read).collect::<Vec<_>>());
    // Small windows are not requested ahead, because the call would take longer than reading.
    assert_eq!(requests(0..128), chunks[..2].iter().cloned().map(Told::Read).collect::<Vec<_>>());
    assert_eq!(requests(64..128), [Told::Read(chunks[1].clone())]);
}
