//! Deciding, from what the files hold, where the log ends and what of it is lost.

use super::scan::{BadPlace, ScannedFile};
use super::types::{Cut, LostRange, Position};

/// A group by the indexes of its file and of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupAt {
    pub file: usize,
    pub group: usize,
}

/// What the journal consists of.
#[derive(Debug)]
pub(super) struct Plan {
    /// The groups that are the log, in order.
    pub groups: Vec<GroupAt>,
    /// Position behind the last of them.
    pub end: u64,
    /// The highest position that they say was durable.
    pub durable: u64,
    /// Nothing below is needed.
    pub first: u64,
    pub cut: Option<Cut>,
    /// Losses that nobody has accepted.
    pub lost: Vec<LostRange>,
    /// Losses that were accepted earlier and are written down.
    pub accepted_before: Vec<LostRange>,
    /// Losses that are accepted by this opening.
    pub accepted_now: Vec<LostRange>,
}

/// Applies the rules of `docs/formats.md`, "Opening".
pub(super) fn plan(files: &[ScannedFile], accept_loss_from: Option<Position>) -> Plan {
    let groups = current_groups(files);
    let header = |at: &GroupAt| &files[at.file].groups[at.group].header;
    let durable = groups.iter().map(|at| header(at).durable).max().unwrap_or(0);
    let first = groups.iter().map(|at| header(at).first).max().unwrap_or(0);
    let groups: Vec<GroupAt> = groups.into_iter().filter(|at| header(at).position >= first).collect();
    let accepted: Vec<(u64, u64)> =
        groups.iter().flat_map(|at| files[at.file].groups[at.group].accepted.iter().copied()).collect();

    let mut plan = Plan {
        groups: Vec::with_capacity(groups.len()),
        end: first,
        durable,
        first,
        cut: None,
        lost: Vec::new(),
        accepted_before: Vec::new(),
        accepted_now: Vec::new(),
    };
    for (index, at) in groups.iter().enumerate() {
        let position = header(at).position;
        if position > plan.end {
            let gap = (plan.end, position);
            if gap.0 < durable {
                let range = describe(files, gap.0, gap.1.min(durable));
                plan.lose(range, &accepted, accept_loss_from);
            }
            if gap.1 > durable {
                plan.cut = Some(cut(files, gap.0, (groups.len() - index) as u64));
                return plan;
            }
        }
        plan.end = header(at).end();
        plan.groups.push(*at);
    }
    if bad_place(files, plan.end).is_some_and(|(_, bad)| is_torn(bad)) {
        plan.cut = Some(cut(files, plan.end, 0));
    }
    plan
}

impl Plan {
    fn lose(&mut self, range: LostRange, accepted: &[(u64, u64)], accept_loss_from: Option<Position>) {
        let known = |(from, to): &(u64, u64)| range.from.0 >= *from && range.to.0 <= *to;
        if accepted.iter().any(known) {
            self.accepted_before.push(range);
        } else if accept_loss_from.is_some_and(|from| range.from >= from) {
            self.accepted_now.push(range);
        } else {
            self.lost.push(range);
        }
    }
}

/// All groups but those that a later file supersedes.
fn current_groups(files: &[ScannedFile]) -> Vec<GroupAt> {
    let mut groups = Vec::new();
    let mut limit = u64::MAX;
    for (file_index, file) in files.iter().enumerate().rev() {
        for (group, scanned) in file.groups.iter().enumerate().rev() {
            if scanned.header.end() <= limit {
                groups.push(GroupAt { file: file_index, group });
            }
        }
        limit = limit.min(file.base().unwrap_or(u64::MAX));
    }
    groups.reverse();
    groups
}

/// The file that a position lies in, and what was found wrong there.
fn bad_place(files: &[ScannedFile], position: u64) -> Option<(&ScannedFile, &BadPlace)> {
    files.iter().rev().find_map(|file| {
        let place = position.checked_sub(file.base()?)?;
        file.bad.iter().find(|bad| bad.place == place).map(|bad| (file, bad))
    })
}

/// Whether a group was begun there: nothing that older content of a file looks like.
fn is_torn(bad: &BadPlace) -> bool {
    bad.why.starts_with("a record") || bad.why.starts_with("the records")
}

fn cut(files: &[ScannedFile], at: u64, groups_dropped: u64) -> Cut {
    let why = bad_place(files, at).map_or("the file is missing", |(_, bad)| bad.why);
    Cut { at: Position(at), why, groups_dropped }
}

fn describe(files: &[ScannedFile], from: u64, to: u64) -> LostRange {
    let (from, to) = (Position(from), Position(to));
    match bad_place(files, from.0) {
        Some((file, bad)) => {
            let (file, shards) = (Some(file.path.clone()), bad.shards.clone());
            LostRange { from, to, file, place: bad.place, why: bad.why, shards }
        }
        None => {
            let why = "the file is missing or nothing in it is valid";
            LostRange { from, to, file: None, place: 0, why, shards: Vec::new() }
        }
    }
}
