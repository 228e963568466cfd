//! The JSON metadata of Zarr v2 and v3 nodes, as far as a cube needs it.
//!
//! The crate `zarrs` parses the metadata again when it opens the array. They are read here first to
//! check sizes before anything is allocated, and so that errors name what is wrong.

use std::path::Path;

use hsipack_format::{DType, Error, Result};
use hsipack_store::bounded_read;
use serde_json::{Map, Value};

use crate::flat::numpy::header::dtype_of_code;

/// The largest metadata file that is accepted (consolidated metadata of large groups).
const MAX_METADATA: u64 = 64 << 20;
/// The largest chunk that is accepted, decoded.
const MAX_CHUNK: u64 = 2 << 30;
/// The most chunks within one shard: their index takes 16 bytes each.
const MAX_INNER_CHUNKS: u64 = 1 << 24;

/// The names of the metadata files that make a folder a Zarr node.
pub(super) const METADATA_FILES: [&str; 3] = ["zarr.json", ".zarray", ".zgroup"];

/// A Zarr node.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Node {
    /// 2 or 3.
    pub version: u8,
    /// The array; `None` for a group.
    pub array: Option<ArrayMetadata>,
    /// User attributes.
    pub attributes: Map<String, Value>,
}

/// An array, as its metadata describe it; sizes are checked.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct ArrayMetadata {
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// Type name as written.
    pub type_name: String,
    /// The type, if cubes may have it.
    pub dtype: Option<DType>,
    /// Names of the axes; empty if they have none.
    pub dimensions: Vec<Option<String>>,
    /// The number for chunks that were not written, if it also marks missing values. xarray means
    /// this by Zarr v2's `fill_value`, in which it stores `_FillValue`. In other arrays it is a
    /// value like any other.
    pub missing: Option<f64>,
    /// How chunks lie in files.
    pub stored: Stored,
}

/// How chunks lie in files, as far as it can be checked before they are decoded.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Stored {
    /// Bytes of a chunk (of a sharded array: an inner chunk) once decoded.
    pub decoded: u64,
    /// Codec of chunks.
    pub compressor: Option<Compressor>,
    /// The index of each shard, if chunks are shards.
    pub shards: Option<ShardIndex>,
}

/// The codecs that can decode to something much larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Compressor {
    /// A gzip member.
    Gzip,
    /// A zlib stream.
    Zlib,
    /// Zstandard frames.
    Zstd,
    /// A Blosc-1 frame.
    Blosc,
}

impl Compressor {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gzip" => Self::Gzip,
            "zlib" | "numcodecs.zlib" => Self::Zlib,
            "zstd" | "numcodecs.zstd" => Self::Zstd,
            "blosc" | "numcodecs.blosc" => Self::Blosc,
            _ => return None,
        })
    }

    /// The only compressor among codecs.
    fn only<'a>(names: impl Iterator<Item = &'a str>) -> Result<Option<Self>> {
        let mut all = names.filter_map(Self::named);
        let first = all.next();
        match all.next() {
            None => Ok(first),
            Some(_) => Err(Error::unsupported("the chunks are compressed twice")
                .with_remedy("rewrite the array with one compressor")),
        }
    }
}

/// The table in a shard that says where its chunks lie: offset and length, 8 bytes each.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct ShardIndex {
    /// Chunks in a shard.
    pub chunks: u64,
    /// Whether it ends with a checksum of 4 bytes.
    pub checksum: bool,
    /// Whether its numbers are big-endian.
    pub big_endian: bool,
    /// Whether it lies at the start of the shard, and not at its end.
    pub at_start: bool,
}

