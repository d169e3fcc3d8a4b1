//! The beginning of a connection, without I/O: who the client says it is, what both agree on, and where it wants to work.

use bytes::{Buf, Bytes};
use weir_amqp_wire::methods::connection;
use weir_amqp_wire::{FRAME_MAX_MIN, Method, ReplyCode, ShortStr, Table, Value};

use crate::errors::Failure;

/// Highest channel number that is offered (RabbitMQ's default).
pub(crate) const CHANNEL_MAX: u16 = 2_047;

/// Largest frame that is offered, in bytes (RabbitMQ's default).
pub(crate) const FRAME_MAX: u32 = 131_072;

/// Seconds between signs of life that are offered (RabbitMQ's default).
pub(crate) const HEARTBEAT_SECONDS: u16 = 60;

/// Who an anonymous client is, and with which password.
const ANONYMOUS_USER: &str = "guest";
const ANONYMOUS_PASSWORD: &[u8] = b"guest";

/// The version as which we introduce ourselves: clients and their suites look for what it can do.
const VERSION: &str = "4.3.0";

/// What the broker can do beyond the specification.
const CAPABILITIES: [&str; 9] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
];

/// How far a handshake has come. It stops where somebody must be asked who knows the users: at [`Handshake::Claimed`] and
/// [`Handshake::Wanted`].
#[derive(Debug, PartialEq)]
pub(crate) enum Handshake {
    /// `connection.start` was sent.
    Started,
    /// `connection.start-ok` came.
    Claimed(Credentials),
    /// `connection.tune` was sent.
    Tuned(Client),
    /// `connection.tune-ok` came.
    Agreed(Client, Agreed),
    /// `connection.open` came, for this namespace.
    Wanted(Client, Agreed, String),
}

/// What a client says who it is.
#[derive(Clone, PartialEq)]
pub(crate) struct Credentials {
    pub mechanism: &'static str,
    pub password: Bytes,
    /// Who it is if that is the password.
    pub client: Client,
}

impl std::fmt::Debug for Credentials {
    /// Leaves out the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.client.user).finish_non_exhaustive()
    }
}

/// Who is at the other end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Client {
    pub user: String,
    /// By which mechanism it said so.
    pub mechanism: String,
    /// Whether it wants to be told when a queue that it consumes goes.
    pub takes_cancel: bool,
    /// Whether it wants to be told that it is held back.
    pub takes_blocked: bool,
    /// Whether it reads a refusal of its credentials; others only see the connection close.
    pub takes_refusal: bool,
    /// What it says of itself.
    pub properties: Table,
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub channel_max: u16,
    /// In bytes; 0 for no limit.
    pub frame_max: u32,
    /// Seconds; 0 for none.
    pub heartbeat: u16,
}

/// The first method of a connection.
pub(crate) fn start() -> connection::Start {
    let capabilities = CAPABILITIES.into_iter().fold(Table::new(), |table, name| table.with(name, true));
    let server_properties = Table::new()
        .with("capabilities", capabilities)
        .with("product", "RabbitMQ")
        .with("version", VERSION)
        .with("platform", "Weir")
        .with("cluster_name", "weir")
        .with("information", "This is Weir, which RabbitMQ's clients use unchanged")
        .with("copyright", "Apache License 2.0");
    connection::Start {
        version_major: 0,
        version_minor: 9,
        server_properties,
        mechanisms: Bytes::from_static(b"PLAIN AMQPLAIN ANONYMOUS"),
        locales: Bytes::from_static(b"en_US"),
    }
}

impl Handshake {
    /// Takes the client's next method on channel 0, and gives the answer.
    pub(crate) fn take(self, method: Method) -> Result<Handshake, Failure> {
        match (self, method) {
            (Handshake::Started, Method::ConnectionStartOk(ok)) => Ok(Handshake::Claimed(credentials(ok)?)),
            (Handshake::Tuned(client), Method::ConnectionTuneOk(ok)) => {
                Ok(Handshake::Agreed(client, agree(&ok)?))
            }
            (Handshake::Agreed(client, agreed), Method::ConnectionOpen(open)) => {
                Ok(Handshake::Wanted(client, agreed, open.virtual_host.to_string_lossy().into_owned()))
            }
            (_, method) => {
                let words = format!("unexpected method {} while the connection is opened", method.name());
                Err(Failure::new(ReplyCode::ChannelError, words))
            }
        }
    }
}

