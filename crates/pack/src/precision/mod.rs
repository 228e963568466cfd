//! Finds how many mantissa bits values need, and rounds values to that many
//! (`convert --keep-bits`).
//!
//! ```text
//! rows of all inputs → pairs of neighbours → information of each bit → bits to keep → rounding
//! ```
//!
//! Bits that hold only noise are dropped: they take as much space as other bits, and no compressor
//! can make them smaller. The number of bits to keep is found as in Klöwer et al. (2021),
//! "Compressing atmospheric data into its real information content", Nature Computational Science
//! 1, 713–724, [doi:10.1038/s43588-021-00156-2](https://doi.org/10.1038/s43588-021-00156-2).
//!
//! | file | part |
//! |---|---|
//! | `information.rs` | counts pairs, and computes the information of each bit and the number of bits that keep a share of it |
//! | `round.rs` | rounds values to the nearest with a number of mantissa bits |
//! | `sample.rs` | reads rows of a conversion's inputs, spread over all of them, within a budget |

mod information;
mod round;
mod sample;

pub use information::{CONFIDENCE, Counts, Information, SHARE};
pub(crate) use round::clear_f16;
pub use round::{greatest, mantissa_bits, nearest, round_f16, round_f32};
pub use sample::{Block, Budget, PLAN_BUDGET, map_blocks, measure};