impl ShardIndex {
    /// The index of shards that the configuration of a sharding codec describes.
    fn of(configuration: &Value, chunks: u64) -> Result<Self> {
        let unknown = || {
            Error::unsupported("shards whose index is coded in an unknown way")
                .with_remedy("rewrite the array with the index codecs bytes and crc32c")
        };
        let codecs = configuration["index_codecs"].as_array().ok_or_else(unknown)?;
        let [bytes, others @ ..] = &codecs[..] else { return Err(unknown()) };
        let names: Vec<Option<&str>> = others.iter().map(codec_name).collect();
        let checksum = match names[..] {
            [] => false,
            [Some("crc32c")] => true,
            _ => return Err(unknown()),
        };
        if codec_name(bytes) != Some("bytes") {
            return Err(unknown());
        }
        let big_endian = bytes["configuration"]["endian"] == "big";
        let at_start = configuration["index_location"] == "start";
        Ok(Self { chunks, checksum, big_endian, at_start })
    }

    /// Bytes of the index.
    pub fn bytes(&self) -> u64 {
        self.chunks * 16 + if self.checksum { 4 } else { 0 }
    }
}

/// The name of a codec, which may stand without a configuration.
fn codec_name(codec: &Value) -> Option<&str> {
    codec.as_str().or_else(|| codec["name"].as_str())
}

impl Node {
    /// Reads the node in `folder`; `None` if it holds no metadata.
    ///
    /// # Errors
    /// If the metadata cannot be read or make no sense.
    pub fn read(folder: &Path) -> Result<Option<Node>> {
        let read = |name: &str| read_json(&folder.join(name));
        if let Some(json) = read("zarr.json")? {
            return Node::from_v3(&json).map(Some).map_err(|e| e.at(folder.join("zarr.json")));
        }
        if let Some(json) = read(".zarray")? {
            let attributes = read(".zattrs")?.unwrap_or_default();
            return Node::from_v2(Some(&json), &attributes)
                .map(Some)
                .map_err(|error| error.at(folder.join(".zarray")));
        }
        if read(".zgroup")?.is_some() {
            return Node::from_v2(None, &read(".zattrs")?.unwrap_or_default()).map(Some);
        }
        Ok(None)
    }

    /// A node from its `zarr.json`.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn from_v3(json: &Value) -> Result<Node> {
        if json["zarr_format"] != 3 {
            return Err(Error::unsupported(format!("zarr_format is {}", json["zarr_format"])));
        }
        let array = match json["node_type"].as_str() {
            Some("array") => Some(array_v3(json)?),
            Some("group") => None,
            _ => return Err(Error::malformed("node_type is neither array nor group")),
        };
        Ok(Node { version: 3, array, attributes: attributes(&json["attributes"]) })
    }

    /// A node from its `.zarray` (`None` for groups) and `.zattrs`.
    ///
    /// # Errors
    /// If they make no sense.
    pub fn from_v2(array: Option<&Value>, zattrs: &Value) -> Result<Node> {
        let attributes = attributes(zattrs);
        let array = array.map(|json| array_v2(json, &attributes)).transpose()?;
        Ok(Node { version: 2, array, attributes })
    }
}

fn attributes(json: &Value) -> Map<String, Value> {
    json.as_object().cloned().unwrap_or_default()
}

/// The bytes of a metadata file.
///
/// # Errors
/// If it cannot be read, is not a regular file, or is too large for a metadata file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>> {
    bounded_read::read(path, MAX_METADATA)
}

/// Reads a JSON file; `None` if it is not there.
fn read_json(path: &Path) -> Result<Option<Value>> {
    let fail = |error| Error::io(path, "cannot read", error);
    match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
        Ok(metadata) if !metadata.is_file() => return Ok(None),
        Ok(_) => {}
    }
    let bytes = bytes(path)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        Error::malformed(format!("not JSON: {error}"))
            .at(path)
            .with_remedy("copy it again; it is cut short or damaged")
            .caused_by(error)
    })
}

fn lengths(json: &Value, what: &str) -> Result<Vec<u64>> {
    json.as_array()
        .and_then(|list| list.iter().map(Value::as_u64).collect())
        .ok_or_else(|| Error::malformed(format!("{what} is not a list of lengths")))
}

fn shape(json: &Value) -> Result<Vec<usize>> {
    lengths(&json["shape"], "shape")?
        .into_iter()
        .map(|length| {
            usize::try_from(length).map_err(|_| Error::malformed("the shape is too large"))
        })
        .collect()
}

