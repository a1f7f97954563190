//! What the capability tests of both protocols share: a target from its creation on, its
//! capabilities, and the places where a secret must not be.
//!
//! Used by `capability_pg.rs` and `capability_mysql.rs`. It asserts nothing about admission.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use serde_json::{Value, json};

use crate::acceptance::{PATIENCE, applied};
use crate::support::proxy::uuid;
use crate::support::{Proxy, http, poll};

/// A target and the operation that owns it.
pub struct Moved<'a> {
    pub proxy: &'a Proxy,
    pub namespace: String,
    pub operation: String,
}

impl<'a> Moved<'a> {
    /// One that doesn't exist yet.
    pub fn to(proxy: &'a Proxy, namespace: &str) -> Self {
        Self { proxy, namespace: namespace.to_owned(), operation: uuid() }
    }

    /// A quarantined one, just created.
    #[track_caller]
    pub fn created(proxy: &'a Proxy, namespace: &str) -> Self {
        let target = Self::to(proxy, namespace);
        applied(&target.create());
        target
    }

    /// Sends a command of the operation, for the target as it is now.
    pub fn command(&self, route: &str, more: &Value) -> (u16, Value) {
        let mut body = self.proxy.command_body(&self.namespace, &self.operation, &uuid());
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        self.proxy.command(&self.namespace, route, &body)
    }

    pub fn create(&self) -> (u16, Value) {
        // Nobody has a record or a database of this name: that is what the command expects.
        let body = json!({
            "operation_id": self.operation,
            "command_id": uuid(),
            "expected_state": "ABSENT",
            "expected_revision": 0,
        });
        self.proxy.command(&self.namespace, "target/create-quarantined", &body)
    }

    pub fn seal(&self, policy: &Value) -> (u16, Value) {
        self.command("target/seal-import", &json!({ "drain_policy": policy }))
    }

    #[track_caller]
    pub fn validated(&self) {
        applied(&self.command("target/validation-receipt", &json!({ "result": "ok" })));
    }

    #[track_caller]
    pub fn published(&self) {
        applied(&self.command("target/publish-readable", &json!({})));
    }

    #[track_caller]
    pub fn enabled(&self) {
        applied(&self.command("target/enable-writes", &json!({})));
    }

    /// Asks for a capability at the revision that is current.
    pub fn ask(&self, purpose: &str) -> (u16, Value) {
        let fence = &self.proxy.inspect(&self.namespace)["fence"];
        let body = json!({
            "operation_id": self.operation,
            "expected_revision": fence["revision"],
            "purpose": purpose,
        });
        self.proxy.command(&self.namespace, "target/import-capability", &body)
    }

    /// The secret of a fresh capability.
    #[track_caller]
    pub fn secret(&self, purpose: &str) -> String {
        let (status, body) = self.ask(purpose);
        assert_eq!(status, 200, "{body:#}");
        body["secret"].as_str().unwrap_or_else(|| panic!("no secret: {body:#}")).to_owned()
    }
}

/// Everything that anybody is shown, by where it is shown: the proxy's log, its metrics and views,
/// and the engine's own log.
pub fn shown(proxy: &Proxy, namespace: &str, engine_log: &Path) -> Vec<(String, String)> {
    let token = format!("Bearer {}", proxy.admin_key());
    let headers = [("Authorization", token.as_str())];
    let fence = format!("/v1/namespaces/{namespace}/fence");
    let paths =
        ["/metrics", "/v1/sessions", "/v1/namespaces", &fence, &format!("{fence}?receipts=all")];
    let mut all: Vec<_> = paths
        .iter()
        .map(|path| {
            let answer = http::request(proxy.admin_port(), "GET", path, &headers, "").unwrap();
            assert_eq!(answer.0, 200, "{path}: {}", answer.1);
            ((*path).to_owned(), answer.1)
        })
        .collect();
    for log in [&*proxy.log_file(), engine_log] {
        let bytes = std::fs::read(log).unwrap();
        all.push((log.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    all
}

/// Where one of these secrets is seen, its last half alone included.
pub fn seen(shown: &[(String, String)], secrets: &[String]) -> Vec<String> {
    let holds =
        |text: &str| secrets.iter().any(|secret| text.contains(&secret[secret.len() / 2..]));
    shown.iter().filter(|(_, text)| holds(text)).map(|(place, _)| place.clone()).collect()
}

/// The steps of a creation at which it can be stopped, in their order.
const STEPS: [&str; 8] = [
    "after_overlay",
    "after_first_marker",
    "after_create",
    "before_commit",
    "after_commit",
    "after_marker",
    "before_publish",
    "before_response",
];

/// Stops a creation at each of its steps in turn, and tries to get in there; returns the steps at
/// which somebody did.
pub fn holes(
    proxy: &mut Proxy,
    removed: &str,
    namespace: &str,
    try_all: impl Fn(u16) -> bool,
) -> Vec<&'static str> {
    let folder = tempfile::tempdir().unwrap();
    let file = |step: &str| folder.path().join(step);
    let plan =
        STEPS.map(|step| format!("control.create_target.{step}=park:{}", file(step).display()));
    proxy.kill9();
    let plan = plan.join(",");
    proxy.set_env(&[("FENCEWIRE_FAULT", &plan), ("FENCEWIRE_REMOVE", removed)]);
    proxy.restart();
    let target = Moved::to(proxy, namespace);
    std::thread::scope(|scope| {
        let creates = scope.spawn(|| target.create());
        let mut found = Vec::new();
        for step in STEPS {
            let parked = file(step).with_extension("parked");
            let stopped = poll(PATIENCE, || parked.exists().then_some(()));
            assert!(stopped.is_some(), "the creation doesn't come to {step}");
            if try_all(target.proxy.port()) {
                found.push(step);
            }
            std::fs::write(file(step), "").unwrap();
        }
        applied(&creates.join().unwrap());
        found
    })
}

/// A secret that was never given.
pub fn wrong() -> String {
    let random = [uuid(), uuid()].concat();
    format!("fwc_{}", &random[..43])
}
