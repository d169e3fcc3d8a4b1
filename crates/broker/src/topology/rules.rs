//! What may be declared, and when a declaration means what is there already: RabbitMQ's rules and words, for every
//! front by which queues and exchanges are declared.

use weir_model::queue::{QUEUE_NAME_BYTES_MAX, QueueKind, QueueMeta};
use weir_model::routing::{ArgumentValue, Arguments, ExchangeMeta, Inequivalence, argument, check_arguments};

use super::QueueArguments;
use super::kinds::{arguments_of, is_of_another_kind};

/// Names that only the broker gives.
const RESERVED: &str = "amq.";

/// The argument that says which kind of queue it is.
const QUEUE_TYPE: &str = "x-queue-type";

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
    /// What is stored of such a queue. What is wrong is looked for in RabbitMQ's order: values, arguments of another
    /// kind, properties.
    pub fn meta(self, namespace: &str, name: &str) -> Result<QueueMeta, Undeclarable> {
        let QueueDeclaration { durable, auto_delete, exclusive, arguments } = self;
        check_arguments(&arguments).map_err(Undeclarable::precondition)?;
        let kind = kind_of(namespace, name, &arguments)?;
        QueueArguments::read(namespace, name, kind, &arguments).map_err(Undeclarable::precondition)?;
        let of = queue_in(namespace, name);
        if let Some((other, _)) = arguments.iter().find(|(name, _)| is_of_another_kind(kind, name)) {
            let words = format!("invalid arg '{other}' for {of} of queue type rabbit_{kind}_queue");
            return Err(Undeclarable::Precondition(words));
        }
        let others =
            [(auto_delete, "auto-delete"), (exclusive, "exclusive-owner"), (!durable, "non-durable")];
        let wrong = others.into_iter().find(|(is_so, _)| *is_so && kind != QueueKind::Classic);
        if let Some((_, property)) = wrong {
            return Err(Undeclarable::Precondition(format!("invalid property '{property}' for {of}")));
        }
        Ok(QueueMeta { kind, durable, auto_delete, exclusive, owner: None, lanes: Vec::new(), arguments })
    }
}

/// The kind of a queue that is declared with these arguments.
fn kind_of(namespace: &str, name: &str, arguments: &Arguments) -> Result<QueueKind, Undeclarable> {
    let Some(value) = argument(arguments, QUEUE_TYPE) else { return Ok(QueueKind::Classic) };
    let why = match value.as_text() {
        Some(kind) => match QueueKind::by_name(kind) {
            Some(kind) => return Ok(kind),
            None => format!("\"unsupported queue type '{kind}'\""),
        },
        None => format!("{{unacceptable_type,{}}}", type_name(value)),
    };
    let of = queue_in(namespace, name);
    Err(Undeclarable::Precondition(format!("invalid arg '{QUEUE_TYPE}' for {of}: {why}")))
}

/// Refuses to make up a name for a queue of a kind that needs one of its clients.
pub fn check_may_be_nameless(arguments: &Arguments) -> Result<(), Undeclarable> {
    match kind_of("", "", arguments) {
        Ok(kind @ (QueueKind::Quorum | QueueKind::Stream)) => {
            let words = format!("Cannot declare a server-named queue for type rabbit_{kind}_queue");
            Err(Undeclarable::Precondition(words))
        }
        _ => Ok(()),
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

/// Refuses a declaration that means another queue than the one that is there. Whether it could be declared at all is not
/// looked at.
pub fn check_equivalent(
    name: &str,
    namespace: &str,
    there: &QueueMeta,
    wanted: &QueueDeclaration,
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
    let is_classic = |value: &Option<&ArgumentValue>| {
        value.is_none_or(|value| value.as_text() == Some(QueueKind::Classic.name()))
    };
    for field in arguments_of(there.kind) {
        let (current, received) = (argument(&there.arguments, field), argument(&wanted.arguments, field));
        let same = match (current, received) {
            (None, None) => true,
            (Some(current), Some(received)) => current.is_equivalent(received),
            // A queue without a type is a classic one.
            _ => *field == QUEUE_TYPE && is_classic(&current) && is_classic(&received),
        };
        if !same {
            let both = current.is_some() && received.is_some();
            return differs(field, shown(current, both), shown(received, both));
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
        ArgumentValue::Float(bits) => format!("{:?}", f64::from_bits(*bits)),
        ArgumentValue::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        ArgumentValue::Timestamp(seconds) => seconds.to_string(),
        ArgumentValue::Decimal { scale, digits } => format!("{digits}e-{scale}"),
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
        ArgumentValue::Decimal { .. } => "decimal",
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