fn array_v3(json: &Value) -> Result<ArrayMetadata> {
    let shape = shape(json)?;
    let type_name = match &json["data_type"] {
        Value::String(name) => name.clone(),
        other => other["name"].as_str().unwrap_or("unknown").to_owned(),
    };
    let grid = &json["chunk_grid"];
    if grid["name"] != "regular" {
        return Err(Error::unsupported(format!("chunk grid {}", grid["name"]))
            .with_remedy("rewrite the array with a regular chunk grid"));
    }
    let chunk = lengths(&grid["configuration"]["chunk_shape"], "chunk_shape")?;
    let dtype = DType::from_name(&type_name);
    let codecs =
        json["codecs"].as_array().ok_or_else(|| Error::malformed("codecs is not a list"))?;
    let is_sharding = |codec: &&Value| codec["name"] == "sharding_indexed";
    let sharding = codecs.iter().find(is_sharding);
    let within = sharding.and_then(|codec| codec["configuration"]["codecs"].as_array());
    if within.is_some_and(|codecs| codecs.iter().any(|codec| is_sharding(&codec))) {
        // The size of the inner index is not checked.
        return Err(Error::unsupported("shards within shards")
            .with_remedy("rewrite the array with one level of shards"));
    }
    let inner = sharding
        .map(|codec| lengths(&codec["configuration"]["chunk_shape"], "inner chunk_shape"))
        .transpose()?;
    let (decoded, chunks) = check_chunks(&shape, &chunk, inner.as_deref(), dtype)?;
    let compressor = Compressor::only(within.unwrap_or(codecs).iter().filter_map(codec_name))?;
    let index =
        sharding.map(|codec| ShardIndex::of(&codec["configuration"], chunks)).transpose()?;
    let stored = Stored { decoded, compressor, shards: index };
    let dimensions = json["dimension_names"]
        .as_array()
        .map(|names| names.iter().map(|name| name.as_str().map(str::to_owned)).collect())
        .unwrap_or_default();
    Ok(ArrayMetadata { shape, type_name, dtype, dimensions, missing: None, stored })
}

fn array_v2(json: &Value, attributes: &Map<String, Value>) -> Result<ArrayMetadata> {
    if json["zarr_format"] != 2 {
        return Err(Error::unsupported(format!("zarr_format is {}", json["zarr_format"])));
    }
    let shape = shape(json)?;
    let chunk = lengths(&json["chunks"], "chunks")?;
    let type_name = match &json["dtype"] {
        Value::String(name) => name.clone(),
        _ => "structured".to_owned(),
    };
    // The first letter is the byte order.
    let dtype = type_name.get(1..).and_then(dtype_of_code);
    let (decoded, _) = check_chunks(&shape, &chunk, None, dtype)?;
    let filters = json["filters"].as_array().into_iter().flatten();
    let names = filters.chain(Some(&json["compressor"])).filter_map(|codec| codec["id"].as_str());
    let stored = Stored { decoded, compressor: Compressor::only(names)?, shards: None };
    let dimensions = attributes
        .get("_ARRAY_DIMENSIONS")
        .and_then(Value::as_array)
        .map(|names| names.iter().map(|name| name.as_str().map(str::to_owned)).collect())
        .unwrap_or_default();
    let by_xarray =
        attributes.contains_key("_ARRAY_DIMENSIONS") && !attributes.contains_key("_FillValue");
    let missing = json["fill_value"].as_f64().filter(|_| by_xarray);
    Ok(ArrayMetadata { shape, type_name, dtype, dimensions, missing, stored })
}

