//! What may be declared, and when a declaration means what is there already: RabbitMQ's rules and words, for every
//! front by which queues and exchanges are declared.

use weir_model::queue::{QUEUE_NAME_BYTES_MAX, QueueKind, QueueMeta};
use weir_model::routing::{ArgumentValue, Arguments, ExchangeMeta, Inequivalence, argument, check_arguments};

/// Names that only the broker gives.
const RESERVED: &str = "amq.";

/// Why something cannot be declared, by the class of RabbitMQ's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undeclarable {
    /// The name is not for clients (403 ACCESS_REFUSED).
    #[error("{0}")]
    Refused(String),
    /// It belongs to somebody else (405 RESOURCE_LOCKED).
    #[error("{0}")]
    Locked(String),
    /// An argument cannot be what it is, or what is there was declared otherwise (406 PRECONDITION_FAILED).
    #[error("{0}")]
    Precondition(String),
    /// It is not served (540 NOT_IMPLEMENTED).
    #[error("{0}")]
    NotServed(String),
}

impl Undeclarable {
    fn precondition(why: impl ToString) -> Undeclarable {
        Undeclarable::Precondition(why.to_string())
    }
}

/// Refuses a name that only the broker gives. `what` is `queue` or `exchange`.
pub fn check_not_reserved(what: &str, name: &str) -> Result<(), Undeclarable> {
    if name.starts_with(RESERVED) {
        let words = format!("{what} name '{name}' contains reserved prefix 'amq.*'");
        return Err(Undeclarable::Refused(words));
    }
    Ok(())
}

/// A queue as a client declares it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueDeclaration {
    /// Whether it is to outlive a restart.
    pub durable: bool,
    /// Whether it goes with its last consumer.
    pub auto_delete: bool,
    /// Whether it belongs to the connection that declares it.
    pub exclusive: bool,
    /// Its arguments.
    pub arguments: Arguments,
}

impl QueueDeclaration {
    /// What is stored of such a queue.
    pub fn meta(self, namespace: &str, name: &str) -> Result<QueueMeta, Undeclarable> {
        let QueueDeclaration { durable, auto_delete, exclusive, arguments } = self;
        check_arguments(&arguments).map_err(Undeclarable::precondition)?;
        let kind = match argument(&arguments, "x-queue-type") {
            None => QueueKind::Classic,
            Some(value) => {
                let kind = value.as_text().unwrap_or_default();
                let unknown = || {
                    let of = queue_in(namespace, name);
                    Undeclarable::Precondition(format!("invalid arg 'x-queue-type' for {of}: '{kind}'"))
                };
                QueueKind::by_name(kind).ok_or_else(unknown)?
            }
        };
        if let Some(other) = not_of(kind).iter().find(|other| argument(&arguments, other).is_some()) {
            let of = queue_in(namespace, name);
            let words = format!("invalid arg '{other}' for {of} of queue type rabbit_{kind}_queue");
            return Err(Undeclarable::Precondition(words));
        }
        let others =
            [(!durable, "non-durable"), (exclusive, "exclusive-owner"), (auto_delete, "auto-delete")];
        let wrong = others.into_iter().find(|(is_so, _)| *is_so && kind != QueueKind::Classic);
        if let Some((_, property)) = wrong {
            let words = format!("invalid property '{property}' for {}", queue_in(namespace, name));
            return Err(Undeclarable::Precondition(words));
        }
        Ok(QueueMeta { kind, durable, auto_delete, exclusive, owner: None, lanes: Vec::new(), arguments })
    }
}

/// Arguments that a kind of queue does not have and that RabbitMQ refuses.
fn not_of(kind: QueueKind) -> &'static [&'static str] {
    match kind {
        QueueKind::Classic => {
            &["x-delivery-limit", "x-max-age", "x-quorum-initial-group-size", "x-dead-letter-strategy"]
        }
        QueueKind::Quorum => &["x-max-priority", "x-max-age"],
        QueueKind::Stream => &[
            "x-max-priority",
            "x-message-ttl",
            "x-expires",
            "x-overflow",
            "x-delivery-limit",
            "x-single-active-consumer",
            "x-dead-letter-strategy",
            "x-message-deduplication",
        ],
    }
}

/// Refuses a name that is too long for a queue.
pub fn check_queue_name(name: &str) -> Result<(), Undeclarable> {
    if name.len() > QUEUE_NAME_BYTES_MAX {
        let words = format!("the queue's name has {} bytes, {QUEUE_NAME_BYTES_MAX} are allowed", name.len());
        return Err(Undeclarable::Precondition(words));
    }
    Ok(())
}

/// Arguments that must be the same when a queue is declared again.
const COMPARED: [&str; 18] = [
    "x-queue-type",
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-priority",
    "x-single-active-consumer",
    "x-delivery-limit",
    "x-dead-letter-strategy",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-message-deduplication",
    "x-cache-size",
    "x-cache-ttl",
    "x-queue-mode",
];

