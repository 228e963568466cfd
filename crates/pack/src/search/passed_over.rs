//! Files that a search of folders passes over, although they may hold cubes: broken ones, and
//! archives that are not opened.

use std::cell::RefCell;
use std::path::Path;

/// How many names a note lists.
const LISTED: usize = 5;

/// The files that a search passed over.
#[derive(Default)]
pub(super) struct PassedOver {
    files: RefCell<Vec<String>>,
    archives: RefCell<Vec<String>>,
}

impl PassedOver {
    /// Adds the file at `path` below `root`, which is no cube, if its name says otherwise.
    pub fn add_file(&self, path: &Path, root: &Path) {
        if let Some(contents) = hsipack_source::unread_stem(path) {
            if !path.with_file_name(contents).exists() {
                self.add_archive(path, root);
            }
        } else if let Some(why) = hsipack_source::why_no_cube(path) {
            self.files.borrow_mut().push(format!("{} ({why})", name(path, root)));
        }
    }

    /// Adds the archive at `path` below `root`, which is not opened.
    pub fn add_archive(&self, path: &Path, root: &Path) {
        self.archives.borrow_mut().push(name(path, root));
    }

    /// Notes that say what was passed over.
    pub fn notes(self) -> impl Iterator<Item = String> {
        let (files, archives) = (self.files.into_inner(), self.archives.into_inner());
        let files = match files.len() {
            0 => None,
            1 => Some("1 file named like a cube holds none and is left out".to_owned()),
            count => Some(format!("{count} files named like cubes hold none and are left out")),
        }
        .map(|what| format!("{what}: {}", listed(&files)));
        let archives = match archives.len() {
            0 => None,
            1 => Some(format!("1 archive is not opened: {} (unpack it)", archives[0])),
            count => Some(format!(
                "{count} archives are not opened: {} (unpack them)",
                listed(&archives)
            )),
        };
        files.into_iter().chain(archives)
    }
}

/// The name of a file for a note. A file in an archive has its path, which becomes that in the
/// archive.
fn name(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn listed(names: &[String]) -> String {
    let more = if names.len() > LISTED { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(LISTED)].join(", "))
}
