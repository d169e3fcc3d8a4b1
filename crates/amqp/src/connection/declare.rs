//! Classes exchange and queue: what is declared, deleted and bound.

use weir_amqp_wire::methods::{exchange, queue};
use weir_amqp_wire::{ReplyCode, ShortStr, Table, Value};
use weir_broker::queues::QueueFigures;
use weir_broker::topology::QueueInfo;
use weir_model::queue::{QueueKind, QueueMeta};
use weir_model::routing::{BindingMeta, Destination, ExchangeMeta, check_arguments};

use super::Connection;
use crate::errors::Failure;
use crate::handshake::generated;
use crate::values::arguments;

/// Names that only the broker gives.
const RESERVED: &str = "amq.";

impl Connection {
    pub(super) async fn declare_exchange(
        &mut self,
        number: u16,
        method: exchange::Declare,
    ) -> Result<(), Failure> {
        let name = text(&method.exchange)?;
        let known = self.router()?.exchange(&name).cloned();
        match known {
            None if name.is_empty() && method.passive => {}
            None if method.passive => return Err(Failure::no_exchange(&name, &self.namespace)),
            None if name.is_empty() => {
                return Err(Failure::new(
                    ReplyCode::AccessRefused,
                    "operation not permitted on the default exchange",
                ));
            }
            Some(_) if method.passive => {}
            known => {
                let kind = text(&method.exchange_type)?;
                super::delay::check_kind(&kind)?;
                let arguments = arguments(&method.arguments);
                check_arguments(&arguments).map_err(|error| Failure::precondition(error.to_string()))?;
                let declared = ExchangeMeta::declared(self.namespace.clone(), name.clone(), &kind, arguments)
                    .map_err(|error| Failure::precondition(error.to_string()))?;
                if declared.kind.is_delayed() {
                    self.front.broker.open_parking().await?;
                }
                let wanted = ExchangeMeta {
                    durable: method.durable,
                    auto_delete: method.auto_delete,
                    internal: method.internal,
                    ..declared
                };
                let there = match known {
                    Some(known) => ExchangeMeta::clone(&known),
                    None => {
                        check_not_reserved("exchange", &name)?;
                        self.router = None;
                        self.front.broker.declare_exchange(wanted.clone()).await?
                    }
                };
                if let Some(differs) = there.inequivalence(&wanted) {
                    let words = format!(
                        "inequivalent arg '{}' for exchange '{name}' in vhost '{}': {differs}",
                        differs.field, self.namespace
                    );
                    return Err(Failure::precondition(words));
                }
            }
        }
        if !method.no_wait {
            self.send(number, exchange::DeclareOk {});
        }
        Ok(())
    }

    pub(super) async fn delete_exchange(
        &mut self,
        number: u16,
        method: exchange::Delete,
    ) -> Result<(), Failure> {
        let name = text(&method.exchange)?;
        if name.is_empty() {
            let words = "operation not permitted on the default exchange";
            return Err(Failure::new(ReplyCode::AccessRefused, words));
        }
        check_not_reserved("exchange", &name)?;
        self.router = None;
        self.front.broker.delete_exchange(&self.namespace, &name, method.if_unused).await?;
        if !method.no_wait {
            self.send(number, exchange::DeleteOk {});
        }
        Ok(())
    }

    pub(super) async fn bind_exchange(&mut self, number: u16, method: exchange::Bind) -> Result<(), Failure> {
        let destination = Destination::Exchange(text(&method.destination)?);
        self.bind(destination, &method.source, &method.routing_key, &method.arguments).await?;
        if !method.no_wait {
            self.send(number, exchange::BindOk {});
        }
        Ok(())
    }

    pub(super) async fn unbind_exchange(
        &mut self,
        number: u16,
        method: exchange::Unbind,
    ) -> Result<(), Failure> {
        let destination = Destination::Exchange(text(&method.destination)?);
        self.unbind(destination, &method.source, &method.routing_key, &method.arguments).await?;
        if !method.no_wait {
            self.send(number, exchange::UnbindOk {});
        }
        Ok(())
    }

