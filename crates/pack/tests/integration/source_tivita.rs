//! Tivita SpecCube files.

use crate::common::check_shared;

#[test]
fn a_speccube_is_read_upright() {
    check_shared("derived/2026_01_01_00_00_00_SpecCube.dat", None);
}
