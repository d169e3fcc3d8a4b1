//! The checks prove themselves: a history that is right has no damage, and each thing that must never happen is named when
//! it is put into one.

use super::*;
use crate::declared::{DEAD, DYING, ELSEWHERE, LATER, PLACES, QueueNumber, TURNS, UNIQUE, WAITING, WORK};

/// A history that is made up, one millisecond for each event.
#[derive(Default)]
struct Story {
    history: History,
    now: i64,
    /// Settlements that were told, by nobody in particular.
    settlements: u64,
}

fn message(number: u32) -> Message {
    Message { publisher: 1, number, attempt: 0 }
}

/// A delivery for the first time.
fn first(session: SessionId, queue: QueueNumber, offset: i64) -> Handed {
    Handed {
        session,
        queue,
        term: 1,
        offset,
        message: message(offset as u32),
        redelivered: false,
        failures: 0,
        returns: 0,
    }
}

/// A delivery after so many failures and returns.
fn again(session: SessionId, queue: QueueNumber, offset: i64, failures: u16, returns: u16) -> Handed {
    Handed { redelivered: true, failures, returns, ..first(session, queue, offset) }
}

impl Story {
    fn note(&mut self, what: Happening) -> &mut Story {
        self.now += 1;
        self.history.note(self.now, what);
        self
    }

    fn later(&mut self, ms: i64) -> &mut Story {
        self.now += ms;
        self
    }

    fn sends(&mut self, queue: QueueNumber, number: u32, key: Option<u32>) -> &mut Story {
        self.note(Happening::Publishing { message: message(number), queue, key })
    }

    /// Messages with these numbers are published.
    fn published(&mut self, queue: QueueNumber, numbers: std::ops::Range<u32>) -> &mut Story {
        for number in numbers {
            self.sends(queue, number, None).note(Happening::Published { message: message(number) });
        }
        self
    }

    fn opened(&mut self, session: SessionId, queue: QueueNumber, term: u64) -> &mut Story {
        self.note(Happening::Opened { session, queue, term })
    }

    fn handed(&mut self, handed: Handed) -> &mut Story {
        self.note(Happening::Handed(handed))
    }

    fn said(
        &mut self,
        session: SessionId,
        queue: QueueNumber,
        mut said: Settling,
        durable: bool,
    ) -> &mut Story {
        self.settlements += 1;
        (said.id, said.session, said.queue) = (self.settlements, session, queue);
        self.note(Happening::Settling(said));
        if durable {
            self.note(Happening::Settled { id: self.settlements });
        }
        self
    }

    fn accepts(&mut self, session: SessionId, queue: QueueNumber, accepts: &[i64]) -> &mut Story {
        self.said(session, queue, Settling { accepts: accepts.into(), ..Settling::default() }, true)
    }

    fn releases(
        &mut self,
        session: SessionId,
        queue: QueueNumber,
        releases: &[i64],
        failed: bool,
    ) -> &mut Story {
        let said = Settling { releases: releases.into(), failed, full: true, ..Settling::default() };
        self.said(session, queue, said, true)
    }

    fn rejects(&mut self, session: SessionId, queue: QueueNumber, rejects: &[i64]) -> &mut Story {
        self.said(session, queue, Settling { rejects: rejects.into(), ..Settling::default() }, true)
    }

    fn parks(&mut self, queues: &[QueueNumber], number: u32, due: i64) -> &mut Story {
        let message = message(number);
        self.note(Happening::Parking { message, queues: queues.into(), due });
        self.note(Happening::Parked { message })
    }

    #[track_caller]
    fn is_right(&self) {
        assert_eq!(check(self.history.events()), vec![]);
    }

    /// There is this damage and no other.
    #[track_caller]
    fn is(&self, expected: QueueDamage) {
        assert_eq!(check(self.history.events()), vec![expected]);
    }
}

