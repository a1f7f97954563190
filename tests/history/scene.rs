//! One scripted schedule with a history: a fence is raised and lowered, attempts are noted.
//!
//! Purpose: what the control arms of all engines share. Called by `arms_pg.rs` and
//! `arms_mysql.rs`; it knows neither guards nor protocols.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::{Attempt, End, Fence, History, PATIENCE, Place, forces};
use crate::acceptance::applied;
use crate::acceptance::link::Link;
use crate::support::poll;
use crate::support::proxy::uuid;

/// One schedule under way: what is needed to note it.
pub struct Scene<'a, P> {
    pub site: &'a P,
    pub history: &'a History,
    pub park: &'a Park,
    pub link: Option<&'a Link>,
}

/// A fence that was asked for.
pub struct Raised {
    operation: String,
    fence: Fence,
}

impl<P: Place> Scene<'_, P> {
    /// Asks for a fence; short of a proof it answers DRAINING.
    pub fn raise(&self, policy: &Value) -> Raised {
        let (operation, asked) = (uuid(), self.history.now());
        let answer =
            self.site.fenced().acquire(&self.site.fenced().acquire_body(&operation, policy));
        let now = self.history.now();
        assert!(matches!(answer.0, 200 | 202), "{:#}", answer.1);
        let boundary = answer.1["fence"]["frozen_boundary"]["value"].as_str();
        Raised {
            operation,
            fence: Fence {
                asked,
                closed: Some(now),
                fenced: (answer.0 == 200).then_some(now),
                boundary: boundary.map(|at| self.site.position(at)),
                log_end: 0,
                releasing: now,
                released: now,
                forces: forces(policy),
                plan: format!("{} {}", answer.0, answer.1["reason"]),
            },
        }
    }

    /// Releases it and notes it.
    pub fn lower(&self, raised: Raised) {
        let Raised { operation, mut fence } = raised;
        fence.log_end = self.site.log_end();
        fence.releasing = self.history.now();
        applied(&self.site.fenced().release(&self.site.fenced().release_body(&operation)));
        fence.released = self.history.now();
        self.history.fences.lock().unwrap().push(fence);
    }

    /// Notes an attempt that was begun and began to commit at the given times.
    pub fn note(&self, id: i64, begun: Duration, committing: Duration, end: End) {
        self.history.push(Attempt {
            client: "arm".to_owned(),
            kind: "scripted",
            ids: vec![id],
            begun,
            open: None,
            wrote: begun,
            committing: Some(committing),
            ended: self.history.now(),
            end,
        });
    }
}

/// A file that a parked fault point waits for.
pub struct Park(PathBuf);

impl Park {
    pub fn new() -> Self {
        Self(crate::support::test_dir("park").join("go"))
    }

    pub fn plan(&self, point: &str) -> String {
        format!("{point}=park:{}", self.0.display())
    }

    pub fn reached(&self) {
        let mut name = self.0.clone().into_os_string();
        name.push(".parked");
        let name = PathBuf::from(name);
        assert!(poll(PATIENCE, || name.exists().then_some(())).is_some(), "never parked");
    }

    pub fn open(&self) {
        std::fs::write(&self.0, b"").unwrap();
    }
}

impl Drop for Park {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(self.0.parent().unwrap()));
    }
}