    pub(super) async fn declare_queue(&mut self, number: u16, method: queue::Declare) -> Result<(), Failure> {
        let name = match method.queue.is_empty() {
            true if method.passive => self.queue_name(number, &method.queue)?,
            true => generated("amq.gen-", self.front.broker.random_bytes()),
            false => method.queue.detached(),
        };
        let named = text(&name)?;
        let found = self.front.broker.find_queue(&self.namespace, &named)?;
        let (info, created) = match found {
            Some(info) => (info, false),
            None if method.passive => return Err(Failure::no_queue(&named, &self.namespace)),
            None => {
                if !method.queue.is_empty() {
                    check_not_reserved("queue", &named)?;
                }
                let meta = queue_meta(&method)?;
                self.router = None;
                self.front.broker.create_queue(&self.namespace, &named, meta).await?
            }
        };
        if created && info.meta.exclusive {
            self.front.exclusive.lock().insert(info.topic.id(), self.id);
            self.exclusive.push(info.topic.id());
        }
        self.check_not_others(&info, &named)?;
        if !created && !method.passive {
            let wanted = queue_meta(&method)?;
            check_equivalent(&named, &self.namespace, &info.meta, &wanted)?;
        }
        let queue = self.front.broker.open_queue(&info).await?;
        let QueueFigures { ready, consumers, .. } = queue.figures().await?;
        self.channel(number)?.last_queue = Some(name.clone());
        if !method.no_wait {
            let message_count = u32::try_from(ready).unwrap_or(u32::MAX);
            self.send(
                number,
                queue::DeclareOk { queue: name, message_count, consumer_count: consumers as u32 },
            );
        }
        Ok(())
    }

    pub(super) async fn delete_queue(&mut self, number: u16, method: queue::Delete) -> Result<(), Failure> {
        let name = text(&self.queue_name(number, &method.queue)?)?;
        let Some(info) = self.front.broker.find_queue(&self.namespace, &name)? else {
            // RabbitMQ takes what is not there for deleted.
            if !method.no_wait {
                self.send(number, queue::DeleteOk { message_count: 0 });
            }
            return Ok(());
        };
        self.check_not_others(&info, &name)?;
        let queue = self.front.broker.open_queue(&info).await?;
        let figures = queue.figures().await?;
        let namespace = &self.namespace;
        if method.if_unused && figures.consumers > 0 {
            return Err(Failure::precondition(format!("queue '{name}' in vhost '{namespace}' in use")));
        }
        if method.if_empty && figures.ready > 0 {
            return Err(Failure::precondition(format!("queue '{name}' in vhost '{namespace}' is not empty")));
        }
        self.router = None;
        self.drop_queue(&info).await?;
        if !method.no_wait {
            let message_count = u32::try_from(figures.ready).unwrap_or(u32::MAX);
            self.send(number, queue::DeleteOk { message_count });
        }
        Ok(())
    }

    /// Deletes a queue; one that is gone already is no error.
    pub(super) async fn drop_queue(&mut self, info: &QueueInfo) -> Result<(), Failure> {
        self.front.exclusive.lock().remove(&info.topic.id());
        self.exclusive.retain(|id| *id != info.topic.id());
        match self.front.broker.delete_queue(info).await {
            Ok(()) => Ok(()),
            Err(error) => match Failure::from(error) {
                failure if failure.code == ReplyCode::NotFound => Ok(()),
                failure => Err(failure),
            },
        }
    }

    pub(super) async fn bind_queue(&mut self, number: u16, method: queue::Bind) -> Result<(), Failure> {
        let name = self.queue_name(number, &method.queue)?;
        let named = text(&name)?;
        let info = self.need_queue(&named)?;
        self.check_not_others(&info, &named)?;
        // With neither a queue nor a key the queue's name is the key.
        let key = if method.queue.is_empty() && method.routing_key.is_empty() {
            &name
        } else {
            &method.routing_key
        };
        self.bind(Destination::Queue(named), &method.exchange, key, &method.arguments).await?;
        if !method.no_wait {
            self.send(number, queue::BindOk {});
        }
        Ok(())
    }

