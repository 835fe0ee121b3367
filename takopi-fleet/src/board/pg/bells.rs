//! Bells: NOTIFY and LISTEN, apart from everything else.
//!
//! Rings are gathered while the last ones are sent, and sent in one unsynced statement on a connection of their own: a
//! notification inside of a commit would make all commits of the server wait for each other. A ring that is lost costs time
//! only: listeners look by themselves every second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

use super::link::{Link, Url};
use crate::board::{Bell, Listener, Ring, Rings};

/// How many rings wait to be sent; further ones are lost.
const MAX_WAITING: usize = 4096;
/// How many jobs one notification names: far under the limit of 8,000 bytes.
const JOBS_A_RING: usize = 50;
const RECONNECT: Duration = Duration::from_millis(250);
const ALL_WORKERS: &str = "takopi_work";

pub(super) struct Ringer {
    bells: mpsc::Sender<Bell>,
}

impl Ringer {
    pub(super) fn start(link: Link) -> Self {
        let (bells, mut waiting) = mpsc::channel(MAX_WAITING);
        tokio::spawn(async move {
            let mut gathered = Vec::new();
            while waiting.recv_many(&mut gathered, MAX_WAITING).await > 0 {
                let (channels, payloads) = notifications(gathered.drain(..));
                let sql = "select pg_notify(n.c, n.p), set_config('synchronous_commit', 'off', true) from unnest($1, $2) as n (c, p)";
                let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                    [(&channels, Type::TEXT_ARRAY), (&payloads, Type::TEXT_ARRAY)];
                if let Err(error) = link.query(sql, &params).await {
                    tracing::debug!("bells were lost: {error}");
                }
            }
        });
        Self { bells }
    }

    pub(super) fn ring(&self, bell: Bell) {
        let _ = self.bells.try_send(bell);
    }
}

/// The channel of a worker or a submitter. Names are at most 63 bytes, and ids may be longer.
fn channel(kind: char, id: &str) -> String {
    format!(
        "takopi_{kind}_{}",
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, id.as_bytes()).simple()
    )
}

fn notifications(bells: impl Iterator<Item = Bell>) -> (Vec<String>, Vec<String>) {
    let mut plain = BTreeSet::new();
    let mut jobs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for bell in bells {
        match bell {
            Bell::Work => {
                plain.insert(ALL_WORKERS.to_owned());
            }
            Bell::Worker(id) => {
                plain.insert(channel('w', &id));
            }
            Bell::Submitter { id, job } => {
                jobs.entry(channel('s', &id)).or_default().insert(job);
            }
        }
    }
    let mut rings: Vec<(String, String)> =
        plain.into_iter().map(|channel| (channel, String::new())).collect();
    for (channel, jobs) in jobs {
        let jobs: Vec<String> = jobs.into_iter().collect();
        for some in jobs.chunks(JOBS_A_RING) {
            let named = serde_json::to_string(some).unwrap_or_default();
            // Ids that are too long are looked up without being named.
            let payload = if named.len() < 7000 { named } else { String::new() };
            rings.push((channel.clone(), payload));
        }
    }
    rings.into_iter().unzip()
}

pub(super) fn listen(url: Url, listener: Listener) -> Rings {
    let (rings, heard) = mpsc::channel(256);
    tokio::spawn(async move {
        while !rings.is_closed() {
            if let Err(error) = hear(&url, &listener, &rings).await {
                tracing::debug!("bells are not heard: {error}");
            }
            tokio::select! {
                () = rings.closed() => return,
                () = tokio::time::sleep(RECONNECT) => {}
            }
        }
    });
    heard
}

async fn hear(url: &Url, listener: &Listener, rings: &mpsc::Sender<Ring>) -> Result<(), String> {
    let (client, mut wire) = url.open().await.map_err(|error| error.to_string())?;
    let own = match listener {
        Listener::Worker(id) => channel('w', id),
        Listener::Submitter(id) => channel('s', id),
    };
    let sql = match listener {
        Listener::Worker(_) => format!("listen {own}; listen {ALL_WORKERS}"),
        Listener::Submitter(_) => format!("listen {own}"),
    };
    let listening = async move {
        let done = client.batch_execute(&sql).await;
        (client, done)
    };
    tokio::pin!(listening);
    let mut ready = None;
    loop {
        let message = tokio::select! {
            () = rings.closed() => return Ok(()),
            (client, done) = &mut listening, if ready.is_none() => {
                done.map_err(|error| error.to_string())?;
                ready = Some(client);
                // What was rung before was not heard.
                let _ = rings.try_send(Ring::Everything);
                continue;
            }
            message = wire.message() => message,
        };
        let ring = match message {
            None => return Ok(()),
            Some(Err(error)) => return Err(error.to_string()),
            Some(Ok(AsyncMessage::Notification(note))) if note.channel() == ALL_WORKERS => {
                Ring::Work
            }
            Some(Ok(AsyncMessage::Notification(note))) => match listener {
                Listener::Worker(_) => Ring::Control,
                Listener::Submitter(_) => {
                    serde_json::from_str(note.payload()).map_or(Ring::Everything, Ring::Jobs)
                }
            },
            Some(Ok(_)) => continue,
        };
        // A listener that does not keep up looks by itself.
        let _ = rings.try_send(ring);
    }
}
