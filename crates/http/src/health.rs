//! Health and metrics: what an orchestrator and a scraper ask.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Serialize;

use crate::front::Front;

#[derive(Debug, Serialize)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The process answers. Whether it can serve is another question: restarting it would not help.
pub(crate) async fn live() -> impl IntoResponse {
    Json(Health { status: "live", reason: None })
}

/// The node can serve.
pub(crate) async fn ready(State(front): State<Arc<Front>>) -> impl IntoResponse {
    match front.broker.not_ready_because() {
        None => (StatusCode::OK, Json(Health { status: "ready", reason: None })),
        reason => (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: "not ready", reason })),
    }
}

/// Counters and gauges, in OpenMetrics' text format.
pub(crate) async fn metrics(State(front): State<Arc<Front>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], front.broker.metrics().render())
}
