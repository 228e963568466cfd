//! `zarr.json`: the metadata of groups and arrays, as hsipack writes and reads them.
//!
//! It writes exactly the arrays of the layout. It also reads arrays of the same kind that another
//! library wrote: with any Blosc compressor or none, sharded or not, with or without checksums.

use serde_json::{Map, Value, json};

use crate::{Codec, DType, Error, Result};

/// How the bytes of one chunk are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkCodecs {
    /// The compression; `None` if chunks are plain bytes.
    pub compression: Option<Codec>,
    /// Whether a CRC-32C follows every chunk.
    pub checksum: bool,
}

/// An array's metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayMeta {
    /// Length of every axis.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: DType,
    /// Shape of the data in one file: a shard, or a chunk if the array is not sharded.
    pub file_shape: Vec<u64>,
    /// Shape of the chunks inside a shard; `None` if the array is not sharded.
    pub chunk_shape: Option<Vec<u64>>,
    /// How chunks are encoded.
    pub codecs: ChunkCodecs,
    /// The value of chunks that were never written.
    pub fill_value: Value,
    /// Names of the axes.
    pub dimension_names: Vec<String>,
    /// The array's attributes.
    pub attributes: Map<String, Value>,
}

/// The metadata of a group.
pub fn group(attributes: Map<String, Value>) -> Value {
    json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes })
}

/// Metadata as the text of a `zarr.json`.
pub fn to_text(metadata: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(metadata).expect("JSON values can be written");
    text.push(b'\n');
    text
}

/// The attributes of a group's `zarr.json`.
///
/// # Errors
/// If it is not the metadata of a Zarr v3 group.
pub fn parse_group(text: &[u8]) -> Result<Map<String, Value>> {
    let metadata = parse_node(text, "group")?;
    Ok(metadata.get("attributes").and_then(Value::as_object).cloned().unwrap_or_default())
}

/// The key of hsipack's own attributes, in a dataset's root group, an image array or a mask array.
pub const OWN: &str = "hsipack";

fn parse_node(text: &[u8], kind: &str) -> Result<Value> {
    let metadata: Value = serde_json::from_slice(text)
        .map_err(|error| Error::malformed(format!("not JSON: {error}")).caused_by(error))?;
    if metadata["zarr_format"] != 3 {
        return Err(Error::malformed("not Zarr format 3"));
    }
    if metadata["node_type"] != kind {
        return Err(Error::malformed(format!("not the metadata of a Zarr {kind}")));
    }
    Ok(metadata)
}

impl ArrayMeta {
    /// The array's `zarr.json`.
    pub fn to_json(&self) -> Value {
        let inner = self.codecs.to_json();
        let codecs = match &self.chunk_shape {
            None => inner,
            Some(chunk_shape) => json!([{
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": chunk_shape,
                    "codecs": inner,
                    "index_codecs": [bytes_codec(), { "name": "crc32c" }],
                    "index_location": "end",
                },
            }]),
        };
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape,
            "data_type": self.dtype.name(),
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": self.file_shape } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": self.fill_value,
            "codecs": codecs,
            "dimension_names": self.dimension_names,
            "attributes": self.attributes,
        })
    }

    /// Reads an array's `zarr.json`.
    ///
    /// # Errors
    /// If it is not the metadata of a Zarr v3 array, or the array is of another kind than the
    /// arrays of the layout; the error names the key.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let metadata = parse_node(text, "array")?;
        let shape = lengths(&metadata["shape"], "shape")?;
        let name = string(&metadata["data_type"], "data_type")?;
        let dtype = DType::from_name(name).ok_or_else(|| {
            Error::unsupported(format!("data_type is {name}, which hsipack does not read"))
        })?;
        let grid = &metadata["chunk_grid"];
        expect_name(grid, "chunk_grid", "regular")?;
        let file_shape = positive(&grid["configuration"]["chunk_shape"], "chunk_grid")?;
        let keys = &metadata["chunk_key_encoding"];
        expect_name(keys, "chunk_key_encoding", "default")?;
        if keys["configuration"].get("separator").is_some_and(|separator| separator != "/") {
            return Err(Error::unsupported("chunk_key_encoding has a separator other than '/'"));
        }
        let codecs = metadata["codecs"].as_array().ok_or_else(|| missing("codecs"))?;
        let (chunk_shape, codecs) = match codecs.as_slice() {
            [sharding] if sharding["name"] == "sharding_indexed" => {
                parse_sharding(&sharding["configuration"])?
            }
            several => (None, ChunkCodecs::parse(several, dtype)?),
        };
        for inner in [Some(&file_shape), chunk_shape.as_ref()].into_iter().flatten() {
            if inner.len() != shape.len() {
                return Err(Error::malformed(
                    "shape and chunk shape differ in their number of axes",
                ));
            }
        }
        if let Some(chunk) = &chunk_shape
            && file_shape.iter().zip(chunk).any(|(file, chunk)| !file.is_multiple_of(*chunk))
        {
            return Err(Error::malformed("shards are not made of whole chunks"));
        }
        let dimension_names = match &metadata["dimension_names"] {
            Value::Array(names) => {
                names.iter().map(|name| name.as_str().unwrap_or("").to_owned()).collect()
            }
            _ => vec![String::new(); shape.len()],
        };
        let attributes = metadata["attributes"].as_object().cloned().unwrap_or_default();
        let fill_value = metadata["fill_value"].clone();
        Ok(Self {
            shape,
            dtype,
            file_shape,
            chunk_shape,
            codecs,
            fill_value,
            dimension_names,
            attributes,
        })
    }

    /// The file of the shard (or unsharded chunk) at `position` in the grid, relative to the
    /// array's folder.
    pub fn file_key(position: &[u64]) -> String {
        position.iter().fold("c".to_owned(), |key, index| format!("{key}/{index}"))
    }
}

