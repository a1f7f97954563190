//! What a closing command asks its engine before its drain begins.
//!
//! Purpose: the first commit and its marker wait for the disk, and the engine has time meanwhile:
//! it is asked for the cutoff, and behind its answer a connection is opened for the engine lock. A
//! task does both, so an engine that is silent keeps neither the commit nor its answer. Whatever
//! isn't there when it is needed is asked for as if there had been nothing of this: no error here
//! is one of the command's.
//!
//! Why the cutoff may be asked so early: it must be of an instant behind the closing, and is,
//! because [`Early::begin`] takes the generation that closing has put up. It counts for the drain
//! of that very generation alone; a commit that fails takes the overlay down, which moves it. A
//! later instant would name more: what began in between. That proves no more. Through the proxy
//! what begins at the engine behind the closing was admitted before it, and its lease is waited
//! for, or runs under the guard. What comes around the proxy begins at any instant, behind the
//! latest cutoff too: that is for the engine lock, and for the censuses, which let nobody pass who
//! is in a transaction then, whenever it began. One thing is less than behind a later cutoff: a
//! program that was admitted just before the closing, and begins at the engine behind this cutoff,
//! is waited for by its lease alone, where it would be named in the census as well.
//!
//! Why the connection is opened behind the cutoff: logging in is a transaction, and until the
//! connection has said who it is nobody can tell it from a stranger's. A cutoff would wait for it,
//! and a census would be held up by it. So the drain waits for its word before the first census
//! ([`limits::HOLDER_OPENING_MS`]), or closes it.
//!
//! Callers: `control/fences` begins it, `control/drain` uses it up. Dropping it ends both.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::base::arm::{Removable, removed};
use crate::base::ids::{Generation, Namespace};
use crate::base::limits;
use crate::control::port::{EnginePort, Observation, ReadyHolder};
use crate::engine::EngineError;
use crate::telemetry::spawn::spawn_named;

/// A cutoff, or why there is none.
type Cutoff = Result<Arc<dyn Observation>, EngineError>;

/// What has been begun for the drain of one closing.
pub(in crate::control) struct Early {
    generation: Generation,
    cutoff: oneshot::Receiver<Cutoff>,
    holder: oneshot::Receiver<Box<dyn ReadyHolder>>,
    task: JoinHandle<()>,
}

impl Drop for Early {
    fn drop(&mut self) {
        // What it had found already goes with the receivers.
        self.task.abort();
    }
}

impl Early {
    /// Begins, behind the closing of a gate that has put up this generation. `known` is a cutoff
    /// that was taken under it already; `locks` says whether a lock will be wanted.
    pub(in crate::control) fn begin(
        engine: Arc<dyn EnginePort>,
        namespace: Namespace,
        generation: Generation,
        (known, locks): (Option<Arc<dyn Observation>>, bool),
    ) -> Self {
        let (tell_cutoff, cutoff) = oneshot::channel();
        let (tell_holder, holder) = oneshot::channel();
        let task = spawn_named("early-questions", async move {
            let seen = match known {
                Some(seen) => Ok(seen),
                None => engine.cutoff(&namespace).await,
            };
            let answers = seen.is_ok();
            // Nobody listens any more where the drain is over.
            let _unheard = tell_cutoff.send(seen);
            if !locks || !answers {
                return;
            }
            match engine.ready_holder(&namespace).await {
                Ok(Some(holder)) => drop(tell_holder.send(holder)),
                Ok(None) => {}
                Err(error) => {
                    let what = "the engine lock's connection isn't opened before it is needed";
                    tracing::info!(%namespace, %error, "{what}");
                }
            }
        });
        Self { generation, cutoff, holder, task }
    }

    /// The closing that it is of.
    pub(super) const fn generation(&self) -> Generation {
        self.generation
    }

    /// The cutoff taken behind the closing of this generation; `None` where it isn't one of it, and
    /// when it was told before.
    ///
    /// # Cancel safety
    /// Cancel safe: it can be asked for again.
    pub(in crate::control) async fn cutoff(&mut self, generation: Generation) -> Option<Cutoff> {
        let its_own = self.generation == generation || removed(Removable::CutoffGeneration);
        if !its_own || self.cutoff.is_terminated() {
            return None;
        }
        (&mut self.cutoff).await.ok()
    }

    /// The connection for the lock, once it has said who it is; `None` where there is none within
    /// [`limits::HOLDER_OPENING_MS`]. Then what may be under way is closed.
    pub(super) async fn holder(mut self) -> Option<Box<dyn ReadyHolder>> {
        let bound = Duration::from_millis(limits::HOLDER_OPENING_MS);
        tokio::time::timeout(bound, &mut self.holder).await.ok()?.ok()
    }
}
