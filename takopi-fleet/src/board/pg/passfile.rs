//! Passwords that are not in the address: `PGPASSWORD`, or a line of the password file, as PostgreSQL's own programs read them.
//!
//! The file is `PGPASSFILE` or `~/.pgpass`. Its lines are `host:port:database:user:password`; `*` stands for anything. One that
//! others may read is passed over with a warning.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The password for the database, if there is one outside of the address.
pub(super) fn password(config: &Config) -> Option<Vec<u8>> {
    if let Some(password) = env::var_os("PGPASSWORD") {
        return Some(password.into_encoded_bytes());
    }
    let file = env::var_os("PGPASSFILE").map(PathBuf::from);
    let file = file.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".pgpass")))?;
    let known = fs::metadata(&file).ok()?;
    if known.mode() & 0o077 != 0 {
        let file = file.display();
        tracing::warn!("{file} is not used: others may read it; `chmod 600 {file}`");
        return None;
    }
    let lines = fs::read_to_string(&file).ok()?;
    find(&lines, config).map(String::into_bytes)
}

fn find(lines: &str, config: &Config) -> Option<String> {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            // As libpq does: a socket is `localhost`.
            Host::Unix(_) => "localhost".to_owned(),
        })
        .collect();
    let port = config.get_ports().first().unwrap_or(&5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    lines.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let [host, its_port, its_database, its_user, password] = fields.as_slice() else {
            return None;
        };
        let is = |field: &str, value: &str| field == "*" || field == value;
        let fits = hosts.iter().any(|name| is(host, name))
            && is(its_port, &port)
            && is(its_database, database)
            && is(its_user, user);
        fits.then(|| password.clone())
    })
}

/// The fields of a line; a backslash takes the meaning from a colon or a backslash.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut letters) = (vec![String::new()], line.chars());
    while let Some(letter) = letters.next() {
        let Some(field) = fields.last_mut() else { return fields };
        match letter {
            '\\' => field.extend(letters.next()),
            ':' => fields.push(String::new()),
            letter => field.push(letter),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let lines = "# mine\ndb.example:5432:other:alice:no\ndb.example:*:fleet:alice:s\\:e\\\\c\n*:*:*:*:any\n";
        let find = |text: &str| find(lines, &text.parse().unwrap());
        assert_eq!(find("postgres://alice@db.example/fleet").as_deref(), Some("s:e\\c"));
        assert_eq!(find("postgres://alice@db.example:5433/fleet").as_deref(), Some("s:e\\c"));
        assert_eq!(find("host=/run/postgresql user=bob").as_deref(), Some("any"));
        assert_eq!(
            super::find("localhost:5432:*:bob:x", &"host=/run user=bob".parse().unwrap())
                .as_deref(),
            Some("x")
        );
        assert_eq!(super::find("a:b\n", &"host=/run user=bob".parse().unwrap()), None);
    }
}
