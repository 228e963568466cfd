//! Values of one cube, as the page asks for them.
//!
//! | file | job |
//! |---|---|
//! | `grid.rs` | which pixels are shown of a window, so that answers do not grow with the cube |
//! | `held.rs` | the cube that is looked at, decoded, or as much of it as fits |
//! | `bands.rs` | some bands of a window |
//! | `masks.rs` | labels of a window |
//! | `confusion.rs` | what two masks call the same pixels |
//! | `spectra.rs` | means and deviations of rectangles and classes |
//! | `angles.rs` | how alike the spectra of all pixels are to one |
//! | `thumbnail.rs` | a small picture |
//! | `deadline.rs` | answers that take too long |

pub mod angles;
pub mod bands;
pub mod confusion;
pub mod deadline;
pub mod grid;
pub mod held;
pub mod masks;
pub mod spectra;
pub mod thumbnail;
