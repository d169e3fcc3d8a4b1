//! Requests to the admin API and their answers.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::Value;

use crate::contexts::ServerArgs;
use crate::credentials::Credentials;
use crate::exit::Failure;

/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server's admin API.
pub struct Server {
    base: String,
    /// As whom it is asked, in the form in which that is sent.
    authorization: Option<HeaderValue>,
    runtime: tokio::runtime::Runtime,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An answer that says what went wrong.
#[derive(Debug, Deserialize)]
struct Refusal {
    error: String,
    message: String,
    remedy: String,
}

impl Server {
    /// The server that the flags name.
    pub fn new(args: &ServerArgs) -> Result<Server, Failure> {
        let base = args.server()?.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|_| not_a_server(&base))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(not_a_server(&base));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Failed(format!("the runtime does not start: {error}")))?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let authorization = args.credentials()?.map(|credentials| basic(&credentials)).transpose()?;
        Ok(Server { base, authorization, runtime, client })
    }

    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask(Method::GET, path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask(Method::POST, path, Some(body))
    }

    pub fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask(Method::PUT, path, Some(body))
    }

    pub fn patch(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask(Method::PATCH, path, Some(body))
    }

    pub fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.ask(Method::DELETE, path, None)
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let url = format!("{}/api/v1{path}", self.base);
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut request =
            Request::builder().method(method).uri(&url).header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::from(body))
            .map_err(|error| Failure::Usage(format!("{url} cannot be asked: {error}")))?;
        let answer = async {
            let answer = self.client.request(request).await.map_err(|error| self.unreachable(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| self.unreachable(error.as_ref()))?.to_bytes();
            Ok::<_, Failure>((status, body))
        };
        let answered = self
            .runtime
            .block_on(async { tokio::time::timeout(TIMEOUT, answer).await })
            .map_err(|_| Failure::Unreachable(format!("{} does not answer within {TIMEOUT:?}", self.base)))?;
        let (status, body) = answered?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|_| self.not_ours());
        }
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) => Err(refusal.into()),
            Err(_) => Err(self.not_ours()),
        }
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> Failure {
        // The outer error only says that connecting failed; the innermost says why.
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Failure::Unreachable(format!(
            "{} cannot be reached: {innermost}; start one with `weir serve`, or name another with --server",
            self.base
        ))
    }

    fn not_ours(&self) -> Failure {
        Failure::Failed(format!("{} answers, but not as Weir's admin API does; check --server", self.base))
    }
}

/// HTTP's Basic authentication.
fn basic(credentials: &Credentials) -> Result<HeaderValue, Failure> {
    if credentials.user.contains(':') {
        let why = format!(
            "the user name '{}' contains a colon, which the admin API cannot be told",
            credentials.user
        );
        return Err(Failure::Usage(why));
    }
    let encoded = STANDARD.encode(format!("{}:{}", credentials.user, credentials.password));
    let mut value = HeaderValue::try_from(format!("Basic {encoded}"))
        .map_err(|error| Failure::Usage(format!("the name and password cannot be sent: {error}")))?;
    value.set_sensitive(true);
    Ok(value)
}

fn not_a_server(base: &str) -> Failure {
    Failure::Usage(format!("the server '{base}' is not an address such as http://127.0.0.1:9347"))
}

impl From<Refusal> for Failure {
    /// The API's remedies name its own paths; here there are verbs for them.
    fn from(refusal: Refusal) -> Failure {
        let remedy = match refusal.error.as_str() {
            "unknown_topic" => "`weir topic list` lists the topics",
            "unknown_partition" => "`weir topic describe` lists its partitions",
            "unknown_queue" => "`weir queue list` lists the queues",
            "unknown_group" => "`weir group list` lists the groups",
            "unknown_node" => "`weir node list` lists the nodes",
            "unknown_user" => "`weir user list` lists the users",
            "not_authenticated" => {
                "name a user with --user or WEIR_USER, and put its password into WEIR_PASSWORD"
            }
            "wrong_credentials" => "check --user and WEIR_PASSWORD; the server's log says more",
            "invalid_config" => "`weir topic describe --all` lists every setting of a topic",
            _ => refusal.remedy.as_str(),
        };
        Failure::Failed(format!("{}; {remedy}", refusal.message))
    }
}

/// A name as one segment of a path.
pub fn segment(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => segment.push(byte.into()),
            byte => segment.push_str(&format!("%{byte:02X}")),
        }
    }
    segment
}
