//! Commands of the meta shard that concern users, namespaces and permissions.

use std::sync::Arc;

use weir_model::access::{
    AccessChange, DEFAULT_NAMESPACE, NAMESPACES_MAX, NamespaceMeta, PERMISSIONS_MAX, PermissionMeta,
    TOPIC_PERMISSIONS_MAX, TopicPermissionMeta, USERS_MAX, UserMeta,
};
use weir_model::command::{Outcome, Refusal};
use weir_model::queue::split_name;

use super::meta::limit;
use super::{Context, Effect, Machine};
use crate::state::accounts::{Accounts, is_administrator};

impl Machine {
    /// All users, namespaces and permissions.
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    pub(super) fn change_access(
        &mut self,
        context: Context,
        change: &AccessChange,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        // What was there at the beginning is written down even by a change that is refused: that changes nothing of it.
        Arc::make_mut(&mut self.accounts).begin(context.index);
        let refused = match change {
            AccessChange::PutNamespace { namespace, new } => self.put_namespace(context, namespace, *new),
            AccessChange::DeleteNamespace { name } => self.delete_namespace(context, name, effects),
            AccessChange::PutUser { user, new } => self.put_user(context, user, *new),
            AccessChange::DeleteUser { name } => self.delete_user(context, name),
            AccessChange::PutPermission { permission } => self.put_permission(context, permission),
            AccessChange::DeletePermission { user, namespace } => {
                self.change_account(context, user, namespace, |account| account.leave(namespace))
            }
            AccessChange::PutTopicPermission { permission } => self.put_topic_permission(context, permission),
            AccessChange::DeleteTopicPermission { user, namespace, exchange } => {
                self.change_account(context, user, namespace, |account| {
                    account.topic_permissions.retain(|(there, of), _| {
                        there != namespace || exchange.as_ref().is_some_and(|exchange| exchange != of)
                    });
                })
            }
        };
        refused.unwrap_or_else(|| {
            effects.push(Effect::AccessChanged);
            Outcome::Done
        })
    }

    fn put_namespace(&mut self, context: Context, meta: &NamespaceMeta, new: bool) -> Option<Outcome> {
        if self.accounts.has_namespace(&meta.name) {
            if new {
                return refuse(Refusal::NamespaceExists(meta.name.clone()));
            }
        } else if self.accounts.namespace_count() >= NAMESPACES_MAX {
            return Some(limit("namespaces", NAMESPACES_MAX));
        }
        Arc::make_mut(&mut self.accounts).put_namespace(meta.clone(), context.index);
        None
    }

    fn delete_namespace(
        &mut self,
        context: Context,
        name: &str,
        effects: &mut Vec<Effect>,
    ) -> Option<Outcome> {
        if !self.accounts.has_namespace(name) {
            return refuse(Refusal::UnknownNamespace(name.to_owned()));
        }
        let has_queues = || self.catalog.topics().iter().any(|topic| split_name(&topic.name).0 == name);
        if name == DEFAULT_NAMESPACE || has_queues() {
            return refuse(Refusal::NamespaceInUse(name.to_owned()));
        }
        Arc::make_mut(&mut self.accounts).remove_namespace(name, context.index);
        Arc::make_mut(&mut self.topology).remove_namespace(name, context.index);
        effects.push(Effect::TopologyChanged);
        None
    }

    fn put_user(&mut self, context: Context, user: &UserMeta, new: bool) -> Option<Outcome> {
        let is_last = || !self.accounts.has_other_administrator(&user.name);
        match self.accounts.account(&user.name) {
            Some(_) if new => return refuse(Refusal::UserExists(user.name.clone())),
            Some(there) if is_administrator(&there.user) && !is_administrator(user) && is_last() => {
                return refuse(Refusal::LastAdministrator(user.name.clone()));
            }
            None if self.accounts.user_count() >= USERS_MAX => return Some(limit("users", USERS_MAX)),
            _ => {}
        }
        Arc::make_mut(&mut self.accounts).put_user(user.clone(), context.index);
        None
    }

    fn delete_user(&mut self, context: Context, name: &str) -> Option<Outcome> {
        let Some(account) = self.accounts.account(name) else {
            return refuse(Refusal::UnknownUser(name.to_owned()));
        };
        if is_administrator(&account.user) && !self.accounts.has_other_administrator(name) {
            return refuse(Refusal::LastAdministrator(name.to_owned()));
        }
        Arc::make_mut(&mut self.accounts).remove_user(name, context.index);
        None
    }

    fn put_permission(&mut self, context: Context, permission: &PermissionMeta) -> Option<Outcome> {
        if self.accounts.permission_count() >= PERMISSIONS_MAX {
            return Some(limit("permissions", PERMISSIONS_MAX));
        }
        let PermissionMeta { user, namespace, .. } = permission;
        self.change_account(context, user, namespace, |account| {
            account.permissions.insert(namespace.clone(), Arc::new(permission.clone()));
        })
    }

    fn put_topic_permission(
        &mut self,
        context: Context,
        permission: &TopicPermissionMeta,
    ) -> Option<Outcome> {
        if self.accounts.topic_permission_count() >= TOPIC_PERMISSIONS_MAX {
            return Some(limit("topic permissions", TOPIC_PERMISSIONS_MAX));
        }
        let TopicPermissionMeta { user, namespace, exchange, .. } = permission;
        self.change_account(context, user, namespace, |account| {
            let place = (namespace.clone(), exchange.clone());
            account.topic_permissions.insert(place, Arc::new(permission.clone()));
        })
    }

    /// Changes what a user may do in a namespace, both of which must be there.
    fn change_account(
        &mut self,
        context: Context,
        user: &str,
        namespace: &str,
        change: impl FnOnce(&mut crate::state::accounts::Account),
    ) -> Option<Outcome> {
        if self.accounts.account(user).is_none() {
            return refuse(Refusal::UnknownUser(user.to_owned()));
        }
        if !self.accounts.has_namespace(namespace) {
            return refuse(Refusal::UnknownNamespace(namespace.to_owned()));
        }
        Arc::make_mut(&mut self.accounts).change(user, context.index, change);
        None
    }

    /// Refuses what is to be made in a namespace that is not there.
    pub(super) fn check_namespace(&self, namespace: &str) -> Option<Outcome> {
        match self.accounts.has_namespace(namespace) {
            true => None,
            false => refuse(Refusal::UnknownNamespace(namespace.to_owned())),
        }
    }
}

fn refuse(refusal: Refusal) -> Option<Outcome> {
    Some(Outcome::Refused(refusal))
}
