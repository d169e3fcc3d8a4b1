//! File descriptors: as many as the system allows, and shared out so that connections cannot take those
//! that the storage needs.
//!
//! A storage without descriptors cannot make the file that the next record belongs into. So a flood of
//! connections is refused at the door, and the storage never learns of it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What one process may open, and who of it may how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Connections of all fronts together.
    pub connections_max: usize,
    /// Files without unsynced bytes that one shard keeps open.
    pub open_files_max: usize,
    /// Files with unsynced bytes that one shard has open before it syncs them.
    pub dirty_files_max: usize,
}

/// Files that one shard keeps open where descriptors are plenty.
const OPEN_FILES_MAX: usize = 256;

/// Unsynced files of one shard where descriptors are plenty.
const DIRTY_FILES_MAX: usize = 1000;

/// A shard gets on with so many of each, slowly.
const FILES_MIN: usize = 4;

impl Descriptors {
    /// Raises this process' limit as far as it may, and shares it out among connections and so many shards.
    pub fn claim(shards: usize) -> Descriptors {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let limit = match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            Ok(()) => maximum,
            Err(error) => {
                tracing::warn!(%error, "the limit of open files stays as it was");
                current
            }
        };
        Descriptors::share(limit, shards)
    }

    /// Half for connections, an eighth each for files with and without unsynced bytes, and what remains for
    /// the journal, for checkpoints, and for what is opened for a moment.
    fn share(limit: Option<u64>, shards: usize) -> Descriptors {
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let each = |part: usize, most: usize| (limit / part / shards.max(1)).clamp(FILES_MIN, most);
        Descriptors {
            connections_max: limit / 2,
            open_files_max: each(8, OPEN_FILES_MAX),
            dirty_files_max: each(8, DIRTY_FILES_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DIRTY_FILES_MAX, Descriptors, OPEN_FILES_MAX};

    #[test]
    fn the_storage_has_what_it_needs_whatever_connections_take() {
        for (limit, shards) in [(256, 3), (1024, 9), (4096, 9), (65_536, 257)] {
            let shared = Descriptors::share(Some(limit), shards);
            let storage = shards * (shared.open_files_max + shared.dirty_files_max);
            let spare = limit as usize - shared.connections_max - storage;
            assert!(spare >= limit as usize / 8, "{limit} and {shards} shards: {shared:?} leave {spare}");
        }
    }

    #[test]
    fn where_they_are_plenty_nobody_is_held_back() {
        for limit in [Some(1 << 20), None] {
            let shared = Descriptors::share(limit, 9);
            assert!(shared.connections_max >= 500_000);
            assert_eq!((shared.open_files_max, shared.dirty_files_max), (OPEN_FILES_MAX, DIRTY_FILES_MAX));
        }
    }
}
