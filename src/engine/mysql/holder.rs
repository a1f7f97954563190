//! The connection that holds an engine lock, on a task of its own.
//!
//! Purpose: the driver reads its socket only while a question is asked, so a lock that went with
//! its connection would be noticed late. The task asks the server a few times a second whether it
//! is there, runs the few questions that must be answered *under* the lock, and ends when the lock
//! is given back, dropped or lost. Whoever sees in the process list that the thread is gone may
//! say so first ([`Holder::declare_lost`]).
//!
//! A table lock ends only with `UNLOCK TABLES`, another `LOCK TABLES`, a transaction's begin, or
//! its session. None of these is sent here before the release, so while the same thread id lives,
//! the lock does.
//!
//! Called by `lock` (which makes it), `boundary` and `census`.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::Row;
use mysql_async::prelude::Queryable;
use tokio::sync::{mpsc, oneshot, watch};

use super::connect::{Connections, Session, ask};
use crate::base::limits;
use crate::engine::Settings;
use crate::engine::error::EngineError;
use crate::telemetry::spawn::spawn_named;

/// What the holder is asked.
enum Ask {
    /// A question under the lock.
    Rows(String, oneshot::Sender<Result<Vec<Row>, EngineError>>),
    /// Give the lock back.
    Release(oneshot::Sender<Result<(), EngineError>>),
}

/// A holder as others know it; cheap to clone. It doesn't keep the lock: the handle does.
#[derive(Clone)]
pub(super) struct Holder {
    pub(super) thread: u32,
    asks: mpsc::WeakSender<Ask>,
    ended: watch::Sender<bool>,
}

/// The only thing that keeps the lock: dropping it ends the holder's connection.
pub(super) struct Keep {
    asks: mpsc::Sender<Ask>,
    ended: watch::Receiver<bool>,
}

/// Starts the task.
pub(super) fn start(session: Session, connections: &Arc<Connections>) -> (Holder, Keep) {
    let (asks, inbox) = mpsc::channel(limits::CONTROL_CONNECTIONS_MAX);
    let (sender, ended) = watch::channel(false);
    let holder = Holder { thread: session.thread, asks: asks.downgrade(), ended: sender.clone() };
    let connections = Arc::clone(connections);
    let _detached = spawn_named("engine-lock-holder", async move {
        let (thread, run) = (session.thread, session.run);
        if hold(session, connections.settings(), inbox).await == Ending::Unheard {
            // The engine may not know of the end: until it says so, the lock may be there.
            connections.stray(thread, run);
        }
        sender.send_replace(true);
    });
    (holder, Keep { asks, ended })
}

/// Whether the engine has said that the lock is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Released,
    Unheard,
}

async fn hold(mut session: Session, settings: &Settings, mut inbox: mpsc::Receiver<Ask>) -> Ending {
    let pause = Duration::from_millis(limits::LOCK_HOLDER_PING_MS);
    let mut ending = Ending::Unheard;
    loop {
        tokio::select! {
            asked = inbox.recv() => match asked {
                // The handle is gone: so is the lock, with the connection.
                None => break,
                Some(Ask::Rows(sql, reply)) => {
                    let question = session.conn.query::<Row, _>(sql.as_str());
                    let answer = ask(settings, "asking the lock's holder", question).await;
                    // A refusal is not a broken connection, and a caller that left is no matter.
                    let broken = matches!(answer, Err(super::connect::Failure::Broken(_)));
                    let _gone = reply.send(answer.map_err(EngineError::from));
                    if broken {
                        break;
                    }
                }
                Some(Ask::Release(reply)) => {
                    let question = session.conn.query_drop("UNLOCK TABLES");
                    let answer = ask(settings, "releasing the engine lock", question).await;
                    if answer.is_ok() {
                        ending = Ending::Released;
                    }
                    let _gone = reply.send(answer.map_err(EngineError::from));
                    break;
                }
            },
            () = tokio::time::sleep(pause) => {
                let question = session.conn.ping();
                if let Err(failure) = ask(settings, "the lock holder's pulse", question).await {
                    let error = EngineError::from(failure);
                    tracing::info!(engine = %settings.name, %error, "a lock holder ended");
                    break;
                }
            }
        }
    }
    // Bounded, because a partition may swallow the goodbye; the server notices by itself then.
    let bound = Duration::from_millis(limits::CONTROL_ANSWER_GRACE_MS);
    let _unheard = tokio::time::timeout(bound, session.conn.disconnect()).await;
    ending
}

impl Holder {
    /// Whether it is known to have ended.
    pub(super) fn is_lost(&self) -> bool {
        *self.ended.borrow()
    }

    /// The process list shows that the thread is gone.
    pub(super) fn declare_lost(&self) {
        self.ended.send_replace(true);
    }

    /// Asks a question under the lock; `None` when there is no holder any more.
    ///
    /// Cancel safe: the answer is lost, the lock stays.
    pub(super) async fn rows(&self, sql: &str) -> Option<Result<Vec<Row>, EngineError>> {
        let (reply, answer) = oneshot::channel();
        let asks = self.asks.upgrade()?;
        asks.send(Ask::Rows(sql.to_owned(), reply)).await.ok()?;
        drop(asks);
        answer.await.ok()
    }
}

impl Keep {
    pub(super) fn is_lost(&self) -> bool {
        *self.ended.borrow() || self.asks.is_closed()
    }

    /// Completes when the holder has ended. The future borrows nothing; cancel safe.
    pub(super) fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ended = self.ended.clone();
        async move {
            // An error means that the task is gone, which is the same.
            let _ended = ended.wait_for(|ended| *ended).await;
        }
    }

    /// Asks the holder for its own thread id; `None` when it is gone.
    ///
    /// Cancel safe: the answer is lost, the lock stays.
    pub(super) async fn thread(&self) -> Option<Result<Vec<Row>, EngineError>> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(Ask::Rows("SELECT CONNECTION_ID()".to_owned(), reply)).await.ok()?;
        answer.await.ok()
    }

    /// Gives the lock back; `None` when it was gone before.
    pub(super) async fn release(self) -> Option<Result<(), EngineError>> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(Ask::Release(reply)).await.ok()?;
        answer.await.ok()
    }
}
