//! The members found while an archive is listed, and the limits for them.

use hsipack_format::{Error, Result};

use super::{Member, MemberLocation, names};

/// Maximum number of members. Archives of cubes have fewer.
pub const MAX_MEMBERS: usize = 100_000;
/// Maximum total length of all names in bytes.
const MAX_NAMES_BYTES: usize = 64 << 20;
/// Maximum total size in bytes of the kept starts of members.
const MAX_HEADS_BYTES: usize = 64 << 20;

/// The members and folders found in an archive.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub members: Vec<Member>,
    pub folders: Vec<String>,
}

impl Listing {
    pub fn add(&mut self, name: String, size: u64, location: MemberLocation) {
        self.members.push(Member { name, size, location, head: Box::default() });
    }

    /// The members, after checking that their names do not conflict.
    pub fn members(self) -> Result<Vec<Member>> {
        let folders = self.folders.iter().map(|name| (name.as_str(), true));
        let files = self.members.iter().map(|member| (member.name.as_str(), false));
        names::check_distinct(&folders.chain(files).collect::<Vec<_>>())?;
        match self.members.iter().find(|member| member.name.is_empty()) {
            Some(_) => {
                Err(Error::unsupported("a member without a name").with_remedy(names::UNPACK))
            }
            None => Ok(self.members),
        }
    }
}

/// Counts the memory that a listing needs.
#[derive(Debug, Default)]
pub(super) struct Tally {
    members: usize,
    names: usize,
    heads: usize,
}

impl Tally {
    /// Counts one more header, with a name of `name` bytes.
    pub fn count(&mut self, name: usize) -> Result<()> {
        self.members += usize::from(name > 0);
        self.names += name + 1;
        if self.members > MAX_MEMBERS || self.names > MAX_NAMES_BYTES {
            return Err(Error::unsupported(format!(
                "the archive has more than {MAX_MEMBERS} files"
            ))
            .with_remedy("unpack it, and give the folder"));
        }
        Ok(())
    }

    /// Keeps a member's first bytes, while there is room for them.
    pub fn keep(&mut self, head: Box<[u8]>) -> Box<[u8]> {
        self.heads += head.len();
        if self.heads > MAX_HEADS_BYTES { Box::default() } else { head }
    }
}

pub(super) fn special(kind: &str) -> Error {
    Error::unsupported(format!("{kind}, not a file")).with_remedy(names::UNPACK)
}