    pub(super) async fn unbind_queue(&mut self, number: u16, method: queue::Unbind) -> Result<(), Failure> {
        let name = text(&self.queue_name(number, &method.queue)?)?;
        self.unbind(Destination::Queue(name), &method.exchange, &method.routing_key, &method.arguments)
            .await?;
        self.send(number, queue::UnbindOk {});
        Ok(())
    }

    pub(super) async fn purge_queue(&mut self, number: u16, method: queue::Purge) -> Result<(), Failure> {
        let name = text(&self.queue_name(number, &method.queue)?)?;
        let info = self.need_queue(&name)?;
        self.check_not_others(&info, &name)?;
        let purged = self.front.broker.open_queue(&info).await?.purge().await?;
        if !method.no_wait {
            self.send(number, queue::PurgeOk { message_count: u32::try_from(purged).unwrap_or(u32::MAX) });
        }
        Ok(())
    }

    async fn bind(
        &mut self,
        destination: Destination,
        source: &ShortStr,
        key: &ShortStr,
        table: &Table,
    ) -> Result<(), Failure> {
        let binding = self.binding(destination, source, key, table)?;
        if self.router()?.exchange(&binding.source).is_none() {
            return Err(Failure::no_exchange(&binding.source, &self.namespace));
        }
        if let Destination::Exchange(name) = &binding.destination
            && self.router()?.exchange(name).is_none()
        {
            return Err(Failure::no_exchange(name, &self.namespace));
        }
        self.router = None;
        Ok(self.front.broker.bind(binding).await?)
    }

    async fn unbind(
        &mut self,
        destination: Destination,
        source: &ShortStr,
        key: &ShortStr,
        table: &Table,
    ) -> Result<(), Failure> {
        let binding = self.binding(destination, source, key, table)?;
        self.router = None;
        Ok(self.front.broker.unbind(binding).await?)
    }

    fn binding(
        &self,
        destination: Destination,
        source: &ShortStr,
        key: &ShortStr,
        table: &Table,
    ) -> Result<BindingMeta, Failure> {
        let source = text(source)?;
        if source.is_empty() || destination == Destination::Exchange(String::new()) {
            let words = "operation not permitted on the default exchange";
            return Err(Failure::new(ReplyCode::AccessRefused, words));
        }
        let arguments = arguments(table);
        check_arguments(&arguments).map_err(|error| Failure::precondition(error.to_string()))?;
        let key = bytes::Bytes::copy_from_slice(key.as_bytes());
        Ok(BindingMeta::new(self.namespace.clone(), source, destination, key, arguments))
    }

    /// The queue that a method names, or means by naming none.
    pub(super) fn queue_name(&mut self, number: u16, name: &ShortStr) -> Result<ShortStr, Failure> {
        if !name.is_empty() {
            return Ok(name.detached());
        }
        let none = || Failure::new(ReplyCode::NotFound, "no previously declared queue");
        self.channel(number)?.last_queue.clone().ok_or_else(none)
    }

    pub(super) fn need_queue(&self, name: &str) -> Result<QueueInfo, Failure> {
        let found = self.front.broker.find_queue(&self.namespace, name)?;
        found.ok_or_else(|| Failure::no_queue(name, &self.namespace))
    }

    /// Refuses a queue that belongs to another connection.
    pub(super) fn check_not_others(&self, info: &QueueInfo, name: &str) -> Result<(), Failure> {
        if info.meta.exclusive && self.front.exclusive.lock().get(&info.topic.id()) != Some(&self.id) {
            let words = format!(
                "cannot obtain exclusive access to locked queue '{name}' in vhost '{}'. It could be originally \
                 declared on another connection or the exclusive property value does not match that of the \
                 original declaration.",
                self.namespace
            );
            return Err(Failure::new(ReplyCode::ResourceLocked, words));
        }
        Ok(())
    }

    /// The router of this burst of frames.
    pub(super) fn router(&mut self) -> Result<&weir_router::Router, Failure> {
        if self.router.is_none() {
            self.router = Some(self.front.broker.router(&self.namespace)?);
        }
        let lost = || Failure::new(ReplyCode::InternalError, "there is no router");
        self.router.as_ref().ok_or_else(lost)
    }
}

