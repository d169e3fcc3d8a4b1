//! The snapshot that fronts ask.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use weir_model::access::{AccessRecords, DEFAULT_USER, NamespaceMeta, UserMeta};
use weir_model::names::USER_NAME_BYTES_MAX;

use crate::errors::Denied;
use crate::identity::Identity;
use crate::password::{pretend_to_verify, verify_password};
use crate::rules::{self, Patterns, UserRules};

/// All users, namespaces and permissions of one moment. It does not change; a clone is the same one and
/// costs nothing.
#[derive(Clone)]
pub struct Access {
    state: Arc<State>,
}

struct State {
    options: AccessOptions,
    namespaces: BTreeMap<String, Arc<NamespaceMeta>>,
    users: BTreeMap<String, Arc<UserRules>>,
    patterns: Patterns,
    requires_authentication: bool,
}

/// What the node's own configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessOptions {
    /// Users who may connect only over loopback, RabbitMQ's `loopback_users`.
    pub loopback_users: BTreeSet<String>,
}

impl Default for AccessOptions {
    /// The default user, whose password everybody knows.
    fn default() -> Self {
        AccessOptions { loopback_users: BTreeSet::from([DEFAULT_USER.to_owned()]) }
    }
}

/// Where a client connects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The same machine.
    Loopback,
    /// Anywhere else.
    Remote,
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Peer {
        // A socket for both families shows an IPv4 peer as an IPv6 address that contains its own.
        if address.to_canonical().is_loopback() { Peer::Loopback } else { Peer::Remote }
    }
}

impl Access {
    /// The snapshot of these records.
    pub fn new(records: &AccessRecords, options: AccessOptions) -> Access {
        Access::compile(records, options, &Patterns::default())
    }

    /// The snapshot of changed records. Patterns that are still in use are not compiled again.
    pub fn updated(&self, records: &AccessRecords) -> Access {
        Access::compile(records, self.state.options.clone(), &self.state.patterns)
    }

    /// Whether this is the same snapshot, or a clone of it.
    pub fn is_same(&self, other: &Access) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    fn compile(records: &AccessRecords, options: AccessOptions, previous: &Patterns) -> Access {
        let (users, patterns) = rules::compile(records, previous);
        let namespaces = records.namespaces.iter().map(|n| (n.name.clone(), Arc::clone(n))).collect();
        let requires_authentication = !is_as_it_began(&users);
        Access { state: Arc::new(State { options, namespaces, users, patterns, requires_authentication }) }
    }

    /// Whether clients have to say who they are. They need not while there is only the default user with
    /// the password that everybody knows.
    pub fn requires_authentication(&self) -> bool {
        self.state.requires_authentication
    }

    /// Who a client is that does not say so: the default user, while that is allowed.
    pub fn anonymous(&self) -> Option<Identity> {
        let rules = self.state.users.get(DEFAULT_USER).filter(|_| !self.requires_authentication())?;
        Some(Identity::new(Arc::clone(rules)))
    }

    /// Checks a name and a password. This may take some milliseconds of the calling thread, whether or not
    /// there is such a user.
    pub fn authenticate(&self, user: &str, password: &[u8], peer: Peer) -> Result<Identity, Denied> {
        if password.is_empty() {
            return Err(Denied::BlankPassword(shortened(user)));
        }
        let Some(rules) = self.state.users.get(user) else {
            pretend_to_verify(password);
            return Err(Denied::UnknownUser(shortened(user)));
        };
        if rules.meta.passwords.is_empty() {
            pretend_to_verify(password);
            return Err(Denied::NoPassword(user.into()));
        }
        if !rules.meta.passwords.iter().any(|stored| verify_password(stored, password)) {
            return Err(Denied::WrongPassword(user.into()));
        }
        self.admit(rules, peer)
    }

    /// The identity of a user whom the front knows by other means, such as a certificate.
    pub fn identify(&self, user: &str, peer: Peer) -> Result<Identity, Denied> {
        let rules = self.state.users.get(user).ok_or_else(|| Denied::UnknownUser(shortened(user)))?;
        self.admit(rules, peer)
    }

    fn admit(&self, rules: &Arc<UserRules>, peer: Peer) -> Result<Identity, Denied> {
        let user = &rules.meta.name;
        if peer == Peer::Remote && self.state.options.loopback_users.contains(user) {
            return Err(Denied::LoopbackOnly(user.clone()));
        }
        Ok(Identity::new(Arc::clone(rules)))
    }

    /// A user as stored.
    pub fn user(&self, name: &str) -> Option<&Arc<UserMeta>> {
        self.state.users.get(name).map(|rules| &rules.meta)
    }

    /// A namespace as stored.
    pub fn namespace(&self, name: &str) -> Option<&Arc<NamespaceMeta>> {
        self.state.namespaces.get(name)
    }

    pub(crate) fn rules(&self, user: &str) -> Option<&Arc<UserRules>> {
        self.state.users.get(user)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("users", &self.state.users.len())
            .field("namespaces", &self.state.namespaces.len())
            .finish_non_exhaustive()
    }
}

/// Whether there is only the default user, with the password of the beginning. Whoever changes the
/// password, or deletes the user, wants clients to be known just as one who creates another user.
fn is_as_it_began(users: &BTreeMap<String, Arc<UserRules>>) -> bool {
    let initial = UserMeta::initial();
    users.len() == 1 && users.get(DEFAULT_USER).is_some_and(|user| user.meta.passwords == initial.passwords)
}

/// A name that came from outside, no longer than names are.
fn shortened(user: &str) -> String {
    user.chars().take(USER_NAME_BYTES_MAX).collect()
}
