//! Files that stand for members of archives: read in place, or copied out of the archive.

use std::path::Path;
use std::sync::Arc;

use hsipack_format::{Error, ErrorKind, Result};

use super::fetched_files::{
    FetchedFiles, Known, Origin, Presence, cannot_write, free_bytes, write_piece,
};
use super::mirrored_archive::MirroredArchive;
use super::pins::pins;
use crate::archive::{MemberBytes, StreamGuard};
use crate::window::Window;

impl FetchedFiles {
    /// The archive and the number of the member that a file stands for, if any.
    pub(super) fn member(&self, path: &Path) -> Option<(Arc<MirroredArchive>, usize)> {
        match &self.lock().files.get(path)?.origin {
            Origin::Member { archive, number } => Some((archive.clone(), *number)),
            Origin::Object { .. } => None,
        }
    }

    /// The place of a file's bytes in an archive, if they are stored uncompressed.
    pub(super) fn in_place(&self, path: &Path) -> Result<Option<Window>> {
        let Some((archive, number)) = self.member(path) else { return Ok(None) };
        let window = archive.archive.in_place(number)?;
        if window.is_some()
            && pins(path)
            && let Some(entry) = self.lock().files.get_mut(path)
        {
            entry.pins += 1;
        }
        Ok(window)
    }

    /// Compares the checksum of a file that is read in place in an archive. Does this only the
    /// first time.
    pub(super) fn verify(&self, path: &Path) -> Result<()> {
        let Some((archive, number)) = self.member(path) else { return Ok(()) };
        let to_do = |entry: &Known| entry.presence != Presence::Whole && !entry.is_verified;
        if !self.lock().files.get(path).is_some_and(to_do)
            || archive.archive.in_place(number)?.is_none()
        {
            return Ok(());
        }
        archive.archive.verify(number)?;
        if let Some(entry) = self.lock().files.get_mut(path) {
            entry.is_verified = true;
        }
        Ok(())
    }

    /// Copies a member out of a compressed stream. Earlier members of the stream are copied too,
    /// while there is room for them, because reading them later would cost as much again.
    pub(super) fn bring_on_the_way(
        &self,
        archive: &MirroredArchive,
        wanted: usize,
        stream: &mut StreamGuard<'_>,
    ) -> Result<()> {
        archive.archive.copy_on_the_way(stream, wanted, &mut |number, member| {
            let path = archive.file_of(number);
            let clock = match number == wanted {
                true => self.tick(),
                false => match self.begin_passing(&path)? {
                    Some(clock) => clock,
                    None => return Ok(()),
                },
            };
            let brought = self.bring_member(&path, clock, member);
            if number == wanted {
                return brought;
            }
            // If it failed, a later reader of this file tries again and gets the error.
            self.settle(&path, archive.archive.members()[number].size, brought.is_ok());
            Ok(())
        })
    }

    fn bring_member(&self, path: &Path, clock: u64, member: &mut MemberBytes<'_>) -> Result<()> {
        self.bring(path, clock, &mut |file| {
            member.copy(&mut |bytes| {
                write_piece(file, bytes).map_err(|error| cannot_write(path, error))
            })
        })
    }

    fn tick(&self) -> u64 {
        let mut state = self.lock();
        state.clock += 1;
        state.clock
    }

    /// Reserves room for an earlier member of the stream, if it was not fetched and no other file
    /// must be dropped for it.
    fn begin_passing(&self, path: &Path) -> Result<Option<u64>> {
        let mut state = self.lock();
        let held = state.held;
        let Some(entry) = state.files.get(path) else { return Ok(None) };
        let len = entry.len;
        let is_head = matches!(entry.presence, Presence::Head(_));
        if !is_head || held.saturating_add(len) > self.most(held)? {
            return Ok(None);
        }
        state.held += len;
        state.clock += 1;
        let clock = state.clock;
        if let Some(entry) = state.files.get_mut(path) {
            (entry.presence, entry.opened) = (Presence::Coming, clock);
        }
        Ok(Some(clock))
    }

    /// Checks that the disk has room for a member. For objects of servers, this is not checked: the
    /// free space may change until they arrive.
    pub(super) fn check_disk(&self, archive: &MirroredArchive, number: usize) -> Result<()> {
        let size = archive.archive.members()[number].size;
        let free = free_bytes(&self.root)?;
        if size <= free {
            return Ok(());
        }
        let gb = |bytes: u64| bytes as f64 / 1e9;
        let name = archive.archive.shown_path().join(&archive.archive.members()[number].name);
        let folder = self.root.parent().unwrap_or(&self.root).display().to_string();
        let error = format!(
            "unpacking it takes {:.3} GB in {folder}, but only {:.3} GB are free there",
            gb(size),
            gb(free)
        );
        Err(Error::new(ErrorKind::Io, error).at(name).with_remedy(
            "set TMPDIR to a folder with more space, or unpack the archive and give its folder",
        ))
    }
}
