//! Connections: where the database is, how it is reached, and one connection that is made again after it broke.
//!
//! TLS is required, and the server's certificate verified, unless the database is on this machine (a socket or a loopback
//! address). The password is taken from the URL, `PGPASSWORD` or the password file, and is in no message.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::board::BoardError;

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The database could not be reached, or its address is wrong.
#[derive(Debug, Clone, Error)]
#[error("{detail}")]
pub struct ConnectError {
    detail: String,
}

impl ConnectError {
    fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into() }
    }
}

/// Where the database is: `postgres://user@host/database`, or `host=… dbname=…`.
///
/// ```
/// use takopi_fleet::board::pg::Url;
///
/// let url: Url = "postgres://alice:secret@db.example/takopi".parse()?;
/// assert_eq!(url.to_string(), "alice@db.example/takopi");
/// assert!(url.uses_tls());
/// # Ok::<(), takopi_fleet::board::pg::ConnectError>(())
/// ```
#[derive(Clone)]
pub struct Url {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Url {
    /// Whether the connection is encrypted and the server verified.
    pub fn uses_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether this text has a password in it, which does not belong where others can read it.
    ///
    /// ```
    /// use takopi_fleet::board::pg::Url;
    ///
    /// assert!(Url::has_password("postgres://alice:secret@db.example/takopi"));
    /// assert!(!Url::has_password("postgres://alice@db.example/takopi"));
    /// ```
    pub fn has_password(text: &str) -> bool {
        let Address { text, .. } = Address::read(text);
        text.parse::<Config>().is_ok_and(|config| config.get_password().is_some())
    }

    pub(super) async fn connect(&self) -> Result<Client, ConnectError> {
        let (client, connection) = self.open().await?;
        tokio::spawn(connection.run());
        Ok(client)
    }

    pub(super) async fn open(&self) -> Result<(Client, Wire), ConnectError> {
        let fail = |error: tokio_postgres::Error| {
            ConnectError::new(format!("cannot connect to {self}: {}", describe(&error)))
        };
        let connect = async {
            if let Some(tls) = &self.tls {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(fail)?;
                Ok((client, Wire::Tls(Box::new(connection))))
            } else {
                let (client, connection) = self.config.connect(NoTls).await.map_err(fail)?;
                Ok((client, Wire::Plain(Box::new(connection))))
            }
        };
        timeout(CONNECT_LIMIT, connect).await.unwrap_or_else(|_| Err(no_answer(self)))
    }
}

impl std::str::FromStr for Url {
    type Err = ConnectError;

    fn from_str(text: &str) -> Result<Self, ConnectError> {
        let Address { text, root, verified } = Address::read(text);
        // Not the parser's message: it may quote what it could not read, and that may be the password.
        let mut config: Config = text.parse().map_err(|_| {
            ConnectError::new("the address of the fleet's database is not a PostgreSQL URL")
        })?;
        if config.get_hosts().is_empty() {
            return Err(ConnectError::new("the address of the fleet's database names no host"));
        }
        if config.get_password().is_none()
            && let Some(password) = super::passfile::password(&config)
        {
            config.password(password);
        }
        config.application_name("takopi").connect_timeout(CONNECT_LIMIT);
        config.keepalives_idle(Duration::from_secs(10));
        // What was sent and given up does not arrive when nobody expects it any more.
        config.tcp_user_timeout(super::CALL_LIMIT);
        // Of several hosts the one that takes writes; a standby that is being promoted is waited for.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let asked = verified || config.get_ssl_mode() == SslMode::Require;
        let tls = if config.get_hosts().iter().all(is_local) && !asked {
            config.ssl_mode(SslMode::Disable);
            None
        } else {
            config.ssl_mode(SslMode::Require);
            Some(tls(root.as_deref())?)
        };
        Ok(Self { config, tls })
    }
}

/// An address without what the client library does not know.
struct Address {
    text: String,
    /// `sslrootcert`: the file with the certificates to trust, or `system`.
    root: Option<String>,
    /// Whether `sslmode` asks for a verified server, as PostgreSQL's own tools write it.
    verified: bool,
}

impl Address {
    fn read(text: &str) -> Self {
        let (text, root) = take(text, "sslrootcert=");
        let (rest, mode) = take(&text, "sslmode=");
        let verified = matches!(mode.as_deref(), Some("verify-full" | "verify-ca"));
        Self { text: if verified { rest } else { text }, root, verified }
    }
}

/// Splits a parameter off an address, and returns its value.
fn take(text: &str, key: &str) -> (String, Option<String>) {
    let begins = |start: &usize| *start == 0 || text[..*start].ends_with(['?', '&', ' ']);
    let found = text.match_indices(key).map(|(start, _)| start).find(begins);
    let Some(start) = found else { return (text.to_owned(), None) };
    let rest = &text[start + key.len()..];
    let end = rest.find(['&', ' ']).unwrap_or(rest.len());
    let before = text[..start].trim_end_matches('&');
    let after = rest[end..].trim_start_matches('&');
    let joint =
        if before.ends_with('?') || after.is_empty() || after.starts_with(' ') { "" } else { "&" };
    let text = format!("{before}{joint}{after}");
    (text.trim_end_matches('?').to_owned(), Some(rest[..end].to_owned()))
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn tls(root: Option<&str>) -> Result<MakeRustlsConnect, ConnectError> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(file) = root.filter(|root| *root != "system") {
        let fail = |error: &dyn fmt::Display| {
            ConnectError::new(format!("cannot read the certificate {file}: {error}"))
        };
        let certificates = CertificateDer::pem_file_iter(file).map_err(|error| fail(&error))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| fail(&error))?;
            roots.add(certificate).map_err(|error| fail(&error))?;
        }
    } else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::new(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

// Neither shows the password.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = self.config.get_user() {
            write!(f, "{user}@")?;
        }
        for (n, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            match host {
                Host::Tcp(name) => write!(f, "{comma}{name}")?,
                #[cfg(unix)]
                Host::Unix(path) => write!(f, "{comma}{}", path.display())?,
            }
        }
        match self.config.get_ports() {
            [] | [5432] => {}
            ports => {
                let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                write!(f, ":{}", ports.join(","))?;
            }
        }
        write!(f, "/{}", self.config.get_dbname().unwrap_or("postgres"))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

