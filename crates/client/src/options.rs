//! Where to connect and how: the connection string and the options that all clients share.

use std::fmt;
use std::time::Duration;

use crate::error::ClientError;

/// Most bootstrap addresses that a connection string may name.
const BOOTSTRAP_MAX: usize = 64;

/// The port of an address without one.
const PORT: u16 = 9092;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Who the client is.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// Its password. It is sent as it is: over a network that others can read, use it only behind TLS.
    pub password: String,
}

impl fmt::Debug for Credentials {
    /// Leaves out the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// How a client connects and how patient it is.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Nodes to ask first; any one of the cluster will do.
    pub bootstrap: Vec<Address>,
    /// What the client calls itself, shown in the broker's listings.
    pub client_id: String,
    /// Who it is (SASL PLAIN); none if it does not say so.
    pub credentials: Option<Credentials>,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// How long an answer may take.
    pub request_timeout: Duration,
    /// How long an operation is tried again while its errors are retryable.
    pub retry_timeout: Duration,
}

impl ClientOptions {
    /// What a client calls itself that was not told otherwise.
    pub const CLIENT_ID: &str = "weir-client";

    /// Reads a connection string: `HOST:PORT`, several with commas between, with or without `weir://` in
    /// front, and options behind a question mark, as in
    /// `weir://a:9092,b:9092?client_id=billing&request_timeout_ms=5000`.
    pub fn parse(text: &str) -> Result<ClientOptions, ClientError> {
        let refused = |why: String| ClientError::Options(format!("connection string '{text}': {why}"));
        let rest = match text.trim().split_once("://") {
            Some(("weir" | "kafka", rest)) => rest,
            Some((scheme, _)) => {
                return Err(refused(format!("'{scheme}://' is not known; use weir:// or none")));
            }
            None => text.trim(),
        };
        let (addresses, query) = rest.split_once('?').unwrap_or((rest, ""));
        let bootstrap = addresses
            .trim_end_matches('/')
            .split(',')
            .map(|address| parse_address(address.trim()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(refused)?;
        if bootstrap.len() > BOOTSTRAP_MAX {
            return Err(refused(format!("it names more than {BOOTSTRAP_MAX} addresses")));
        }
        let mut options = ClientOptions {
            bootstrap,
            client_id: ClientOptions::CLIENT_ID.into(),
            credentials: None,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            retry_timeout: Duration::from_secs(120),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            options.set(pair).map_err(refused)?;
        }
        Ok(options)
    }

    fn set(&mut self, pair: &str) -> Result<(), String> {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| format!("the option '{pair}' is not NAME=VALUE"))?;
        let duration = || {
            let ms = value.parse::<u64>().ok().filter(|ms| (1..=86_400_000).contains(ms));
            ms.map(Duration::from_millis).ok_or_else(|| {
                format!("{name}: '{value}' is not a number of milliseconds from 1 to 86400000")
            })
        };
        match name {
            "client_id" => self.client_id = value.to_owned(),
            "connect_timeout_ms" => self.connect_timeout = duration()?,
            "request_timeout_ms" => self.request_timeout = duration()?,
            "retry_timeout_ms" => self.retry_timeout = duration()?,
            _ => {
                return Err(format!(
                    "there is no option '{name}'; there are client_id, connect_timeout_ms, request_timeout_ms and \
                     retry_timeout_ms"
                ));
            }
        }
        Ok(())
    }
}

fn parse_address(text: &str) -> Result<Address, String> {
    let wrong = || format!("'{text}' is not HOST:PORT");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            (host, port.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => return Err(wrong()),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(wrong());
    }
    let port = match port {
        Some(port) => port.parse().map_err(|_| wrong())?,
        None => PORT,
    };
    Ok(Address { host: host.to_owned(), port })
}
