//! HTC blosc files.

use crate::common::check_shared;

#[test]
fn real_cubes_in_both_precisions_are_read() {
    check_shared("derived/htc_raw16.blosc", None);
    check_shared("derived/htc_raw32.blosc", None);
}
