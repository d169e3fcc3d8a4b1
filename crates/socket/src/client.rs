//! The side that connects: certificates that it shows, and by which it knows the other.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tls::{TlsError, authorities, certificates, key, unfit};

/// Where the certificates and the key of a client are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// The certificate that the client shows, and behind it those that lead to one that the server trusts.
    pub certificate: PathBuf,
    /// The private key that belongs to it.
    pub key: PathBuf,
    /// Certificates by which servers must be vouched for.
    pub server_ca: PathBuf,
}

/// What connections to servers do TLS with.
pub struct ClientTls {
    files: ClientTlsFiles,
    config: RwLock<Arc<ClientConfig>>,
}

impl ClientTls {
    /// Reads the files.
    pub fn load(files: ClientTlsFiles) -> Result<ClientTls, TlsError> {
        let config = RwLock::new(Arc::new(read(&files)?));
        Ok(ClientTls { files, config })
    }

    /// Reads the files again, for connections from here on. If anything about them is wrong, nothing changes.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(read(&self.files)?);
        *self.config.write() = config;
        Ok(())
    }

    /// Agrees on TLS. The server's certificate has to name `host`, a DNS name or an IP address. There is no time limit.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("'{host}': {error}")))?;
        let config = Arc::clone(&self.config.read());
        TlsConnector::from(config).connect(name, stream).await
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("files", &self.files).finish_non_exhaustive()
    }
}

fn read(files: &ClientTlsFiles) -> Result<ClientConfig, TlsError> {
    let unfit = |error: &rustls::Error| unfit(&files.certificate, &files.key, error);
    let chain = certificates("certificate file", &files.certificate)?;
    let key = key(&files.key)?;
    let roots = authorities("file of certificate authorities", &files.server_ca)?;
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&versions)
        .map_err(|error| unfit(&error))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| unfit(&error))
}
