//! Inflates chunks compressed with gzip or zlib, up to the size in the metadata. `zarrs` itself
//! inflates whatever a stream holds, and a few MB can become some GB.

use std::borrow::Cow;
use std::io::Read;
use std::sync::{Arc, Once};

use flate2::bufread::{GzDecoder, ZlibDecoder};
use hsipack_store::memory;
use zarrs::array::codec::{GzipCodec, ZlibCodec};
use zarrs::array::{
    ArrayBytesRaw, BytesRepresentation, BytesToBytesCodecTraits, Codec, CodecError,
    CodecMetadataOptions, CodecOptions, CodecTraits, CodecTraitsV2, CodecTraitsV3,
    RecommendedConcurrency,
};
use zarrs::metadata::Configuration;
use zarrs::plugin::{
    ExtensionAliases, ExtensionName, PluginCreateError, ZarrVersion, ZarrVersion2, ZarrVersion3,
};
use zarrs_codec::{
    CodecRuntimePluginV2, CodecRuntimePluginV3, PartialDecoderCapability, PartialEncoderCapability,
    register_codec_v2, register_codec_v3,
};

/// Makes `zarrs` use these codecs instead of its own, in the whole process.
pub(super) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        replace::<GzipCodec>(|bytes| Box::new(GzDecoder::new(bytes)));
        replace::<ZlibCodec>(|bytes| Box::new(ZlibDecoder::new(bytes)));
    });
}

/// A decoder of a stream.
type Decoder = fn(&[u8]) -> Box<dyn Read + '_>;

fn replace<C>(decoder: Decoder)
where
    C: CodecTraitsV2
        + CodecTraitsV3
        + 'static
        + ExtensionAliases<ZarrVersion2>
        + ExtensionAliases<ZarrVersion3>,
{
    register_codec_v2(CodecRuntimePluginV2::new(
        <C as ExtensionAliases<ZarrVersion2>>::matches_name,
        move |metadata| bounded(<C as CodecTraitsV2>::create(metadata)?, decoder),
    ));
    register_codec_v3(CodecRuntimePluginV3::new(
        <C as ExtensionAliases<ZarrVersion3>>::matches_name,
        move |metadata| bounded(<C as CodecTraitsV3>::create(metadata)?, decoder),
    ));
}

fn bounded(codec: Codec, decoder: Decoder) -> Result<Codec, PluginCreateError> {
    Ok(match codec {
        Codec::BytesToBytes(codec) => Codec::BytesToBytes(Arc::new(Bounded { codec, decoder })),
        other => other,
    })
}

/// A codec of `zarrs` with another decoder.
#[derive(Debug)]
struct Bounded {
    codec: Arc<dyn BytesToBytesCodecTraits>,
    decoder: Decoder,
}

impl ExtensionName for Bounded {
    fn name(&self, version: ZarrVersion) -> Option<Cow<'static, str>> {
        self.codec.name(version)
    }
}

impl CodecTraits for Bounded {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    fn configuration(
        &self,
        version: ZarrVersion,
        options: &CodecMetadataOptions,
    ) -> Option<Configuration> {
        self.codec.configuration(version, options)
    }

    fn partial_decoder_capability(&self) -> PartialDecoderCapability {
        self.codec.partial_decoder_capability()
    }

    fn partial_encoder_capability(&self) -> PartialEncoderCapability {
        self.codec.partial_encoder_capability()
    }
}

impl BytesToBytesCodecTraits for Bounded {
    fn into_dyn(self: Arc<Self>) -> Arc<dyn BytesToBytesCodecTraits> {
        self
    }

    fn recommended_concurrency(
        &self,
        decoded: &BytesRepresentation,
    ) -> Result<RecommendedConcurrency, CodecError> {
        self.codec.recommended_concurrency(decoded)
    }

    fn encoded_representation(&self, decoded: &BytesRepresentation) -> BytesRepresentation {
        self.codec.encoded_representation(decoded)
    }

    fn encode<'a>(
        &self,
        bytes: ArrayBytesRaw<'a>,
        options: &CodecOptions,
    ) -> Result<ArrayBytesRaw<'a>, CodecError> {
        self.codec.encode(bytes, options)
    }

    fn decode<'a>(
        &self,
        bytes: ArrayBytesRaw<'a>,
        decoded: &BytesRepresentation,
        _options: &CodecOptions,
    ) -> Result<ArrayBytesRaw<'a>, CodecError> {
        let most = decoded.size().ok_or_else(|| {
            CodecError::Other("the size of a compressed chunk is not known".to_owned())
        })?;
        inflate((self.decoder)(&bytes), most).map(Cow::Owned)
    }
}

/// Inflates a whole stream of at most `most` bytes.
fn inflate(stream: impl Read, most: u64) -> Result<Vec<u8>, CodecError> {
    // Chunks have at most 2 GiB. One more byte shows that a stream is longer.
    let mut bytes = memory::reserved(most as usize + 1, "a chunk")
        .map_err(|error| CodecError::Other(error.to_string()))?;
    stream.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(CodecError::Other(format!(
            "a chunk decodes to more than the {most} bytes that the metadata state"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_one_byte_more_is_told_from_a_chunk() {
        for (len, fits) in [(0, true), (99_999, true), (100_000, true), (100_001, false)] {
            let inflated = inflate(std::io::repeat(7).take(len), 100_000);
            assert_eq!(inflated.is_ok(), fits, "{len}");
            if let Ok(bytes) = inflated {
                assert_eq!(bytes, vec![7; len as usize]);
            }
        }
        let endless = inflate(std::io::repeat(7), 100).unwrap_err().to_string();
        assert!(endless.contains("100 bytes"), "{endless}");
    }

    #[test]
    fn zarrs_takes_these_codecs_for_both_versions() {
        register();
        for (id, name) in [("gzip", "gzip"), ("zlib", "numcodecs.zlib")] {
            let v2 = format!(r#"{{"id": "{id}", "level": 1}}"#);
            let v3 = format!(r#"{{"name": "{name}", "configuration": {{"level": 1}}}}"#);
            let v2: zarrs::metadata::v2::MetadataV2 = serde_json::from_str(&v2).unwrap();
            let v3: zarrs::metadata::v3::MetadataV3 = serde_json::from_str(&v3).unwrap();
            for codec in [Codec::from_metadata(&v2).unwrap(), Codec::from_metadata(&v3).unwrap()] {
                let Codec::BytesToBytes(codec) = codec else { panic!("{id} is of bytes") };
                assert!(codec.as_any().is::<Bounded>(), "{id}");
                let options = CodecOptions::default();
                let stored = codec.encode(vec![7; 1000].into(), &options).unwrap();
                let decode = |len| {
                    codec.decode(stored.clone(), &BytesRepresentation::FixedSize(len), &options)
                };
                assert_eq!(decode(1000).unwrap(), vec![7; 1000]);
                assert!(decode(999).is_err());
            }
        }
    }
}
