//! Who the client of a connection is: SaslHandshake chooses a mechanism, SaslAuthenticate carries its messages, and until
//! both are through the client is nobody, or, as long as nobody has to say who they are, the default user.
//!
//! Clients from before SaslAuthenticate (a handshake of version 0) send the mechanism's messages as bare frames.

mod scram;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use weir_broker::{Access, Broker, Denied, Identity, Peer, Piece, ScramHash};
use weir_kafka_wire::{
    ErrorCode, KafkaStr, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};

use crate::pipeline::{Answer, Begun};
use crate::session::{Call, read};
use scram::{ClientFirst, Exchange};

/// How long a client waits that was refused, so that it does not try again at once
/// (`connection.failed.authentication.delay.ms`).
const REFUSED: Duration = Duration::from_millis(100);

/// What a client may authenticate by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mechanism {
    Plain,
    Scram(ScramHash),
}

const MECHANISMS: [(&str, Mechanism); 3] = [
    ("PLAIN", Mechanism::Plain),
    ("SCRAM-SHA-256", Mechanism::Scram(ScramHash::Sha256)),
    ("SCRAM-SHA-512", Mechanism::Scram(ScramHash::Sha512)),
];

/// How far a connection's log-in has come.
#[derive(Debug, Default)]
enum State {
    #[default]
    Silent,
    /// The mechanism is chosen.
    Chosen(Mechanism),
    /// SCRAM's challenge was sent.
    Challenged(Exchange),
    /// The client is known, as of these users.
    Known(Identity, Access),
    /// The client was refused; the connection ends.
    Refused,
}

/// A connection's log-in.
#[derive(Debug, Default)]
pub(crate) struct Login {
    state: Mutex<State>,
    /// Whether the mechanism's messages come as bare frames.
    bare: std::sync::atomic::AtomicBool,
}

/// The user of a connection is not there any more.
#[derive(Debug)]
pub(crate) struct Gone(pub(crate) String);

/// Why a client was not let in: what it is told, and what the operator.
struct Refusal {
    code: ErrorCode,
    told: String,
    logged: String,
}

/// What a mechanism says to a client's message.
enum Step {
    Challenge(Bytes),
    Done(Identity, Bytes),
}

impl Login {
    /// Who the client is; none if it did not say so and has to.
    pub(crate) fn who(&self, broker: &Broker) -> Result<Option<Identity>, Gone> {
        let access = broker.access();
        let mut state = self.state.lock();
        let State::Known(identity, known) = &mut *state else { return Ok(access.anonymous()) };
        if !access.is_same(known) {
            *identity = identity.renewed(&access).map_err(|_| Gone(identity.name().to_owned()))?;
            *known = access;
        }
        Ok(Some(identity.clone()))
    }

    /// Whether the next frame is a mechanism's message and no request.
    pub(crate) fn expects_bare(&self) -> bool {
        self.bare.load(std::sync::atomic::Ordering::Acquire)
            && matches!(*self.state.lock(), State::Chosen(_) | State::Challenged(_))
    }
}

/// SaslHandshake.
pub(crate) fn handshake(call: Call, body: Bytes) -> Begun {
    let request = match read::<SaslHandshakeRequest>(&call, body) {
        Ok(request) => request,
        Err(closing) => return closing,
    };
    let mechanisms = MECHANISMS.iter().map(|(name, _)| KafkaStr::from_static(name)).collect();
    let answer = |error_code| SaslHandshakeResponse { error_code, mechanisms };
    let mut state = call.login.state.lock();
    if !matches!(*state, State::Silent) {
        call.count_error();
        return Begun::Done(call.answer(&answer(ErrorCode::ILLEGAL_SASL_STATE)));
    }
    let Some((_, mechanism)) = MECHANISMS.iter().find(|(name, _)| *name == &*request.mechanism) else {
        call.count_error();
        *state = State::Refused;
        let why =
            format!("a client wants to authenticate by {}, which is not served", shown(&request.mechanism));
        return Begun::Done(call.answer(&answer(ErrorCode::UNSUPPORTED_SASL_MECHANISM)).and_close(why));
    };
    *state = State::Chosen(*mechanism);
    drop(state);
    call.login.bare.store(call.version == 0, std::sync::atomic::Ordering::Release);
    Begun::Done(call.answer(&answer(ErrorCode::NONE)))
}

/// SaslAuthenticate.
pub(crate) fn authenticate(call: Call, body: Bytes) -> Begun {
    match read::<SaslAuthenticateRequest>(&call, body) {
        Ok(request) => Begun::Running(Box::pin(async move {
            match step(&call, request.auth_bytes).await {
                Ok(auth_bytes) => call.answer(&SaslAuthenticateResponse { auth_bytes, ..Default::default() }),
                Err(Refusal { code, told, logged }) => {
                    call.count_error();
                    let response = SaslAuthenticateResponse {
                        error_code: code,
                        error_message: Some(KafkaStr::from(told)),
                        ..Default::default()
                    };
                    tokio::time::sleep(REFUSED).await;
                    call.answer(&response).and_close(logged)
                }
            }
        })),
        Err(closing) => closing,
    }
}

