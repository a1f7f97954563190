//! One run of an engine's server: from its start to its end, however it ends.
//!
//! Purpose: backends are numbered anew by each run, so a backend's number means something only
//! together with its run. Values as the engine itself tells them; nothing here reads a clock.
//! Callers: `gate` notes a session's run in its slot, `control` compares it with the current one.

/// Which server, on which timeline, started when.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EngineRun {
    /// PostgreSQL `system_identifier`; MySQL `server_uuid`; MariaDB server id and data directory.
    pub engine_id: String,
    /// PostgreSQL timeline; `None` elsewhere.
    pub timeline: Option<u32>,
    /// When the server was started, by its own clock and word, in microseconds since 1970. One run
    /// always tells the same.
    pub started: i64,
}

impl EngineRun {
    /// Whether both are runs of one engine, on one timeline.
    #[must_use]
    pub fn is_of_the_same_engine(&self, other: &Self) -> bool {
        self.engine_id == other.engine_id && self.timeline == other.timeline
    }

    /// Whether both are one run. A promotion in place moves the timeline, and leaves the backends.
    #[must_use]
    pub fn is_same_run(&self, other: &Self) -> bool {
        self.engine_id == other.engine_id && self.started == other.started
    }

    /// Whether this run has ended, given that `now` runs: a later run of the same engine. Another
    /// engine, or one on another timeline, says nothing about this one. `now` must be no standby:
    /// a standby runs beside its primary, under the same names.
    #[must_use]
    pub fn is_over_by(&self, now: &Self) -> bool {
        self.is_of_the_same_engine(now) && self.started < now.started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_run_of_the_same_engine_ends_a_run() {
        let run = EngineRun { engine_id: "7".to_owned(), timeline: Some(1), started: 10 };
        assert!(run.is_over_by(&EngineRun { started: 11, ..run.clone() }));
        for other in [
            run.clone(),
            EngineRun { started: 9, ..run.clone() },
            EngineRun { timeline: Some(2), started: 11, ..run.clone() },
            EngineRun { engine_id: "8".to_owned(), started: 11, ..run.clone() },
        ] {
            assert!(!run.is_over_by(&other), "{other:?}");
        }
    }
}
