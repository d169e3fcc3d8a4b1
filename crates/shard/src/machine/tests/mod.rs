//! The state machine: scenarios as transcripts, and random commands against a naive model.

mod batches;
mod describe;
mod model;
mod names;
mod script;
mod transcripts;

use super::*;

/// The state as a checkpoint would write it and read it back.
pub(super) fn reloaded(machine: &Machine) -> Machine {
    let mut loaded = Machine::new();
    for (id, _) in machine.chunk_ids() {
        loaded.load_chunk(id, machine.encode_chunk(id), machine.applied_index()).unwrap();
    }
    loaded.set_applied(machine.applied_index(), machine.applied_term());
    loaded
}

#[test]
fn an_entry_out_of_order_is_an_error() {
    let mut machine = Machine::new();
    let entry = Entry { time: 5, commands: vec![] };
    machine.apply(3, 1, &entry, &mut Vec::new()).unwrap();
    let again = machine.apply(3, 1, &entry, &mut Vec::new());
    assert_eq!(again, Err(ApplyError::OutOfOrder { index: 3, applied: 3 }));
}

#[test]
fn a_machine_version_that_is_not_known_is_an_error() {
    let entry = Entry { time: 5, commands: vec![Command::SetMachineVersion { version: 99 }] };
    let applied = Machine::new().apply(1, 1, &entry, &mut Vec::new());
    assert_eq!(
        applied,
        Err(ApplyError::Version { index: 1, version: 99, supported: crate::limits::MACHINE_VERSION_MAX })
    );
}

#[test]
fn a_replica_whose_digest_differs_stops() {
    let mut machine = Machine::new();
    let take = Entry { time: 5, commands: vec![Command::TakeDigest] };
    let outcomes = machine.apply(1, 1, &take, &mut Vec::new()).unwrap();
    let [Outcome::Digest { index: 1, digest }] = outcomes[..] else { panic!("{outcomes:?}") };
    let compare = |digest| Entry { time: 6, commands: vec![Command::CompareDigest { index: 1, digest }] };
    machine.apply(2, 1, &compare(digest), &mut Vec::new()).unwrap();
    let other = machine.apply(3, 1, &compare(digest ^ 1), &mut Vec::new());
    assert_eq!(other, Err(ApplyError::Diverged { index: 1, ours: digest, theirs: digest ^ 1 }));
}
