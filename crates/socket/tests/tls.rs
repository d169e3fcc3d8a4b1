//! Connections over TLS, by certificates that are made for each test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_socket::{Listener, Tls, TlsError, TlsFiles};

/// Certificates in a directory.
struct Papers {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Papers {
    fn new() -> Papers {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let papers = Papers { dir: TempDir::new().unwrap(), authority };
        std::fs::write(papers.path("ca.pem"), papers.authority.pem()).unwrap();
        papers.issue("server");
        papers
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A certificate for localhost and its key.
    fn issue(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn files(&self) -> TlsFiles {
        TlsFiles { certificate: self.path("server.pem"), key: self.path("server.key"), client_ca: None }
    }

    /// A client that trusts the authority, and shows a certificate of this name if it has one.
    fn client(&self, shows: Option<&str>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shows {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let certificate = CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).unwrap();
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

/// A listener that sends back what it gets.
async fn echo(tls: Option<Arc<Tls>>) -> std::net::SocketAddr {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), tls).await.unwrap();
    let address = listener.local_addr();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    stream.write_all(&buffer[..read]).await.unwrap();
                    stream.flush().await.unwrap();
                }
                let _ = stream.shutdown().await;
            });
        }
    });
    address
}

async fn connect(
    connector: &TlsConnector,
    address: std::net::SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn says(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).await?;
    assert_eq!(back, bytes);
    Ok(())
}

#[tokio::test]
async fn what_is_sent_over_tls_arrives() {
    let papers = Papers::new();
    let address = echo(Some(Arc::new(Tls::load(papers.files()).unwrap()))).await;
    let mut stream = connect(&papers.client(None), address).await.unwrap();
    says(&mut stream, b"hello").await.unwrap();
    says(&mut stream, &vec![7; 40_000]).await.unwrap();
    // The end is said, and not only seen.
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_client_without_tls_is_sent_away_and_nobody_else_is() {
    let papers = Papers::new();
    let address = echo(Some(Arc::new(Tls::load(papers.files()).unwrap()))).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"AMQP\0\0\x09\x01").await.unwrap();
    let mut rest = Vec::new();
    // What comes is an alert, if anything.
    let _ = plain.read_to_end(&mut rest).await;
    let mut stream = connect(&papers.client(None), address).await.unwrap();
    says(&mut stream, b"hello").await.unwrap();
    silent.write_all(&[0x16]).await.unwrap();
}

#[tokio::test]
async fn clients_have_to_show_a_certificate_where_that_is_asked() {
    let papers = Papers::new();
    papers.issue("client");
    let files = TlsFiles { client_ca: Some(papers.path("ca.pem")), ..papers.files() };
    let address = echo(Some(Arc::new(Tls::load(files).unwrap()))).await;
    let mut known = connect(&papers.client(Some("client")), address).await.unwrap();
    says(&mut known, b"hello").await.unwrap();
    // In TLS 1.3 a client learns of the refusal when it reads.
    let unknown = async { says(&mut connect(&papers.client(None), address).await?, b"hello").await };
    assert!(unknown.await.is_err());
    let strangers = Papers::new();
    strangers.issue("client");
    std::fs::copy(papers.path("ca.pem"), strangers.path("ca.pem")).unwrap();
    let stranger =
        async { says(&mut connect(&strangers.client(Some("client")), address).await?, b"x").await };
    assert!(stranger.await.is_err());
}

#[tokio::test]
async fn files_are_read_again_and_bad_ones_change_nothing() {
    let papers = Papers::new();
    let tls = Arc::new(Tls::load(papers.files()).unwrap());
    let address = echo(Some(Arc::clone(&tls))).await;
    let shown = async || {
        let stream = connect(&papers.client(None), address).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let before = shown().await;
    papers.issue("server");
    assert_eq!(shown().await, before);
    tls.reload().unwrap();
    let after = shown().await;
    assert_ne!(after, before);
    std::fs::write(papers.path("server.key"), "nothing").unwrap();
    assert!(tls.reload().is_err());
    assert_eq!(shown().await, after);
}

#[test]
fn bad_files_are_named_with_what_is_wrong() {
    let papers = Papers::new();
    papers.issue("other");
    let words = |files: TlsFiles| {
        Tls::load(files).map(drop).map_err(|error: TlsError| error.to_string()).unwrap_err()
    };
    let file = |name: &str, content: &str| {
        std::fs::write(papers.path(name), content).unwrap();
        papers.path(name)
    };
    let with = |certificate: &Path, key: &Path| TlsFiles {
        certificate: certificate.into(),
        key: key.into(),
        client_ca: None,
    };
    let (certificate, key) = (papers.path("server.pem"), papers.path("server.key"));
    let missing = words(with(&papers.path("none.pem"), &key));
    assert!(missing.contains("none.pem") && missing.contains("cannot be read"), "{missing}");
    let empty = words(with(&file("empty.pem", ""), &key));
    assert!(empty.contains("there is no certificate in it"), "{empty}");
    let no_key = words(with(&certificate, &file("empty.key", "")));
    assert!(no_key.contains("there is no private key in it"), "{no_key}");
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = words(with(&certificate, &file("encrypted.key", encrypted)));
    assert!(encrypted.contains("the key is encrypted"), "{encrypted}");
    let swapped = words(with(&key, &certificate));
    assert!(swapped.contains("there is no certificate in it"), "{swapped}");
    let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
    let broken = words(with(&file("broken.pem", broken), &key));
    assert!(broken.contains("it is not PEM"), "{broken}");
    let foreign = words(with(&certificate, &papers.path("other.key")));
    assert!(foreign.contains("the key is not that of the certificate"), "{foreign}");
    let files = TlsFiles { client_ca: Some(file("no-ca.pem", "")), ..papers.files() };
    assert!(words(files).contains("file of client certificate authorities"));
}

#[tokio::test]
async fn without_tls_the_socket_is_the_stream() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr()).await.unwrap();
    let (mut stream, peer) = listener.accept().await.unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    assert_eq!(stream.local_addr().unwrap(), listener.local_addr());
    assert!(stream.as_tcp().is_some());
    client.write_all(b"hi").await.unwrap();
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hi");
}
