//! Tells headers of ENVI and ESRI from other files.

use super::esri;
use super::fields::{is_first_line, lines};
use crate::text::decode;

/// The kind of a text that may be a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ENVI header.
    Envi,
    /// An ESRI (ArcGIS) header of a `.bil`, `.bip`, `.bsq` or `.flt` file.
    Esri,
    /// Neither.
    Other,
}

/// The kind of the text that starts with `head`.
pub(super) fn kind(head: &[u8]) -> Kind {
    let text = decode(head);
    if lines(&text).next().is_some_and(is_first_line) {
        return Kind::Envi;
    }
    if esri::is_header(&text) { Kind::Esri } else { Kind::Other }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_esri_header_is_told_from_an_ascii_grid() {
        let esri = "NROWS 5\nNCOLS 6\nNBANDS 7\nNBITS 32\nPIXELTYPE FLOAT\nBYTEORDER M\nLAYOUT BIP";
        assert_eq!(kind(esri.as_bytes()), Kind::Esri);
        assert_eq!(kind(b"ncols 6\nnrows 5\nxllcorner 0\n1 2 3"), Kind::Other);
        assert_eq!(kind(b"ENVI\r\nncols 6\nnrows 5\nnbits 8"), Kind::Envi);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = kind(&bytes);
            let _ = esri::parse(&bytes);
        }
    }
}
