//! A proxy in front of a database, which cuts connections at any point of a call.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

/// The name of PostgreSQL's socket in its directory.
const SOCKET: &str = ".s.PGSQL.5432";

/// The proxy; it ends with its directory's owner.
#[derive(Clone)]
pub(crate) struct Proxy {
    dir: PathBuf,
    connections: Arc<Mutex<CancellationToken>>,
}

impl Proxy {
    /// A proxy with a socket in `dir` for the one in `database`.
    pub(crate) fn start(dir: &Path, database: &Path) -> Self {
        let listener = UnixListener::bind(dir.join(SOCKET)).unwrap();
        let connections = Arc::new(Mutex::new(CancellationToken::new()));
        let (current, target) = (connections.clone(), database.join(SOCKET));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (cut, target) = (current.lock().unwrap().clone(), target.clone());
                tokio::spawn(async move {
                    let Ok(mut server) = UnixStream::connect(target).await else { return };
                    tokio::select! {
                        () = cut.cancelled() => {}
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                    }
                });
            }
        });
        Self { dir: dir.to_owned(), connections }
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        let mut connections = self.connections.lock().unwrap();
        std::mem::replace(&mut *connections, CancellationToken::new()).cancel();
    }

    /// The address of a database behind it.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("host={} user=takopi dbname={database}", self.dir.display())
    }
}
