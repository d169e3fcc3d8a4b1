//! The table of what each AMQP 0-9-1 operation needs (RabbitMQ's access control guide, and its channel
//! where the guide is silent). Operations that are not named here need nothing.

use std::fmt;

/// What somebody wants to do with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create, change or delete it.
    Configure,
    /// Put messages into it.
    Write,
    /// Take messages out of it.
    Read,
}

/// What kind of thing a name is the name of. Permissions do not tell them apart; messages do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// An exchange.
    Exchange,
    /// A queue.
    Queue,
}

/// An operation of AMQP 0-9-1 on an exchange or a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `exchange.declare`. Subject: the exchange.
    ExchangeDeclare,
    /// What an `alternate-exchange` needs beyond that, asked only if the exchange is new. Subject: the
    /// exchange. Counterpart: the alternate exchange.
    ExchangeDeclareAlternate,
    /// `exchange.declare` with `passive`. Subject: the exchange.
    ExchangeDeclarePassive,
    /// `exchange.delete`. Subject: the exchange.
    ExchangeDelete,
    /// `exchange.bind`. Subject: the destination. Counterpart: the source.
    ExchangeBind,
    /// `exchange.unbind`. Subject: the destination. Counterpart: the source.
    ExchangeUnbind,
    /// `queue.declare`. Subject: the queue, under the name that the server gave it if it has none.
    QueueDeclare,
    /// What an `x-dead-letter-exchange` needs beyond that, asked only if the queue is new. Subject: the
    /// queue. Counterpart: the dead letter exchange.
    QueueDeclareDeadLetter,
    /// `queue.declare` with `passive`. Subject: the queue.
    QueueDeclarePassive,
    /// `queue.bind`. Subject: the queue. Counterpart: the exchange.
    QueueBind,
    /// `queue.unbind`. Subject: the queue. Counterpart: the exchange.
    QueueUnbind,
    /// `queue.purge`. Subject: the queue.
    QueuePurge,
    /// `queue.delete`. Subject: the queue.
    QueueDelete,
    /// `basic.publish`. Subject: the exchange.
    BasicPublish,
    /// `basic.consume`. Subject: the queue.
    BasicConsume,
    /// `basic.get`. Subject: the queue.
    BasicGet,
}

/// The names that an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parties<'a> {
    /// What the operation is done to.
    pub subject: &'a str,
    /// The other one, in an operation on two; the empty name is the default exchange.
    pub counterpart: &'a str,
}

/// Which of the names that an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// [`Parties::subject`].
    Subject,
    /// [`Parties::counterpart`].
    Counterpart,
}

/// One access that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Which kind of access.
    pub action: Action,
    /// To which of the names.
    pub party: Party,
    /// What that is the name of.
    pub kind: ResourceKind,
}

/// How many of the accesses must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sufficient {
    /// All of them.
    All,
    /// Any one of them.
    Any,
}

/// Everything that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The accesses, in the order in which they are asked for.
    pub needs: &'static [Need],
    /// How many of them.
    pub sufficient: Sufficient,
    /// What it does with a routing key at an exchange of type `topic`, if the exchange is one: which of
    /// the names is the exchange, and which kind of access.
    pub routing: Option<(Party, Action)>,
}

const CONFIGURE_EXCHANGE: Need =
    Need { action: Action::Configure, party: Party::Subject, kind: ResourceKind::Exchange };
const WRITE_EXCHANGE: Need =
    Need { action: Action::Write, party: Party::Subject, kind: ResourceKind::Exchange };
const READ_EXCHANGE: Need =
    Need { action: Action::Read, party: Party::Subject, kind: ResourceKind::Exchange };
const CONFIGURE_QUEUE: Need =
    Need { action: Action::Configure, party: Party::Subject, kind: ResourceKind::Queue };
const WRITE_QUEUE: Need = Need { action: Action::Write, party: Party::Subject, kind: ResourceKind::Queue };
const READ_QUEUE: Need = Need { action: Action::Read, party: Party::Subject, kind: ResourceKind::Queue };
const WRITE_OTHER: Need =
    Need { action: Action::Write, party: Party::Counterpart, kind: ResourceKind::Exchange };
const READ_OTHER: Need =
    Need { action: Action::Read, party: Party::Counterpart, kind: ResourceKind::Exchange };

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 16] = [
        Operation::ExchangeDeclare,
        Operation::ExchangeDeclareAlternate,
        Operation::ExchangeDeclarePassive,
        Operation::ExchangeDelete,
        Operation::ExchangeBind,
        Operation::ExchangeUnbind,
        Operation::QueueDeclare,
        Operation::QueueDeclareDeadLetter,
        Operation::QueueDeclarePassive,
        Operation::QueueBind,
        Operation::QueueUnbind,
        Operation::QueuePurge,
        Operation::QueueDelete,
        Operation::BasicPublish,
        Operation::BasicConsume,
        Operation::BasicGet,
    ];

    /// What the operation needs.
    pub fn requirement(self) -> Requirement {
        use Operation::*;
        match self {
            ExchangeDeclare | ExchangeDelete => all(&[CONFIGURE_EXCHANGE]),
            ExchangeDeclareAlternate => all(&[READ_EXCHANGE, WRITE_OTHER]),
            ExchangeDeclarePassive => any(&[CONFIGURE_EXCHANGE, WRITE_EXCHANGE, READ_EXCHANGE]),
            ExchangeBind | ExchangeUnbind => {
                all(&[WRITE_EXCHANGE, READ_OTHER]).routing(Party::Counterpart, Action::Read)
            }
            QueueDeclare | QueueDelete => all(&[CONFIGURE_QUEUE]),
            QueueDeclareDeadLetter => all(&[READ_QUEUE, WRITE_OTHER]),
            QueueDeclarePassive => any(&[CONFIGURE_QUEUE, WRITE_QUEUE, READ_QUEUE]),
            QueueBind | QueueUnbind => {
                all(&[WRITE_QUEUE, READ_OTHER]).routing(Party::Counterpart, Action::Read)
            }
            QueuePurge | BasicConsume | BasicGet => all(&[READ_QUEUE]),
            BasicPublish => all(&[WRITE_EXCHANGE]).routing(Party::Subject, Action::Write),
        }
    }
}

fn all(needs: &'static [Need]) -> Requirement {
    Requirement { needs, sufficient: Sufficient::All, routing: None }
}

/// A passive declaration changes nothing, and any access to a resource lets one know that it is there
/// (rabbitmq-server pull request 16272, in 4.2.7 and 4.3.1; 4.2.6 asked for `configure`, and broke clients
/// that declare passively before they consume).
fn any(needs: &'static [Need]) -> Requirement {
    Requirement { needs, sufficient: Sufficient::Any, routing: None }
}

impl Requirement {
    fn routing(self, exchange: Party, action: Action) -> Requirement {
        Requirement { routing: Some((exchange, action)), ..self }
    }
}

impl<'a> Parties<'a> {
    /// The one name of an operation that is about one.
    pub fn one(subject: &'a str) -> Parties<'a> {
        Parties { subject, counterpart: "" }
    }

    /// Both names of an operation that is about two.
    pub fn two(subject: &'a str, counterpart: &'a str) -> Parties<'a> {
        Parties { subject, counterpart }
    }

    /// The name that plays this part.
    pub fn name(&self, party: Party) -> &'a str {
        match party {
            Party::Subject => self.subject,
            Party::Counterpart => self.counterpart,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Configure => "configure",
            Action::Write => "write",
            Action::Read => "read",
        })
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResourceKind::Exchange => "exchange",
            ResourceKind::Queue => "queue",
        })
    }
}
