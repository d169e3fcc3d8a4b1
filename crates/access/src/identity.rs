//! Somebody who has logged in.

use std::sync::Arc;

use weir_model::access::{UserLimits, UserMeta};

use crate::access::Access;
use crate::errors::{Denied, Forbidden};
use crate::management::Management;
use crate::operation::Action;
use crate::pass::Pass;
use crate::rules::UserRules;

/// A user whom a front knows. It keeps to the snapshot that it came from; [`Identity::renewed`] takes it
/// over into another.
#[derive(Clone, Debug)]
pub struct Identity {
    rules: Arc<UserRules>,
}

impl Identity {
    pub(crate) fn new(rules: Arc<UserRules>) -> Identity {
        Identity { rules }
    }

    pub(crate) fn meta(&self) -> &Arc<UserMeta> {
        &self.rules.meta
    }

    /// The user's name.
    pub fn name(&self) -> &str {
        &self.rules.meta.name
    }

    /// The user's tags, those that mean nothing included.
    pub fn tags(&self) -> &[String] {
        &self.rules.meta.tags
    }

    /// What the user may have at most.
    pub fn limits(&self) -> UserLimits {
        self.rules.meta.limits
    }

    /// Whether the user is an administrator.
    pub fn is_administrator(&self) -> bool {
        self.management().administration
    }

    /// How much of the management API the user may use.
    pub fn management(&self) -> Management {
        Management::of(self.tags())
    }

    /// Whether messages of the user may name another as their sender. Administrators may not by that alone.
    pub fn may_impersonate(&self) -> bool {
        self.tags().iter().any(|tag| tag == "impersonator")
    }

    /// Whether a message of the user may carry this `user-id`.
    pub fn may_send_as(&self, user_id: &str) -> bool {
        user_id == self.name() || self.may_impersonate()
    }

    /// Whether the user may connect to a namespace. One that does not exist may not be entered.
    pub fn may_enter(&self, namespace: &str) -> bool {
        self.rules.namespace(namespace).is_some()
    }

    /// Whether the management API shows the user a namespace.
    pub fn may_see(&self, namespace: &str) -> bool {
        let management = self.management();
        management.monitoring || (management.may_use && self.may_enter(namespace))
    }

    /// Whether the user may do this with a resource, an exchange, queue or topic. The empty name is the
    /// default exchange, which patterns call `amq.default`.
    pub fn may(&self, action: Action, namespace: &str, resource: &str) -> bool {
        self.rules.namespace(namespace).is_some_and(|rules| rules.allow(action, resource))
    }

    /// Whether the user may use a routing key with an exchange of type `topic`: to publish is to write, to
    /// bind is to read. Asked beside [`Identity::may`], not in its place.
    pub fn may_route(&self, namespace: &str, exchange: &str, routing_key: &[u8], action: Action) -> bool {
        self.rules.namespace(namespace).is_some_and(|rules| rules.allow_route(exchange, routing_key, action))
    }

    /// Enters a namespace.
    pub fn enter(&self, namespace: &str) -> Result<Pass, Forbidden> {
        Pass::new(Arc::clone(&self.rules), namespace)
    }

    /// The same user in another snapshot, for connections that outlive a change.
    pub fn renewed(&self, access: &Access) -> Result<Identity, Denied> {
        match access.rules(self.name()) {
            Some(rules) => Ok(Identity::new(Arc::clone(rules))),
            None => Err(Denied::UnknownUser(self.name().into())),
        }
    }
}
