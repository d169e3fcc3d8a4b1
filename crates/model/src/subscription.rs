//! Individual subscriptions: records that are handed out one by one and settled one by one.
//!
//! A subscription belongs to one partition. Nothing is noted of a record before it is settled or given
//! back, so that a record that waits costs no memory.

use std::fmt;

use crate::wire::{DecodeError, Reader, Writer};
use crate::{Offset, TimestampMs};

/// An individual subscription within its partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

impl SubscriptionId {
    /// The one that a queue owns, on each of its partitions.
    pub const QUEUE: SubscriptionId = SubscriptionId(0);
}

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Why a record is not handed out any more although nobody has accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DeadReason {
    /// A consumer refused it for good.
    Rejected = 1,
    /// Its time was over.
    Expired = 2,
    /// There were more records than the queue may hold.
    MaxLength = 3,
    /// It was handed out, and given back, too often.
    DeliveryLimit = 4,
}

impl DeadReason {
    fn from_number(number: u8) -> Option<DeadReason> {
        use DeadReason::{DeliveryLimit, Expired, MaxLength, Rejected};
        [Rejected, Expired, MaxLength, DeliveryLimit].into_iter().find(|reason| *reason as u8 == number)
    }
}

/// What becomes of records that were handed out, or that nobody may have any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Settled: nobody gets them again.
    Accept,
    /// Given back: they are handed out again.
    Release {
        /// Whether this counts as a failed delivery.
        failed: bool,
    },
    /// Kept from everybody until they are settled: somebody publishes them elsewhere before.
    Reject {
        /// Why.
        reason: DeadReason,
    },
}

/// A run of records and what becomes of them. Records that are settled already are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The first of them.
    pub from: Offset,
    /// The last of them, at least `from`.
    pub to: Offset,
    /// What becomes of them.
    pub disposition: Disposition,
}

const ACCEPT: u8 = 0;
const RELEASE: u8 = 1;
const RELEASE_FAILED: u8 = 2;
/// A reason's number is added to it.
const REJECT: u8 = 16;

impl Settlement {
    /// Bytes of one in its encoding.
    pub const ENCODED_BYTES: usize = 17;

    /// Writes it, for commands.
    pub fn encode(&self, out: &mut Writer) {
        out.i64(self.from);
        out.i64(self.to);
        out.u8(match self.disposition {
            Disposition::Accept => ACCEPT,
            Disposition::Release { failed: false } => RELEASE,
            Disposition::Release { failed: true } => RELEASE_FAILED,
            Disposition::Reject { reason } => REJECT + reason as u8,
        });
    }

    /// Reads what [`Settlement::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<Settlement, DecodeError> {
        let (from, to) = (reader.i64()?, reader.i64()?);
        let disposition = match reader.u8()? {
            ACCEPT => Disposition::Accept,
            RELEASE => Disposition::Release { failed: false },
            RELEASE_FAILED => Disposition::Release { failed: true },
            number => match number.checked_sub(REJECT).and_then(DeadReason::from_number) {
                Some(reason) => Disposition::Reject { reason },
                None => return Err(reader.error("a disposition is not known to this binary")),
            },
        };
        Ok(Settlement { from, to, disposition })
    }
}

/// What is noted of a record that was given back or rejected, until it is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// How often its delivery failed. Stops counting at its highest value.
    pub failures: u16,
    /// How often it was handed out and came back. Stops counting at its highest value.
    pub returns: u16,
    /// Rises with every release of the subscription: the order in which records came back.
    pub order: u64,
    /// When it came back last; 0 if it never did.
    pub at: TimestampMs,
    /// Whether it came back last because its delivery failed.
    pub last_failed: bool,
    /// Set if nobody gets it any more.
    pub dead: Option<DeadReason>,
}

/// Set beside the reason of death where a time follows.
const HAS_TIME: u8 = 0x80;

/// Set beside the reason of death of a record whose delivery failed last.
const LAST_FAILED: u8 = 0x40;

impl Marks {
    /// Bytes in the encoding, at least.
    pub const ENCODED_BYTES_MIN: usize = 13;

    /// Writes them, for checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.i16(self.failures.cast_signed());
        out.i16(self.returns.cast_signed());
        out.u64(self.order);
        let mut byte = self.dead.map_or(0, |reason| reason as u8);
        byte |= if self.last_failed { LAST_FAILED } else { 0 };
        byte |= if self.at != 0 { HAS_TIME } else { 0 };
        out.u8(byte);
        if self.at != 0 {
            out.i64(self.at);
        }
    }

    /// Reads what [`Marks::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<Marks, DecodeError> {
        let (failures, returns) = (reader.i16()?.cast_unsigned(), reader.i16()?.cast_unsigned());
        let order = reader.u64()?;
        let byte = reader.u8()?;
        let last_failed = byte & LAST_FAILED != 0;
        let at = if byte & HAS_TIME != 0 { reader.i64()? } else { 0 };
        let dead = match byte & !(HAS_TIME | LAST_FAILED) {
            0 => None,
            number => match DeadReason::from_number(number) {
                Some(reason) => Some(reason),
                None => return Err(reader.error("a reason is not known to this binary")),
            },
        };
        Ok(Marks { failures, returns, order, at, last_failed, dead })
    }
}
