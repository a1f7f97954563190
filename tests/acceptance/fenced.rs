//! The fence of one namespace as its tests handle it: bodies, commands, waiting for levels.
//!
//! Purpose: what a test says to the admin side is the same whichever engine is behind it; `Site`
//! and `MySite` deref to this.
//!
//! Invariants: every wait looks at a level and has a deadline. A command that must succeed says so
//! in its name or docstring, and panics with the whole answer.
//!
//! Who uses it: every acceptance test, through its site. It knows no engine and no client.

use serde_json::{Value, json};

use super::{PATIENCE, applied, blockers, draining, patient};
use crate::support::proxy::uuid;
use crate::support::{Proxy, poll};

/// One namespace behind one proxy.
pub struct Fenced<'a> {
    pub proxy: &'a Proxy,
    pub db: String,
}

impl<'a> Fenced<'a> {
    /// The namespace of database `db` on the engine called `old`.
    pub fn at(proxy: &'a Proxy, db: &str) -> Self {
        Self { proxy, db: db.to_owned() }
    }

    pub fn namespace(&self) -> String {
        format!("old/{}", self.db)
    }

    pub fn inspect(&self) -> Value {
        self.proxy.inspect(&self.namespace())
    }

    pub fn state(&self) -> String {
        self.inspect()["fence"]["state"].as_str().unwrap().to_owned()
    }

    /// The body of an acquire for the namespace as it is now.
    pub fn acquire_body(&self, operation: &str, policy: &Value) -> Value {
        let mut body = self.proxy.command_body(&self.namespace(), operation, &uuid());
        let incarnation = &self.inspect()["fence"]["incarnation"];
        body["expected_namespace_identity"] = json!({
            "engine_id": incarnation["engine_id"],
            "database_id": incarnation["database_id"],
        });
        if !policy.is_null() {
            body["drain_policy"] = policy.clone();
        }
        body
    }

    /// The body of a release for the namespace as it is now.
    pub fn release_body(&self, operation: &str) -> Value {
        self.proxy.command_body(&self.namespace(), operation, &uuid())
    }

    /// Sends an acquire as given.
    pub fn acquire(&self, body: &Value) -> (u16, Value) {
        self.proxy.command(&self.namespace(), "source/acquire-write-fence", body)
    }

    /// Replays an acquire until it is applied; a short deadline may pass on a passing transaction.
    #[track_caller]
    pub fn acquire_at_last(&self, body: &Value) -> (u16, Value) {
        let mut last = (0, Value::Null);
        let done = poll(PATIENCE, || {
            last = self.acquire(body);
            (last.0 != 202).then_some(())
        });
        assert!(done.is_some(), "still draining: {:#}", last.1);
        applied(&last);
        last
    }

    /// Sends a release as given.
    pub fn release(&self, body: &Value) -> (u16, Value) {
        self.proxy.command(&self.namespace(), "source/release-write-fence", body)
    }

    /// Raises a write fence that must come to its proof; returns its operation.
    #[track_caller]
    pub fn fence(&self) -> String {
        let operation = uuid();
        let answer = self.acquire(&self.acquire_body(&operation, &patient()));
        applied(&answer);
        operation
    }

    /// The body of a read fence's command for the namespace as it is now.
    pub fn reads_body(&self, operation: &str, policy: &Value) -> Value {
        let mut body = self.proxy.command_body(&self.namespace(), operation, &uuid());
        if !policy.is_null() {
            body["drain_policy"] = policy.clone();
        }
        body
    }

    /// Sends a set-read-fence as given.
    pub fn set_read(&self, body: &Value) -> (u16, Value) {
        self.proxy.command(&self.namespace(), "source/set-read-fence", body)
    }

    /// Sends a clear-read-fence as given.
    pub fn clear_read(&self, body: &Value) -> (u16, Value) {
        self.proxy.command(&self.namespace(), "source/clear-read-fence", body)
    }

    /// Raises a read fence that must come to its proof within its deadline.
    #[track_caller]
    pub fn fence_reads(&self, operation: &str) {
        applied(&self.set_read(&self.reads_body(operation, &patient())));
    }

    /// Opens reads again.
    #[track_caller]
    pub fn unfence_reads(&self, operation: &str) {
        applied(&self.clear_read(&self.reads_body(operation, &Value::Null)));
    }

    /// Lifts the operation's fence.
    #[track_caller]
    pub fn unfence(&self, operation: &str) {
        applied(&self.release(&self.release_body(operation)));
    }

    /// Waits until an inspection satisfies `done`; returns it.
    #[track_caller]
    pub fn wait(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let seen = poll(PATIENCE, || {
            last = self.inspect();
            done(&last).then(|| last.clone())
        });
        seen.unwrap_or_else(|| panic!("not within {PATIENCE:?}: {what}; last seen: {last:#}"))
    }

    /// Waits until a drain names a backend or thread as one it waits for.
    #[track_caller]
    pub fn wait_blocked_by(&self, pid: u32) -> Value {
        self.wait(&format!("a drain waits for {pid}"), |seen| {
            draining(seen) && blockers(seen).iter().any(|b| b["engine_pid"] == pid)
        })
    }

    /// Waits until a read drain names a backend or thread as one it waits for, as `class`.
    #[track_caller]
    pub fn wait_read_by(&self, pid: u32, class: &str) -> Value {
        self.wait(&format!("a read drain waits for {pid}, a {class}"), |seen| {
            let named = |b: &Value| b["engine_pid"] == pid && b["class"] == class;
            seen["fence"]["state"] == "SOURCE_READ_DRAINING" && blockers(seen).iter().any(named)
        })
    }

    /// Asks again and again whether the fence is acknowledged; it must not be, `times` times.
    #[track_caller]
    pub fn stays_draining(&self, times: usize) {
        for _ in 0..times {
            let seen = self.inspect();
            assert!(draining(&seen), "the drain ended too early: {seen:#}");
        }
    }
}