impl Credentials {
    /// They are right: what is offered, and who it is offered to.
    pub(crate) fn admit(self) -> (Handshake, connection::Tune) {
        let tune =
            connection::Tune { channel_max: CHANNEL_MAX, frame_max: FRAME_MAX, heartbeat: HEARTBEAT_SECONDS };
        (Handshake::Tuned(self.client), tune)
    }

    /// They are not.
    pub(crate) fn refuse(&self) -> Failure {
        let words = format!(
            "Login was refused using authentication mechanism {}. For details see the broker logfile.",
            self.mechanism
        );
        Failure::new(ReplyCode::AccessRefused, words)
    }
}

fn agree(ok: &connection::TuneOk) -> Result<Agreed, Failure> {
    let refuse = |what: &str, value: u32, most: u32| {
        let words = format!(
            "failed to negotiate connection parameter '{what}': {value} is not allowed, {most} is the most"
        );
        Err(Failure::new(ReplyCode::NotAllowed, words))
    };
    if ok.channel_max > CHANNEL_MAX {
        return refuse("channel_max", ok.channel_max.into(), CHANNEL_MAX.into());
    }
    if ok.frame_max > FRAME_MAX {
        return refuse("frame_max", ok.frame_max, FRAME_MAX);
    }
    if ok.frame_max != 0 && ok.frame_max < FRAME_MAX_MIN {
        return refuse("frame_max", ok.frame_max, FRAME_MAX);
    }
    // A client that sets no limit takes the one that was offered.
    let channel_max = if ok.channel_max == 0 { CHANNEL_MAX } else { ok.channel_max };
    let frame_max = if ok.frame_max == 0 { FRAME_MAX } else { ok.frame_max };
    Ok(Agreed { channel_max, frame_max, heartbeat: ok.heartbeat })
}

fn credentials(ok: connection::StartOk) -> Result<Credentials, Failure> {
    let response = ok.response.expose().clone();
    let malformed =
        |mechanism| Failure::new(ReplyCode::SyntaxError, format!("{mechanism}: malformed response"));
    let (mechanism, user, password) = match &*ok.mechanism.to_string_lossy() {
        "PLAIN" => plain(response)
            .map(|(user, password)| ("PLAIN", user, password))
            .ok_or_else(|| malformed("PLAIN"))?,
        "AMQPLAIN" => {
            let read = amqplain(response).map(|(user, password)| ("AMQPLAIN", user, password));
            read.ok_or_else(|| malformed("AMQPLAIN"))?
        }
        // Whoever says nothing is the user that there is at first, for as long as its password is that of the first
        // day: as in RabbitMQ, whose anonymous users are configured so.
        "ANONYMOUS" => ("ANONYMOUS", ANONYMOUS_USER.to_owned(), Bytes::from_static(ANONYMOUS_PASSWORD)),
        other => {
            let words = format!("unknown authentication mechanism '{other}'");
            return Err(Failure::new(ReplyCode::CommandInvalid, words));
        }
    };
    let capability = |name: &str| {
        let capabilities = ok.client_properties.get("capabilities").and_then(Value::as_table);
        capabilities.and_then(|table| table.get(name)).and_then(Value::as_bool).unwrap_or(false)
    };
    let client = Client {
        user,
        mechanism: mechanism.to_owned(),
        takes_cancel: capability("consumer_cancel_notify"),
        takes_blocked: capability("connection.blocked"),
        takes_refusal: capability("authentication_failure_close"),
        properties: ok.client_properties,
    };
    Ok(Credentials { mechanism, password, client })
}

