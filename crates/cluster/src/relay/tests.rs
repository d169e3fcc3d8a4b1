use tokio::time::Instant;
use weir_model::NodeId;
use weir_model::command::{Command, Outcome, Refusal};

use super::Line;
use crate::gathering::Asked;

const TOKEN: u64 = 7;

fn line() -> Line {
    Line::new(NodeId(2), TOKEN)
}

fn push(line: &mut Line) {
    line.push(vec![Command::TakeDigest], Asked::default(), Instant::now());
}

fn sequence(command: Option<Command>) -> Option<u64> {
    match command? {
        Command::Relayed { sequence, .. } => Some(sequence),
        Command::OpenRelay { .. } => Some(0),
        other => panic!("{other:?} is not brought by a relay"),
    }
}

fn done() -> Outcome {
    Outcome::Together(vec![Outcome::Done])
}

/// A line that is open, with three runs, of which the leader has none.
fn three() -> Line {
    let mut line = line();
    (0..3).for_each(|_| push(&mut line));
    assert_eq!(sequence(line.next_to_bring()), Some(0), "it is opened first");
    line.taken();
    assert_eq!(line.next_to_bring(), None, "nothing goes before it is open");
    line.opened(TOKEN);
    line
}

#[test]
fn nothing_is_brought_for_nobody() {
    assert_eq!(line().next_to_bring(), None);
    assert!(!line().has_brought());
}

#[test]
fn runs_go_in_order_and_are_told_of_once() {
    let mut line = three();
    for expected in 1..=3 {
        assert_eq!(sequence(line.next_to_bring()), Some(expected));
        line.taken();
    }
    assert_eq!(line.next_to_bring(), None);
    for sequence in 1..=3 {
        let known = line.carried(sequence, done());
        assert_eq!(known.told.len(), 1);
        assert_eq!(known.told[0].1, Ok(vec![Outcome::Done]));
    }
    assert_eq!(line.len(), 0);
    assert!(line.carried(3, done()).told.is_empty(), "a repeat tells nobody");
}

#[test]
fn another_leader_gets_what_was_not_heard_of() {
    let mut line = three();
    (0..3).for_each(|_| line.taken());
    assert_eq!(line.carried(1, done()).told.len(), 1);
    line.bring_again();
    assert_eq!(sequence(line.next_to_bring()), Some(2));
    line.taken();
    // What the old leader had committed is heard of only now.
    assert_eq!(line.carried(2, done()).told.len(), 1);
    assert_eq!(sequence(line.next_to_bring()), Some(3));
    // The repeat of it is refused, which concerns nobody.
    let repeat = Outcome::Refused(Refusal::OutOfTurn { expected: 3 });
    assert!(line.carried(2, repeat).told.is_empty());
    assert_eq!(sequence(line.next_to_bring()), Some(3));
}

#[test]
fn a_gap_is_filled_from_its_beginning() {
    let mut line = three();
    (0..3).for_each(|_| line.taken());
    let gap = Outcome::Refused(Refusal::OutOfTurn { expected: 1 });
    assert!(line.carried(3, gap).told.is_empty());
    assert_eq!(sequence(line.next_to_bring()), Some(1));
}

#[test]
fn what_only_its_result_is_known_of_is_told_as_unknown() {
    let mut line = three();
    (0..3).for_each(|_| line.taken());
    // The replica took the result of the first two from another's checkpoint.
    let repeat = Outcome::Refused(Refusal::OutOfTurn { expected: 3 });
    let known = line.carried(2, repeat);
    assert_eq!(known.told.len(), 2);
    assert!(known.told.iter().all(|(_, outcomes)| outcomes.is_err()));
    assert_eq!(line.carried(3, done()).told[0].1, Ok(vec![Outcome::Done]));
}

#[test]
fn what_was_given_up_is_not_brought_again() {
    let mut line = three();
    line.taken();
    let by = Instant::now();
    assert_eq!(line.give_up(8, by).len(), 3);
    assert_eq!(line.began_at(), None, "nobody waits any more");
    // It may still be carried out, and nobody is told twice.
    assert!(line.carried(1, done()).told.is_empty());
    push(&mut line);
    assert_eq!(sequence(line.next_to_bring()), Some(0));
    line.taken();
    line.opened(TOKEN);
    assert_eq!(line.next_to_bring(), None, "an older line's opening is not this one's");
    line.opened(8);
    assert_eq!(line.len(), 1);
    assert_eq!(sequence(line.next_to_bring()), Some(1));
}

#[test]
fn a_line_that_was_replaced_begins_again() {
    let mut line = three();
    line.taken();
    let known = line.carried(1, Outcome::Refused(Refusal::UnknownRelay));
    assert!(known.is_replaced && known.told.is_empty());
    line.reopen(9);
    assert_eq!(sequence(line.next_to_bring()), Some(0));
    line.taken();
    line.opened(9);
    assert_eq!(sequence(line.next_to_bring()), Some(1));
    assert_eq!(line.len(), 3);
}