/// Refuses a declaration that means another queue than the one that is there.
pub fn check_equivalent(
    name: &str,
    namespace: &str,
    there: &QueueMeta,
    wanted: &QueueMeta,
) -> Result<(), Undeclarable> {
    let differs = |field: &str, current: String, received: String| {
        let words = format!(
            "inequivalent arg '{field}' for queue '{name}' in vhost '{namespace}': received {received} but current is {current}"
        );
        Err(Undeclarable::Precondition(words))
    };
    if there.exclusive != wanted.exclusive {
        return Err(Undeclarable::Locked(locked(namespace, name)));
    }
    let flags =
        [("durable", there.durable, wanted.durable), ("auto_delete", there.auto_delete, wanted.auto_delete)];
    for (field, current, received) in flags {
        if current != received {
            return differs(field, format!("'{current}'"), format!("'{received}'"));
        }
    }
    let value = |meta: &QueueMeta, field: &str| {
        argument(&meta.arguments, field).cloned().filter(|_| field != "x-queue-mode")
    };
    for field in COMPARED {
        let (current, received) = (value(there, field), value(wanted, field));
        // A queue without a type is a classic one.
        let same_kind = field == "x-queue-type" && there.kind == wanted.kind;
        let same = match (&current, &received) {
            (None, None) => true,
            (Some(current), Some(received)) => current.same_value(received),
            _ => false,
        };
        if !same && !same_kind {
            let both = current.is_some() && received.is_some();
            let shown = |value: &Option<ArgumentValue>| shown(value.as_ref(), both);
            return differs(field, shown(&current), shown(&received));
        }
    }
    Ok(())
}

/// A queue as RabbitMQ's words name it.
pub fn queue_in(namespace: &str, name: &str) -> String {
    format!("queue '{name}' in vhost '{namespace}'")
}

/// Why a queue is not for a client to whom it does not belong, or who takes it for less exclusive than it is.
pub fn locked(namespace: &str, name: &str) -> String {
    format!(
        "cannot obtain exclusive access to locked {}. It could be originally declared on another connection or the \
         exclusive property value does not match that of the original declaration.",
        queue_in(namespace, name)
    )
}

/// A value of an argument in RabbitMQ's words: with its type where the other side has none. Which width a whole number
/// had is not kept.
fn shown(value: Option<&ArgumentValue>, both: bool) -> String {
    let Some(value) = value else { return "none".to_owned() };
    let text = match value {
        ArgumentValue::Void => "undefined".to_owned(),
        ArgumentValue::Bool(value) => value.to_string(),
        ArgumentValue::Integer(value) => value.to_string(),
        ArgumentValue::Float(bits) => f64::from_bits(*bits).to_string(),
        ArgumentValue::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        ArgumentValue::Timestamp(seconds) => seconds.to_string(),
        ArgumentValue::List(_) => "a list".to_owned(),
        ArgumentValue::Table(_) => "a table".to_owned(),
    };
    if both { format!("'{text}'") } else { format!("the value '{text}' of type '{}'", type_name(value)) }
}

/// RabbitMQ's name of a value's type.
pub(super) fn type_name(value: &ArgumentValue) -> &'static str {
    match value {
        ArgumentValue::Void => "void",
        ArgumentValue::Bool(_) => "bool",
        ArgumentValue::Integer(value) if i32::try_from(*value).is_ok() => "signedint",
        ArgumentValue::Integer(_) => "long",
        ArgumentValue::Float(_) => "double",
        ArgumentValue::Bytes(_) => "longstr",
        ArgumentValue::Timestamp(_) => "timestamp",
        ArgumentValue::List(_) => "array",
        ArgumentValue::Table(_) => "table",
    }
}

/// An exchange as a client declares it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExchangeDeclaration {
    /// The name of its type.
    pub kind: String,
    /// Whether it is to outlive a restart.
    pub durable: bool,
    /// Whether it goes with the last binding that leads from it.
    pub auto_delete: bool,
    /// Whether clients may not publish to it.
    pub internal: bool,
    /// Its arguments.
    pub arguments: Arguments,
}

impl ExchangeDeclaration {
    /// What is stored of such an exchange.
    pub fn meta(self, namespace: &str, name: &str) -> Result<ExchangeMeta, Undeclarable> {
        let ExchangeDeclaration { kind, durable, auto_delete, internal, arguments } = self;
        check_arguments(&arguments).map_err(Undeclarable::precondition)?;
        if kind == "x-message-deduplication" {
            let words = "exchanges of type x-message-deduplication are not served: declare the queues with the argument \
                         x-message-deduplication instead";
            return Err(Undeclarable::Precondition(words.into()));
        }
        let declared = ExchangeMeta::declared(namespace.to_owned(), name.to_owned(), &kind, arguments)
            .map_err(Undeclarable::precondition)?;
        Ok(ExchangeMeta { durable, auto_delete, internal, ..declared })
    }
}

/// Refuses a declaration that means another exchange than the one that is there.
pub fn check_equivalent_exchange(there: &ExchangeMeta, wanted: &ExchangeMeta) -> Result<(), Undeclarable> {
    match there.inequivalence(wanted) {
        None => Ok(()),
        Some(Inequivalence { field, current, received }) => {
            let both = current.is_some() && received.is_some();
            let quoted = |value: Option<String>| {
                let value = value.map(ArgumentValue::text);
                shown(value.as_ref(), both)
            };
            Err(Undeclarable::Precondition(format!(
                "inequivalent arg '{field}' for exchange '{}' in vhost '{}': received {} but current is {}",
                there.name,
                there.namespace,
                quoted(received),
                quoted(current)
            )))
        }
    }
}
