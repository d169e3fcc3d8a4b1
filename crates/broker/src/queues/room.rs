//! Room in a queue that refuses what it has no room for. A publisher is promised room before its record goes to the
//! log, and the promise is kept when the record arrives there, or given back.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

/// How much may wait in a queue, and what becomes of more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Records that may wait.
    pub records: Option<u64>,
    /// Bytes of values that may wait.
    pub bytes: Option<u64>,
    /// What happens beyond that.
    pub overflow: Overflow,
}

/// What becomes of a record for which a queue has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The first records go.
    #[default]
    DropHead,
    /// It is refused, and its publisher told.
    Reject,
    /// As `Reject`, and it is dead.
    RejectDead,
}

impl Limits {
    /// Whether publishers need room before they publish.
    pub fn refuses(&self) -> bool {
        self.overflow != Overflow::DropHead && (self.records.is_some() || self.bytes.is_some())
    }

    /// Whether so much may wait where nothing else does.
    pub fn allow(&self, records: u64, bytes: u64) -> bool {
        self.records.is_none_or(|most| records <= most) && self.bytes.is_none_or(|most| bytes <= most)
    }
}

/// What was promised and has not arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Promised {
    records: u64,
    bytes: u64,
}

/// The promises of one queue. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room(Arc<Mutex<Promised>>);

impl Room {
    /// Promises room for records, if there is any beside what waits already.
    pub(crate) fn promise(
        &self,
        limits: Limits,
        ready: (u64, u64),
        asked: (u64, u64),
    ) -> Option<Reservation> {
        let mut promised = self.0.lock();
        let fits = |max: Option<u64>, ready: u64, promised: u64, asked: u64| {
            max.is_none_or(|max| ready.saturating_add(promised).saturating_add(asked) <= max)
        };
        if !fits(limits.records, ready.0, promised.records, asked.0)
            || !fits(limits.bytes, ready.1, promised.bytes, asked.1)
        {
            return None;
        }
        promised.records += asked.0;
        promised.bytes += asked.1;
        let by = Promiser::Here(self.clone());
        Some(Reservation { by, records: asked.0, bytes: asked.1 })
    }

    /// Records have arrived. They need not be those that were promised room: others come without asking.
    pub(crate) fn arrived(&self, records: u64, bytes: u64) {
        let mut promised = self.0.lock();
        promised.records = promised.records.saturating_sub(records);
        promised.bytes = promised.bytes.saturating_sub(bytes);
    }
}

/// Room that somebody was promised. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    by: Promiser,
    records: u64,
    bytes: u64,
}

/// Who has promised room.
#[derive(Debug)]
enum Promiser {
    Here(Room),
    /// The actor on another node, which knows the promise by a number, and is told whether it was used.
    Elsewhere(u64, mpsc::UnboundedSender<(u64, bool)>),
}

impl Reservation {
    /// Room that another node has promised. It is told by `tell` whether that is used, with the number.
    pub(crate) fn elsewhere(
        number: u64,
        (records, bytes): (u64, u64),
        tell: mpsc::UnboundedSender<(u64, bool)>,
    ) -> Reservation {
        Reservation { by: Promiser::Elsewhere(number, tell), records, bytes }
    }

    /// The records are in the log: the queue counts them from now on.
    pub(crate) fn used(mut self) {
        if let Promiser::Elsewhere(number, tell) = &self.by {
            // If it is gone, so are its promises.
            let _ = tell.send((*number, true));
        }
        (self.records, self.bytes) = (0, 0);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        match &self.by {
            Promiser::Here(room) => room.arrived(self.records, self.bytes),
            Promiser::Elsewhere(number, tell) if self.records > 0 => drop(tell.send((*number, false))),
            Promiser::Elsewhere(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Limits = Limits { records: Some(2), bytes: Some(10), overflow: Overflow::Reject };

    #[test]
    fn room_is_promised_once_until_it_is_given_back_or_used() {
        let room = Room::default();
        let first = room.promise(TWO, (0, 0), (1, 4)).unwrap();
        let second = room.promise(TWO, (0, 0), (1, 4)).unwrap();
        assert!(room.promise(TWO, (0, 0), (1, 1)).is_none(), "no third record");
        drop(first);
        assert!(room.promise(TWO, (0, 0), (1, 7)).is_none(), "too many bytes");
        let third = room.promise(TWO, (0, 0), (1, 6)).unwrap();
        room.arrived(2, 10);
        second.used();
        third.used();
        assert!(room.promise(TWO, (2, 10), (1, 0)).is_none(), "they wait now");
        assert!(room.promise(TWO, (1, 6), (1, 4)).is_some());
    }

    #[test]
    fn only_limits_that_refuse_need_room() {
        assert!(TWO.refuses());
        assert!(!Limits { overflow: Overflow::DropHead, ..TWO }.refuses());
        assert!(!Limits { records: None, bytes: None, overflow: Overflow::RejectDead }.refuses());
        assert!(TWO.allow(2, 10) && !TWO.allow(3, 0) && !TWO.allow(1, 11));
        assert!(Limits::default().allow(u64::MAX, u64::MAX));
    }
}
