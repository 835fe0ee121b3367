//! The web chat: the real agents with a scripted model, and a browser that looks at it.
//!
//! `TAKOPI_UPDATE_PICTURE=1 cargo test -p takopi-cli --test it picture` takes the pictures of `docs/` anew.

mod access;
mod attention;
mod claude;
mod conversations;
mod daily;
mod doors;
mod drafts;
mod picture;
pub(crate) mod server;
mod stored;
