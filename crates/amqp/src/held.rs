//! What a connection holds in memory of messages that are not published yet: those of open transactions, and those of which
//! not everything has come. All channels of a connection share one bound for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the channels of one connection may hold together.
const HELD_BYTES_MAX: usize = 256 << 20;

/// The connection's bytes of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Arc<AtomicUsize>);

/// What one holder has of them. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct HeldShare {
    held: Held,
    bytes: usize,
}

/// The connection holds as much as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the channels of a connection hold at most {max} bytes of messages that are not published yet", max = HELD_BYTES_MAX)]
pub(crate) struct HeldFull;

impl Held {
    pub(crate) fn share(&self) -> HeldShare {
        HeldShare { held: self.clone(), bytes: 0 }
    }
}

impl HeldShare {
    /// Has so many bytes from here on. After an error it has what it had.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), HeldFull> {
        let all = &self.held.0;
        match bytes.checked_sub(self.bytes) {
            Some(more) => {
                let before = all.fetch_add(more, Ordering::AcqRel);
                if more > 0 && before + more > HELD_BYTES_MAX {
                    all.fetch_sub(more, Ordering::AcqRel);
                    return Err(HeldFull);
                }
            }
            None => drop(all.fetch_sub(self.bytes - bytes, Ordering::AcqRel)),
        }
        self.bytes = bytes;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_bounded_together_and_given_back() {
        let held = Held::default();
        let (mut one, mut other) = (held.share(), held.share());
        assert_eq!(one.set(HELD_BYTES_MAX - 10), Ok(()));
        assert_eq!(other.set(10), Ok(()));
        assert_eq!(other.set(11), Err(HeldFull));
        assert_eq!((other.bytes(), other.set(10)), (10, Ok(())));
        assert_eq!(one.set(20), Ok(()));
        assert_eq!(other.set(HELD_BYTES_MAX - 20), Ok(()));
        drop(one);
        assert_eq!(other.set(HELD_BYTES_MAX), Ok(()));
        drop(other);
        assert_eq!(held.share().set(HELD_BYTES_MAX), Ok(()));
    }
}
