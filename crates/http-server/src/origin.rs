//! Requests by pages of other sites.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;

/// A page of some other site, open in the operator's browser, must not be able to act in the operator's name: what
/// would change something and comes from elsewhere is answered with `refusal`. Browsers say where a request comes
/// from; other clients do not.
pub async fn refuse_other_sites(request: Request, next: Next, refusal: fn() -> Response) -> Response {
    if may_act(&request) { next.run(request).await } else { refusal() }
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
