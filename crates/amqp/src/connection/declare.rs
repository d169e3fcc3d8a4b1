//! Classes exchange and queue: what is declared, deleted and bound.

use weir_amqp_message::arguments;
use weir_amqp_wire::methods::{exchange, queue};
use weir_amqp_wire::{ReplyCode, ShortStr, Table, Value};
use weir_broker::queues::{QueueFigures, QueueRef};
use weir_broker::topology::{
    ExchangeDeclaration, QueueDeclaration, QueueInfo, TopologyError, Undeclarable, check_equivalent,
    check_equivalent_exchange, check_not_reserved,
};
use weir_broker::{Operation, Parties};
use weir_model::queue::{QueueKind, QueueMeta};
use weir_model::routing::{BindingMeta, Destination, ExchangeMeta, check_arguments};

use super::Connection;
use super::streams::Source;
use crate::errors::Failure;
use crate::handshake::generated;
use crate::replies::is_mailbox;

impl Connection {
    pub(super) async fn declare_exchange(
        &mut self,
        number: u16,
        method: exchange::Declare,
    ) -> Result<(), Failure> {
        let name = text(&method.exchange)?;
        let operation = match method.passive {
            true => Operation::ExchangeDeclarePassive,
            false => Operation::ExchangeDeclare,
        };
        self.check(operation, Parties::one(&name))?;
        let known = self.router()?.exchange(&name).cloned();
        match known {
            _ if name.is_empty() => return Err(on_default_exchange()),
            None if method.passive => return Err(Failure::no_exchange(&name, &self.namespace)),
            Some(_) if method.passive => {}
            known => {
                let declaration = ExchangeDeclaration {
                    kind: text(&method.exchange_type)?,
                    durable: method.durable,
                    auto_delete: method.auto_delete,
                    internal: method.internal,
                    arguments: arguments(&method.arguments),
                };
                let wanted = declaration.meta(&self.namespace, &name)?;
                let there = match known {
                    Some(known) => ExchangeMeta::clone(&known),
                    None => {
                        check_not_reserved("exchange", &name)?;
                        if let Some(alternate) = &wanted.alternate_exchange {
                            let parties = Parties::two(&name, alternate);
                            self.check(Operation::ExchangeDeclareAlternate, parties)?;
                        }
                        self.router = None;
                        self.front.broker.declare_exchange(wanted.clone()).await?
                    }
                };
                check_equivalent_exchange(&there, &wanted)?;
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
            return Err(on_default_exchange());
        }
        if check_not_reserved("exchange", &name).is_err() {
            let words =
                format!("deletion of system exchange '{name}' in vhost '{}' not allowed", self.namespace);
            return Err(Failure::new(ReplyCode::AccessRefused, words));
        }
        self.check(Operation::ExchangeDelete, Parties::one(&name))?;
        self.router = None;
        match self.front.broker.delete_exchange(&self.namespace, &name, method.if_unused).await {
            Err(TopologyError::InUse(_)) => {
                let words = format!("exchange '{name}' in vhost '{}' in use", self.namespace);
                return Err(Failure::precondition(words));
            }
            deleted => deleted?,
        }
        if !method.no_wait {
            self.send(number, exchange::DeleteOk {});
        }
        Ok(())
    }

    pub(super) async fn bind_exchange(&mut self, number: u16, method: exchange::Bind) -> Result<(), Failure> {
        let destination = Destination::Exchange(text(&method.destination)?);
        let (source, key, table) = (&method.source, &method.routing_key, &method.arguments);
        self.bind(Operation::ExchangeBind, destination, source, key, table).await?;
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
        let (source, key, table) = (&method.source, &method.routing_key, &method.arguments);
        self.unbind(Operation::ExchangeUnbind, destination, source, key, table).await?;
        if !method.no_wait {
            self.send(number, exchange::UnbindOk {});
        }
        Ok(())
    }

    pub(super) async fn declare_queue(&mut self, number: u16, method: queue::Declare) -> Result<(), Failure> {
        if is_mailbox(method.queue.as_bytes()) {
            return self.declare_mailbox(number, &method);
        }
        let asked = text(&method.queue)?;
        let is_generated = asked.is_empty() && !method.passive;
        let name = match is_generated {
            true => generated("amq.gen-", self.front.broker.random_bytes()),
            false => ShortStr::truncated(&asked),
        };
        let named = text(&name)?;
        let operation = match method.passive {
            true => Operation::QueueDeclarePassive,
            false => Operation::QueueDeclare,
        };
        self.check(operation, Parties::one(&named))?;
        if method.passive
            && let Source::Stream(topic) = self.source(&named)?
        {
            return self.stream_declared(number, name, &topic, method.no_wait);
        }
        let found = self.front.broker.find_queue(&self.namespace, &named)?;
        let (info, created) = match found {
            Some(info) => (info, false),
            None if method.passive => return Err(Failure::no_queue(&named, &self.namespace)),
            None => {
                if !is_generated {
                    check_not_reserved("queue", &named)?;
                }
                let meta = queue_meta(&self.namespace, &named, &method)?;
                if is_generated && meta.kind != QueueKind::Classic {
                    let words =
                        format!("Cannot declare a server-named queue for type rabbit_{}_queue", meta.kind);
                    return Err(Failure::precondition(words));
                }
                if let Some(exchange) = method.arguments.get("x-dead-letter-exchange").and_then(Value::as_str)
                {
                    self.check(Operation::QueueDeclareDeadLetter, Parties::two(&named, exchange))?;
                }
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
            let wanted = queue_meta(&self.namespace, &named, &method)?;
            check_equivalent(&named, &self.namespace, &info.meta, &wanted)?;
        }
        if info.meta.kind == QueueKind::Stream {
            return self.stream_declared(number, name, &info.topic, method.no_wait);
        }
        let figures = self.ask_queue(&named, |queue| async move { queue.figures().await }).await?.2;
        let QueueFigures { ready, consumers, .. } = figures;
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
        self.check(Operation::QueueDelete, Parties::one(&name))?;
        let Some(info) = self.front.broker.find_queue(&self.namespace, &name)? else {
            // RabbitMQ takes what is not there for deleted.
            if !method.no_wait {
                self.send(number, queue::DeleteOk { message_count: 0 });
            }
            return Ok(());
        };
        self.check_not_others(&info, &name)?;
        for (asked, flag) in [(method.if_unused, "if-unused"), (method.if_empty, "if-empty")] {
            if asked && info.meta.kind != QueueKind::Classic {
                let words = format!(
                    "cannot delete queue '{name}' in vhost '{}'. queue.delete operations with {flag} flag set are not \
                     supported by {} queues",
                    self.namespace, info.meta.kind
                );
                return Err(Failure::new(ReplyCode::NotImplemented, words));
            }
        }
        let (info, figures) = if info.meta.kind == QueueKind::Stream {
            (info, QueueFigures::default())
        } else {
            let figures = |queue: QueueRef| async move { queue.figures().await };
            let (info, _, figures) = self.ask_queue(&name, figures).await?;
            (info, figures)
        };
        let namespace = &self.namespace;
        if method.if_unused && figures.consumers > 0 {
            return Err(Failure::precondition(format!("queue '{name}' in vhost '{namespace}' in use")));
        }
        if method.if_empty && figures.ready > 0 {
            return Err(Failure::precondition(format!("queue '{name}' in vhost '{namespace}' not empty")));
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
        self.check_binding(Operation::QueueBind, &named, &method.exchange)?;
        if let Source::Queue(info) = self.source(&named)? {
            self.check_not_others(&info, &named)?;
        }
        // With neither a queue nor a key the queue's name is the key.
        let key = if method.queue.is_empty() && method.routing_key.is_empty() {
            &name
        } else {
            &method.routing_key
        };
        let destination = Destination::Queue(named);
        self.bind(Operation::QueueBind, destination, &method.exchange, key, &method.arguments).await?;
        if !method.no_wait {
            self.send(number, queue::BindOk {});
        }
        Ok(())
    }

    pub(super) async fn unbind_queue(&mut self, number: u16, method: queue::Unbind) -> Result<(), Failure> {
        let name = text(&self.queue_name(number, &method.queue)?)?;
        if let Some(info) = self.front.broker.find_queue(&self.namespace, &name)? {
            self.check_not_others(&info, &name)?;
        }
        let (source, key, table) = (&method.exchange, &method.routing_key, &method.arguments);
        self.unbind(Operation::QueueUnbind, Destination::Queue(name), source, key, table).await?;
        self.send(number, queue::UnbindOk {});
        Ok(())
    }

    pub(super) async fn purge_queue(&mut self, number: u16, method: queue::Purge) -> Result<(), Failure> {
        let name = text(&self.queue_name(number, &method.queue)?)?;
        self.check(Operation::QueuePurge, Parties::one(&name))?;
        if let Source::Stream(_) = self.source(&name)? {
            let words = format!("queue.purge not supported by stream '{name}' in vhost '{}'", self.namespace);
            return Err(Failure::new(ReplyCode::NotImplemented, words));
        }
        let purged = self.ask_queue(&name, |queue| async move { queue.purge().await }).await?.2;
        if !method.no_wait {
            self.send(number, queue::PurgeOk { message_count: u32::try_from(purged).unwrap_or(u32::MAX) });
        }
        Ok(())
    }

    /// Checks that the user may bind this to that, or take it back.
    fn check_binding(
        &mut self,
        operation: Operation,
        destination: &str,
        source: &ShortStr,
    ) -> Result<(), Failure> {
        let source = text(source)?;
        if source.is_empty() || destination.is_empty() {
            let words = "operation not permitted on the default exchange";
            return Err(Failure::new(ReplyCode::AccessRefused, words));
        }
        self.check(operation, Parties::two(destination, &source))
    }

    async fn bind(
        &mut self,
        operation: Operation,
        destination: Destination,
        source: &ShortStr,
        key: &ShortStr,
        table: &Table,
    ) -> Result<(), Failure> {
        self.check_binding(operation, destination.name(), source)?;
        let binding = self.binding(destination, source, key, table)?;
        if self.router()?.exchange(&binding.source).is_none() {
            return Err(Failure::no_exchange(&binding.source, &self.namespace));
        }
        if let Destination::Exchange(name) = &binding.destination
            && self.router()?.exchange(name).is_none()
        {
            return Err(Failure::no_exchange(name, &self.namespace));
        }
        let parties = Parties::two(binding.destination.name(), &binding.source);
        self.check_keys(operation, parties, &binding.source, [&binding.key[..]])?;
        self.router = None;
        Ok(self.front.broker.bind(binding).await?)
    }

    async fn unbind(
        &mut self,
        operation: Operation,
        destination: Destination,
        source: &ShortStr,
        key: &ShortStr,
        table: &Table,
    ) -> Result<(), Failure> {
        self.check_binding(operation, destination.name(), source)?;
        let binding = self.binding(destination, source, key, table)?;
        let parties = Parties::two(binding.destination.name(), &binding.source);
        self.check_keys(operation, parties, &binding.source, [&binding.key[..]])?;
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
            return Err(Failure::locked(name, &self.namespace));
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

fn on_default_exchange() -> Failure {
    Failure::new(ReplyCode::AccessRefused, "operation not permitted on the default exchange")
}

fn queue_meta(namespace: &str, name: &str, method: &queue::Declare) -> Result<QueueMeta, Undeclarable> {
    let declaration = QueueDeclaration {
        // An exclusive queue goes with its connection, whatever it is declared as.
        durable: method.durable && !method.exclusive,
        auto_delete: method.auto_delete,
        exclusive: method.exclusive,
        arguments: arguments(&method.arguments),
    };
    declaration.meta(namespace, name)
}
