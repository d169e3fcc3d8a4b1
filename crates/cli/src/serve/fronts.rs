//! The listeners: all of them open before anything is announced, all of them drained before the end.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use weir_amqp::{AmqpFront, AmqpFrontOptions};
use weir_amqp_management::{ManagementFront, ManagementOptions};
use weir_broker::{Broker, ListenerInfo};
use weir_http::{HttpFront, HttpOptions};
use weir_kafka::{KafkaFront, KafkaFrontOptions};
use weir_socket::{Listener as Socket, Tls};

use super::descriptors::Descriptors;
use crate::config::{Config, Listener, Protocol, Settings};
use crate::config_verbs;
use crate::exit::Failure;
use crate::output;

/// Open listeners, not yet served.
pub struct Fronts {
    fronts: Vec<(Protocol, Front)>,
    tls: Option<Arc<Tls>>,
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
        if !config.insecure && !broker.access().requires_authentication() {
            config.listeners.iter().try_for_each(Listener::refuse_beyond_loopback)?;
        }
        let tls = load_tls(config)?;
        for listener in &config.listeners {
            let Listener { protocol, address } = *listener;
            let secret = tls.clone().filter(|_| protocol.is_tls());
            let socket = Socket::bind(address, secret).await.map_err(|error| {
                Failure::Usage(format!(
                    "cannot listen on {protocol}={address}: {error}; choose another address with --listen"
                ))
            })?;
            let broker = broker.clone();
            let front = match protocol {
                Protocol::Kafka | Protocol::KafkaTls => {
                    let options = kafka_options(config, protocol, connections_max);
                    Front::Kafka(KafkaFront::on(socket, broker, options))
                }
                Protocol::Amqp | Protocol::Amqps => {
                    let options = AmqpFrontOptions {
                        connections_max: connections_max.min(config.connections.connections_max),
                        consumer_timeout: config.connections.consumer_timeout,
                        drain: config.drain_timeout,
                        ..AmqpFrontOptions::default()
                    };
                    Front::Amqp(AmqpFront::on(socket, broker, options))
                }
                Protocol::AmqpManagement => {
                    let mut options = ManagementOptions::default();
                    options.server.drain = config.drain_timeout;
                    options.server.connections_max = options.server.connections_max.min(connections_max);
                    Front::AmqpManagement(ManagementFront::on(socket, broker, options))
                }
                // The configuration takes it out of the listeners that are clients'.
                Protocol::Cluster => continue,
                Protocol::Http | Protocol::Https => {
                    let mut options = HttpOptions {
                        drain: config.drain_timeout,
                        config: config_verbs::to_json(settings)?,
                        ..HttpOptions::default()
                    };
                    options.connections_max = options.connections_max.min(connections_max);
                    Front::Http(HttpFront::on(socket, broker, options))
                }
            };
            fronts.push((protocol, front));
        }
        let listens = fronts.iter().map(|(protocol, front): &(Protocol, Front)| ListenerInfo {
            protocol: protocol.name(),
            address: front.local_addr(),
        });
        broker.note_listeners(listens.collect());
        Ok(Fronts { fronts, tls })
    }

    /// Says where everything listens, for scripts and people: one line each, then `ready`.
    pub fn announce(&self, cluster: Option<SocketAddr>) -> Result<(), Failure> {
        let mut lines = String::new();
        if let Some(address) = cluster {
            lines.push_str(&format!("listening cluster {address}\n"));
        }
        for (protocol, front) in &self.fronts {
            let address = front.local_addr();
            lines.push_str(&format!("listening {protocol} {address}\n"));
        }
        lines.push_str("ready\n");
        output::print_text(&lines)
    }

    /// Begins to serve.
    pub fn serve(self) -> Serving {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        if let Some(tls) = self.tls {
            tasks.spawn(reload_always(tls, stop.clone()));
        }
        for (_, front) in self.fronts {
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
    fn local_addr(&self) -> SocketAddr {
        match self {
            Front::Kafka(front) => front.local_addr(),
            Front::Amqp(front) => front.local_addr(),
            Front::AmqpManagement(front) => front.local_addr(),
            Front::Http(front) => front.local_addr(),
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

/// The certificate that the configuration names, if a listener needs it.
fn load_tls(config: &Config) -> Result<Option<Arc<Tls>>, Failure> {
    let wanted = config.listeners.iter().any(|listener| listener.protocol.is_tls());
    let files = config.tls.clone().filter(|_| wanted);
    let loaded = files.map(Tls::load).transpose().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(loaded.map(Arc::new))
}

/// Reads the certificate again whenever the process is sent SIGHUP.
async fn reload_always(tls: Arc<Tls>, stop: CancellationToken) {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else {
        tracing::warn!(
            "SIGHUP cannot be listened to: a new certificate is read when the server starts again"
        );
        return;
    };
    loop {
        tokio::select! {
            _ = hangups.recv() => match tls.reload() {
                Ok(()) => tracing::info!("the certificate was read again"),
                Err(error) => tracing::error!(%error, "the certificate stays as it was"),
            },
            () = stop.cancelled() => return,
        }
    }
}

fn kafka_options(config: &Config, protocol: Protocol, connections_max: usize) -> KafkaFrontOptions {
    KafkaFrontOptions {
        protocol: protocol.name(),
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
