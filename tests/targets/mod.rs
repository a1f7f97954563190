//! What the tests of targets share: one target over the admin API, whatever its engine.
//!
//! Purpose: a test says `Target::new(proxy, namespace)` and sends the commands of its life, each
//! under an id of its own, so that it can be replayed.
//!
//! Who uses it: `tests/targets_pg.rs`, `tests/targets_mysql.rs`, `tests/disk_pg.rs`, and by
//! [`spoilt`] `tests/store_pg.rs` and `tests/store_mysql.rs`. It asserts only that answers are
//! as the caller says.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod spoilt;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::proxy::uuid;
use crate::support::{Proxy, poll};

/// How long a level may take to come about on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const CREATE: &str = "create-quarantined";
pub const SEAL: &str = "seal-import";
pub const VALIDATE: &str = "validation-receipt";
pub const PUBLISH: &str = "publish-readable";
pub const ENABLE: &str = "enable-writes";
pub const ABORT: &str = "abort";

pub const QUARANTINED: &str = "TARGET_QUARANTINED";
pub const DRAINING: &str = "TARGET_IMPORT_DRAINING";
pub const VALIDATING: &str = "TARGET_VALIDATING";
pub const WRITE_FENCED: &str = "TARGET_WRITE_FENCED";
pub const WRITABLE: &str = "TARGET_WRITABLE";
pub const ABORTED: &str = "TARGET_ABORTED";

/// One target of one operation.
pub struct Target {
    pub namespace: String,
    pub operation: String,
}

impl Target {
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), operation: uuid() }
    }

    /// The body of a fresh command.
    pub fn body(&self, state: &str, revision: u64, more: &Value) -> Value {
        let mut body = json!({
            "operation_id": self.operation, "command_id": uuid(),
            "expected_state": state, "expected_revision": revision,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body
    }

    /// The body of the command of a route at the place where it belongs in a target's life.
    pub fn step(&self, route: &str) -> Value {
        match route {
            CREATE => self.body("ABSENT", 0, &Value::Null),
            SEAL => {
                let policy = json!({ "deadline_ms": 30_000, "on_deadline": "fail" });
                self.body(QUARANTINED, 1, &json!({ "drain_policy": policy }))
            }
            VALIDATE => self.body(VALIDATING, 3, &json!({ "result": "ok", "summary": "fine" })),
            PUBLISH => self.body(VALIDATING, 4, &Value::Null),
            ENABLE => self.body(WRITE_FENCED, 5, &Value::Null),
            ABORT => self.body(QUARANTINED, 1, &Value::Null),
            other => panic!("{other} is no step"),
        }
    }

    pub fn path(&self, route: &str) -> String {
        format!("/v1/namespaces/{}/fence/target/{route}", self.namespace)
    }

    pub fn send(&self, proxy: &Proxy, route: &str, body: &Value) -> (u16, Value) {
        proxy.admin("POST", &self.path(route), body)
    }

    /// Sends the command of a route, which must be applied; answers the fence.
    #[track_caller]
    pub fn does(&self, proxy: &Proxy, route: &str) -> Value {
        self.applies(proxy, route, &self.step(route))
    }

    /// Sends a command that must be applied; answers the fence.
    #[track_caller]
    pub fn applies(&self, proxy: &Proxy, route: &str, body: &Value) -> Value {
        let (status, answer) = self.send(proxy, route, body);
        assert_eq!((status, &answer["outcome"]), (200, &json!("APPLIED")), "{route}: {answer:#}");
        answer["fence"].clone()
    }

    /// Brings a fresh target to the place before the command of a route.
    pub fn brought_before(&self, proxy: &Proxy, route: &str) {
        let way = [CREATE, SEAL, VALIDATE, PUBLISH, ENABLE];
        let before = if route == ABORT { SEAL } else { route };
        for step in way.into_iter().take_while(|step| *step != before) {
            self.does(proxy, step);
        }
    }

    /// A capability's answer.
    pub fn capability(&self, proxy: &Proxy, purpose: &str, revision: u64) -> (u16, Value) {
        let body = json!({ "operation_id": self.operation, "expected_revision": revision,
            "purpose": purpose });
        self.send(proxy, "import-capability", &body)
    }

    /// A validation's question.
    pub fn ask(&self, proxy: &Proxy, revision: u64, statements: &[&str]) -> (u16, Value) {
        let body = json!({ "operation_id": self.operation, "expected_revision": revision,
            "stmts": statements });
        self.send(proxy, "validation-query", &body)
    }

    pub fn inspect(&self, proxy: &Proxy) -> Value {
        proxy.inspect(&self.namespace)["fence"].clone()
    }

    pub fn state(&self, proxy: &Proxy) -> String {
        self.inspect(proxy)["state"].as_str().unwrap_or_default().to_owned()
    }
}

/// A refusal with its code, and nothing of a receipt.
#[track_caller]
pub fn refused<'a>(answer: &'a (u16, Value), status: u16, code: &str) -> &'a Value {
    assert_eq!((answer.0, &answer.1["outcome"]), (status, &json!(code)), "{:#}", answer.1);
    assert!(answer.1["receipt"].is_null());
    &answer.1
}

