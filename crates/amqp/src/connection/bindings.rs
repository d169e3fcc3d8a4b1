//! What is bound to what, and no longer.

use std::sync::Arc;

use weir_amqp_message::arguments;
use weir_amqp_wire::methods::{exchange, queue};
use weir_amqp_wire::{ShortStr, Table};
use weir_broker::{Operation, Parties};
use weir_model::routing::{BindingMeta, Destination, check_arguments};

use super::Connection;
use super::declare::{on_default_exchange, text};
use super::streams::Source;
use crate::errors::Failure;

impl Connection {
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

    pub(super) async fn bind_queue(&mut self, number: u16, method: queue::Bind) -> Result<(), Failure> {
        let name = self.queue_name(number, &method.queue)?;
        let key = key_or_name(&method.queue, &method.routing_key, &name);
        let destination = Destination::Queue(text(&name)?);
        self.bind(Operation::QueueBind, destination, &method.exchange, key, &method.arguments).await?;
        if !method.no_wait {
            self.send(number, queue::BindOk {});
        }
        Ok(())
    }

    pub(super) async fn unbind_queue(&mut self, number: u16, method: queue::Unbind) -> Result<(), Failure> {
        let name = self.queue_name(number, &method.queue)?;
        let key = key_or_name(&method.queue, &method.routing_key, &name);
        let destination = Destination::Queue(text(&name)?);
        self.unbind(Operation::QueueUnbind, destination, &method.exchange, key, &method.arguments).await?;
        self.send(number, queue::UnbindOk {});
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
            return Err(on_default_exchange());
        }
        self.check(operation, Parties::two(destination, &source))
    }

    /// What is wrong is looked for in RabbitMQ's order: the exchange, what is bound to it, the arguments, whose it is.
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
        let parties = Parties::two(binding.destination.name(), &binding.source);
        self.check_keys(operation, parties, &binding.source, [&binding.key[..]])?;
        if self.router()?.exchange(&binding.source).is_none() {
            return Err(Failure::no_exchange(&binding.source, &self.namespace));
        }
        match &binding.destination {
            Destination::Exchange(name) => {
                if self.router()?.exchange(name).is_none() {
                    return Err(Failure::no_exchange(name, &self.namespace));
                }
            }
            Destination::Queue(name) => {
                if let Source::Queue(info) = self.source(name)?
                    && let Err(locked) = self.check_not_others(&info, name)
                {
                    let invalid = self.router()?.with_binding(&Arc::new(binding), 0).err();
                    return Err(invalid.map_or(locked, |invalid| Failure::precondition(invalid.to_string())));
                }
            }
        }
        self.router = None;
        Ok(self.front.broker.bind(binding).await?)
    }

    /// What is not bound is as good as unbound, whoever asks for it.
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
        let bound = self.router()?.bindings_to(&binding.destination);
        if bound.iter().any(|bound| **bound == binding)
            && let Destination::Queue(name) = &binding.destination
            && let Ok(Source::Queue(info)) = self.source(name)
        {
            self.check_not_others(&info, name)?;
        }
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
}

/// With neither a queue nor a key the queue's name is the key.
fn key_or_name<'a>(queue: &ShortStr, key: &'a ShortStr, name: &'a ShortStr) -> &'a ShortStr {
    if queue.is_empty() && key.is_empty() { name } else { key }
}
