//! Removing a directory with all that is in it.

use std::path::Path;

use super::{Disk, DiskError};

/// Directories within each other that are followed.
const DEPTH_MAX: usize = 16;

/// Removes a directory and everything below it; it is no error if there is none. Nothing of this is made durable: who
/// cannot find some of it again calls this again.
pub fn remove_tree(disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
    remove_below(disk, path, DEPTH_MAX)
}

fn remove_below(disk: &dyn Disk, path: &Path, depth: usize) -> Result<(), DiskError> {
    let entries = match disk.list(path) {
        Err(error) if error.is_not_found() => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = path.join(&entry.name);
        match entry.is_dir {
            // What lies deeper makes its directory's removal fail, which says so.
            true if depth > 0 => remove_below(disk, &path, depth - 1)?,
            true => {}
            false => disk.remove_file(&path)?,
        }
    }
    disk.remove_dir(path)
}
