//! A proxy in front of a database, which cuts connections at any point of a call, or holds back what the database says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The name of PostgreSQL's socket in its directory.
const SOCKET: &str = ".s.PGSQL.5432";

/// The proxy; it ends with its directory's owner.
#[derive(Clone)]
pub(crate) struct Proxy {
    dir: PathBuf,
    connections: Arc<Mutex<CancellationToken>>,
    /// Whether what the database says is held back.
    holds: watch::Sender<bool>,
    /// The words of a call from which on it is.
    from: Arc<Mutex<Option<&'static str>>>,
}

impl Proxy {
    /// A proxy with a socket in `dir` for the one in `database`.
    pub(crate) fn start(dir: &Path, database: &Path) -> Self {
        let listener = UnixListener::bind(dir.join(SOCKET)).unwrap();
        let connections = Arc::new(Mutex::new(CancellationToken::new()));
        let (current, target) = (connections.clone(), database.join(SOCKET));
        let holds = watch::Sender::new(false);
        let from = Arc::new(Mutex::new(None));
        let (holding, words) = (holds.clone(), from.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (cut, target) = (current.lock().unwrap().clone(), target.clone());
                let (holding, words) = (holding.clone(), words.clone());
                let mut held = holding.subscribe();
                tokio::spawn(async move {
                    let Ok(mut server) = UnixStream::connect(target).await else { return };
                    let ((mut asks, mut hears), (mut answers, mut asked)) =
                        (client.split(), server.split());
                    let back = async {
                        let mut chunk = vec![0; 16 * 1024];
                        while let Ok(count @ 1..) = answers.read(&mut chunk).await {
                            let _ = held.wait_for(|held| !held).await;
                            if hears.write_all(&chunk[..count]).await.is_err() {
                                return;
                            }
                        }
                    };
                    let forth = async {
                        let mut chunk = vec![0; 16 * 1024];
                        while let Ok(count @ 1..) = asks.read(&mut chunk).await {
                            let call = String::from_utf8_lossy(&chunk[..count]).into_owned();
                            if words.lock().unwrap().take_if(|it| call.contains(*it)).is_some() {
                                holding.send_replace(true);
                            }
                            if asked.write_all(&chunk[..count]).await.is_err() {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = cut.cancelled() => {}
                        () = back => {}
                        () = forth => {}
                    }
                });
            }
        });
        Self { dir: dir.to_owned(), connections, holds, from }
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        let mut connections = self.connections.lock().unwrap();
        std::mem::replace(&mut *connections, CancellationToken::new()).cancel();
    }

    /// Holds back what the database says, from the next call with these words on.
    pub(crate) fn hold_from(&self, words: &'static str) {
        *self.from.lock().unwrap() = Some(words);
    }

    /// Lets what was held back pass.
    pub(crate) fn let_pass(&self) {
        self.holds.send_replace(false);
    }

    /// The address of a database behind it.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("host={} user=takopi dbname={database}", self.dir.display())
    }
}
