//! Users, namespaces and what users may do in them: the state of the meta shard by which every node knows its clients.
//!
//! A cluster begins with [`AccessRecords::initial`], of which nothing is stored: only the first change writes down what
//! was there before it. So checkpoints from before there were users read as they did.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::access::{AccessRecords, NamespaceMeta, PermissionMeta, TopicPermissionMeta, UserMeta};
use weir_model::wire::{DecodeError, Reader, Writer};

use super::chunk::{Buckets, Chunk};

/// A user with what it may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub user: Arc<UserMeta>,
    /// By namespace.
    pub permissions: BTreeMap<String, Arc<PermissionMeta>>,
    /// By namespace and exchange.
    pub topic_permissions: BTreeMap<(String, String), Arc<TopicPermissionMeta>>,
}

pub(crate) type NamespaceChunk = Chunk<BTreeMap<String, Arc<NamespaceMeta>>>;
pub(crate) type AccountChunk = Chunk<BTreeMap<String, Arc<Account>>>;

/// A snapshot of all users, namespaces and permissions.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Whether anything was ever changed; if not, the rest is empty and means the beginning.
    changed: Chunk<bool>,
    namespaces: Buckets<String, Arc<NamespaceMeta>>,
    accounts: Buckets<String, Arc<Account>>,
    permissions: usize,
    topic_permissions: usize,
}

impl Default for Accounts {
    fn default() -> Self {
        Accounts {
            changed: Chunk::new(false, 0),
            namespaces: Buckets::default(),
            accounts: Buckets::default(),
            permissions: 0,
            topic_permissions: 0,
        }
    }
}

impl Accounts {
    /// Everything that is stored, each kind in the order of names.
    pub fn records(&self) -> AccessRecords {
        if !self.changed.get() {
            return AccessRecords::initial();
        }
        let mut namespaces: Vec<_> = self.namespaces.iter().map(|(_, meta)| Arc::clone(meta)).collect();
        namespaces.sort_by(|a, b| a.name.cmp(&b.name));
        let mut accounts: Vec<_> = self.accounts.iter().map(|(_, account)| account).collect();
        accounts.sort_by(|a, b| a.user.name.cmp(&b.user.name));
        AccessRecords {
            namespaces,
            users: accounts.iter().map(|account| Arc::clone(&account.user)).collect(),
            permissions: accounts.iter().flat_map(|account| account.permissions.values().cloned()).collect(),
            topic_permissions: accounts
                .iter()
                .flat_map(|account| account.topic_permissions.values().cloned())
                .collect(),
        }
    }

    /// Whether there is a namespace of this name.
    pub fn has_namespace(&self, name: &str) -> bool {
        match *self.changed.get() {
            true => self.namespaces.get(name).is_some(),
            false => AccessRecords::initial().namespaces.iter().any(|namespace| namespace.name == name),
        }
    }

    /// Writes down what was there at the beginning, unless that was done.
    pub(crate) fn begin(&mut self, index: u64) {
        if *self.changed.get() {
            return;
        }
        *self.changed.change(index) = true;
        let initial = AccessRecords::initial();
        for namespace in initial.namespaces {
            self.namespaces.insert(namespace.name.clone(), namespace, index);
        }
        for user in initial.users {
            let account = Account { user, ..Account::default() };
            self.accounts.insert(account.user.name.clone(), Arc::new(account), index);
        }
        for permission in initial.permissions {
            let user = permission.user.clone();
            self.change(&user, index, |account| {
                account.permissions.insert(permission.namespace.clone(), permission);
            });
        }
    }

    pub(crate) fn namespace_count(&self) -> usize {
        self.namespaces.len()
    }

    pub(crate) fn user_count(&self) -> usize {
        self.accounts.len()
    }

    pub(crate) fn permission_count(&self) -> usize {
        self.permissions
    }

    pub(crate) fn topic_permission_count(&self) -> usize {
        self.topic_permissions
    }

    pub(crate) fn account(&self, user: &str) -> Option<&Arc<Account>> {
        self.accounts.get(user)
    }

    /// Whether anybody but this user is an administrator with a password.
    pub(crate) fn has_other_administrator(&self, user: &str) -> bool {
        self.accounts.iter().any(|(name, account)| name != user && is_administrator(&account.user))
    }

    pub(crate) fn put_namespace(&mut self, meta: NamespaceMeta, index: u64) {
        self.namespaces.insert(meta.name.clone(), Arc::new(meta), index);
    }