fn parse_sharding(configuration: &Value) -> Result<(Option<Vec<u64>>, ChunkCodecs)> {
    let chunk_shape = positive(&configuration["chunk_shape"], "sharding_indexed")?;
    let inner =
        configuration["codecs"].as_array().ok_or_else(|| missing("codecs of sharding_indexed"))?;
    let index: Vec<&str> = configuration["index_codecs"]
        .as_array()
        .ok_or_else(|| missing("index_codecs"))?
        .iter()
        .map(|codec| codec["name"].as_str().unwrap_or_default())
        .collect();
    if index != ["bytes", "crc32c"] {
        return Err(Error::unsupported(format!("shard index codecs are {}", index.join(", "))));
    }
    if configuration.get("index_location").is_some_and(|location| location != "end") {
        return Err(Error::unsupported("the shard index is not at the end of the shard"));
    }
    // The dtype determines only the default typesize, which decoding does not need.
    Ok((Some(chunk_shape), ChunkCodecs::parse(inner, DType::U8)?))
}

fn bytes_codec() -> Value {
    json!({ "name": "bytes", "configuration": { "endian": "little" } })
}

impl ChunkCodecs {
    fn to_json(self) -> Value {
        let mut codecs = vec![bytes_codec()];
        codecs.extend(self.compression.map(Codec::to_zarr));
        if self.checksum {
            codecs.push(json!({ "name": "crc32c" }));
        }
        Value::Array(codecs)
    }

    fn parse(codecs: &[Value], dtype: DType) -> Result<Self> {
        let mut parsed = ChunkCodecs { compression: None, checksum: false };
        for (position, codec) in codecs.iter().enumerate() {
            let name = codec["name"].as_str().unwrap_or_default();
            let configuration = &codec["configuration"];
            match name {
                "bytes" if position == 0 => {
                    if configuration.get("endian").is_some_and(|endian| endian != "little") {
                        return Err(Error::unsupported("values are big-endian"));
                    }
                    continue;
                }
                "crc32c" if position > 0 && position + 1 == codecs.len() => {
                    parsed.checksum = true;
                    continue;
                }
                _ if position == 1 => {
                    parsed.compression = Codec::of_zarr(name, configuration, dtype)?
                }
                _ => {}
            }
            if position != 1 || parsed.compression.is_none() {
                return Err(Error::unsupported(format!(
                    "codec {name:?} in place {} of the chain, which hsipack does not read",
                    position + 1
                )));
            }
        }
        if codecs.is_empty() { Err(missing("codecs")) } else { Ok(parsed) }
    }
}

fn missing(key: &str) -> Error {
    Error::malformed(format!("{key} is missing or is not what Zarr v3 requires"))
}

fn string<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value.as_str().ok_or_else(|| missing(key))
}

fn expect_name(value: &Value, key: &str, name: &str) -> Result<()> {
    if value["name"] == name {
        Ok(())
    } else {
        Err(Error::unsupported(format!("{key} is not {name:?}")))
    }
}

fn lengths(value: &Value, key: &str) -> Result<Vec<u64>> {
    let axes = value.as_array().ok_or_else(|| missing(key))?;
    axes.iter().map(|length| length.as_u64().ok_or_else(|| missing(key))).collect()
}

fn positive(value: &Value, key: &str) -> Result<Vec<u64>> {
    let lengths = lengths(value, key)?;
    if lengths.contains(&0) { Err(missing(key)) } else { Ok(lengths) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compressor, Shuffle};
    use proptest::prelude::*;

    fn image() -> ArrayMeta {
        ArrayMeta {
            shape: vec![2, 480, 640, 100],
            dtype: DType::F16,
            file_shape: vec![8, 480, 640, 100],
            chunk_shape: Some(vec![1, 16, 640, 100]),
            codecs: ChunkCodecs {
                compression: Some(Codec::new(Compressor::Lz4, 5, Shuffle::Bit, DType::F16)),
                checksum: true,
            },
            fill_value: json!("NaN"),
            dimension_names: ["sample", "y", "x", "band"].map(String::from).to_vec(),
            attributes: Map::from_iter([("scale_factor".into(), json!(2.0))]),
        }
    }

    #[test]
    fn metadata_come_back_as_they_were() {
        let mut plain = image();
        plain.chunk_shape = None;
        plain.codecs = ChunkCodecs { compression: None, checksum: true };
        for meta in [image(), plain] {
            assert_eq!(ArrayMeta::parse(&to_text(&meta.to_json())).unwrap(), meta);
        }
    }

    #[test]
    fn unsupported_layouts_are_refused_by_name() {
        let changed = |path: &str, value: Value| {
            let mut json = image().to_json();
            *json.pointer_mut(path).unwrap() = value;
            ArrayMeta::parse(&to_text(&json)).unwrap_err().to_string()
        };
        assert!(changed("/data_type", json!("complex64")).contains("complex64"));
        assert!(changed("/node_type", json!("group")).contains("array"));
        assert!(changed("/codecs/0/configuration/codecs/1/name", json!("zfp")).contains("zfp"));
        assert!(
            changed("/codecs/0/configuration/chunk_shape/1", json!(7)).contains("whole chunks")
        );
        assert!(changed("/codecs/0/configuration/chunk_shape/1", json!(0)).contains("sharding"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,300}") {
            let _ = ArrayMeta::parse(text.as_bytes());
            let _ = parse_group(text.as_bytes());
        }
    }
}
