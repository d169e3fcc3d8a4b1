//! What a request's client may do. Topics and groups are resources of the default namespace, as exchanges and queues
//! are, and the same permissions hold for them: to produce is to write, to fetch is to read, to create, alter and delete
//! is to configure, and any of the three lets one know that it is there. What concerns the whole cluster is for
//! administrators.
//!
//! A client that did not say who it is may do nothing, once that is asked of clients.

use weir_broker::Action;
use weir_kafka_wire::ErrorCode;
use weir_model::access::DEFAULT_NAMESPACE;

use crate::errors::Failure;
use crate::session::Call;

/// Kafka's numbers of operations.
const READ: u32 = 3;
const WRITE: u32 = 4;
const CREATE: u32 = 5;
const DELETE: u32 = 6;
const ALTER: u32 = 7;
const DESCRIBE: u32 = 8;
const CLUSTER_ACTION: u32 = 9;
const DESCRIBE_CONFIGS: u32 = 10;
const ALTER_CONFIGS: u32 = 11;
const IDEMPOTENT_WRITE: u32 = 12;

const ACTIONS: [Action; 3] = [Action::Configure, Action::Write, Action::Read];

impl Call {
    /// Whether the client may do this with a topic or a group.
    pub(crate) fn may(&self, action: Action, name: &str) -> bool {
        self.who.as_ref().is_some_and(|who| who.may(action, DEFAULT_NAMESPACE, name))
    }

    /// Whether the client may know of a topic or a group.
    pub(crate) fn may_know(&self, name: &str) -> bool {
        ACTIONS.into_iter().any(|action| self.may(action, name))
    }

    /// Whether the client is somebody, and has anything to do here.
    pub(crate) fn is_known(&self) -> bool {
        self.who.as_ref().is_some_and(|who| who.may_enter(DEFAULT_NAMESPACE))
    }

    /// Whether the client may do what concerns the whole cluster.
    pub(crate) fn may_administer(&self) -> bool {
        self.who.as_ref().is_some_and(weir_broker::Identity::is_administrator)
    }

    /// Refuses what the client may not do with a topic.
    pub(crate) fn check_topic(&self, action: Action, name: &str) -> Result<(), Failure> {
        if self.may(action, name) {
            return Ok(());
        }
        let why = format!("{action} access to topic '{name}' refused for {}", self.client());
        Err(Failure::new(ErrorCode::TOPIC_AUTHORIZATION_FAILED, why))
    }

    /// Refuses what the client may not do with a group.
    pub(crate) fn check_group(&self, action: Action, name: &str) -> Result<(), Failure> {
        if self.may(action, name) {
            return Ok(());
        }
        let why = format!("{action} access to group '{name}' refused for {}", self.client());
        Err(Failure::new(ErrorCode::GROUP_AUTHORIZATION_FAILED, why))
    }

    /// Refuses what is for administrators.
    pub(crate) fn check_cluster(&self) -> Result<(), Failure> {
        if self.may_administer() {
            return Ok(());
        }
        let why = format!("access to the cluster refused for {}, who is no administrator", self.client());
        Err(Failure::new(ErrorCode::CLUSTER_AUTHORIZATION_FAILED, why))
    }

    fn client(&self) -> String {
        match &self.who {
            Some(who) => format!("user '{}'", who.name()),
            None => "a client that did not authenticate".into(),
        }
    }

    /// What the client may do to a topic, as a set of Kafka's operations.
    pub(crate) fn topic_operations(&self, name: &str) -> i32 {
        let mut set = 0;
        if self.may(Action::Read, name) {
            set |= bits(&[READ]);
        }
        if self.may(Action::Write, name) {
            set |= bits(&[WRITE]);
        }
        if self.may(Action::Configure, name) {
            set |= bits(&[CREATE, DELETE, ALTER, ALTER_CONFIGS]);
        }
        if set == 0 { 0 } else { set | bits(&[DESCRIBE, DESCRIBE_CONFIGS]) }
    }

    /// Likewise to a group.
    pub(crate) fn group_operations(&self, name: &str) -> i32 {
        let mut set = if self.may_know(name) { bits(&[DESCRIBE]) } else { 0 };
        if self.may(Action::Read, name) {
            set |= bits(&[READ]);
        }
        if self.may(Action::Configure, name) {
            set |= bits(&[DELETE]);
        }
        set
    }

    /// Likewise to the cluster.
    pub(crate) fn cluster_operations(&self) -> i32 {
        if self.may_administer() {
            bits(&[
                CREATE,
                ALTER,
                DESCRIBE,
                CLUSTER_ACTION,
                DESCRIBE_CONFIGS,
                ALTER_CONFIGS,
                IDEMPOTENT_WRITE,
            ])
        } else if self.is_known() {
            bits(&[DESCRIBE, IDEMPOTENT_WRITE])
        } else {
            0
        }
    }
}

fn bits(operations: &[u32]) -> i32 {
    operations.iter().fold(0, |set, operation| set | 1 << operation)
}
