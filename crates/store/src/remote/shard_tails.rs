//! The ends of shards, fetched together with the metadata that describe the shards.
//!
//! An array's `zarr.json` says how many shards it has. Waiting for it before asking for the shards
//! would cost a round trip more. So the number is guessed from what is known earlier: the names in
//! `SHA256SUMS`, the numbers of samples in `samples.index`, and the size that shards usually have.
//! Shards beyond the guess are fetched later. The end of a shard that does
//! not exist is not an error.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use futures_util::stream::{self, StreamExt};
use hsipack_format::geo::cf;
use hsipack_format::grid::TARGET_SHARD;
use hsipack_format::metadata::{FWHM, IMAGE, WAVELENGTH};
use hsipack_format::samples::index::stacks_hint;
use hsipack_format::zarr::ArrayMeta;
use hsipack_format::{CubeShape, Grid};

use super::object::{Object, Version};

/// Number of bytes at the end of an object that are fetched when it is opened. The shard's index is
/// there, which is needed first and has 16 bytes per chunk.
pub(crate) const TAIL_BYTES: u64 = 32 << 10;
/// Size in bytes of the values that hsipack stores, unless the user asks for others.
const VALUE_BYTES: usize = 2;
/// If more shards are guessed than this, none is fetched. Then the round trip that is saved does
/// not matter.
const MAX_SHARDS: u64 = 256;
/// Number of parallel requests.
const PARALLEL_REQUESTS: usize = 64;

/// Versions and last bytes of shards, by URL, for a [`Store`](crate::stores::Store) that is about
/// to open them.
#[derive(Debug, Default)]
pub struct ShardTails(pub(crate) HashMap<PathBuf, (Version, Vec<u8>)>);

/// Fetches the ends of the shards that the dataset at `root` probably has. `listed` are the files
/// in its `SHA256SUMS`, `index` is its `samples.index`.
pub(super) async fn fetch(root: &Path, listed: &[String], index: Option<&[u8]>) -> ShardTails {
    let tails = guess(listed, index).into_iter().map(|shard| async move {
        let url = root.join(shard);
        let tail = Object::at(&url).ok()?.tail(TAIL_BYTES).await.ok()?;
        Some((url, tail))
    });
    let tails = stream::iter(tails).buffer_unordered(PARALLEL_REQUESTS);
    ShardTails(tails.filter_map(std::future::ready).collect().await)
}

/// Paths of the shards that a dataset probably has.
fn guess(listed: &[String], index: Option<&[u8]>) -> Vec<String> {
    let counts: HashMap<String, u64> =
        index.and_then(stacks_hint).unwrap_or_default().into_iter().collect();
    let arrays: Vec<(&str, usize, u64)> = listed
        .iter()
        .filter_map(|file| {
            let array = file.strip_suffix("/zarr.json")?;
            let (stack, name) = array.split_once('/')?;
            let has_no_shards = [WAVELENGTH, FWHM].contains(&name) || cf::NAMES.contains(&name);
            if has_no_shards || name.contains('/') {
                return None;
            }
            let per_shard = Grid::samples_for(shape_of(stack)?, VALUE_BYTES, TARGET_SHARD) as u64;
            let samples = counts.get(stack).copied().unwrap_or(1);
            let axes = if name == IMAGE { 4 } else { 3 };
            Some((array, axes, samples.div_ceil(per_shard)))
        })
        .collect();
    let total = arrays.iter().fold(0u64, |total, (_, _, shards)| total.saturating_add(*shards));
    if total > MAX_SHARDS {
        return Vec::new();
    }
    let shards = |(array, axes, shards): (&str, usize, u64)| {
        let array = array.to_owned();
        (0..shards).map(move |shard| {
            let mut position = vec![0; axes];
            position[0] = shard;
            format!("{array}/{}", ArrayMeta::file_key(&position))
        })
    };
    arrays.into_iter().flat_map(shards).collect()
}

/// The shape of the cubes of a stack with this name.
fn shape_of(stack: &str) -> Option<CubeShape> {
    let mut sizes = stack.split('x').map(|size| size.parse::<u32>().ok().map(|size| size as usize));
    let shape = CubeShape::new(sizes.next()??, sizes.next()??, sizes.next()??);
    let values = shape.rows.checked_mul(shape.columns)?.checked_mul(shape.bands)?;
    (sizes.next().is_none() && values.checked_mul(VALUE_BYTES).is_some()).then_some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(listed: &[&str], index: Option<&[u8]>) -> Vec<String> {
        let listed: Vec<String> = listed.iter().map(|file| (*file).to_owned()).collect();
        guess(&listed, index)
    }

    #[test]
    fn every_array_with_chunks_has_a_first_shard() {
        let listed = [
            "zarr.json",
            "samples.jsonl",
            "480x640x100/zarr.json",
            "480x640x100/image/zarr.json",
            "480x640x100/mask/zarr.json",
            "480x640x100/wavelength/zarr.json",
            "480x640x100/y/zarr.json",
        ];
        let shards = ["480x640x100/image/c/0/0/0/0", "480x640x100/mask/c/0/0/0"];
        assert_eq!(guessed(&listed, None), shards);
        assert_eq!(guessed(&listed, Some(b"HSIPIDX\nno index")), shards);
    }

    #[test]
    fn arrays_have_as_many_shards_as_their_samples_fill() {
        // The head of an index: 20 cubes of 61 MB, of which 8 fit into a shard.
        let head = br#"{"stacks":[["480x640x100",20]],"splits":[],"groups":[],"labels":[],"columns":[],"geo_from":null,"names_bytes":0}"#;
        let mut index = b"HSIPIDX\n".to_vec();
        index.resize(64, 0);
        index.extend((head.len() as u64).to_le_bytes());
        index.extend(head);
        let listed = ["480x640x100/image/zarr.json", "480x640x100/mask/zarr.json"];
        let shards = guessed(&listed, Some(&index));
        let images = [0, 1, 2].map(|shard| format!("480x640x100/image/c/{shard}/0/0/0"));
        let masks = [0, 1, 2].map(|shard| format!("480x640x100/mask/c/{shard}/0/0"));
        assert_eq!(shards, [images, masks].concat());
    }

    #[test]
    fn names_that_are_no_stacks_have_no_shards() {
        let listed = ["a/image/zarr.json", "1x2/image/zarr.json", "1x2x3x4/image/zarr.json"];
        assert!(guessed(&listed, None).is_empty());
        let huge = "4294967295x4294967295x4294967295/image/zarr.json";
        assert!(guessed(&[huge], None).is_empty());
        assert!(guessed(&["0x0x0/image/zarr.json"], None).len() == 1);
    }
}