    /// Takes a namespace out, with all permissions in it.
    pub(crate) fn remove_namespace(&mut self, name: &str, index: u64) {
        self.namespaces.remove(name, index);
        let concerned = |account: &Account| {
            account.permissions.contains_key(name)
                || account.topic_permissions.keys().any(|(namespace, _)| namespace == name)
        };
        let users: Vec<String> = self
            .accounts
            .iter()
            .filter(|(_, account)| concerned(account))
            .map(|(user, _)| user.clone())
            .collect();
        for user in users {
            self.change(&user, index, |account| account.leave(name));
        }
    }

    /// Stores a user; one that was there keeps its permissions.
    pub(crate) fn put_user(&mut self, user: UserMeta, index: u64) {
        let mut account =
            self.accounts.get(&user.name).map(|there| Account::clone(there)).unwrap_or_default();
        account.user = Arc::new(user);
        self.accounts.insert(account.user.name.clone(), Arc::new(account), index);
    }

    pub(crate) fn remove_user(&mut self, name: &str, index: u64) {
        if let Some(account) = self.accounts.remove(name, index) {
            self.permissions -= account.permissions.len();
            self.topic_permissions -= account.topic_permissions.len();
        }
    }

    /// Changes what a user may do. Nothing happens if there is no such user.
    pub(crate) fn change(&mut self, user: &str, index: u64, change: impl FnOnce(&mut Account)) {
        let Some(account) = self.accounts.change(user, index) else { return };
        let account = Arc::make_mut(account);
        self.permissions -= account.permissions.len();
        self.topic_permissions -= account.topic_permissions.len();
        change(account);
        self.permissions += account.permissions.len();
        self.topic_permissions += account.topic_permissions.len();
    }

    /// The mark that anything was changed, if it was.
    pub(crate) fn mark(&self) -> Option<&Chunk<bool>> {
        Some(&self.changed).filter(|changed| *changed.get())
    }

    pub(crate) fn mark_mut(&mut self) -> Option<&mut Chunk<bool>> {
        Some(&mut self.changed).filter(|changed| *changed.get())
    }

    /// Takes the mark over from a checkpoint.
    pub(crate) fn load_mark(&mut self, index: u64) {
        *self.changed.change(index) = true;
    }

    /// Takes a user over from a checkpoint. False if it is there already.
    pub(crate) fn load_account(&mut self, account: Account, index: u64) -> bool {
        self.permissions += account.permissions.len();
        self.topic_permissions += account.topic_permissions.len();
        self.accounts.insert(account.user.name.clone(), Arc::new(account), index).is_none()
    }

    pub(crate) fn namespace_chunks(&self) -> impl Iterator<Item = (u64, &NamespaceChunk)> {
        self.namespaces.chunks()
    }

    pub(crate) fn namespace_chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut NamespaceChunk)> {
        self.namespaces.chunks_mut()
    }

    pub(crate) fn account_chunks(&self) -> impl Iterator<Item = (u64, &AccountChunk)> {
        self.accounts.chunks()
    }

    pub(crate) fn account_chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut AccountChunk)> {
        self.accounts.chunks_mut()
    }
}

/// Whether the user can log in by password and change users.
pub(crate) fn is_administrator(user: &UserMeta) -> bool {
    user.tags.iter().any(|tag| tag == "administrator") && !user.passwords.is_empty()
}

impl Account {
    /// Takes all permissions in a namespace back.
    pub(crate) fn leave(&mut self, namespace: &str) {
        self.permissions.remove(namespace);
        self.topic_permissions.retain(|(there, _), _| there != namespace);
    }

    /// Writes the user with what it may do, for checkpoints.
    pub(crate) fn encode(&self, out: &mut Writer) {
        self.user.encode(out);
        out.u32(self.permissions.len() as u32);
        self.permissions.values().for_each(|permission| permission.encode(out));
        out.u32(self.topic_permissions.len() as u32);
        self.topic_permissions.values().for_each(|permission| permission.encode(out));
    }

    /// Reads what [`Account::encode`] wrote.
    pub(crate) fn decode(r: &mut Reader) -> Result<Account, DecodeError> {
        let user = Arc::new(UserMeta::decode(r)?);
        let mut account = Account { user, ..Account::default() };
        for permission in r.list(20, PermissionMeta::decode)? {
            let foreign = permission.user != account.user.name;
            let place = permission.namespace.clone();
            if foreign || account.permissions.insert(place, Arc::new(permission)).is_some() {
                return Err(r.error("a permission is there twice, or another user's"));
            }
        }
        for permission in r.list(20, TopicPermissionMeta::decode)? {
            let foreign = permission.user != account.user.name;
            let place = (permission.namespace.clone(), permission.exchange.clone());
            if foreign || account.topic_permissions.insert(place, Arc::new(permission)).is_some() {
                return Err(r.error("a topic permission is there twice, or another user's"));
            }
        }
        Ok(account)
    }
}