/// Starts the proxy anew, to die at `point`.
pub fn arm(proxy: &mut Proxy, point: &str) {
    proxy.kill9();
    proxy.set_env(&[("FENCEWIRE_FAULT", &format!("{point}=abort"))]);
    proxy.restart();
}

/// Sends a command that must kill the proxy, and starts it again without the fault.
#[track_caller]
pub fn dies(proxy: &mut Proxy, path: &str, body: &Value, point: &str) {
    let answer = proxy.try_admin("POST", path, body);
    assert!(answer.is_err(), "{point}: it was answered: {answer:?}");
    let ended = poll(PATIENCE, || proxy.exit_code());
    assert_eq!(ended, Some(128 + 6), "{point}: an abort is what ends it");
    proxy.kill9();
    proxy.set_env(&[]);
    proxy.restart();
}

/// One fault point and what a restart must find behind an abort there.
pub type Crash = (&'static str, &'static str);

const INCOMPLETE: &str = "UNKNOWN_UNAVAILABLE";

/// The boundaries of a target's commands, each with the state that a restart finds (contract 1.11).
/// The store's points are counted from the commit of the command that is tried.
pub const CREATES: &[Crash] = &[
    ("control.create_target.after_overlay", "ABSENT"),
    ("marker.before_write", "ABSENT"),
    ("marker.before_rename", "ABSENT"),
    ("marker.after_rename", INCOMPLETE),
    ("control.create_target.after_first_marker", INCOMPLETE),
    ("control.create_target.after_create", INCOMPLETE),
    // The marker once more, with the database that was made.
    ("marker.before_write@2", INCOMPLETE),
    ("marker.after_rename@2", INCOMPLETE),
    ("control.create_target.before_commit", INCOMPLETE),
    ("store.before_begin", INCOMPLETE),
    ("store.before_commit", INCOMPLETE),
    ("store.after_commit", QUARANTINED),
    ("control.create_target.after_commit", QUARANTINED),
    ("marker.before_write@3", QUARANTINED),
    ("marker.after_rename@3", QUARANTINED),
    ("control.create_target.after_marker", QUARANTINED),
    ("control.create_target.before_publish", QUARANTINED),
    ("control.create_target.before_response", QUARANTINED),
];

pub const SEALS: &[Crash] = &[
    ("control.seal_import.after_overlay", QUARANTINED),
    ("control.seal_import.before_commit", QUARANTINED),
    ("store.before_commit@2", QUARANTINED),
    ("store.after_commit@2", DRAINING),
    ("control.seal_import.after_commit", DRAINING),
    ("marker.before_rename@4", DRAINING),
    ("control.seal_import.after_marker", DRAINING),
    ("control.seal_import.before_publish", DRAINING),
    ("control.seal_import.before_drain", DRAINING),
    ("control.seal_import.after_lock", DRAINING),
    ("control.seal_import.after_drain", DRAINING),
    ("control.seal_import.before_final_commit", DRAINING),
    ("store.before_commit@3", DRAINING),
    ("store.after_commit@3", VALIDATING),
    ("control.seal_import.after_final_commit", VALIDATING),
    ("marker.before_rename@5", VALIDATING),
    ("control.seal_import.after_final_marker", VALIDATING),
    ("control.seal_import.before_response", VALIDATING),
];

