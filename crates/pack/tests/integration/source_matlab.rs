//! MATLAB v5 files.

use crate::common::check_shared;

#[test]
fn real_cubes_are_read() {
    check_shared("derived/m3_v5_z.mat", None);
    check_shared("derived/corn_v5_raw.mat", None);
    check_shared("derived/m3_v5_bandsxpix.mat", None);
    check_shared("derived/corn_v5_struct.mat", None);
}