/// Three messages are published to a queue, and session 1 gets them in term 1.
fn three(queue: QueueNumber) -> Story {
    let mut story = Story::default();
    story.published(queue, 0..3).opened(1, queue, 1);
    for offset in 0..3 {
        story.handed(first(1, queue, offset));
    }
    story
}

#[test]
fn what_is_handed_out_in_order_and_accepted_is_right() {
    three(WORK).accepts(1, WORK, &[0, 2]).accepts(1, WORK, &[1]).is_right();
}

#[test]
fn what_came_back_may_come_again_with_its_counts() {
    three(WORK)
        .releases(1, WORK, &[1], true)
        .accepts(1, WORK, &[0, 2])
        .handed(again(1, WORK, 1, 1, 1))
        .releases(1, WORK, &[1], false)
        .handed(again(1, WORK, 1, 1, 2))
        .accepts(1, WORK, &[1])
        .is_right();
}

#[test]
fn what_a_closed_session_had_comes_again() {
    three(WORK)
        .note(Happening::Closed { session: 1, failed: true })
        .opened(2, WORK, 1)
        .handed(again(2, WORK, 0, 1, 1))
        .handed(again(2, WORK, 1, 1, 1))
        .handed(again(2, WORK, 2, 1, 1))
        .accepts(2, WORK, &[0, 1, 2])
        .is_right();
}

#[test]
fn what_was_leased_in_an_older_leadership_comes_again() {
    let mut story = three(WORK);
    story.opened(2, WORK, 2);
    // Nobody could know yet that they had been handed out.
    for offset in 0..3 {
        story.handed(Handed { term: 2, ..first(2, WORK, offset) });
    }
    story.accepts(2, WORK, &[0, 1, 2]).is_right();
}

#[test]
fn a_settled_record_that_comes_again_is_found() {
    let damage = |settled_in, handed_in| QueueDamage::CameAgain {
        queue: WORK,
        offset: 1,
        message: message(1),
        settled_in,
        handed_in,
    };
    three(WORK)
        .accepts(1, WORK, &[0, 1, 2])
        .opened(2, WORK, 2)
        .handed(Handed { term: 2, ..again(2, WORK, 1, 0, 0) })
        .accepts(2, WORK, &[1])
        .is(damage(1, 2));
    let mut story = three(WORK);
    story.opened(2, WORK, 2);
    for offset in 0..3 {
        story.handed(Handed { term: 2, ..first(2, WORK, offset) });
    }
    story
        .accepts(2, WORK, &[0, 1, 2])
        .note(Happening::Closed { session: 1, failed: false })
        .opened(3, WORK, 1);
    // A leader who does not know that there is another.
    story.handed(again(3, WORK, 1, 0, 1)).is(damage(2, 1));
}

#[test]
fn a_record_that_is_with_two_is_found() {
    let mut story = three(WORK);
    story.opened(2, WORK, 1).handed(again(2, WORK, 1, 0, 1));
    story.accepts(1, WORK, &[0, 2]).accepts(2, WORK, &[1]);
    let damage = check(story.history.events());
    let with_two = QueueDamage::WithTwo { queue: WORK, offset: 1, first: 1, second: 2 };
    assert!(damage.contains(&with_two), "{damage:?}");
}

#[test]
fn first_deliveries_out_of_order_are_found() {
    let mut story = Story::default();
    story.published(WORK, 0..2).opened(1, WORK, 1).handed(first(1, WORK, 1)).handed(first(1, WORK, 0));
    story.accepts(1, WORK, &[0, 1]);
    story.is(QueueDamage::NotInOrder { queue: WORK, session: 1, offset: 0, after: 1 });
}

#[test]
fn a_repeat_that_is_not_marked_is_found() {
    // Session 1 had all three, and what it accepted says so.
    three(WORK)
        .accepts(1, WORK, &[2])
        .opened(2, WORK, 2)
        .handed(Handed { term: 2, ..first(2, WORK, 0) })
        .handed(Handed { term: 2, ..again(2, WORK, 1, 0, 0) })
        .accepts(2, WORK, &[0, 1])
        .is(QueueDamage::NotMarked { queue: WORK, offset: 0 });
}

