//! Windows around labelled pixels, as commands that read a dataset take them.

use hsipack_format::{Error, Result};
use hsipack_read::plan::{Pad, Patches};

use crate::parse;

/// Arguments of commands with an argument `mask`, which names the one that has the labels, and a group `windows` of those that
/// windows beyond the edge come from.
#[derive(clap::Args, Default)]
pub struct PatchArgs {
    /// Windows of so many pixels around every labelled pixel of the mask that --mask names; 1x1 gives spectra.
    /// The order class-balanced draws every class of pixels equally often
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = parse::pixels, requires = "mask")]
    pub patch: Option<[u32; 2]>,

    /// Only around pixels of these classes: 1,3,5-8 [default: all]
    #[arg(long, value_name = "LIST", value_parser = parse::classes, requires = "patch")]
    classes: Option<parse::ClassList>,

    /// Classes that count as unlabelled, such as 0,255 [default: 0]
    #[arg(long, value_name = "LIST", value_parser = parse::classes, requires = "patch")]
    ignore: Option<parse::ClassList>,

    /// Only so many pixels of each class, drawn once by the seed [default: all]
    #[arg(long, value_name = "N", requires = "patch")]
    per_class: Option<usize>,

    /// What patches have beyond the edge of their cube: reflect mirrors it, edge repeats its outermost pixels, a
    /// number stands there as it would be stored (and 0 in masks) [default: reflect]
    #[arg(
        long,
        value_name = "reflect|edge|NUMBER",
        requires = "windows",
        allow_negative_numbers = true
    )]
    pub pad: Option<Pad>,
}

impl PatchArgs {
    /// Patches, and the mask that has their labels: the one of `masks`.
    ///
    /// # Errors
    /// If several masks are named.
    pub fn patches(&self, masks: &[String]) -> Result<Option<(String, Patches)>> {
        let (Some([rows, columns]), Some((mask, others))) = (self.patch, masks.split_first())
        else {
            return Ok(None);
        };
        if !others.is_empty() {
            return Err(Error::conflict("--patch with several masks")
                .with_remedy("name the one that has the labels with --mask"));
        }
        let mut patches = Patches::new(rows, columns);
        patches.pad = self.pad.unwrap_or(patches.pad);
        patches.classes = self.classes.clone().map(|list| list.0);
        patches.ignore = self.ignore.clone().map_or(patches.ignore, |list| list.0);
        patches.per_class = self.per_class;
        Ok(Some((mask.clone(), patches)))
    }
}
