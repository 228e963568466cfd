//! NumPy files.

use hsipack_format::ErrorKind;
use hsipack_pack::source::{self, Access, AxisOrder, OpenOptions};

use crate::common::{check_shared, open, shared};

#[test]
fn real_npy_cubes_are_read() {
    check_shared("derived/corn_c_u2.npy", None);
    check_shared("derived/emit_fortran_f4.npy", None);
    check_shared("derived/emit_be_f4.npy", None);
    check_shared("derived/emit_f2.npy", None);
}

#[test]
fn real_npz_cubes_are_read() {
    check_shared("derived/emit_deflate.npz", None);
    check_shared("derived/corn_stored.npz", None);
}