type PlainStream =
    tokio_postgres::Connection<tokio_postgres::Socket, tokio_postgres::tls::NoTlsStream>;
type TlsStream = tokio_postgres::Connection<
    tokio_postgres::Socket,
    <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket>>::Stream,
>;

/// The other half of a client: it must be polled for anything to happen.
pub(super) enum Wire {
    Plain(Box<PlainStream>),
    Tls(Box<TlsStream>),
}

impl Wire {
    /// Runs until the client is dropped or the connection breaks.
    async fn run(mut self) {
        while let Some(Ok(_)) = self.message().await {}
    }

    /// The next message that answers no call; `None` when the client is gone.
    pub(super) async fn message(
        &mut self,
    ) -> Option<Result<tokio_postgres::AsyncMessage, tokio_postgres::Error>> {
        std::future::poll_fn(|context| match self {
            Self::Plain(connection) => connection.poll_message(context),
            Self::Tls(connection) => connection.poll_message(context),
        })
        .await
    }
}

/// Where a call failed.
enum CallError {
    Connect(ConnectError),
    Call(tokio_postgres::Error),
}

/// A connection that is being made, or was.
type Connection = Shared<BoxFuture<'static, Result<Arc<Client>, ConnectError>>>;

/// One connection, used for one call at a time or for several in a row. A call takes no longer than the limit, connecting included,
/// and the server gives it up then too.
pub(super) struct Link {
    url: Url,
    limit: Duration,
    connection: Mutex<Option<Connection>>,
}

impl Link {
    pub(super) fn new(url: Url, limit: Duration) -> Self {
        Self { url, limit, connection: Mutex::new(None) }
    }

    /// The connection: the one that is there, or the one that is being made, which all callers share whether it succeeds or not.
    fn connection(&self) -> Connection {
        let mut held = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = |connection: &&Connection| match connection.peek() {
            Some(Ok(client)) => !client.is_closed(),
            Some(Err(_)) => false,
            None => true,
        };
        if let Some(connection) = held.as_ref().filter(usable) {
            return connection.clone();
        }
        let (url, limit) = (self.url.clone(), self.limit);
        // In a task of its own: a caller that goes away takes nothing from the others.
        let connecting = tokio::spawn(async move { connect(&url, limit).await });
        let connection = async move {
            connecting.await.unwrap_or_else(|error| Err(ConnectError::new(error.to_string())))
        };
        held.insert(connection.boxed().shared()).clone()
    }

    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, BoardError> {
        let connection = self.connection();
        let call = async {
            match connection.clone().await {
                Ok(client) => client.query_typed(sql, params).await.map_err(CallError::Call),
                Err(error) => Err(CallError::Connect(error)),
            }
        };
        match timeout(self.limit, call).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(CallError::Connect(error))) => Err(BoardError::Unreachable(error.to_string())),
            Ok(Err(CallError::Call(error))) => {
                // It became a standby: the next call looks for the server that takes writes.
                if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                    self.give_up(&connection);
                }
                Err(board_error(&error))
            }
            Err(_) => {
                // Whatever it still answers is nobody's.
                self.give_up(&connection);
                Err(BoardError::Unreachable(format!("no answer within {:?}", self.limit)))
            }
        }
    }

    fn give_up(&self, connection: &Connection) {
        let mut held = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        held.take_if(|held| held.ptr_eq(connection));
    }
}

