//! The load: many clients at once, on threads of their own.
//!
//! Purpose: clients don't share threads with the proxy's control side, so that a busy load can't
//! make a drain look slow. Called by `play.rs`. Dropping a [`Load`] tells clients to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::client;
use super::history::{Counts, Recorder};
use super::link::Login;
use super::narrator::Narrator;
use crate::telemetry::spawn::spawn_named;

/// Clients that write.
pub(super) const WRITERS: usize = 32;
/// Clients that read.
pub(super) const READERS: usize = 4;
/// How long all clients together may take to end.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Running clients.
pub(super) struct Load {
    recorder: Arc<Recorder>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts all clients on the runtime of `threads`; `login` makes their settings from a name.
    pub(super) fn start(
        threads: &Handle,
        recorder: &Arc<Recorder>,
        login: impl Fn(&str) -> Login,
    ) -> Self {
        let _on_their_threads = threads.enter();
        let writers = (0..WRITERS).map(|number| {
            let login = login(&format!("bank teller {number}"));
            spawn_named("demo-writer", client::writer(number, login, Arc::clone(recorder)))
        });
        let readers = (0..READERS).map(|number| {
            let login = login(&format!("bank auditor {number}"));
            spawn_named("demo-reader", client::reader(number, login, Arc::clone(recorder)))
        });
        let tasks = writers.chain(readers).collect();
        Self { recorder: Arc::clone(recorder), tasks }
    }

    /// Tells all clients to stop and waits until they have.
    pub(super) async fn stop(mut self) {
        self.recorder.stop();
        let ended = async {
            for task in self.tasks.drain(..) {
                // One that panicked has recorded what it saw until then.
                task.await.ok();
            }
        };
        tokio::time::timeout(STOP_MAX, ended).await.ok();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.recorder.stop();
    }
}

/// Tells the throughput of each of some seconds as they pass.
pub(super) async fn watch(recorder: &Recorder, seconds: u32, narrator: &mut Narrator<'_, '_>) {
    let mut before = recorder.counts();
    for second in 1..=seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = recorder.counts();
        narrator.line(&format!("second {second}"), &in_words(before, now));
        before = now;
    }
}

fn in_words(before: Counts, now: Counts) -> String {
    format!(
        "{:>5} transfers/s acknowledged  {:>5} refused/s  {:>5} reads/s",
        now.acknowledged - before.acknowledged,
        now.refused - before.refused,
        now.reads - before.reads
    )
}
