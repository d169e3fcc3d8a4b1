//! The listener, and the way of a request: its path, what may be done there, who asks, the body, the answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Semaphore;
use weir_broker::Broker;
use weir_http_server::{HttpServer, Peer, ServerOptions, refuse_other_sites};
use weir_socket::Listener;

use crate::ask::{Ask, Query};
use crate::failure::{Failure, Result};
use crate::login::{User, log_in};
use crate::resource::Resource;
use crate::rooms;

/// How the front behaves.
#[derive(Clone, Debug)]
pub struct ManagementOptions {
    /// Largest body of a request, in bytes: room for the largest message in base64.
    pub body_bytes_max: usize,
    /// Bodies that are held at a time; more wait.
    pub bodies_max: usize,
    /// How long a client may take to send a body.
    pub body_within: Duration,
    /// The server's own options.
    pub server: ServerOptions,
}

impl Default for ManagementOptions {
    fn default() -> Self {
        ManagementOptions {
            body_bytes_max: 16 << 20,
            bodies_max: 16,
            body_within: Duration::from_secs(60),
            server: ServerOptions::default(),
        }
    }
}

/// What every request may use.
#[derive(Debug)]
pub(crate) struct Front {
    broker: Arc<Broker>,
    bodies: Semaphore,
    body_bytes_max: usize,
    body_within: Duration,
}

/// The front that speaks RabbitMQ's management API, listening.
#[derive(Debug)]
pub struct ManagementFront {
    server: HttpServer,
    front: Arc<Front>,
}

/// What a request comes to, if it comes to something good.
#[derive(Debug)]
pub(crate) enum Answer {
    /// 200, with a body.
    Json(Value),
    /// 201, and where it is to be found where that is said.
    Created(Option<String>),
    /// 204.
    Done,
    /// Another status, with a body.
    Status(StatusCode, Value),
    /// 200, as a file of this name.
    File(Value, String),
}

impl ManagementFront {
    /// Opens a listener for TCP. Port 0 takes a free one; see [`ManagementFront::local_addr`].
    pub async fn bind(
        addr: SocketAddr,
        broker: Arc<Broker>,
        options: ManagementOptions,
    ) -> io::Result<ManagementFront> {
        Ok(ManagementFront::on(Listener::bind(addr, None).await?, broker, options))
    }

    /// The front on a listener that is open.
    pub fn on(listener: Listener, broker: Arc<Broker>, options: ManagementOptions) -> ManagementFront {
        let ManagementOptions { body_bytes_max, bodies_max, body_within, server } = options;
        let server = HttpServer::on(listener, server);
        broker.read_messages_with(Arc::new(weir_amqp_message::Reader));
        let front = Front { broker, bodies: Semaphore::new(bodies_max), body_bytes_max, body_within };
        ManagementFront { server, front: Arc::new(front) }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until `shutdown` resolves, then accepts nothing more, finishes what is under way, and returns; at
    /// the latest after [`ServerOptions::drain`].
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send + 'static) {
        let other_site = || {
            let reason = "a page of another site may not change anything here";
            Failure::new(StatusCode::FORBIDDEN, "forbidden", reason).into_response()
        };
        let router = Router::new()
            .fallback(respond)
            // Browsers send a password that they know along with whatever a page asks for.
            .layer(middleware::from_fn(move |request, next| refuse_other_sites(request, next, other_site)))
            .with_state(self.front);
        self.server.serve(router, shutdown).await;
    }
}

async fn respond(
    State(front): State<Arc<Front>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let answered = answer(&front, peer.0, parts, body).await;
    let mut response = match answered {
        Ok(response) => response,
        Err(failure) => {
            // What is not served is no failure of ours.
            if failure.status().is_server_error() && failure.status() != StatusCode::NOT_IMPLEMENTED {
                tracing::warn!(?failure, "a request to the management API failed");
            }
            failure.into_response()
        }
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

async fn answer(front: &Front, peer: SocketAddr, parts: Parts, body: Body) -> Result<Response> {
    let resource = Resource::of(parts.uri.path()).ok_or_else(Failure::nothing_there)?;
    let methods = resource.methods();
    if parts.method == Method::OPTIONS {
        return Ok((StatusCode::OK, [allow(methods)]).into_response());
    }
    if !methods.contains(&parts.method) {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let failure =
            Failure::new(status, "method_not_allowed", format!("{} is not for this path", parts.method));
        return Ok(([allow(methods)], failure).into_response());
    }
    let user = match resource.is_open() {
        true => User::nobody(),
        false => log_in(&front.broker, &parts.headers, peer.ip()).await?,
    };
    // Held until the request is answered, as the body is.
    let mut room = None;
    let body = if parts.method == Method::GET || parts.method == Method::HEAD {
        Bytes::new()
    } else {
        room = front.bodies.acquire().await.ok();
        read(front, body).await?
    };
    let ask = Ask {
        broker: Arc::clone(&front.broker),
        user,
        query: Query::parse(parts.uri.query()),
        headers: parts.headers,
        body,
    };
    let answered = rooms::answer(ask, parts.method, resource).await?;
    drop(room);
    Ok(answered.into_response())
}

async fn read(front: &Front, body: Body) -> Result<Bytes> {
    match tokio::time::timeout(front.body_within, to_bytes(body, front.body_bytes_max)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) => Err(Failure::bad_request(format!(
            "the body could not be read ({error}); it may have {} bytes",
            front.body_bytes_max
        ))),
        Err(_) => {
            let reason = "the body did not come in time";
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", reason))
        }
    }
}

fn allow(methods: &[Method]) -> (HeaderName, String) {
    let names: Vec<&str> = methods.iter().chain([&Method::OPTIONS]).map(Method::as_str).collect();
    (header::ALLOW, names.join(", "))
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let json = |body: Value| axum::Json(body);
        match self {
            Answer::Json(body) => json(body).into_response(),
            Answer::Created(None) => StatusCode::CREATED.into_response(),
            Answer::Created(Some(place)) => {
                (StatusCode::CREATED, [(header::LOCATION, place)]).into_response()
            }
            Answer::Done => StatusCode::NO_CONTENT.into_response(),
            Answer::Status(status, body) => (status, json(body)).into_response(),
            Answer::File(body, name) => {
                let disposition = format!("attachment; filename={name}");
                ([(header::CONTENT_DISPOSITION, disposition)], json(body)).into_response()
            }
        }
    }
}
