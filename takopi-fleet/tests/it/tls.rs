//! A database that is reached over TLS: its certificate is verified, and so is its name.
//!
//! TLS ends in front of the real PostgreSQL, as it does at a pooler, so that any PostgreSQL will do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use takopi_fleet::PgBoard;
use takopi_fleet::board::pg::Url;
use takopi_fleet::board::{Board as _, JobLine};
use takopi_tests::postgres;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

use crate::lab::database;

/// What a client sends to ask for TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// An authority that certifies servers.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(directory: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = directory.join(format!("{name}.pem"));
        std::fs::write(&file, issuer.pem()).unwrap();
        Self { issuer, file }
    }

    /// What a server of this name shows.
    fn server(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A database behind TLS.
struct Guarded {
    port: u16,
    database: String,
}

impl Guarded {
    /// Serves the database of this address; without TLS if there is no certificate.
    async fn start(address: &str, tls: Option<TlsAcceptor>) -> Self {
        let value = |key: &str| {
            let mut words = address.split_whitespace();
            words.find_map(|word| word.strip_prefix(key)).unwrap().to_owned()
        };
        let (socket, database) = (value("host=") + "/.s.PGSQL.5432", value("dbname="));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (tls, socket) = (tls.clone(), socket.clone());
                tokio::spawn(pass(client, tls, socket));
            }
        });
        Self { port, database }
    }

    /// Connects, and looks for jobs: there are none.
    async fn connect(&self, more: &str) -> Result<Vec<JobLine>, String> {
        let Self { port, database } = self;
        let address = format!("postgres://takopi@localhost:{port}/{database}?{more}");
        let url: Url = address.parse().unwrap();
        let board = PgBoard::connect(url).await.map_err(|error| error.to_string())?;
        Ok(board.jobs(9).await.unwrap())
    }
}

async fn pass(
    mut client: TcpStream,
    tls: Option<TlsAcceptor>,
    socket: String,
) -> std::io::Result<()> {
    let mut asked = [0; SSL_REQUEST.len()];
    client.read_exact(&mut asked).await?;
    assert_eq!(asked, SSL_REQUEST, "the client speaks before there is TLS");
    let Some(tls) = tls else { return client.write_all(b"N").await };
    client.write_all(b"S").await?;
    let mut client = tls.accept(client).await?;
    let mut server = UnixStream::connect(socket).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

#[tokio::test]
async fn a_server_is_verified_before_anything_is_sent_to_it() {
    let Some(server) = postgres::shared_or_skip() else { return };
    let address = database(server).await;
    PgBoard::init(&address.parse().unwrap()).await.unwrap();
    let directory = TempDir::new().unwrap();
    let ours = Authority::new(directory.path(), "ours");
    let other = Authority::new(directory.path(), "other");
    let trusting = |mode: &str, it: &Authority| {
        format!("sslmode={mode}&sslrootcert={}", it.file.to_str().unwrap())
    };

    let good = Guarded::start(&address, Some(ours.server("localhost"))).await;
    for mode in ["require", "verify-full"] {
        assert_eq!(good.connect(&trusting(mode, &ours)).await.unwrap(), []);
    }
    let unknown = good.connect(&trusting("require", &other)).await.unwrap_err();
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");
    let unknown = good.connect("sslmode=verify-full&sslrootcert=system").await.unwrap_err();
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");

    let elsewhere = Guarded::start(&address, Some(ours.server("db.example"))).await;
    let wrong = elsewhere.connect(&trusting("require", &ours)).await.unwrap_err();
    assert!(wrong.contains("not valid for name"), "{wrong}");

    let plain = Guarded::start(&address, None).await;
    let refused = plain.connect(&trusting("require", &ours)).await.unwrap_err();
    assert!(refused.contains("does not support TLS"), "{refused}");
}
