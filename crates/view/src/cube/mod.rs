//! Values of one cube, as the page requests them.
//!
//! | file | job |
//! |---|---|
//! | `grid.rs` | which pixels of a window are shown, so that answers do not grow with the cube |
//! | `cache.rs` | the shown cube in memory, decoded, or as much of it as fits |
//! | `bands.rs` | some bands of a window |
//! | `masks.rs` | labels of a window |
//! | `confusion.rs` | counts of pixels by their classes in two masks |
//! | `spectra.rs` | means and standard deviations of rectangles and classes |
//! | `angles.rs` | how similar the spectra of all pixels are to one spectrum |
//! | `thumbnail.rs` | a small picture |
//! | `deadline.rs` | a time limit for answers |

pub mod angles;
pub mod bands;
pub mod cache;
pub mod confusion;
pub mod deadline;
pub mod grid;
pub mod masks;
pub mod spectra;
pub mod thumbnail;