#[test]
fn messages_of_a_publisher_out_of_order_are_found() {
    let mut story = Story::default();
    story.published(WORK, 0..2).opened(1, WORK, 1);
    story.handed(Handed { message: message(1), ..first(1, WORK, 0) });
    story.handed(Handed { message: message(0), ..first(1, WORK, 1) }).accepts(1, WORK, &[0, 1]);
    story.is(QueueDamage::PublisherNotInOrder { queue: WORK, message: message(1) });
}

#[test]
fn returns_have_turns_or_places() {
    let story = |queue, order: [i64; 2]| {
        let mut story = three(queue);
        story.releases(1, queue, &[2, 0], false).accepts(1, queue, &[1]);
        for offset in order {
            story.handed(again(1, queue, offset, 0, 1));
        }
        story.accepts(1, queue, &[0, 2]);
        story
    };
    story(TURNS, [2, 0]).is_right();
    story(PLACES, [0, 2]).is_right();
    let damage =
        |queue, expected, found| QueueDamage::ReturnsNotInOrder { queue, session: 1, expected, found };
    story(TURNS, [0, 2]).is(damage(TURNS, 2, 0));
    story(PLACES, [2, 0]).is(damage(PLACES, 0, 2));
}

#[test]
fn something_new_before_what_came_back_is_found() {
    let mut story = three(TURNS);
    story.published(TURNS, 3..4).releases(1, TURNS, &[1], false).accepts(1, TURNS, &[0, 2]);
    story.handed(first(1, TURNS, 3)).handed(again(1, TURNS, 1, 0, 1)).accepts(1, TURNS, &[1, 3]);
    story.is(QueueDamage::ReturnsNotInOrder { queue: TURNS, session: 1, expected: 1, found: 3 });
}

#[test]
fn counts_that_fall_or_do_not_grow_are_found() {
    let told = |failures, returns| {
        let mut story = three(WORK);
        story.releases(1, WORK, &[1], true).accepts(1, WORK, &[0, 2]);
        story.opened(2, WORK, 2).handed(Handed { term: 2, ..again(2, WORK, 1, failures, returns) });
        story.accepts(2, WORK, &[1]);
        story
    };
    told(1, 1).is_right();
    let fell = |told| QueueDamage::CountFell { queue: WORK, offset: 1, counted: (1, 1), told };
    told(0, 1).is(fell((0, 1)));
    told(0, 0).is(fell((0, 0)));
    let too_high = |told| QueueDamage::CountTooHigh { queue: WORK, offset: 1, most: (1, 1), told };
    told(2, 1).is(too_high((2, 1)));
    told(1, 3).is(too_high((1, 3)));
    // What was handed out twice in one leadership came back in between, whatever its consumer was told.
    let mut story = three(WORK);
    let said = Settling { releases: vec![1], ..Settling::default() };
    story.said(1, WORK, said, false).handed(again(1, WORK, 1, 0, 0)).accepts(1, WORK, &[0, 1, 2]);
    story.is(QueueDamage::CountFell { queue: WORK, offset: 1, counted: (0, 1), told: (0, 0) });
}

#[test]
fn a_record_that_failed_too_often_and_still_comes_is_found() {
    let mut story = Story::default();
    story.published(DYING, 0..1).opened(1, DYING, 1).handed(first(1, DYING, 0));
    for failures in 1..=4 {
        story.releases(1, DYING, &[0], true).handed(again(1, DYING, 0, failures, failures));
    }
    story.accepts(1, DYING, &[0]);
    story.is(QueueDamage::TooOften { queue: DYING, offset: 0, failures: 4 });
}

