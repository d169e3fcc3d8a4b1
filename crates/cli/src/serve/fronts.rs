//! The listeners: all of them open before anything is announced, all of them drained before the end.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use weir_amqp::{AmqpFront, AmqpFrontOptions};
use weir_amqp_management::{ManagementFront, ManagementOptions};
use weir_broker::{Broker, ListenerInfo};
use weir_http::{HttpFront, HttpOptions};
use weir_kafka::{KafkaFront, KafkaFrontOptions};

use super::descriptors::Descriptors;
use crate::config::{Config, Listener, Protocol, Settings};
use crate::config_verbs;
use crate::exit::Failure;
use crate::output;

/// Open listeners, not yet served.
pub struct Fronts {
    fronts: Vec<Front>,
}

enum Front {
    Kafka(KafkaFront),
    Amqp(AmqpFront),
    AmqpManagement(ManagementFront),
    Http(HttpFront),
}

/// Listeners that are served until they are stopped.
pub struct Serving {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Fronts {
    /// Opens every listener that the configuration names.
    pub async fn open(
        config: &Config,
        settings: &Settings,
        descriptors: &Descriptors,
        broker: &Arc<Broker>,
    ) -> Result<Fronts, Failure> {
        let mut fronts = Vec::new();
        // Any of the listeners may be flooded.
        let connections_max = (descriptors.connections_max / config.listeners.len().max(1)).max(1);
        if connections_max < config.connections.connections_max {
            tracing::info!(
                connections_max,
                asked = config.connections.connections_max,
                "a listener takes fewer connections than max.connections says: the process may not open more files"
            );
        }
        for listener in &config.listeners {
            let Listener { protocol, address } = *listener;
            let opened = match protocol {
                Protocol::Kafka => {
                    let options = kafka_options(config, connections_max);
                    KafkaFront::bind(address, broker.clone(), options).await.map(Front::Kafka)
                }
                Protocol::Amqp => {
                    let options = AmqpFrontOptions {
                        connections_max: connections_max.min(config.connections.connections_max),
                        drain: config.drain_timeout,
                        ..AmqpFrontOptions::default()
                    };
                    AmqpFront::bind(address, broker.clone(), options).await.map(Front::Amqp)
                }
                Protocol::AmqpManagement => {
                    let mut options = ManagementOptions::default();
                    options.server.drain = config.drain_timeout;
                    options.server.connections_max = options.server.connections_max.min(connections_max);
                    ManagementFront::bind(address, broker.clone(), options).await.map(Front::AmqpManagement)
                }
                Protocol::Http => {
                    let mut options = HttpOptions {
                        drain: config.drain_timeout,
                        config: config_verbs::to_json(settings)?,
                        ..HttpOptions::default()
                    };
                    options.connections_max = options.connections_max.min(connections_max);
                    HttpFront::bind(address, broker.clone(), options).await.map(Front::Http)
                }
            };
            fronts.push(opened.map_err(|error| {
                Failure::Usage(format!(
                    "cannot listen on {protocol}={address}: {error}; choose another address with --listen"
                ))
            })?);
        }
        let listens = fronts.iter().map(|front| {
            let (protocol, address) = front.listens();
            ListenerInfo { protocol: protocol.name(), address }
        });
        broker.note_listeners(listens.collect());
        Ok(Fronts { fronts })
    }

    /// Says where everything listens, for scripts and people: one line each, then `ready`.
    pub fn announce(&self) -> Result<(), Failure> {
        let mut lines = String::new();
        for front in &self.fronts {
            let (protocol, address) = front.listens();
            lines.push_str(&format!("listening {protocol} {address}\n"));
        }
        lines.push_str("ready\n");
        output::print_text(&lines)
    }

    /// Begins to serve.
    pub fn serve(self) -> Serving {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for front in self.fronts {
            let stopped = stop.clone().cancelled_owned();
            match front {
                Front::Kafka(front) => tasks.spawn(front.serve(stopped)),
                Front::Amqp(front) => tasks.spawn(front.serve(stopped)),
                Front::AmqpManagement(front) => tasks.spawn(front.serve(stopped)),
                Front::Http(front) => tasks.spawn(front.serve(stopped)),
            };
        }
        Serving { stop, tasks }
    }
}

impl Front {
    fn listens(&self) -> (Protocol, SocketAddr) {
        match self {
            Front::Kafka(front) => (Protocol::Kafka, front.local_addr()),
            Front::Amqp(front) => (Protocol::Amqp, front.local_addr()),
            Front::AmqpManagement(front) => (Protocol::AmqpManagement, front.local_addr()),
            Front::Http(front) => (Protocol::Http, front.local_addr()),
        }
    }
}

impl Serving {
    /// Accepts nothing more, finishes what is under way, each front within its own deadline.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a listener ended badly");
            }
        }
    }
}

fn kafka_options(config: &Config, connections_max: usize) -> KafkaFrontOptions {
    KafkaFrontOptions {
        frame_bytes_max: config.connections.request_bytes_max as usize,
        idle: config.connections.max_idle,
        connections_max: config.connections.connections_max.min(connections_max),
        fetch_bytes_max: config.connections.fetch_bytes_max as usize,
        fetch_sessions_max: config.connections.fetch_sessions_max,
        drain: config.drain_timeout,
        seed: super::random_u64(),
        ..KafkaFrontOptions::default()
    }
}
