//! Class exchange: what is declared and deleted; and what names mean.

use weir_amqp_message::arguments;
use weir_amqp_wire::methods::exchange;
use weir_amqp_wire::{ReplyCode, ShortStr, Table, Value};
use weir_broker::topology::{
    ExchangeDeclaration, QueueInfo, TopologyError, check_equivalent_exchange, check_not_reserved,
};
use weir_broker::{Operation, Parties};
use weir_model::routing::ExchangeMeta;

use super::Connection;
use crate::errors::Failure;

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
                if known.is_none() {
                    let of = format!("exchange '{name}' in vhost '{}'", self.namespace);
                    name_argument(&method.arguments, "alternate-exchange", &of)?;
                }
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

/// A name as it is stored. What declares, deletes and binds strips line ends from it, as in RabbitMQ.
pub(super) fn text(name: &ShortStr) -> Result<String, Failure> {
    let mut text = asked(name)?;
    text.retain(|letter| !matches!(letter, '\r' | '\n'));
    Ok(text)
}

/// The name that a method asks for that only uses what is there: a line end in it is part of it, so that nothing has it.
pub(super) fn asked(name: &ShortStr) -> Result<String, Failure> {
    let not_text = || Failure::precondition("a name must be UTF-8");
    let text = name.as_str().ok_or_else(not_text)?;
    Ok(text.chars().filter(|letter| *letter != '\0').collect())
}

/// An argument that names something, if it is there.
pub(super) fn name_argument<'t>(
    table: &'t Table,
    argument: &str,
    of: &str,
) -> Result<Option<&'t str>, Failure> {
    match table.get(argument) {
        None => Ok(None),
        Some(Value::LongStr(name)) => Ok(std::str::from_utf8(name).ok()),
        Some(other) => {
            let words = format!("invalid type '{}' for arg '{argument}' in {of}", other.type_name());
            Err(Failure::precondition(words))
        }
    }
}

pub(super) fn on_default_exchange() -> Failure {
    Failure::new(ReplyCode::AccessRefused, "operation not permitted on the default exchange")
}