/// A name as it is stored. RabbitMQ strips line ends from it.
pub(super) fn text(name: &ShortStr) -> Result<String, Failure> {
    let not_text = || Failure::precondition("a name must be UTF-8");
    let text = name.as_str().ok_or_else(not_text)?;
    Ok(text.chars().filter(|letter| !matches!(letter, '\r' | '\n' | '\0')).collect())
}

fn check_not_reserved(what: &str, name: &str) -> Result<(), Failure> {
    if name.starts_with(RESERVED) {
        let words = format!("{what} name '{name}' contains reserved prefix 'amq.*'");
        return Err(Failure::new(ReplyCode::AccessRefused, words));
    }
    Ok(())
}

fn queue_meta(method: &queue::Declare) -> Result<QueueMeta, Failure> {
    let arguments = arguments(&method.arguments);
    check_arguments(&arguments).map_err(|error| Failure::precondition(error.to_string()))?;
    let kind = match method.arguments.get("x-queue-type") {
        None => QueueKind::Classic,
        Some(value) => {
            let name = value.as_str().unwrap_or_default();
            let unknown = || Failure::precondition(format!("invalid arg 'x-queue-type': '{name}'"));
            QueueKind::by_name(name).ok_or_else(unknown)?
        }
    };
    let kept = |what: &str| {
        Err(Failure::precondition(format!(
            "{what} queues must be durable, and neither exclusive nor auto-delete"
        )))
    };
    if kind != QueueKind::Classic && (!method.durable || method.exclusive || method.auto_delete) {
        return kept(kind.name());
    }
    for name in NOT_SERVED {
        if method.arguments.get(name).is_some() {
            let words = format!("the argument '{name}' is not served yet");
            return Err(Failure::new(ReplyCode::NotImplemented, words));
        }
    }
    if kind == QueueKind::Stream {
        return Err(Failure::new(ReplyCode::NotImplemented, "streams are not served yet"));
    }
    Ok(QueueMeta {
        kind,
        durable: method.durable,
        auto_delete: method.auto_delete,
        exclusive: method.exclusive,
        owner: None,
        lanes: Vec::new(),
        arguments,
    })
}

/// Arguments that mean something to RabbitMQ and are not acted on here: a queue is not declared with them.
const NOT_SERVED: [&str; 3] = ["x-max-length-bytes", "x-overflow", "x-max-priority"];

/// Arguments that must be the same when a queue is declared again.
const COMPARED: [&str; 15] = [
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
    "x-message-deduplication",
    "x-cache-size",
    "x-cache-ttl",
    "x-queue-mode",
];

fn check_equivalent(
    name: &str,
    namespace: &str,
    there: &QueueMeta,
    wanted: &QueueMeta,
) -> Result<(), Failure> {
    let differs = |field: &str, current: String, received: String| {
        let words = format!(
            "inequivalent arg '{field}' for queue '{name}' in vhost '{namespace}': received {received} but current is {current}"
        );
        Err(Failure::precondition(words))
    };
    let flags = [
        ("durable", there.durable, wanted.durable),
        ("exclusive", there.exclusive, wanted.exclusive),
        ("auto_delete", there.auto_delete, wanted.auto_delete),
    ];
    for (field, current, received) in flags {
        if field == "exclusive" && current != received {
            let words = format!("inequivalent arg 'exclusive' for queue '{name}' in vhost '{namespace}'");
            return Err(Failure::new(ReplyCode::ResourceLocked, words));
        }
        if current != received {
            return differs(field, format!("'{current}'"), format!("'{received}'"));
        }
    }
    let value = |meta: &QueueMeta, field: &str| {
        weir_model::routing::argument(&meta.arguments, field).cloned().filter(|_| field != "x-queue-mode")
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
            let shown = |value: &Option<weir_model::routing::ArgumentValue>| {
                value.as_ref().map_or_else(|| "none".to_owned(), |value| format!("the value {value:?}"))
            };
            return differs(field, shown(&current), shown(&received));
        }
    }
    Ok(())
}

/// A whole number among arguments.
pub(super) fn whole(table: &Table, name: &str) -> Option<i64> {
    table.get(name).and_then(Value::as_i64)
}
