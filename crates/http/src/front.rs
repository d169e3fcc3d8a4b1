//! The listener, and the table of what is served.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::get;
use weir_broker::Broker;
use weir_http_server::{HttpServer, ServerOptions, refuse_other_sites};
use weir_socket::Listener;

use crate::access;
use crate::api;
use crate::error::ApiError;
use crate::health;

/// How the front behaves.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Largest body of a request, in bytes.
    pub body_bytes_max: usize,
    /// Connections at once; more wait until one is closed.
    pub connections_max: usize,
    /// A connection on which nothing moves for this long is closed.
    pub idle: Duration,
    /// How long connections may take to finish what is under way when the front stops.
    pub drain: Duration,
    /// The effective configuration, as `/api/v1/config` shows it.
    pub config: serde_json::Value,
}

impl Default for HttpOptions {
    fn default() -> Self {
        let ServerOptions { connections_max, idle, drain } = ServerOptions::default();
        let config = serde_json::Value::Null;
        HttpOptions { body_bytes_max: 1 << 20, connections_max, idle, drain, config }
    }
}

/// What every handler may use.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) broker: Arc<Broker>,
    pub(crate) config: serde_json::Value,
}

/// The HTTP front, listening.
#[derive(Debug)]
pub struct HttpFront {
    server: HttpServer,
    front: Arc<Front>,
    body_bytes_max: usize,
}

impl HttpFront {
    /// Opens a listener for TCP. Port 0 takes a free one; see [`HttpFront::local_addr`].
    pub async fn bind(addr: SocketAddr, broker: Arc<Broker>, options: HttpOptions) -> io::Result<HttpFront> {
        Ok(HttpFront::on(Listener::bind(addr, None).await?, broker, options))
    }

    /// The front on a listener that is open.
    pub fn on(listener: Listener, broker: Arc<Broker>, options: HttpOptions) -> HttpFront {
        let HttpOptions { body_bytes_max, connections_max, idle, drain, config } = options;
        let server = HttpServer::on(listener, ServerOptions { connections_max, idle, drain });
        HttpFront { server, front: Arc::new(Front { broker, config }), body_bytes_max }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until `shutdown` resolves, then accepts nothing more, finishes what is under way, and returns;
    /// at the latest after [`HttpOptions::drain`].
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send + 'static) {
        self.server.serve(router(self.front, self.body_bytes_max), shutdown).await;
    }
}

pub(crate) fn router(front: Arc<Front>, body_bytes_max: usize) -> Router {
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(health::metrics))
        .nest("/api/v1", api::routes())
        .fallback(async || ApiError::no_such_path())
        .method_not_allowed_fallback(async || ApiError::no_such_method())
        .layer(middleware::from_fn_with_state(front.clone(), access::guard))
        // A browser sends the credentials that it knows by itself, or none are asked for.
        .layer(middleware::from_fn(|request, next| {
            refuse_other_sites(request, next, || ApiError::other_site().into_response())
        }))
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .with_state(front)
}
