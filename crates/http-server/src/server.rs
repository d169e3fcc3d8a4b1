//! Serving a router on a listener until told to stop.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use weir_socket::Listener;

use crate::limits::{LimitedListener, Peer};

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Connections at once; more wait until one is closed.
    pub connections_max: usize,
    /// A connection on which nothing moves for this long is closed.
    pub idle: Duration,
    /// How long connections may take to finish what is under way when the server stops.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            connections_max: 1_000,
            idle: Duration::from_secs(120),
            drain: Duration::from_secs(10),
        }
    }
}

/// A server, listening.
#[derive(Debug)]
pub struct HttpServer {
    listener: Listener,
    options: ServerOptions,
}

impl HttpServer {
    /// A server on a listener that is open.
    pub fn on(listener: Listener, options: ServerOptions) -> HttpServer {
        HttpServer { listener, options }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` resolves, then accepts nothing more, finishes what is under way, and returns;
    /// at the latest after [`ServerOptions::drain`]. Every request carries the [`Peer`] it came from.
    pub async fn serve(self, router: Router, shutdown: impl Future<Output = ()> + Send + 'static) {
        let listener = LimitedListener::new(self.listener, self.options.connections_max, self.options.idle);
        let (stopping, stopped) = tokio::sync::oneshot::channel();
        let router = router.into_make_service_with_connect_info::<Peer>();
        let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
            shutdown.await;
            // The receiver lives as long as this future is polled.
            let _ = stopping.send(());
        });
        let deadline = async {
            // An error would mean that the sender was dropped unsent, which is a stop as well.
            let _ = stopped.await;
            tokio::time::sleep(self.options.drain).await;
        };
        tokio::select! {
            served = async { serving.await } => if let Err(error) = served {
                tracing::error!(%error, "the HTTP listener ended");
            },
            () = deadline => tracing::warn!("HTTP connections did not finish in time and are cut"),
        }
    }
}