/// RFC 4616: authorisation identity, user and password with zero octets between them.
fn plain(response: Bytes) -> Option<(String, Bytes)> {
    let mut parts = response.splitn(3, |octet| *octet == 0);
    let (_, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let user = std::str::from_utf8(user).ok()?.to_owned();
    Some((user, Bytes::copy_from_slice(password)))
}

/// A table without the length in front: `LOGIN` and `PASSWORD`.
fn amqplain(response: Bytes) -> Option<(String, Bytes)> {
    let table = Table::decode(response.chunk().to_vec().into()).ok()?;
    let user = table.get("LOGIN")?.as_str()?.to_owned();
    Some((user, table.get("PASSWORD")?.as_bytes()?.clone()))
}

/// A name that the broker makes up, such as `amq.gen-` and random letters.
pub(crate) fn generated(prefix: &str, random: [u8; 16]) -> ShortStr {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letters = random.iter().flat_map(|octet| [octet >> 2, octet & 0x3f]);
    let name: String = letters.take(22).map(|index| char::from(LETTERS[usize::from(index)])).collect();
    ShortStr::truncated(&format!("{prefix}{name}"))
}

#[cfg(test)]
mod tests {
    use weir_amqp_wire::Secret;

    use super::*;

    fn start_ok(mechanism: &'static str, response: &'static [u8]) -> Method {
        connection::StartOk {
            mechanism: ShortStr::from_static(mechanism),
            response: Secret::from(Bytes::from_static(response)),
            ..connection::StartOk::default()
        }
        .into()
    }

    fn code(result: Result<Handshake, Failure>) -> ReplyCode {
        result.unwrap_err().code
    }

    #[test]
    fn a_client_says_who_it_is_and_where_it_wants_to_work() {
        let handshake = Handshake::Started.take(start_ok("PLAIN", b"\0guest\0secret")).unwrap();
        let Handshake::Claimed(credentials) = handshake else { panic!("{handshake:?}") };
        assert_eq!((credentials.client.user.as_str(), &credentials.password[..]), ("guest", &b"secret"[..]));
        assert!(!format!("{credentials:?}").contains("secret"));
        assert_eq!(credentials.refuse().code, ReplyCode::AccessRefused);
        let (handshake, tune) = credentials.admit();
        assert_eq!(tune.channel_max, CHANNEL_MAX);
        let ok = connection::TuneOk { channel_max: 0, frame_max: 0, heartbeat: 10 };
        let handshake = handshake.take(ok.into()).unwrap();
        let open = connection::Open { virtual_host: ShortStr::from_static("/") };
        let handshake = handshake.take(open.into()).unwrap();
        let Handshake::Wanted(client, agreed, namespace) = handshake else { panic!("{handshake:?}") };
        assert_eq!((client.user.as_str(), namespace.as_str()), ("guest", "/"));
        assert_eq!(agreed, Agreed { channel_max: CHANNEL_MAX, frame_max: FRAME_MAX, heartbeat: 10 });
    }

    #[test]
    fn who_says_nothing_is_the_user_of_the_first_day() {
        let handshake = Handshake::Started.take(start_ok("ANONYMOUS", b"anything")).unwrap();
        let Handshake::Claimed(credentials) = handshake else { panic!("{handshake:?}") };
        assert_eq!((credentials.client.user.as_str(), &credentials.password[..]), ("guest", &b"guest"[..]));
        assert_eq!(credentials.client.mechanism, "ANONYMOUS");
    }

    #[test]
    fn what_is_wrong_has_its_own_code() {
        let take = |method| Handshake::Started.take(method);
        assert_eq!(code(take(start_ok("PLAIN", b"guest"))), ReplyCode::SyntaxError);
        assert_eq!(code(take(start_ok("AMQPLAIN", b"\xff"))), ReplyCode::SyntaxError);
        assert_eq!(code(take(start_ok("CRAM-MD5", b""))), ReplyCode::CommandInvalid);
        assert_eq!(code(take(connection::CloseOk {}.into())), ReplyCode::ChannelError);
        let client = Client::default;
        for (channel_max, frame_max) in [(CHANNEL_MAX + 1, 0), (0, FRAME_MAX + 1), (0, FRAME_MAX_MIN - 1)] {
            let ok = connection::TuneOk { channel_max, frame_max, heartbeat: 0 };
            assert_eq!(code(Handshake::Tuned(client()).take(ok.into())), ReplyCode::NotAllowed);
        }
    }
}
