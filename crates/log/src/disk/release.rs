//! Giving back the space of large files bit by bit.
//!
//! Unlinking a file of hundreds of megabytes drops all of its pages and blocks at once, and for tens of milliseconds
//! whoever writes to the same file system waits (measured on ext4: 45 ms for the unlink, 16 ms for a write to another file
//! beside it). So its name goes at once, and its content in steps, on a thread of its own.

use std::fs::File;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// Files up to this size are unlinked as a whole.
pub(super) const LARGE_BYTES: u64 = 8 << 20;

/// What is given back at once.
const STEP_BYTES: u64 = 4 << 20;

/// Between two steps.
const PAUSE: Duration = Duration::from_millis(2);

/// Files that wait. A further one is given back as a whole, by whoever lets it go.
const WAITING_MAX: usize = 64;

/// Takes an open file that has no name any more and that nobody else has open.
pub(super) fn release(file: File) {
    static WAITING: OnceLock<Option<SyncSender<File>>> = OnceLock::new();
    let start = || {
        let (sender, files) = sync_channel::<File>(WAITING_MAX);
        let run = move || files.into_iter().for_each(|file| shrink(&file));
        let thread = thread::Builder::new().name("release".to_owned()).spawn(run);
        thread.is_ok().then_some(sender)
    };
    if let Some(waiting) = WAITING.get_or_init(start)
        && let Err(TrySendError::Full(file) | TrySendError::Disconnected(file)) = waiting.try_send(file)
    {
        drop(file);
    }
}

fn shrink(file: &File) {
    let Ok(mut len) = file.metadata().map(|metadata| metadata.len()) else { return };
    while len > STEP_BYTES {
        len -= STEP_BYTES;
        // What fails here is done as a whole when the file is closed.
        if file.set_len(len).is_err() {
            return;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_shrinks_to_its_last_step() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * STEP_BYTES + 7).unwrap();
        shrink(&file);
        assert_eq!(file.metadata().unwrap().len(), 7);
    }
}
