//! Keys by which a partition knows that it has a batch already.
//!
//! A partition has a window for each purpose: the keys of the batches that came last, in their order. What a window
//! keeps, and how long, is said by those who append; the window itself has no settings.

use crate::TimestampMs;
use crate::wire::{DecodeError, Reader, Writer};

/// Keys of one batch: one for each purpose.
pub const UNIQUE_KEYS_MAX: usize = 2;

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum WindowKind {
    /// Keys that publishers give to their messages.
    Business = 0,
    /// Records that came from other partitions, by where they stood there.
    Moved = 1,
}

impl WindowKind {
    /// Every kind.
    pub const ALL: [WindowKind; 2] = [WindowKind::Business, WindowKind::Moved];

    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<WindowKind> {
        WindowKind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A key of a batch: 16 bytes of a hash, so that two keys that are not the same are never taken for it.
pub type UniqueHash = [u8; 16];

/// A key of a batch, and how long it is to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    /// In which window it stands.
    pub window: WindowKind,
    /// The key.
    pub hash: UniqueHash,
    /// Known before this entry time, in milliseconds since 1970.
    pub expires_at: TimestampMs,
    /// When the window has more keys than this, the oldest go; at least 1.
    pub keys_max: u32,
    /// Known only as long as the batch's records wait in the queue that the partition belongs to.
    pub until_settled: bool,
}

impl UniqueKey {
    /// Bytes in the encoding.
    pub const ENCODED_BYTES: usize = 30;

    /// Writes it, for commands.
    pub fn encode(&self, out: &mut Writer) {
        out.u8(self.window as u8);
        out.raw(&self.hash);
        out.i64(self.expires_at);
        out.u32(self.keys_max);
        out.u8(u8::from(self.until_settled));
    }

    /// Reads what [`UniqueKey::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<UniqueKey, DecodeError> {
        let number = reader.u8()?;
        let Some(window) = WindowKind::from_number(number) else {
            return Err(reader.error("a kind of window is not known to this binary"));
        };
        Ok(UniqueKey {
            window,
            hash: reader.array()?,
            expires_at: reader.i64()?,
            keys_max: reader.u32()?,
            until_settled: reader.bool()?,
        })
    }
}