#[test]
fn what_dies_comes_to_the_dead() {
    let dead = |offset, number| Handed { message: message(number), ..first(2, DEAD, offset) };
    let mut story = three(DYING);
    story.rejects(1, DYING, &[1]).accepts(1, DYING, &[0, 2]).opened(2, DEAD, 1);
    story.is(QueueDamage::NotBuried { queue: DYING, message: message(1) });
    story.handed(dead(0, 1)).accepts(2, DEAD, &[0]).is_right();
    // A leader that failed in between publishes it once more.
    story.handed(dead(1, 1)).accepts(2, DEAD, &[1]).is_right();
    // One that failed too often while nobody looked.
    let mut story = three(DYING);
    story.accepts(1, DYING, &[0, 1]).note(Happening::Closed { session: 1, failed: true });
    story.is(QueueDamage::Lost { queue: DYING, message: message(2) });
    story.opened(2, DEAD, 1).handed(dead(0, 2)).accepts(2, DEAD, &[0]).is_right();
}

#[test]
fn a_message_that_never_comes_is_found() {
    let mut story = three(WORK);
    story.accepts(1, WORK, &[0, 1, 2]).sends(WORK, 3, None).is_right();
    story.note(Happening::Published { message: message(3) });
    story.is(QueueDamage::Lost { queue: WORK, message: message(3) });
}

#[test]
fn a_record_that_came_back_and_never_comes_again_is_found() {
    let lost = QueueDamage::Lost { queue: WORK, message: message(1) };
    three(WORK).accepts(1, WORK, &[0, 2]).releases(1, WORK, &[1], false).is(lost.clone());
    three(WORK)
        .accepts(1, WORK, &[0, 2])
        .note(Happening::Closed { session: 1, failed: true })
        .is(lost.clone());
    // That somebody accepted it before it came to the last one does not count.
    let mut story = three(WORK);
    story.accepts(1, WORK, &[0, 2]);
    story.said(1, WORK, Settling { accepts: vec![1], ..Settling::default() }, false);
    story.is_right();
    story.note(Happening::Closed { session: 1, failed: true }).opened(2, WORK, 1);
    story.handed(again(2, WORK, 1, 1, 1)).is(lost);
}

#[test]
fn a_parked_record_comes_once_and_in_time() {
    let arrives = |session, queue, offset| Handed { message: message(7), ..first(session, queue, offset) };
    let parked = |due| {
        let mut story = Story::default();
        story.opened(1, LATER, 1).opened(2, ELSEWHERE, 1).parks(&[LATER, ELSEWHERE], 7, due).later(100);
        story.handed(arrives(2, ELSEWHERE, 0)).accepts(2, ELSEWHERE, &[0]);
        story
    };
    parked(100).handed(arrives(1, LATER, 0)).accepts(1, LATER, &[0]).is_right();
    parked(100).is(QueueDamage::NeverReleased { queue: LATER, message: message(7) });
    let mut twice = parked(100);
    twice.handed(arrives(1, LATER, 0)).handed(arrives(1, LATER, 1)).accepts(1, LATER, &[0, 1]);
    twice.is(QueueDamage::ReleasedTwice { queue: LATER, message: message(7) });
    let mut early = parked(110);
    early.later(50).handed(arrives(1, LATER, 0)).accepts(1, LATER, &[0]);
    early.is(QueueDamage::TooEarly { queue: ELSEWHERE, message: message(7), by_ms: 5 });
}

#[test]
fn a_parked_record_that_was_taken_back_does_not_come() {
    let taken_back = |is_told: bool| {
        let mut story = Story::default();
        story.opened(1, LATER, 1).parks(&[LATER], 7, 50).note(Happening::Cancelling { message: message(7) });
        if is_told {
            story.note(Happening::Cancelled { message: message(7) });
        }
        story
    };
    let comes = |mut story: Story| {
        story.later(100).handed(Handed { message: message(7), ..first(1, LATER, 0) }).accepts(1, LATER, &[0]);
        story
    };
    taken_back(true).is_right();
    // Nobody knows what came of it.
    taken_back(false).is_right();
    comes(taken_back(false)).is_right();
    comes(taken_back(true)).is(QueueDamage::ReleasedThoughCancelled { queue: LATER, message: message(7) });
}

