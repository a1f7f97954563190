//! Worker threads: one current-thread runtime each, sessions pinned to one of them for life.
//!
//! Purpose: both sockets of a session are served by one task on one thread, so nothing on the path
//! crosses threads (docs/PERFORMANCE.md has the figures behind this). Connections are handed over
//! by the listener through a bounded queue; listeners are tasks of workers too, the first listener
//! of the first worker and so on. Workers stop when every listener is gone and their
//! sessions have ended, or when told to.
//!
//! Their runtimes keep no timers, whose clock they would read in every turn: a session's are the
//! main runtime's (`telemetry/timer.rs`).

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::base::limits;
use crate::sql::Trusted;
use crate::telemetry::spawn::{spawn_named, spawn_session};
use crate::telemetry::timer;
use crate::telemetry::worker::WorkerCounters;
use crate::wire::mysql::session as mysql;
use crate::wire::pg::session as pg;
use crate::wire::shared::accepted::Accepted;
use crate::wire::shared::desk;
use crate::wire::shared::listener::{ListenError, Listener};

/// What a listener serves: a protocol, with its settings.
#[derive(Debug, Clone)]
pub enum Service {
    /// PostgreSQL.
    Pg(Arc<pg::Settings>),
    /// MySQL and MariaDB.
    Mysql(Arc<mysql::Settings>),
}

/// What the sessions of each protocol share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// PostgreSQL's.
    pub pg: Arc<pg::Shared>,
    /// MySQL's and MariaDB's.
    pub mysql: Arc<mysql::Shared>,
}

/// A connection on its way to a worker, still without a runtime.
pub(crate) struct Handover {
    pub(crate) socket: RawSocket,
    pub(crate) client: String,
    pub(crate) service: Service,
}

/// An accepted socket, taken out of the accepting runtime.
pub(crate) enum RawSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// The worker threads.
#[derive(Debug)]
pub struct Workers {
    queues: Vec<mpsc::Sender<Handover>>,
    runtimes: Vec<Handle>,
    threads: Vec<thread::JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// The threads can't be started.
#[derive(Debug, thiserror::Error)]
#[error("worker thread {number} can't be started: {source}")]
pub struct WorkerError {
    number: usize,
    source: std::io::Error,
}

impl Workers {
    /// Starts one thread per entry of `counters`. Must be called within a tokio runtime with
    /// timers, which keeps those of the sessions.
    ///
    /// # Errors
    /// [`WorkerError`] when the system gives no thread or no runtime.
    pub fn start(
        shared: &Shared,
        counters: Vec<Arc<WorkerCounters>>,
        trusted: &Arc<Trusted>,
        started: Instant,
    ) -> Result<Self, WorkerError> {
        let (stop, stopped) = watch::channel(false);
        let (queues, runtimes, threads) = (Vec::new(), Vec::new(), Vec::new());
        let mut workers = Self { queues, runtimes, threads, stop };
        for (number, counters) in counters.into_iter().enumerate() {
            let runtime = Builder::new_current_thread()
                .enable_io()
                .build()
                .map_err(|source| WorkerError { number, source })?;
            let (sender, queue) = mpsc::channel(limits::ACCEPT_QUEUE_MAX);
            let (shared, trusted) = (shared.clone(), Arc::clone(trusted));
            let (mut stopped, keeper) = (stopped.clone(), Handle::current());
            workers.runtimes.push(runtime.handle().clone());
            let thread = thread::Builder::new()
                .name(format!("fencewire-w{number}"))
                .spawn(move || {
                    timer::kept_by(keeper);
                    desk::set_up(trusted, Arc::clone(&counters), started);
                    runtime.block_on(async move {
                        tokio::select! {
                            () = receive(queue, shared, counters) => {}
                            _ = stopped.wait_for(|stop| *stop) => {}
                        }
                    });
                })
                .map_err(|source| WorkerError { number, source })?;
            workers.queues.push(sender);
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Has a worker accept what comes to a listener, until the task is aborted. `number` is the
    /// listener's among all of them. Without workers there is nobody to, and no task.
    ///
    /// # Errors
    /// [`ListenError`] where the worker's runtime doesn't take it.
    pub fn accept(
        &self,
        listener: Listener,
        number: usize,
    ) -> Result<Option<JoinHandle<()>>, ListenError> {
        let Some(runtime) = self.runtimes.get(number % self.runtimes.len().max(1)) else {
            return Ok(None);
        };
        let _inside = runtime.enter();
        let settled = listener.settled()?;
        Ok(Some(spawn_named("listener", settled.run(self.queues.clone()))))
    }

    /// Stops the threads: sessions that still run are abandoned with the process.
    pub fn stop(self) {
        // Receivers live in the threads; one that has ended needs no telling.
        let _unheard = self.stop.send(true);
        drop(self.queues);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker thread ended by a panic");
            }
        }
    }
}

/// Starts a session for each connection that a worker is handed, until no listener is left.
///
/// # Cancel safety
/// Cancel safe: sessions that were started have tasks of their own, and a connection that is still
/// in the queue is closed with it.
async fn receive(
    mut queue: mpsc::Receiver<Handover>,
    shared: Shared,
    counters: Arc<WorkerCounters>,
) {
    while let Some(Handover { socket, client, service }) = queue.recv().await {
        let accepted = match socket {
            RawSocket::Tcp(tcp) => tokio::net::TcpStream::from_std(tcp).map(Accepted::Tcp),
            RawSocket::Unix(unix) => tokio::net::UnixStream::from_std(unix).map(Accepted::Unix),
        };
        match accepted {
            Ok(accepted) => start(accepted, client, service, &shared, &counters),
            Err(error) => tracing::warn!(%error, "an accepted connection is not usable"),
        }
    }
}

fn start(
    accepted: Accepted,
    client: String,
    service: Service,
    shared: &Shared,
    counters: &Arc<WorkerCounters>,
) {
    let counters = Arc::clone(counters);
    match service {
        Service::Pg(settings) => {
            let shared = Arc::clone(&shared.pg);
            spawn_session(pg::serve(accepted, client, settings, shared, counters));
        }
        Service::Mysql(settings) => {
            let shared = Arc::clone(&shared.mysql);
            spawn_session(mysql::serve(accepted, client, settings, shared, counters));
        }
    }
}