pub const VALIDATES: &[Crash] = &[
    ("control.validate.before_commit", VALIDATING),
    ("store.before_commit@4", VALIDATING),
    ("store.after_commit@4", VALIDATING),
    ("control.validate.after_marker", VALIDATING),
    ("control.validate.before_publish", VALIDATING),
    ("control.validate.before_response", VALIDATING),
];

pub const PUBLISHES: &[Crash] = &[
    ("control.publish.before_commit", VALIDATING),
    ("store.before_commit@5", VALIDATING),
    ("store.after_commit@5", WRITE_FENCED),
    ("control.publish.after_commit", WRITE_FENCED),
    ("marker.before_rename@7", WRITE_FENCED),
    ("control.publish.before_publish", WRITE_FENCED),
    ("control.publish.before_response", WRITE_FENCED),
];

pub const ENABLES: &[Crash] = &[
    ("control.enable_writes.before_commit", WRITE_FENCED),
    ("store.before_begin@6", WRITE_FENCED),
    ("store.before_commit@6", WRITE_FENCED),
    ("store.after_commit@6", WRITABLE),
    ("control.enable_writes.after_commit", WRITABLE),
    ("marker.before_rename@8", WRITABLE),
    ("control.enable_writes.after_marker", WRITABLE),
    ("control.enable_writes.before_publish", WRITABLE),
    ("control.enable_writes.before_response", WRITABLE),
];

pub const ABORTS: &[Crash] = &[
    ("control.abort.before_commit", QUARANTINED),
    ("store.before_commit@2", QUARANTINED),
    ("store.after_commit@2", ABORTED),
    ("control.abort.after_marker", ABORTED),
    ("control.abort.before_publish", ABORTED),
    ("control.abort.before_response", ABORTED),
];

/// What a target's states let clients do: whether reads are admitted, and writes.
pub fn admits(state: &str) -> (bool, bool) {
    match state {
        WRITABLE => (true, true),
        WRITE_FENCED => (true, false),
        _ => (false, false),
    }
}

/// Kills the proxy at each point of one command, restarts it and replays the command. `fresh` gives
/// an unused namespace; `holds` checks what a client meets in the state found and in the last one.
pub fn sweep(
    proxy: &mut Proxy,
    route: &str,
    crashes: &[Crash],
    fresh: impl Fn() -> String,
    holds: impl Fn(&Proxy, &Target, &str, &str),
) {
    let (goal, revision) = match route {
        CREATE => (QUARANTINED, 1),
        SEAL => (VALIDATING, 3),
        VALIDATE => (VALIDATING, 4),
        PUBLISH => (WRITE_FENCED, 5),
        ENABLE => (WRITABLE, 6),
        ABORT => (ABORTED, 2),
        other => panic!("{other} is no step"),
    };
    for &(point, state) in crashes {
        arm(proxy, point);
        let target = Target::new(&fresh());
        target.brought_before(proxy, route);
        let body = target.step(route);
        dies(proxy, &target.path(route), &body, point);
        if state != "ABSENT" {
            assert_eq!(target.state(proxy), state, "{point}");
            holds(proxy, &target, state, point);
        }
        let (status, answer) = target.send(proxy, route, &body);
        assert_eq!((status, &answer["outcome"]), (200, &json!("APPLIED")), "{point}: {answer:#}");
        let fence = &answer["fence"];
        assert_eq!((&fence["state"], &fence["revision"]), (&json!(goal), &json!(revision)));
        holds(proxy, &target, goal, point);
        let again = target.send(proxy, route, &body);
        assert_eq!((again.0, &again.1["replayed"]), (200, &json!(true)), "{point}");
        assert_eq!(again.1["receipt"], answer["receipt"], "{point}");
    }
}
