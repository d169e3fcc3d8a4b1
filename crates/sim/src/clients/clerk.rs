//! The clerk creates and deletes users, with their permissions, and knows who must be there.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Caller, Shared, peers};
use crate::asks::{Answer, Ask};

/// Users that come and go.
const USERS: u32 = 12;

/// What a user may be in the end: of this version, or not there.
type State = Option<u32>;

/// What the clerk knows of each user. A change that nobody answered may take effect late, so that there may be several
/// states that are right.
#[derive(Debug, Default)]
pub struct Roll {
    /// The newest state that was answered, and those that were asked for and never answered.
    users: BTreeMap<String, (State, Vec<State>)>,
    /// Changes that were answered.
    pub changes: u64,
}

impl Roll {
    fn asked(&mut self, name: &str, state: State) {
        self.users.entry(name.to_owned()).or_default().1.push(state);
    }

    fn answered(&mut self, name: &str, state: State) {
        let known = self.users.entry(name.to_owned()).or_default();
        known.0 = state;
        // The one that was answered is none of those that may come late.
        known.1.pop();
        self.changes += 1;
    }

    /// In what the users of a node differ from what they must be: their tags, and how many permissions they have.
    pub fn differences(&self, users: &BTreeMap<String, (Vec<String>, usize)>) -> Vec<String> {
        let version = |tags: &[String]| tags.first()?.strip_prefix("version-")?.parse::<u32>().ok();
        let mut differences = Vec::new();
        for (name, (state, late)) in &self.users {
            let found = users.get(name);
            let is = found.and_then(|(tags, _)| version(tags));
            let permitted = found.map_or(0, |(_, permissions)| *permissions);
            if is != *state && !late.contains(&is) {
                differences.push(format!("{name} is {is:?}, must be {state:?} and may be {late:?}"));
            } else if is.is_some() && permitted != 1 && late.is_empty() {
                differences.push(format!("{name} has {permitted} permissions instead of one"));
            }
        }
        let unknown =
            users.keys().filter(|name| name.starts_with("user-") && !self.users.contains_key(*name));
        differences.extend(unknown.map(|name| format!("{name} was never created")));
        differences
    }
}

/// Changes users until the faults have ended.
pub async fn clerk(seed: u64, shared: Shared) {
    let rng = SmallRng::seed_from_u64(seed ^ 0xc1e4_0000);
    let mut caller = Caller::new(shared.clone(), &peers(), rng, "the clerk".into());
    let mut version = 0;
    while caller.is_stormy() {
        let name = format!("user-{}", caller.rng.random_range(0..USERS));
        version += 1;
        let state = if caller.rng.random_range(0..3) == 0 { None } else { Some(version) };
        let answer = caller
            .insist(|_, shared| {
                shared.roll.lock().asked(&name, state);
                Ask::ChangeUser(name.clone(), state)
            })
            .await;
        let Some(Answer::Done) = answer else { break };
        shared.roll.lock().answered(&name, state);
        tracing::info!(name, ?state, "user changed");
        caller.pause(50..300).await;
    }
    shared.has_sent();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(list: &[(&str, u32, usize)]) -> BTreeMap<String, (Vec<String>, usize)> {
        let user = |(name, version, permissions): &(&str, u32, usize)| {
            ((*name).to_owned(), (vec![format!("version-{version}")], *permissions))
        };
        list.iter().map(user).collect()
    }

    #[test]
    fn users_must_be_as_the_clerk_was_told() {
        let mut roll = Roll::default();
        for (name, state) in [("user-1", Some(1)), ("user-2", Some(2)), ("user-2", None)] {
            roll.asked(name, state);
            roll.answered(name, state);
        }
        assert_eq!(roll.differences(&users(&[("user-1", 1, 1)])), Vec::<String>::new());
        for wrong in [
            users(&[]),
            users(&[("user-1", 3, 1)]),
            users(&[("user-1", 1, 0)]),
            users(&[("user-1", 1, 1), ("user-2", 2, 1)]),
            users(&[("user-1", 1, 1), ("user-9", 1, 1)]),
        ] {
            assert_eq!(roll.differences(&wrong).len(), 1, "{wrong:?}");
        }
    }

    #[test]
    fn a_change_that_nobody_answered_may_come_late() {
        let mut roll = Roll::default();
        roll.asked("user-1", Some(1));
        roll.asked("user-1", Some(1));
        roll.answered("user-1", Some(1));
        roll.asked("user-1", None);
        roll.answered("user-1", None);
        assert_eq!(roll.differences(&users(&[])), Vec::<String>::new());
        assert_eq!(roll.differences(&users(&[("user-1", 1, 1)])), Vec::<String>::new());
        assert_eq!(roll.differences(&users(&[("user-1", 2, 1)])).len(), 1);
    }
}
