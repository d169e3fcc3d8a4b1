//! Users with what they may do, compiled from permissions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use weir_model::access::{AccessRecords, PermissionMeta, TopicPermissionMeta, UserMeta};

use crate::operation::Action;
use crate::pattern::{Pattern, expand};

/// What patterns and refusals call a resource. Only the default exchange has an empty name; it is
/// `amq.default` to them.
pub(crate) fn spoken_name(resource: &str) -> &str {
    if resource.is_empty() { "amq.default" } else { resource }
}

/// A user, with what is allowed by namespace.
pub(crate) struct UserRules {
    pub(crate) meta: Arc<UserMeta>,
    namespaces: BTreeMap<String, NamespaceRules>,
}

pub(crate) struct NamespaceRules {
    configure: Arc<Pattern>,
    write: Arc<Pattern>,
    read: Arc<Pattern>,
    topics: BTreeMap<String, TopicRules>,
}

struct TopicRules {
    write: Arc<Pattern>,
    read: Arc<Pattern>,
}

impl UserRules {
    /// What holds in a namespace; nothing if it may not be entered.
    pub(crate) fn namespace(&self, namespace: &str) -> Option<&NamespaceRules> {
        self.namespaces.get(namespace)
    }
}

impl fmt::Debug for UserRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserRules").field("user", &self.meta.name).finish_non_exhaustive()
    }
}

impl NamespaceRules {
    pub(crate) fn allow(&self, action: Action, resource: &str) -> bool {
        let pattern = match action {
            Action::Configure => &self.configure,
            Action::Write => &self.write,
            Action::Read => &self.read,
        };
        pattern.matches(spoken_name(resource).as_bytes())
    }

    pub(crate) fn allow_route(&self, exchange: &str, routing_key: &[u8], action: Action) -> bool {
        let Some(rules) = self.topics.get(exchange) else { return true };
        match action {
            Action::Write => rules.write.matches(routing_key),
            Action::Read => rules.read.matches(routing_key),
            Action::Configure => false,
        }
    }
}

/// Patterns by their text. Permissions of many users have the same, and most outlive a change.
#[derive(Default)]
pub(crate) struct Patterns {
    by_text: BTreeMap<Arc<str>, Arc<Pattern>>,
}

impl Patterns {
    fn get(&mut self, text: &str, previous: &Patterns) -> Arc<Pattern> {
        if let Some(pattern) = self.by_text.get(text) {
            return Arc::clone(pattern);
        }
        let (text, pattern) = match previous.by_text.get_key_value(text) {
            Some((text, pattern)) => (Arc::clone(text), Arc::clone(pattern)),
            None => {
                let text: Arc<str> = text.into();
                (Arc::clone(&text), Arc::new(Pattern::new(text)))
            }
        };
        self.by_text.insert(text, Arc::clone(&pattern));
        pattern
    }
}

/// The rules of all users, and the patterns in them. Those of `previous` that are still in use are taken
/// over as far as they are compiled. Permissions of users or in namespaces that are not there are left out.
pub(crate) fn compile(
    records: &AccessRecords,
    previous: &Patterns,
) -> (BTreeMap<String, Arc<UserRules>>, Patterns) {
    let mut compiler = Compiler { users: BTreeMap::new(), patterns: Patterns::default(), previous };
    for user in &records.users {
        let rules = UserRules { meta: Arc::clone(user), namespaces: BTreeMap::new() };
        compiler.users.insert(user.name.clone(), rules);
    }
    let namespaces: BTreeSet<&str> = records.namespaces.iter().map(|n| n.name.as_str()).collect();
    for permission in records.permissions.iter().filter(|p| namespaces.contains(p.namespace.as_str())) {
        compiler.permission(permission);
    }
    records.topic_permissions.iter().for_each(|permission| compiler.topic_permission(permission));
    let users = compiler.users.into_iter().map(|(name, rules)| (name, Arc::new(rules))).collect();
    (users, compiler.patterns)
}

struct Compiler<'a> {
    users: BTreeMap<String, UserRules>,
    patterns: Patterns,
    previous: &'a Patterns,
}

impl Compiler<'_> {
    fn permission(&mut self, permission: &PermissionMeta) {
        let Some(user) = self.users.get_mut(&permission.user) else { return };
        let mut pattern = |text: &str| self.patterns.get(text, self.previous);
        let rules = NamespaceRules {
            configure: pattern(&permission.configure),
            write: pattern(&permission.write),
            read: pattern(&permission.read),
            topics: BTreeMap::new(),
        };
        user.namespaces.insert(permission.namespace.clone(), rules);
    }

    fn topic_permission(&mut self, permission: &TopicPermissionMeta) {
        let TopicPermissionMeta { user, namespace, exchange, write, read } = permission;
        let Some(rules) = self.users.get_mut(user).and_then(|rules| rules.namespaces.get_mut(namespace))
        else {
            return;
        };
        let mut pattern = |text: &str| self.patterns.get(&expand(text, user, namespace), self.previous);
        rules.topics.insert(exchange.clone(), TopicRules { write: pattern(write), read: pattern(read) });
    }
}
