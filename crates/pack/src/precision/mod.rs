//! How many mantissa bits values need, and rounding them to so many (`convert --keep-bits`).
//!
//! ```text
//! rows of all inputs → pairs of neighbours → information of each bit → bits to keep → rounding
//! ```
//!
//! Bits that hold nothing but noise are dropped: they cost as much space as any other, and no compressor
//! gets them smaller. How many to keep is found as Klöwer et al. (2021) do it, in "Compressing atmospheric data
//! into its real information content", Nature Computational Science 1, 713–724,
//! [doi:10.1038/s43588-021-00156-2](https://doi.org/10.1038/s43588-021-00156-2).
//!
//! | file | part |
//! |---|---|
//! | `information.rs` | pairs counted, information of each bit, the number of bits that keep a share of it |
//! | `round.rs` | values to the nearest with so many mantissa bits |
//! | `sample.rs` | rows of the inputs of a conversion, spread over them, within a budget |

mod information;
mod round;
mod sample;

pub use information::{CONFIDENCE, Counts, Information, SHARE};
pub(crate) use round::clear_f16;
pub use round::{greatest, mantissa_bits, nearest, round_f16, round_f32};
pub use sample::{Block, Budget, PLAN_BUDGET, map_blocks, measure};