/// Connects for calls of which the server gives up those that take longer than the limit: one that nobody waits for any more must
/// not be done later. Not as a parameter of the connection: poolers refuse those.
async fn connect(url: &Url, limit: Duration) -> Result<Arc<Client>, ConnectError> {
    let connecting = async {
        let client = url.connect().await?;
        let set = format!("set statement_timeout = {}", limit.as_millis());
        let fail = |error: tokio_postgres::Error| {
            ConnectError::new(format!("cannot connect to {url}: {}", describe(&error)))
        };
        client.batch_execute(&set).await.map_err(fail)?;
        Ok(Arc::new(client))
    };
    timeout(CONNECT_LIMIT, connecting).await.unwrap_or_else(|_| Err(no_answer(url)))
}

fn no_answer(url: &Url) -> ConnectError {
    ConnectError::new(format!("cannot connect to {url}: no answer within 5 s"))
}

/// What the server or the connection says, without what was sent.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(refused) => refused.message().to_owned(),
        None => {
            std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
        }
    }
}

fn board_error(error: &tokio_postgres::Error) -> BoardError {
    let passing = match error.code() {
        None => {
            error.is_closed()
                || std::error::Error::source(error)
                    .and_then(<dyn std::error::Error>::downcast_ref::<std::io::Error>)
                    .is_some()
        }
        Some(code) => is_passing(code),
    };
    let detail = describe(error);
    if passing { BoardError::Unreachable(detail) } else { BoardError::Refused(detail) }
}

/// Whether the server will do it at another time: it stops, starts or fails over, its disk is full, or two calls waited for each
/// other.
fn is_passing(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    ["08", "53", "57", "58"].contains(&class)
        || *code == SqlState::READ_ONLY_SQL_TRANSACTION
        || *code == SqlState::T_R_DEADLOCK_DETECTED
        || *code == SqlState::T_R_SERIALIZATION_FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_never_shows_its_password() {
        let url: Url = "postgres://alice:hunter2@localhost/takopi".parse().unwrap();
        assert_eq!(format!("{url} {url:?}"), "alice@localhost/takopi Url(alice@localhost/takopi)");
        let error = "postgres://alice:hunter2@[/takopi".parse::<Url>().unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn all_callers_share_one_attempt_to_connect_to_a_server_that_is_silent() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let url = format!("host=127.0.0.1 port={port} user=a").parse().unwrap();
        let link = Link::new(url, Duration::from_secs(30));
        let begun = tokio::time::Instant::now();
        let calls = (0..8).map(|_| link.query("select 1", &[]));
        for answer in futures::future::join_all(calls).await {
            assert!(answer.is_err_and(|error| error.is_passing()));
        }
        assert_eq!(begun.elapsed().as_secs(), CONNECT_LIMIT.as_secs());
        let link = Link::new(link.url, Duration::from_secs(2));
        let begun = tokio::time::Instant::now();
        assert!(link.query("select 1", &[]).await.is_err());
        assert_eq!(begun.elapsed().as_secs(), 2, "the limit of a call is also one on connecting");
    }

    #[test]
    fn what_a_server_says_while_it_fails_over_passes() {
        let passes = [
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::IO_ERROR,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::DISK_FULL,
        ];
        assert!(passes.iter().all(is_passing));
        let stays = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNIQUE_VIOLATION];
        assert!(!stays.iter().any(is_passing));
    }

    #[test]
    fn only_a_database_on_this_machine_is_reached_without_tls() {
        let tls = |text: &str| text.parse::<Url>().unwrap().uses_tls();
        assert!(
            !tls("postgres://localhost/a")
                && !tls("postgres://127.0.0.1/a")
                && !tls("host=/run/postgresql")
        );
        assert!(tls("postgres://db.example/a") && tls("postgres://db.example/a?sslmode=disable"));
        assert!(tls("postgres://localhost/a?sslmode=require"));
        assert!(tls("postgres://localhost/a?sslmode=verify-full"));
        assert!(tls("host=localhost sslmode=verify-ca"));
    }

    #[test]
    fn a_root_certificate_is_split_off_the_address() {
        let split = |text: &str| take(text, "sslrootcert=");
        assert_eq!(split("postgres://h/a"), ("postgres://h/a".to_owned(), None));
        assert_eq!(
            split("postgres://h/a?sslrootcert=/c.pem"),
            ("postgres://h/a".to_owned(), Some("/c.pem".to_owned()))
        );
        assert_eq!(
            split("postgres://h/a?x=1&sslrootcert=/c.pem&y=2"),
            ("postgres://h/a?x=1&y=2".to_owned(), Some("/c.pem".to_owned()))
        );
        let password = "postgres://u:sslrootcert=x@h/a";
        assert_eq!(split(password), (password.to_owned(), None));
    }
}
