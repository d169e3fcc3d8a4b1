//! An identity within one namespace.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::access::Access;
use crate::errors::Forbidden;
use crate::identity::Identity;
use crate::operation::{Action, Operation, Parties, Sufficient};
use crate::rules::{UserRules, spoken_name};

/// Grants that a pass remembers; a connection or channel uses few names at a time. As many as a channel of
/// RabbitMQ does.
const GRANTS_REMEMBERED_MAX: usize = 12;

/// What a connection or a channel holds once its user has entered a namespace. It remembers what was
/// granted last, so that publishing to the same exchange again and again matches no pattern: the memory
/// that matching works in is shared by all threads, and they would meet at it.
#[derive(Clone, Debug)]
pub struct Pass {
    rules: Arc<UserRules>,
    namespace: String,
    /// The latest first.
    granted: VecDeque<(Action, String)>,
}

impl Pass {
    pub(crate) fn new(rules: Arc<UserRules>, namespace: &str) -> Result<Pass, Forbidden> {
        let pass = Pass { rules, namespace: namespace.into(), granted: VecDeque::new() };
        match pass.rules.namespace(namespace) {
            Some(_) => Ok(pass),
            None => Err(pass.namespace_forbidden()),
        }
    }

    /// The user's name.
    pub fn user(&self) -> &str {
        &self.rules.meta.name
    }

    /// The identity.
    pub fn identity(&self) -> Identity {
        Identity::new(Arc::clone(&self.rules))
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the user may do this with a resource; see [`Identity::may`](crate::Identity::may).
    pub fn may(&mut self, action: Action, resource: &str) -> bool {
        if self.granted.iter().any(|(granted, name)| *granted == action && name == resource) {
            return true;
        }
        let granted =
            self.rules.namespace(&self.namespace).is_some_and(|rules| rules.allow(action, resource));
        if granted {
            self.granted.truncate(GRANTS_REMEMBERED_MAX - 1);
            self.granted.push_front((action, resource.into()));
        }
        granted
    }

    /// Whether the user may use a routing key with a topic exchange; see
    /// [`Identity::may_route`](crate::Identity::may_route). Not remembered: routing keys seldom come again,
    /// and most users have no topic permissions.
    pub fn may_route(&self, exchange: &str, routing_key: &[u8], action: Action) -> bool {
        let rules = self.rules.namespace(&self.namespace);
        rules.is_some_and(|rules| rules.allow_route(exchange, routing_key, action))
    }

    /// Checks that the user may do an operation on these names.
    pub fn check(&mut self, operation: Operation, parties: Parties<'_>) -> Result<(), Forbidden> {
        let requirement = operation.requirement();
        let mut missing = None;
        for need in requirement.needs {
            match (self.may(need.action, parties.name(need.party)), requirement.sufficient) {
                (true, Sufficient::Any) => return Ok(()),
                (true, Sufficient::All) => {}
                (false, Sufficient::Any) => missing = Some((None, need)),
                (false, Sufficient::All) => {
                    missing = Some((Some(need.action), need));
                    break;
                }
            }
        }
        match missing {
            None => Ok(()),
            Some((action, need)) => Err(Forbidden::Resource {
                action,
                kind: need.kind,
                name: spoken_name(parties.name(need.party)).into(),
                namespace: self.namespace.clone(),
                user: self.user().into(),
            }),
        }
    }

    /// Checks that the user may do an operation with this routing key. For the front to ask where the
    /// exchange among the names exists and is of type `topic`; a message's further routing keys (`CC` and
    /// `BCC`) are asked for as well.
    pub fn check_routing(
        &self,
        operation: Operation,
        parties: Parties<'_>,
        routing_key: &[u8],
    ) -> Result<(), Forbidden> {
        let Some((exchange, action)) = operation.requirement().routing else { return Ok(()) };
        let exchange = parties.name(exchange);
        if self.may_route(exchange, routing_key, action) {
            return Ok(());
        }
        Err(Forbidden::Topic {
            action,
            routing_key: String::from_utf8_lossy(routing_key).into_owned(),
            exchange: exchange.into(),
            namespace: self.namespace.clone(),
            user: self.user().into(),
        })
    }

    /// Takes the pass over into another snapshot, and forgets what was granted. Refused if the user is gone
    /// or may not be in the namespace any more; the connection is then to be closed.
    pub fn renew(&mut self, access: &Access) -> Result<(), Forbidden> {
        let rules = access.rules(self.user()).ok_or_else(|| self.namespace_forbidden())?;
        *self = Pass::new(Arc::clone(rules), &self.namespace)?;
        Ok(())
    }

    fn namespace_forbidden(&self) -> Forbidden {
        Forbidden::Namespace { namespace: self.namespace.clone(), user: self.user().into() }
    }
}