/// A mechanism's message in a bare frame. One that is refused ends the connection without a word, as in Kafka.
pub(crate) fn bare(call: Call, message: Bytes) -> Begun {
    Begun::Running(Box::pin(async move {
        match step(&call, message).await {
            Ok(answer) => {
                let length = i32::try_from(answer.len()).unwrap_or_default().to_be_bytes();
                let pieces = [Bytes::copy_from_slice(&length), answer].map(Piece::Memory);
                Answer::Frame(pieces.into(), None)
            }
            Err(Refusal { logged, .. }) => {
                tokio::time::sleep(REFUSED).await;
                Answer::Close(logged)
            }
        }
    }))
}

/// Takes one message of the mechanism, and gives the answer.
async fn step(call: &Call, message: Bytes) -> Result<Bytes, Refusal> {
    let state = std::mem::replace(&mut *call.login.state.lock(), State::Refused);
    let broker = &call.front.broker;
    let peer = Peer::from(call.caller.peer.ip());
    let step = match state {
        State::Chosen(Mechanism::Plain) => plain(broker, &message, peer).await,
        State::Chosen(Mechanism::Scram(hash)) => {
            let first =
                ClientFirst::read(&message).map_err(|error| scram_refusal(hash, error.to_string()))?;
            let credential = broker.scram_credential(&first.user, hash);
            let nonce = STANDARD.encode([broker.random_bytes(), broker.random_bytes()].concat());
            let (exchange, challenge) = first.challenge(credential, &nonce);
            *call.login.state.lock() = State::Challenged(exchange);
            Ok(Step::Challenge(challenge.into()))
        }
        State::Challenged(exchange) => prove(broker, &exchange, &message, peer),
        state @ (State::Silent | State::Known(..) | State::Refused) => {
            let why = "SaslAuthenticate is not expected now; choose a mechanism first, and once";
            *call.login.state.lock() = state;
            let (told, logged) = (why.to_owned(), why.to_owned());
            return Err(Refusal { code: ErrorCode::ILLEGAL_SASL_STATE, told, logged });
        }
    };
    match step? {
        Step::Challenge(answer) => Ok(answer),
        Step::Done(identity, answer) => {
            tracing::debug!(peer = %call.caller.peer, user = identity.name(), "authenticated");
            *call.login.state.lock() = State::Known(identity, broker.access());
            Ok(answer)
        }
    }
}

/// RFC 4616: whom to be taken for, user and password with zero octets between them.
async fn plain(broker: &Broker, message: &Bytes, peer: Peer) -> Result<Step, Refusal> {
    let refused = |told: &str, logged: String| Refusal {
        code: ErrorCode::SASL_AUTHENTICATION_FAILED,
        told: format!("Authentication failed: {told}"),
        logged,
    };
    let parts: Vec<&[u8]> = message.split(|octet| *octet == 0).collect();
    let [as_whom, user, password] = parts[..] else {
        let why = format!("a message of PLAIN has 3 parts, this one {}", parts.len());
        return Err(refused("Invalid SASL/PLAIN response", why));
    };
    let Ok(user) = std::str::from_utf8(user) else {
        return Err(refused("Invalid SASL/PLAIN response", "a name is not UTF-8".into()));
    };
    if !(as_whom.is_empty() || as_whom == user.as_bytes()) {
        let why = format!("user {} wants to be taken for another", shown(user));
        return Err(refused("Client requested an authorization id that is different from username", why));
    }
    match broker.authenticate(user, Bytes::copy_from_slice(password), peer).await {
        Ok(identity) => Ok(Step::Done(identity, Bytes::new())),
        Err(denied) => Err(refused("Invalid username or password", denied.to_string())),
    }
}

fn prove(broker: &Broker, exchange: &Exchange, message: &Bytes, peer: Peer) -> Result<Step, Refusal> {
    let hash = exchange.hash;
    let user = &exchange.user;
    let signature = exchange
        .finish(message)
        .map_err(|error| scram_refusal(hash, format!("user {}: {error}", shown(user))))?;
    let access = broker.access();
    let Some(signature) = signature else {
        let has_form = |user: &Arc<weir_model::access::UserMeta>| {
            user.passwords.iter().filter_map(weir_broker::ScramCredential::of).any(|found| found.hash == hash)
        };
        let why = match access.user(user) {
            None => Denied::UnknownUser(shown(user)).to_string(),
            Some(stored) if !has_form(stored) => format!(
                "user {user:?} has no password in the form that {} needs; set the password again, or let the client \
                 use PLAIN",
                name_of(hash)
            ),
            Some(_) => Denied::WrongPassword(user.clone()).to_string(),
        };
        return Err(scram_refusal(hash, why));
    };
    match access.identify(user, peer) {
        Ok(identity) => Ok(Step::Done(identity, signature.into())),
        Err(denied) => Err(scram_refusal(hash, denied.to_string())),
    }
}

fn scram_refusal(hash: ScramHash, logged: String) -> Refusal {
    let told = format!(
        "Authentication failed during authentication due to invalid credentials with SASL mechanism {}",
        name_of(hash)
    );
    Refusal { code: ErrorCode::SASL_AUTHENTICATION_FAILED, told, logged }
}

fn name_of(hash: ScramHash) -> &'static str {
    match hash {
        ScramHash::Sha256 => "SCRAM-SHA-256",
        ScramHash::Sha512 => "SCRAM-SHA-512",
    }
}

/// What came from outside, no longer than a line of the log bears.
fn shown(text: &str) -> String {
    text.chars().take(255).collect()
}
