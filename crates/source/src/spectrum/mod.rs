//! Wavelengths of bands, in any format.
//!
//! | file | part |
//! |---|---|
//! | `wavelengths.rs` | units, and conversion to nm |
//! | `spectrum_text.rs` | keys, lists and names of bands in texts |
//! | `band_list.rs` | band centres in a file of their own |
//! | `spectra_table.rs` | tables of spectra, one a row |

pub(crate) mod band_list;
pub(crate) mod spectra_table;
pub(crate) mod spectrum_text;
pub(crate) mod wavelengths;
