//! `/api/v1`: one module for each noun.

mod cluster;
mod groups;
mod log;
mod nodes;
mod queues;
mod topics;
mod users;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::routing::{delete, get, post, put};
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::front::Front;

/// What the handlers answer with.
type Answer<T> = Result<axum::Json<T>, ApiError>;

/// What is served under `/api/v1`.
pub(crate) fn routes() -> Router<Arc<Front>> {
    Router::new()
        .route("/cluster", get(cluster::describe))
        .route("/config", get(cluster::config))
        .route("/nodes", get(nodes::list))
        .route("/nodes/{id}", get(nodes::describe).patch(nodes::alter))
        .route("/topics", get(topics::list).post(topics::create))
        .route("/topics/{name}", get(topics::describe).patch(topics::alter).delete(topics::delete))
        .route("/groups", get(groups::list))
        .route("/groups/{name}", get(groups::describe).delete(groups::delete))
        .route("/groups/{name}/reset", post(groups::reset))
        .route("/queues", get(queues::list))
        .route("/queues/{name}", get(queues::describe).delete(queues::delete))
        .route("/queues/{name}/purge", post(queues::purge))
        .route("/queues/{name}/records", get(queues::browse))
        .route("/queues/{name}/redrive", post(queues::redrive))
        .route("/log", get(log::list))
        .route("/users", get(users::list).post(users::create))
        .route("/users/{name}", get(users::describe).patch(users::alter).delete(users::delete))
        .route("/users/{name}/permissions", put(users::grant).delete(users::revoke))
        .route("/users/{name}/topic-permissions", put(users::grant_topics).delete(users::revoke_topics))
        .route("/namespaces", get(users::namespaces).post(users::create_namespace))
        .route("/namespaces/{name}", delete(users::delete_namespace))
}

/// Reads a body as JSON.
fn body<T: DeserializeOwned>(bytes: Result<Bytes, BytesRejection>) -> Result<T, ApiError> {
    let bytes = bytes.map_err(|rejection| {
        let status = rejection.status();
        let word = if status == StatusCode::PAYLOAD_TOO_LARGE { "too_large" } else { "bad_request" };
        ApiError::new(status, word, rejection.body_text(), "send a smaller body")
    })?;
    serde_json::from_slice(&bytes).map_err(|error| {
        ApiError::bad_request(
            format!("the body is not what is expected here: {error}"),
            "correct the JSON body",
        )
    })
}
