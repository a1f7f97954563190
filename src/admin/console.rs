//! The SQL consoles: fences from `psql` and from `mysql`.
//!
//! Purpose: the same commands and questions as the HTTP API, in one small grammar ([`grammar`])
//! over two protocols (`pg`, `mysql`), answered as rows ([`table`]) or typed errors ([`failure`]).
//! The password of every login is the admin key; the name doesn't matter. The bounds are those of
//! the HTTP side: connections, time to log in, length of a statement, a reader's patience.
//!
//! Callers: `app` binds the listeners and runs [`serve`]. Fences are reached through `control`
//! alone ([`run`]). No TLS of its own yet, as the HTTP side: bind it to a private address. It is no
//! database: a `BEGIN` begins nothing ([`chatter`]), and no command is undone by a `ROLLBACK`.

pub mod chatter;
pub mod failure;
#[cfg(debug_assertions)]
pub mod fuzzing;
pub mod grammar;
mod handshake;
mod help;
mod mysql;
mod packets;
mod pg;
pub mod run;
pub mod table;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::serve::Listener as _;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::accept::Bounded;
use crate::telemetry::spawn::spawn_named;

pub(super) use pg::ScramVerifier;
pub use run::{Desk, Settings};

/// Which protocol a console speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL's.
    Postgres,
    /// MySQL's.
    Mysql,
}

impl Protocol {
    /// The label in metrics.
    const fn label(self) -> &'static str {
        match self {
            Self::Postgres => "console/postgres",
            Self::Mysql => "console/mysql",
        }
    }
}

/// Serves one console until `stop` completes. Statements that wait then are given up; the commands
/// behind them go on.
///
/// # Cancel safety
/// Dropping it closes the listener and every connection; commands run on.
pub async fn serve(
    listener: TcpListener,
    protocol: Protocol,
    desk: Arc<Desk>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let mut listener = Bounded::new(listener);
    let (going_on, gone) = watch::channel(());
    let postgres = pg::Shared::new(&desk);
    let mysql = mysql::Shared::new(&desk);
    let mut stop = pin!(stop);
    loop {
        let (stream, peer): (_, SocketAddr) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let (postgres, mysql) = (Arc::clone(&postgres), Arc::clone(&mysql));
        let mut gone = gone.clone();
        drop(spawn_named("console-connection", async move {
            let talk = async {
                match protocol {
                    Protocol::Postgres => pg::talk(stream, peer, postgres).await,
                    Protocol::Mysql => mysql::talk(stream, mysql).await,
                }
            };
            tokio::select! {
                ended = talk => if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "a console's connection ended early");
                },
                // Nothing is ever sent: the sender is dropped when the console stops.
                _stopped = gone.changed() => {}
            }
        }));
    }
    drop(going_on);
}