#[test]
fn one_sending_that_is_stored_twice_is_found() {
    let mut story = Story::default();
    story.published(WORK, 0..1).opened(1, WORK, 1).handed(first(1, WORK, 0));
    story.handed(Handed { message: message(0), ..first(1, WORK, 1) }).accepts(1, WORK, &[0, 1]);
    story.is(QueueDamage::StoredTwice { queue: WORK, message: message(0) });
}

/// Two messages of one key, so many milliseconds apart, both of them stored.
fn two_of_a_key(queue: QueueNumber, apart_ms: i64, settled_between: bool) -> Story {
    let mut story = Story::default();
    story.opened(1, queue, 1).sends(queue, 0, Some(5)).note(Happening::Published { message: message(0) });
    story.handed(first(1, queue, 0));
    if settled_between {
        story.accepts(1, queue, &[0]);
    }
    story.later(apart_ms).sends(queue, 1, Some(5)).note(Happening::Published { message: message(1) });
    story.handed(first(1, queue, 1)).accepts(1, queue, &[1]);
    if !settled_between {
        story.accepts(1, queue, &[0]);
    }
    story
}

#[test]
fn a_key_that_is_stored_twice_within_its_window_is_found() {
    let twice = |queue| QueueDamage::KeyTwice { queue, key: 5, first: message(0), second: message(1) };
    two_of_a_key(UNIQUE, 100, true).is(twice(UNIQUE));
    two_of_a_key(UNIQUE, 2_500, true).is_right();
    two_of_a_key(WAITING, 9_000, false).is(twice(WAITING));
    two_of_a_key(WAITING, 100, true).is_right();
    // Queues without a window take all.
    two_of_a_key(WORK, 100, false).is_right();
}

#[test]
fn a_repeat_of_a_key_may_be_acknowledged_without_being_stored() {
    let repeated = |queue, apart_ms, key| {
        let mut story = Story::default();
        story.opened(1, queue, 1).sends(queue, 0, Some(5)).note(Happening::Published { message: message(0) });
        story.handed(first(1, queue, 0)).accepts(1, queue, &[0]).later(apart_ms);
        story.sends(queue, 1, Some(key)).note(Happening::Published { message: message(1) });
        story
    };
    repeated(UNIQUE, 100, 5).is_right();
    let lost = |queue| QueueDamage::Lost { queue, message: message(1) };
    repeated(UNIQUE, 100, 6).is(lost(UNIQUE));
    repeated(UNIQUE, 2_600, 5).is(lost(UNIQUE));
    // It was settled, and not known any more.
    repeated(WAITING, 0, 5).is(lost(WAITING));
}

#[test]
fn records_that_nobody_sent_or_that_changed_are_found() {
    let mut story = three(WORK);
    story.accepts(1, WORK, &[0, 1, 2]).handed(first(1, WORK, 9)).accepts(1, WORK, &[9]);
    story.is(QueueDamage::Unexpected { queue: WORK, offset: 9, message: message(9) });
    let mut story = three(WORK);
    story.releases(1, WORK, &[1], false).accepts(1, WORK, &[0, 2]);
    story.handed(Handed { message: message(2), ..again(1, WORK, 1, 0, 1) }).accepts(1, WORK, &[1]);
    let damage = check(story.history.events());
    let changed = QueueDamage::Changed { queue: WORK, offset: 1, was: message(1), is: message(2) };
    assert!(damage.contains(&changed), "{damage:?}");
}

#[test]
fn a_message_is_a_text() {
    let message = Message { publisher: 3, number: 14, attempt: 15 };
    assert_eq!(message.to_string(), "3:14:15");
    assert_eq!("3:14:15".parse(), Ok(message));
    for text in ["", "3:14", "3:14:15:9", "a:1:2"] {
        assert_eq!(text.parse::<Message>(), Err(()), "{text}");
    }
}
