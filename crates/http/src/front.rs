//! The listener, and the table of what is served.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use weir_broker::Broker;
use weir_socket::Listener;

use crate::access::{self, Origin};
use crate::api;
use crate::error::ApiError;
use crate::health;
use crate::limits::LimitedListener;

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
        HttpOptions {
            body_bytes_max: 1 << 20,
            connections_max: 1_000,
            idle: Duration::from_secs(120),
            drain: Duration::from_secs(10),
            config: serde_json::Value::Null,
        }
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
    listener: Listener,
    front: Arc<Front>,
    options: HttpOptions,
}

impl HttpFront {
    /// Opens a listener for TCP. Port 0 takes a free one; see [`HttpFront::local_addr`].
    pub async fn bind(addr: SocketAddr, broker: Arc<Broker>, options: HttpOptions) -> io::Result<HttpFront> {
        Ok(HttpFront::on(Listener::bind(addr, None).await?, broker, options))
    }

    /// The front on a listener that is open.
    pub fn on(listener: Listener, broker: Arc<Broker>, options: HttpOptions) -> HttpFront {
        let front = Arc::new(Front { broker, config: options.config.clone() });
        HttpFront { listener, front, options }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` resolves, then accepts nothing more, finishes what is under way, and returns;
    /// at the latest after [`HttpOptions::drain`].
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send + 'static) {
        let router = router(self.front, self.options.body_bytes_max);
        let listener = LimitedListener::new(self.listener, self.options.connections_max, self.options.idle);
        let (stopping, stopped) = tokio::sync::oneshot::channel();
        let service = router.into_make_service_with_connect_info::<Origin>();
        let serving = axum::serve(listener, service).with_graceful_shutdown(async move {
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

pub(crate) fn router(front: Arc<Front>, body_bytes_max: usize) -> Router {
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(health::metrics))
        .nest("/api/v1", api::routes())
        .fallback(async || ApiError::no_such_path())
        .method_not_allowed_fallback(async || ApiError::no_such_method())
        .layer(middleware::from_fn_with_state(front.clone(), access::guard))
        .layer(middleware::from_fn(refuse_other_sites))
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .with_state(front)
}

/// A browser sends the credentials that it knows by itself, or none are asked for, so a page of some other site, open in
/// the operator's browser, must not be able to act in the operator's name. Browsers say where a request comes from; other clients do not.
async fn refuse_other_sites(request: Request, next: Next) -> Response {
    if may_act(&request) { next.run(request).await } else { ApiError::other_site().into_response() }
}

fn may_act(request: &Request) -> bool {
    let headers = request.headers();
    if matches!(*request.method(), Method::GET | Method::HEAD) || !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let origin = text(header::ORIGIN).and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    origin.is_some() && origin == text(header::HOST)
}
