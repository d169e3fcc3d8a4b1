//! TLS between nodes: either side shows a certificate, and has the other's vouched for by the cluster's authority.

use std::path::PathBuf;
use std::sync::Arc;

use weir_socket::{ClientTls, ClientTlsFiles, Tls, TlsError, TlsFiles};

/// Where a node's certificate, its key and the cluster's authority are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTlsFiles {
    /// The node's certificate, shown by it whether it connects or is connected to. It has to name the host by which
    /// other nodes' `--peers` reach this one (DNS name or IP address).
    pub certificate: PathBuf,
    /// The private key that belongs to it.
    pub key: PathBuf,
    /// Certificates by which those of all nodes must be vouched for.
    pub ca: PathBuf,
}

/// What nodes do TLS with.
#[derive(Debug)]
pub struct PeerTls {
    pub(crate) server: Arc<Tls>,
    pub(crate) client: ClientTls,
}

impl PeerTls {
    /// Reads the files.
    pub fn load(files: PeerTlsFiles) -> Result<PeerTls, TlsError> {
        let PeerTlsFiles { certificate, key, ca } = files;
        let server =
            TlsFiles { certificate: certificate.clone(), key: key.clone(), client_ca: Some(ca.clone()) };
        let client = ClientTlsFiles { certificate, key, server_ca: ca };
        Ok(PeerTls { server: Arc::new(Tls::load(server)?), client: ClientTls::load(client)? })
    }

    /// Reads the files again, for connections from here on. If anything about them is wrong, that side does not change.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.server.reload()?;
        self.client.reload()
    }
}
