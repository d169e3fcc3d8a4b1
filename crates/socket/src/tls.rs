//! Certificates and keys: TLS 1.2 and 1.3, with `rustls`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Largest file that is read, in bytes: a chain takes a few thousand, and all that browsers trust some hundred thousand.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where certificates and keys are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and behind it those by which a client comes from it to one that it trusts.
    pub certificate: PathBuf,
    /// The private key that belongs to the certificate.
    pub key: PathBuf,
    /// Certificates by which clients must be vouched for; without it clients need none.
    pub client_ca: Option<PathBuf>,
}

/// Something about the files is wrong.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("the {what} {} cannot be read: {why}", .path.display())]
    Unreadable {
        /// What is in the file.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file has not in it what it should.
    #[error("the {what} {}: {why}", .path.display())]
    Content {
        /// What should be in the file.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What is wrong, and how to mend it.
        why: String,
    },
    /// The files do not go together.
    #[error(
        "the key file {} and the certificate file {} cannot be used together: {why}",
        .key.display(),
        .certificate.display()
    )]
    Pair {
        /// The key's file.
        key: PathBuf,
        /// The certificate's.
        certificate: PathBuf,
        /// Why not.
        why: String,
    },
}

/// What a listener does TLS with.
pub struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files.
    pub fn load(files: TlsFiles) -> Result<Tls, TlsError> {
        let config = RwLock::new(Arc::new(read(&files)?));
        Ok(Tls { files, config })
    }

    /// Reads the files again, for connections from here on. If anything about them is wrong, nothing changes.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(read(&self.files)?);
        *self.config.write() = config;
        Ok(())
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

fn read(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates("certificate file", &files.certificate)?;
    let key = key(&files.key)?;
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| pair(files, &error))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let what = "file of client certificate authorities";
            let content = |why: String| TlsError::Content { what, path: path.clone(), why };
            let roots = authorities(what, path)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| content(error.to_string()))?)
        }
    };
    builder.with_single_cert(chain, key).map_err(|error| pair(files, &error))
}

fn pair(files: &TlsFiles, error: &rustls::Error) -> TlsError {
    unfit(&files.certificate, &files.key, error)
}

/// Those whose word on certificates is taken.
pub(crate) fn authorities(what: &'static str, path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, path)? {
        let content = |why: String| TlsError::Content { what, path: path.into(), why };
        roots.add(certificate).map_err(|error| content(error.to_string()))?;
    }
    Ok(roots)
}

pub(crate) fn unfit(certificate: &Path, key: &Path, error: &rustls::Error) -> TlsError {
    let why = match error {
        rustls::Error::InconsistentKeys(_) => "the key is not that of the certificate".to_owned(),
        error => error.to_string(),
    };
    TlsError::Pair { key: key.into(), certificate: certificate.into(), why }
}

pub(crate) fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = bytes(what, path)?;
    let content = |why: String| TlsError::Content { what, path: path.into(), why };
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| content(format!("it is not PEM: {error}")))?;
    if all.is_empty() {
        let why = "there is no certificate in it; one in PEM begins with -----BEGIN CERTIFICATE-----";
        return Err(content(why.into()));
    }
    Ok(all)
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let what = "key file";
    let bytes = bytes(what, path)?;
    let content = |why: String| TlsError::Content { what, path: path.into(), why };
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound if has_encrypted_key(&bytes) => {
            content("the key is encrypted; write it without a passphrase, as `openssl pkey` does".into())
        }
        pem::Error::NoItemsFound => content(
            "there is no private key in it; one in PEM begins with -----BEGIN PRIVATE KEY-----".into(),
        ),
        error => content(format!("it is not PEM: {error}")),
    })
}

fn has_encrypted_key(bytes: &[u8]) -> bool {
    let mark = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
    bytes.windows(mark.len()).any(|window| window == mark)
}

fn bytes(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |why: String| TlsError::Unreadable { what, path: path.into(), why };
    let length = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(unreadable(format!("it has {length} bytes; at most {FILE_BYTES_MAX} are read")));
    }
    fs::read(path).map_err(|error| unreadable(error.to_string()))
}