/// Bytes of a decoded chunk, and chunks in a shard. Refuses chunks that do not fit the array, or
/// that would take too much memory.
fn check_chunks(
    shape: &[usize],
    chunk: &[u64],
    inner: Option<&[u64]>,
    dtype: Option<DType>,
) -> Result<(u64, u64)> {
    let size = dtype.map_or(8, DType::size) as u64;
    let product =
        |lengths: &[u64]| lengths.iter().try_fold(1u64, |all, length| all.checked_mul(*length));
    let fits = |lengths: &[u64]| lengths.len() == shape.len() && !lengths.contains(&0);
    let decoded = inner.unwrap_or(chunk);
    if !fits(chunk) || !fits(decoded) {
        return Err(Error::malformed(format!(
            "chunks of {chunk:?} do not fit an array of {shape:?}"
        )));
    }
    let bytes = product(decoded).and_then(|values| values.checked_mul(size));
    let Some(bytes) = bytes.filter(|bytes| *bytes <= MAX_CHUNK) else {
        return Err(Error::unsupported(format!(
            "chunks of {decoded:?} values, more than 2 GiB each"
        ))
        .with_remedy("rewrite the array with smaller chunks"));
    };
    let Some(inner) = inner else { return Ok((bytes, 1)) };
    if chunk.iter().zip(inner).any(|(chunk, inner)| chunk % inner != 0) {
        return Err(Error::malformed(format!("shards of {chunk:?} do not divide into {inner:?}")));
    }
    let many: Vec<_> = chunk.iter().zip(inner).map(|(chunk, inner)| chunk / inner).collect();
    match product(&many).filter(|count| *count <= MAX_INNER_CHUNKS) {
        Some(count) => Ok((bytes, count)),
        None => Err(Error::unsupported(format!("shards of {many:?} chunks each"))
            .with_remedy("rewrite the array with smaller shards")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn v3(shape: &[u64], chunk: &[u64], inner: Option<&[u64]>) -> Value {
        let codecs = match inner {
            Some(inner) => {
                json!([{"name": "sharding_indexed", "configuration":
                    {"chunk_shape": inner, "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}]}}])
            }
            None => json!([{"name": "bytes"}]),
        };
        json!({
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "float32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "codecs": codecs,
        })
    }

    #[test]
    fn absurd_chunks_are_refused() {
        let read = |shape: &[u64], chunk: &[u64], inner| Node::from_v3(&v3(shape, chunk, inner));
        assert!(read(&[4, 4, 4], &[2, 2, 4], None).is_ok());
        assert!(read(&[4, 4, 4], &[1 << 40, 2, 4], None).is_err());
        assert!(read(&[4, 4, 4], &[1 << 40, 1 << 40, 4], None).is_err());
        assert!(read(&[4, 4, 4], &[0, 2, 4], None).is_err());
        assert!(read(&[4, 4, 4], &[2, 4], None).is_err());
        assert!(read(&[4, 4, 4], &[1 << 20, 1 << 10, 1], Some(&[1 << 10, 1 << 10, 1])).is_ok());
        assert!(read(&[4, 4, 4], &[1 << 40, 1 << 10, 1], Some(&[1, 1, 1])).is_err());
        assert!(read(&[4, 4, 4], &[4, 4, 4], Some(&[3, 4, 4])).is_err());
        assert!(read(&[4, 4, 4], &[4, 4, 4], Some(&[0, 4, 4])).is_err());
    }

    #[test]
    fn shards_within_shards_are_refused() {
        let mut json = v3(&[4, 4, 4], &[4, 4, 4], Some(&[4, 4, 4]));
        assert!(Node::from_v3(&json).is_ok());
        let inner =
            json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1, 1]}}]);
        json["codecs"][0]["configuration"]["codecs"] = inner;
        assert!(Node::from_v3(&json).unwrap_err().what().contains("within"));
    }

    proptest! {
        #[test]
        fn odd_numbers_never_panic(
            shape in prop::collection::vec(any::<u64>(), 0..4),
            chunk in prop::collection::vec(any::<u64>(), 0..4),
            inner in prop::option::of(prop::collection::vec(any::<u64>(), 0..4)),
            dtype in "[<>|][a-z]{0,2}[0-9é]{0,3}",
        ) {
            let _ = Node::from_v3(&v3(&shape, &chunk, inner.as_deref()));
            let array = json!({"zarr_format": 2, "shape": shape, "chunks": chunk, "dtype": dtype});
            let _ = Node::from_v2(Some(&array), &Value::Null);
        }
    }
}
