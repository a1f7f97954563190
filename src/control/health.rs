//! Whether engines answer, for whoever asks whether the proxy is ready.
//!
//! Purpose: `/readyz` says how each engine answered when it was last asked. Nobody waits for that:
//! a question is sent in the background, all engines at once, and at most one every
//! [`limits::HEALTH_ASK_MS`], however often is asked here. So a probe with a short patience never
//! fails because an engine keeps silent, and nobody can load an engine through the open route.
//!
//! Callers: `admin/http`. It is for people: no evidence, no admission and no readiness rests on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::fences::Control;
use super::port::EnginePort;
use crate::base::ids::EngineName;
use crate::base::limits;
use crate::engine::EngineError;
use crate::telemetry::spawn::spawn_named;

/// How one engine answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answered {
    /// When, on the monotonic clock.
    at: Duration,
    /// In words that hold nothing of the engine's own: the route is open.
    words: &'static str,
}

/// What is known of all engines.
#[derive(Debug, Default)]
pub(super) struct Health {
    // Guards the little that is in it; nothing is awaited under it.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    engines: BTreeMap<EngineName, Answered>,
    /// When the last question went out, on the monotonic clock.
    asked: Option<Duration>,
}

const fn words(error: &EngineError) -> &'static str {
    match error {
        EngineError::Unreachable { .. } => "could not be reached",
        EngineError::Denied { .. } => "refused the control role",
        EngineError::Timeout { .. } => "did not answer in time",
        EngineError::Unexpected { .. } => "answered something unexpected",
        EngineError::Changed { .. } => "was another server than before",
    }
}

impl Control {
    /// A line per engine: how it answered last, and when that was. Asks anew where that is long
    /// ago, without waiting for the answer.
    #[must_use]
    pub fn engine_words(self: &Arc<Self>) -> Vec<String> {
        let engines = self.engines();
        let now = self.clock.monotonic();
        let mut known = self.health.known.lock().unwrap_or_else(PoisonError::into_inner);
        let again = Duration::from_millis(limits::HEALTH_ASK_MS);
        if known.asked.is_none_or(|asked| now.saturating_sub(asked) >= again) {
            known.asked = Some(now);
            known.engines.retain(|name, _| engines.contains_key(name));
            for (name, engine) in engines.iter() {
                let (control, name, engine) = (Arc::clone(self), name.clone(), Arc::clone(engine));
                drop(spawn_named("engine-health", async move { control.ask(name, engine).await }));
            }
        }
        let line = |name: &EngineName| match known.engines.get(name) {
            Some(Answered { at, words }) => {
                let ago = now.saturating_sub(*at).as_secs();
                format!("engine {name}: {words}, {ago} s ago")
            }
            None => format!("engine {name}: has not been asked yet; ask again in a moment"),
        };
        engines.keys().map(line).collect()
    }

    /// Cancel safety: cancel safe; nothing is noted then.
    async fn ask(&self, name: EngineName, engine: Arc<dyn EnginePort>) {
        let bound = Duration::from_millis(limits::HEALTH_ASK_MS);
        let words = match tokio::time::timeout(bound, engine.server()).await {
            Ok(Ok(server)) if server.standby => "answered as a standby, which can't be fenced",
            Ok(Ok(_)) => "answered",
            Ok(Err(error)) => words(&error),
            Err(_) => "did not answer in time",
        };
        let answered = Answered { at: self.clock.monotonic(), words };
        let mut known = self.health.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.engines.insert(name, answered);
    }
}
