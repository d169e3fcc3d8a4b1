//! Class queue: what is declared, deleted and emptied; and asking a queue something while others may delete it.

use weir_amqp_message::arguments;
use weir_amqp_wire::methods::queue;
use weir_amqp_wire::{ReplyCode, ShortStr};
use weir_broker::queues::{QueueFigures, QueueGone, QueueRef};
use weir_broker::topology::{
    QueueDeclaration, QueueInfo, check_equivalent, check_may_be_nameless, check_not_reserved, queue_in,
};
use weir_broker::{Operation, Parties};
use weir_model::queue::QueueKind;

use super::Connection;
use super::declare::{asked, name_argument, text};
use super::streams::Source;
use crate::errors::Failure;
use crate::handshake::generated;
use crate::replies::is_mailbox;

/// How often a queue is asked that ends whenever it is asked. It is there each time, and was just opened.
const TRIES: usize = 5;

impl Connection {
    pub(super) async fn declare_queue(&mut self, number: u16, method: queue::Declare) -> Result<(), Failure> {
        if is_mailbox(method.queue.as_bytes()) {
            return self.declare_mailbox(number, &method);
        }
        let info = match method.passive {
            false => self.queue_to_be(&method).await?,
            true => match self.known_queue(&method)? {
                Source::Queue(info) => *info,
                Source::Stream(topic) => {
                    let name = ShortStr::truncated(&text(&method.queue)?);
                    return self.stream_declared(number, name, &topic, method.no_wait);
                }
            },
        };
        let (_, named) = weir_model::queue::split_name(info.topic.name());
        let name = ShortStr::truncated(named);
        if info.meta.kind == QueueKind::Stream {
            return self.stream_declared(number, name, &info.topic, method.no_wait);
        }
        let figures = self.ask_queue(named, |queue| async move { queue.figures().await }).await?.2;
        let QueueFigures { ready, consumers, .. } = figures;
        self.channel(number)?.last_queue = Some(name.clone());
        if !method.no_wait {
            let message_count = u32::try_from(ready).unwrap_or(u32::MAX);
            let ok = queue::DeclareOk { queue: name, message_count, consumer_count: consumers as u32 };
            self.send(number, ok);
        }
        Ok(())
    }

    /// The queue that is there.
    fn known_queue(&mut self, method: &queue::Declare) -> Result<Source, Failure> {
        let name = text(&method.queue)?;
        self.check(Operation::QueueDeclarePassive, Parties::one(&name))?;
        let source = self.source(&name)?;
        if let Source::Queue(info) = &source {
            self.check_not_others(info, &name)?;
        }
        Ok(source)
    }

    /// The queue that is declared, made unless it is there.
    async fn queue_to_be(&mut self, method: &queue::Declare) -> Result<QueueInfo, Failure> {
        let declaration = QueueDeclaration {
            // An exclusive queue goes with its connection, whatever it is declared as.
            durable: method.durable && !method.exclusive,
            auto_delete: method.auto_delete,
            exclusive: method.exclusive,
            arguments: arguments(&method.arguments),
        };
        let mut name = text(&method.queue)?;
        if name.is_empty() {
            check_may_be_nameless(&declaration.arguments)?;
            name = generated("amq.gen-", self.front.broker.random_bytes()).to_string_lossy().into_owned();
        } else {
            check_not_reserved("queue", &name)?;
        }
        self.check(Operation::QueueDeclare, Parties::one(&name))?;
        let (info, created) = match self.front.broker.find_queue(&self.namespace, &name)? {
            Some(info) => (info, false),
            None => {
                let of = queue_in(&self.namespace, &name);
                if let Some(exchange) = name_argument(&method.arguments, "x-dead-letter-exchange", &of)? {
                    self.check(Operation::QueueDeclareDeadLetter, Parties::two(&name, exchange))?;
                }
                let meta = declaration.clone().meta(&self.namespace, &name)?;
                self.router = None;
                self.front.broker.create_queue(&self.namespace, &name, meta).await?
            }
        };
        if created && info.meta.exclusive {
            self.front.exclusive.lock().insert(info.topic.id(), self.id);
            self.exclusive.push(info.topic.id());
        }
        self.check_not_others(&info, &name)?;
        if !created {
            check_equivalent(&name, &self.namespace, &info.meta, &declaration)?;
        }
        Ok(info)
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
            // A stream is deleted whatever is asked, as in RabbitMQ.
            if asked && info.meta.kind == QueueKind::Quorum {
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
            // A deletion that is refused is no use of the queue.
            let figures = |queue: QueueRef| async move { queue.look().await };
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

    pub(super) async fn purge_queue(&mut self, number: u16, method: queue::Purge) -> Result<(), Failure> {
        let name = asked(&self.queue_name(number, &method.queue)?)?;
        self.check(Operation::QueuePurge, Parties::one(&name))?;
        if let Source::Stream(_) = self.source(&name)? {
            let words =
                format!("queue.purge not supported by stream queues {}", queue_in(&self.namespace, &name));
            return Err(Failure::new(ReplyCode::NotImplemented, words));
        }
        let purged = self.ask_queue(&name, |queue| async move { queue.purge().await }).await?.2;
        if !method.no_wait {
            self.send(number, queue::PurgeOk { message_count: u32::try_from(purged).unwrap_or(u32::MAX) });
        }
        Ok(())
    }

    /// Asks a queue that this connection may use. One that has ended because nobody used it is opened anew, and one
    /// that was deleted meanwhile is as good as never declared.
    pub(super) async fn ask_queue<T, F>(
        &mut self,
        name: &str,
        ask: impl Fn(QueueRef) -> F,
    ) -> Result<(QueueInfo, QueueRef, T), Failure>
    where
        F: Future<Output = Result<T, QueueGone>>,
    {
        for _ in 0..TRIES {
            let info = self.need_queue(name)?;
            self.check_not_others(&info, name)?;
            let queue = match self.front.broker.open_queue(&info).await {
                Ok(queue) => queue,
                Err(error) => {
                    self.need_queue(name)?;
                    return Err(error.into());
                }
            };
            if let Ok(answer) = ask(queue.clone()).await {
                return Ok((info, queue, answer));
            }
        }
        self.need_queue(name)?;
        Err(QueueGone.into())
    }
}
