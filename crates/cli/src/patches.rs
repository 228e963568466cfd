//! Arguments for patches, which are windows around labelled pixels. Commands that read a dataset
//! share them.

use hsipack_format::{Error, Result};
use hsipack_read::plan::{Pad, Patches};

use crate::parse;

/// Arguments for patches. The command needs an argument `mask`, which names the mask with the
/// labels, and a group `padded` of the arguments whose windows may reach over the edge of a cube.
#[derive(clap::Args, Default)]
pub struct PatchArgs {
    /// Size in pixels of patches: windows around every labelled pixel of the mask given with
    /// --mask; 1x1 gives spectra
    ///
    /// The order class-balanced of `hsipack read` draws every class of pixels equally often.
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = parse::pixels, requires = "mask")]
    pub patch: Option<[u32; 2]>,

    /// Use only pixels of these classes, such as 1,3,5-8 [default: all]
    #[arg(long, value_name = "LIST", value_parser = parse::classes, requires = "patch")]
    only_classes: Option<parse::ClassList>,

    /// Treat these classes as unlabelled, such as 0,255 [default: 0]
    #[arg(long, value_name = "LIST", value_parser = parse::classes, requires = "patch")]
    ignore: Option<parse::ClassList>,

    /// Use at most N pixels of each class, drawn once with the seed [default: all]
    #[arg(long, value_name = "N", requires = "patch")]
    per_class: Option<usize>,

    /// How to fill windows beyond the edge of their cube: reflect mirrors the cube, edge repeats
    /// its outermost pixels, a number is used as a stored value (and 0 in masks)
    /// [default for patches: reflect]
    #[arg(
        long,
        value_name = "reflect|edge|NUMBER",
        requires = "padded",
        allow_hyphen_values = true
    )]
    pub pad: Option<Pad>,
}

impl PatchArgs {
    /// The patches, and the mask with their labels, which is the only one of `masks`.
    ///
    /// # Errors
    /// If several masks are named.
    pub fn patches(&self, masks: &[String]) -> Result<Option<(String, Patches)>> {
        let (Some([rows, columns]), Some((mask, others))) = (self.patch, masks.split_first())
        else {
            return Ok(None);
        };
        if !others.is_empty() {
            return Err(Error::conflict("--patch cannot be used with several masks")
                .with_remedy("pass --mask once, with the mask that has the labels"));
        }
        let mut patches = Patches::new(rows, columns);
        patches.pad = self.pad.unwrap_or(patches.pad);
        patches.classes = self.only_classes.clone().map(|list| list.0);
        patches.ignore = self.ignore.clone().map_or(patches.ignore, |list| list.0);
        patches.per_class = self.per_class;
        Ok(Some((mask.clone(), patches)))
    }
}
