//! The API as a client sees it: a listener, bytes, statuses and shapes.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::openapi::tests::{is_a_status, is_described};
use super::{AdminApi, Events, Reload, ReloadFuture, serve_within};
use crate::admin::auth::AdminKey;
use crate::admin::view::Shown;
use crate::control::tests::Rig;
use crate::engine::{ReadError, ReadTable};
use crate::fence::state::FenceState;
use crate::telemetry::spawn::spawn_named;

const KEY: &str = "0123456789abcdef0123456789abcdef";
const OP: &str = "6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11";
const FENCE: &str = "/v1/namespaces/old/app/fence";
const ACQUIRE: &str = "/v1/namespaces/old/app/fence/source/acquire-write-fence";
const RELEASE: &str = "/v1/namespaces/old/app/fence/source/release-write-fence";

struct Reloads(Mutex<Vec<Result<Vec<String>, Vec<String>>>>);

impl Reload for Reloads {
    fn reload(&self) -> ReloadFuture<'_> {
        let next = self.0.lock().unwrap().pop().unwrap_or_else(|| Ok(Vec::new()));
        Box::pin(std::future::ready(next))
    }
}

struct Server {
    rig: Rig,
    address: std::net::SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn new() -> Self {
        Self::with(true, false).await
    }

    async fn with(key: bool, open_metrics: bool) -> Self {
        Self::started(Duration::from_mins(1), key, open_metrics).await
    }

    async fn started(head: Duration, key: bool, open_metrics: bool) -> Self {
        Self::serving(head, key, open_metrics, std::future::pending()).await
    }

    async fn stopping(stop: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::serving(Duration::from_mins(1), true, false, stop).await
    }

    async fn serving(
        head: Duration,
        key: bool,
        open_metrics: bool,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let rig = Rig::new().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reloads = vec![Err(vec!["[proxy] workers needs a restart".to_owned()])];
        let api = Arc::new(AdminApi {
            control: Arc::clone(&rig.control),
            key: key.then(|| AdminKey::from_text(KEY, "test").unwrap()),
            adoption_key: None,
            metrics: Arc::clone(&rig.metrics),
            open_metrics,
            shown: Shown { literals: false },
            reload: Arc::new(Reloads(Mutex::new(reloads))),
            events: Events::default(),
        });
        let task = spawn_named("admin-test", serve_within(head, listener, api, stop));
        Self { rig, address, task }
    }

    async fn send(&self, method: &str, path: &str, key: Option<&str>, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn text(&self, method: &str, path: &str, key: Option<&str>, body: &str) -> (u16, String) {
        let mut stream = self.send(method, path, key, body).await;
        let mut answer = String::new();
        // Events never end: one that is answered where nothing should be must not hang the test.
        let whole = stream.read_to_string(&mut answer);
        tokio::time::timeout(Duration::from_mins(2), whole).await.unwrap().unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(!head.contains("chunked"), "{head}");
        is_described(method, path, status, body);
        (status, body.to_owned())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.text("GET", path, Some(KEY), "").await;
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.text("POST", path, Some(KEY), &body.to_string()).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }
}

fn acquire(command: u8, deadline_ms: u64) -> Value {
    json!({
        "operation_id": OP,
        "command_id": format!("00000000-0000-4000-9000-0000000000{command:02x}"),
        "expected_state": "UNFENCED",
        "expected_revision": 0,
        "expected_namespace_identity": { "engine_id": "7412", "database_id": "16384" },
        "drain_policy": { "deadline_ms": deadline_ms, "on_deadline": "fail", "hold_ms": 0 },
    })
}

fn release(command: u8, state: &str, revision: u64) -> Value {
    json!({
        "operation_id": OP,
        "command_id": format!("00000000-0000-4000-9000-0000000000{command:02x}"),
        "expected_state": state,
        "expected_revision": revision,
    })
}

#[tokio::test]
async fn a_fence_is_inspected_acquired_and_released() {
    let server = Server::new().await;
    let (status, body) = server.get(FENCE).await;
    assert_eq!(status, 200);
    assert_eq!(body["fence"]["state"], "UNFENCED");
    assert_eq!(body["fence"]["revision"], 0);
    let identity = &body["fence"]["incarnation"];
    assert_eq!(
        (&identity["engine_id"], &identity["database_id"]),
        (&json!("7412"), &json!("16384"))
    );
    assert_eq!(body["fence"]["admission"]["write"], "open");

    let (status, body) = server.post(ACQUIRE, &acquire(1, 1000)).await;
    assert_eq!((status, &body["outcome"]), (200, &json!("APPLIED")), "{body}");
    assert_eq!(body["replayed"], false);
    assert_eq!(body["receipt"]["revision_after"], 2);
    assert!(body["receipt"]["fingerprint"].as_str().unwrap().starts_with("sha256:"));
    let fence = &body["fence"];
    assert_eq!(fence["frozen_boundary"]["kind"], "lsn");
    assert_eq!(fence["evidence"]["census_after"]["prepared"], 0);
    assert_eq!(fence["provenance"]["marker"], "consistent");
    assert_eq!(fence["engine_lock"]["held"], true);
    assert_eq!(fence["admission"]["indeterminate"], false);
    assert!(fence["created_at"].as_str().unwrap().ends_with('Z'));

    let (_, body) = server.get("/v1/fence/capabilities").await;
    assert_eq!((&body["active_fences"], &body["enabled"]), (&json!(1), &json!(true)));
    assert_eq!(body["states"].as_array().unwrap().len(), 14);
    let (_, body) = server.get("/v1/namespaces").await;
    assert_eq!(body["namespaces"][0]["state"], "SOURCE_WRITE_FENCED");
    assert_eq!(body["namespaces"][0]["routes"], json!(["app"]));

    let (status, body) = server.post(RELEASE, &release(2, "SOURCE_WRITE_FENCED", 2)).await;
    assert_eq!((status, &body["fence"]["state"]), (200, &json!("RELEASED")));
    let (_, body) = server.get(&format!("{FENCE}?receipts=all")).await;
    assert_eq!(body["receipts"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_drain_answers_202_with_its_blockers_and_hides_literals() {
    let server = Server::new().await;
    let (_seat, lease) = server.rig.writer(7, 70);
    let (status, body) = server.post(ACQUIRE, &acquire(1, 0)).await;
    assert_eq!((status, &body["outcome"]), (202, &json!("DRAINING")));
    assert!(body["reason"].as_str().unwrap().contains("session 7"), "{body}");
    assert_eq!(body["drain"]["active_writers"], 1);
    assert_eq!(body["drain"]["blockers"][0]["session"], 7);
    let (_, body) = server.get("/v1/sessions").await;
    assert_eq!(body["sessions"][0]["lease"]["class"], "write");

    let blocker = crate::control::tests::engine::blocker(42, crate::engine::Why::Prepared);
    lease.answered();
    server.rig.engine.residue(vec![blocker]);
    let waiting = server.send("POST", ACQUIRE, Some(KEY), &acquire(1, 60_000).to_string()).await;
    // Another policy is another request; the deadline belongs to the first one.
    drop(waiting);
    let patient = json!({
        "operation_id": OP, "command_id": "00000000-0000-4000-9000-000000000009",
        "expected_state": "SOURCE_DRAINING", "expected_revision": 1,
        "expected_namespace_identity": { "engine_id": "7412", "database_id": "16384" },
        "drain_policy": { "deadline_ms": 60_000 },
    });
    let gone = server.send("POST", ACQUIRE, Some(KEY), &patient.to_string()).await;
    server.rig.until_blocked().await;
    let (_, body) = server.get(FENCE).await;
    let shown = &body["drain"]["blockers"][0];
    assert_eq!(shown["statement"], "update t set a = ?");
    assert_eq!((&shown["class"], &shown["engine_pid"]), (&json!("prepared"), &json!(42)));
    // The client hangs up; the command goes on.
    drop(gone);
    server.rig.engine.residue(Vec::new());
    server
        .rig
        .until("the fence", |rig| {
            rig.gate().published().policy.state == FenceState::SourceWriteFenced
        })
        .await;
    let (status, body) = server.post(ACQUIRE, &patient).await;
    assert_eq!((status, &body["outcome"]), (200, &json!("APPLIED")));
}

#[tokio::test]
async fn the_key_comes_first_and_tells_nothing() {
    let server = Server::new().await;
    for (method, path) in [
        ("GET", FENCE),
        ("POST", ACQUIRE),
        ("GET", "/v1/namespaces"),
        ("GET", "/v1/sessions"),
        ("POST", "/v1/reload"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
        ("POST", "/v1/namespaces/bad name/x/fence/adopt"),
    ] {
        let path = path.replace(' ', "%20");
        for key in [None, Some("wrong wrong wrong wrong")] {
            let (status, body) = server.text(method, &path, key, "not json").await;
            assert_eq!(status, 401, "{method} {path} {body}");
            assert!(!body.contains("outcome"));
        }
    }
    for path in ["/healthz", "/readyz", "/v1/fence/capabilities"] {
        assert_eq!(server.text("GET", path, None, "").await.0, 200, "{path}");
    }
    // Told by whoever asks next: nobody waits for an engine here.
    loop {
        let (_, text) = server.text("GET", "/readyz", None, "").await;
        assert!(text.starts_with("ready\nengine old: "), "{text}");
        if text == "ready\nengine old: answered, 0 s ago\n" {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(server.text("GET", "/nowhere", Some(KEY), "").await.0, 404);
    let open = Server::with(true, true).await;
    let (status, text) = open.text("GET", "/metrics", None, "").await;
    assert_eq!(status, 200);
    assert!(text.contains("fencewire_fence_namespaces{") && text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn without_a_key_commands_are_off() {
    let server = Server::with(false, false).await;
    let (status, body) = server.post(ACQUIRE, &acquire(1, 0)).await;
    assert_eq!((status, &body["detail"]), (412, &json!("admin_auth_required")));
    assert_eq!(server.post("/v1/reload", &json!({})).await.0, 412);
    assert_eq!(server.get(FENCE).await.0, 200);
}

#[tokio::test]
async fn bad_requests_say_which_field_and_reach_no_command() {
    let server = Server::new().await;
    let with = |field: &str, value: Value| {
        let mut body = acquire(1, 0);
        body[field] = value;
        body
    };
    for (body, names) in [
        (with("operation_id", json!("x")), "operation_id"),
        (with("command_id", Value::Null), "command_id is missing"),
        (with("expected_state", json!("OPEN")), "expected_state"),
        (with("expected_namespace_identity", json!(7)), "expected_namespace_identity"),
        (with("surprise", json!(1)), "surprise is unknown"),
        (with("drain_policy", json!({ "deadline_ms": 1, "hold_ms": -1 })), "hold_ms"),
        (json!([]), "an array"),
    ] {
        let (status, answer) = server.post(ACQUIRE, &body).await;
        assert_eq!((status, &answer["outcome"]), (412, &json!("FENCE_PRECONDITION_FAILED")));
        assert_eq!(answer["detail"], "invalid_argument");
        assert!(answer["error"].as_str().unwrap().contains(names), "{answer}");
    }
    let large = format!("{{\"x\": \"{}\"}}", "y".repeat(70_000));
    let (status, body) = server.text("POST", ACQUIRE, Some(KEY), &large).await;
    assert_eq!(status, 412, "{body}");
    assert_eq!(server.text("POST", ACQUIRE, Some(KEY), "").await.0, 412);
    let (status, body) = server.get(&format!("{FENCE}?receipts=some")).await;
    assert_eq!((status, &body["detail"]), (412, &json!("invalid_argument")));
    let metrics = server.rig.metrics.encode();
    let mut counted =
        metrics.lines().filter(|l| l.starts_with("fencewire_fence_transitions_total"));
    assert!(counted.all(|line| line.ends_with(" 0")), "{metrics}");
}

#[tokio::test]
async fn refusals_have_the_statuses_of_the_table() {
    let server = Server::new().await;
    server.post(ACQUIRE, &acquire(1, 0)).await;
    let mut other = acquire(2, 0);
    other["operation_id"] = json!("6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a12");
    let (status, body) = server.post(ACQUIRE, &other).await;
    assert_eq!((status, &body["outcome"]), (409, &json!("FENCE_OWNED_BY_ANOTHER_OPERATION")));
    assert_eq!(body["fence"]["operation_id"], OP, "the winner is shown");
    assert!(body.get("receipt").is_none());
    let (status, body) = server.post(RELEASE, &release(3, "SOURCE_WRITE_FENCED", 9)).await;
    assert_eq!((status, &body["outcome"]), (409, &json!("FENCE_REVISION_MISMATCH")));
    let (status, body) = server.post(&format!("{FENCE}/target/seal-import"), &json!({})).await;
    assert_eq!((status, &body["detail"]), (412, &json!("invalid_argument")));
    assert!(body["error"].as_str().unwrap().contains("operation_id is missing"));
    let (status, body) = server.post("/v1/reload", &json!({})).await;
    assert_eq!(status, 409);
    assert!(body["error"].as_str().unwrap().contains("restart"));
    assert_eq!(server.post("/v1/reload", &json!({})).await.0, 200);
    server.rig.store.fail_reads(true);
    let (status, body) = server.post(RELEASE, &release(4, "SOURCE_WRITE_FENCED", 2)).await;
    assert_eq!((status, &body["outcome"]), (503, &Value::Null));
    assert_eq!(server.get(FENCE).await.0, 503);
}

#[tokio::test]
async fn reads_are_fenced_and_cleared_by_routes_of_their_own() {
    let server = Server::new().await;
    server.post(ACQUIRE, &acquire(1, 0)).await;
    let (set, clear) =
        (format!("{FENCE}/source/set-read-fence"), format!("{FENCE}/source/clear-read-fence"));
    let mut body = release(2, "SOURCE_WRITE_FENCED", 2);
    body["drain_policy"] = json!({ "deadline_ms": 60_000 });
    let (status, answer) = server.post(&set, &body).await;
    assert_eq!((status, &answer["fence"]["state"]), (200, &json!("SOURCE_READ_FENCED")));
    assert_eq!(answer["fence"]["admission"]["read"], "closed");
    assert!(answer["fence"]["read_evidence"]["releases"].is_object(), "{answer}");
    let (status, answer) = server.post(&clear, &release(3, "SOURCE_READ_FENCED", 4)).await;
    assert_eq!((status, &answer["fence"]["state"]), (200, &json!("SOURCE_WRITE_FENCED")));
    // A policy belongs to the setting alone.
    let (status, answer) = server.post(&clear, &body).await;
    assert_eq!((status, &answer["detail"]), (412, &json!("invalid_argument")));
    let offered = server.get("/v1/fence/capabilities").await.1["available_commands"].to_string();
    assert!(offered.contains("ReadFence"), "{offered}");
}

#[tokio::test]
async fn names_are_percent_decoded_and_unknown_ones_are_404() {
    let server = Server::new().await;
    let (status, body) = server.get("/v1/namespaces/old/a%2Fb%20c/fence").await;
    assert_eq!((status, &body["fence"]["namespace"]), (200, &json!("old/a/b c")));
    let (status, body) = server.get("/v1/namespaces/o%20ld/app/fence").await;
    assert_eq!((status, &body["detail"]), (412, &json!("invalid_argument")));
    let (status, body) = server.get("/v1/namespaces/gone/app/fence").await;
    let words = body["error"].as_str().unwrap();
    assert_eq!(status, 404);
    assert!(words.contains("no engine \"gone\" is configured; engines: old"), "{words}");
    assert!(words.contains("engine/database, such as old/app"), "{words}");
    let path = "/v1/namespaces/gone/app/fence/source/acquire-write-fence";
    assert_eq!(server.post(path, &acquire(1, 0)).await.0, 404);
    server.rig.engine.missing();
    assert_eq!(server.get("/v1/namespaces/old/nobody/fence").await.0, 404);
    let seen = server.get("/v1/namespaces").await.1;
    assert_eq!(seen["namespaces"].as_array().unwrap().len(), 1, "looking makes nothing: {seen}");
}

#[tokio::test]
async fn requests_are_counted_under_their_template() {
    let server = Server::new().await;
    server.get(FENCE).await;
    server.get("/v1/secret-name").await;
    let text = server.rig.metrics.encode();
    let route = "/v1/namespaces/{engine}/{database}/fence";
    let labels = format!("{{route=\"{route}\",status=\"200\"}}");
    assert!(text.contains(&format!("fencewire_admin_requests_total{labels} 1")), "{text}");
    assert!(!text.contains("secret"));
    tokio::time::timeout(Duration::from_secs(5), server.get("/healthz")).await.unwrap();
}

/// Each described route answers its method with the key, and no other.
#[tokio::test]
async fn described_routes_are_served_and_no_other_methods() {
    let server = Server::new().await;
    let (status, served) = server.get("/v1/openapi.json").await;
    assert_eq!((status, &served), (200, &super::document()));
    for (template, item) in served["paths"].as_object().unwrap() {
        if template == "/v1/events" {
            continue;
        }
        let path = template.replace("{engine}", "old").replace("{database}", "app");
        for method in ["GET", "POST"] {
            let (status, body) = server.text(method, &path, Some(KEY), "{}").await;
            let described = item.get(method.to_lowercase()).is_some();
            assert_eq!(status == 405, !described, "{method} {path}: {status} {body}");
            assert!(!body.contains("no such route"), "{method} {path}");
        }
        for method in ["PUT", "DELETE", "PATCH"] {
            assert_eq!(server.text(method, &path, Some(KEY), "").await.0, 405, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn the_status_page_is_open_and_lets_nothing_else_run() {
    let server = Server::new().await;
    let mut stream = server.send("GET", "/", None, "").await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("<title>Fencewire</title>"));
    for line in [
        "content-security-policy: default-src 'none'; script-src 'sha256-",
        "require-trusted-types-for 'script'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(head.contains(line), "{line} is not in\n{head}");
    }
}

/// A listener of `/v1/events` that reads event by event.
struct Listening {
    stream: TcpStream,
    text: String,
}

impl Listening {
    async fn at(server: &Server) -> Self {
        let stream = server.send("GET", "/v1/events", Some(KEY), "").await;
        Self { stream, text: String::new() }
    }

    /// The next status; `None` when the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((_, rest)) = self.text.split_once("data: ")
                && let Some((data, rest)) = rest.split_once("\n\n")
            {
                let value = serde_json::from_str(data).unwrap();
                self.text = rest.to_owned();
                is_a_status(&value);
                return Some(value);
            }
            let mut chunk = vec![0; 64 << 10];
            let read = tokio::time::timeout(Duration::from_mins(1), self.stream.read(&mut chunk));
            let n = read.await.unwrap().unwrap();
            if n == 0 {
                return None;
            }
            // Events are smaller than a chunk of the encoding here, so none is cut by its marks.
            self.text.push_str(std::str::from_utf8(&chunk[..n]).unwrap());
        }
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..100 {
            let status = self.next().await.expect("the stream goes on");
            if holds(&status) {
                return status;
            }
        }
        panic!("never told: {what}");
    }
}

#[tokio::test]
async fn events_tell_what_changes_to_whoever_has_the_key() {
    let server = Server::new().await;
    for key in [None, Some("wrong wrong wrong wrong")] {
        assert_eq!(server.text("GET", "/v1/events", key, "").await.0, 401);
    }
    let mut listening = Listening::at(&server).await;
    let first = listening.next().await.unwrap();
    assert_eq!((&first["active_fences"], &first["denials"]), (&json!(0), &json!([])));
    let (_seat, lease) = server.rig.writer(7, 70);
    server.post(ACQUIRE, &acquire(1, 0)).await;
    let state = |status: &Value| status["namespaces"][0]["state"].clone();
    let draining = listening.until("a drain", |s| state(s) == "SOURCE_DRAINING").await;
    assert_eq!(draining["namespaces"][0]["blockers"][0]["session"], 7);
    lease.answered();
    server.post(ACQUIRE, &acquire(1, 0)).await;
    listening.until("a fence", |s| state(s) == "SOURCE_WRITE_FENCED").await;
    server.rig.metrics.fence.denial("MIGRATION_WRITE_FENCED", "pg");
    let told = json!([{ "code": "MIGRATION_WRITE_FENCED", "surface": "pg", "count": 1 }]);
    listening.until("a refusal", |s| s["denials"] == told).await;
}

#[tokio::test]
async fn listeners_are_bounded_and_leave_their_places() {
    let server = Server::new().await;
    let mut all = Vec::new();
    for _ in 0..crate::base::limits::EVENT_LISTENERS_MAX {
        let mut listening = Listening::at(&server).await;
        listening.next().await.unwrap();
        all.push(listening);
    }
    let (status, body) = server.text("GET", "/v1/events", Some(KEY), "").await;
    assert_eq!(status, 503, "{body}");
    all.pop();
    // The place is free when the connection's end is noticed.
    let patience = std::time::Instant::now() + Duration::from_mins(1);
    loop {
        let mut stream = server.send("GET", "/v1/events", Some(KEY), "").await;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        if &head == b"HTTP/1.1 200" {
            break;
        }
        assert!(std::time::Instant::now() < patience, "the place is never free again");
    }
}

/// A stop doesn't wait for those who watch.
#[tokio::test]
async fn a_stop_ends_the_listeners() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = Server::stopping(async { drop(stopped.await) }).await;
    let mut listening = Listening::at(&server).await;
    listening.next().await.unwrap();
    stop.send(()).unwrap();
    let mut server = server;
    let ended = async {
        while listening.next().await.is_some() {}
        (&mut server.task).await.unwrap();
    };
    tokio::time::timeout(Duration::from_mins(1), ended).await.unwrap();
}

#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let server = Server::started(Duration::from_millis(500), true, false).await;
    let mut silent = Vec::new();
    for number in 0..crate::base::limits::ADMIN_CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost:").await.unwrap();
        }
        silent.push(stream);
    }
    let healthy = server.get("/healthz");
    assert_eq!(tokio::time::timeout(Duration::from_mins(2), healthy).await.unwrap().0, 200);
}

#[tokio::test]
async fn acceptance_17_a_target_lives_by_its_routes_and_shows_a_secret_once() {
    let server = Server::new().await;
    server.rig.engine.missing();
    let at = |route: &str| format!("{FENCE}/target/{route}");
    let send = |route: &str, command: u8, state: &str, revision: u64, more: Value| {
        let mut body = release(command, state, revision);
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let (server, path) = (&server, at(route));
        async move { server.post(&path, &body).await }
    };
    let capability = json!({ "operation_id": OP, "expected_revision": 1 });
    let (status, body) = server.post(&at("import-capability"), &capability).await;
    assert_eq!((status, &body["outcome"]), (403, &json!("OPERATION_CAPABILITY_REQUIRED")));
    let (status, body) = send("create-quarantined", 1, "ABSENT", 0, json!({})).await;
    assert_eq!((status, &body["fence"]["state"]), (200, &json!("TARGET_QUARANTINED")), "{body}");
    let (status, issued) = server.post(&at("import-capability"), &capability).await;
    assert_eq!((status, &issued["purpose"]), (200, &json!("import")));
    let secret = issued["secret"].as_str().unwrap().to_owned();
    assert!(server.rig.gate().present(secret.as_bytes()).is_some());
    let stale = json!({ "operation_id": OP, "expected_revision": 9 });
    let (status, body) = server.post(&at("import-capability"), &stale).await;
    assert_eq!((status, &body["outcome"]), (409, &json!("FENCE_REVISION_MISMATCH")));
    let wrong = json!({ "operation_id": OP, "expected_revision": 1, "purpose": "all" });
    assert_eq!(server.post(&at("import-capability"), &wrong).await.0, 412);

    let (status, body) = send("seal-import", 2, "TARGET_QUARANTINED", 1, json!({})).await;
    assert_eq!((status, &body["fence"]["state"]), (200, &json!("TARGET_VALIDATING")), "{body}");
    let question = json!({ "operation_id": OP, "expected_revision": 3, "stmts": ["select 1"] });
    server.rig.engine.answers(Ok(vec![ReadTable {
        columns: vec!["a".to_owned()],
        rows: vec![vec![Some("1".to_owned())], vec![None]],
    }]));
    let (status, body) = server.post(&at("validation-query"), &question).await;
    assert_eq!((status, &body["results"][0]["rows"]), (200, &json!([["1"], [null]])), "{body}");
    let words = "it is write".to_owned();
    server.rig.engine.answers(Err(ReadError::Writes { statement: 1, words }));
    let (status, body) = server.post(&at("validation-query"), &question).await;
    assert_eq!((status, &body["outcome"]), (403, &json!("OPERATION_CAPABILITY_REQUIRED")));
    let (status, _) = send("publish-readable", 3, "TARGET_VALIDATING", 3, json!({})).await;
    assert_eq!(status, 412);
    let good = json!({ "result": "ok", "summary": "1200 rows" });
    let (status, body) = send("validation-receipt", 4, "TARGET_VALIDATING", 3, good).await;
    assert_eq!((status, &body["fence"]["validation"]["result"]), (200, &json!("ok")), "{body}");
    let (status, _) = send("publish-readable", 5, "TARGET_VALIDATING", 4, json!({})).await;
    assert_eq!(status, 200);
    let (status, body) = send("enable-writes", 6, "TARGET_WRITE_FENCED", 5, json!({})).await;
    assert_eq!((status, &body["fence"]["admission"]["write"]), (200, &json!("open")));
    let (status, body) = send("abort", 7, "TARGET_WRITABLE", 6, json!({})).await;
    assert_eq!((status, &body["detail"]), (409, &json!("operation_finished")));

    let random = secret.strip_prefix("fwc_").unwrap();
    for path in [FENCE, "/v1/namespaces", "/v1/sessions", "/metrics"] {
        let (status, text) = server.text("GET", path, Some(KEY), "").await;
        assert!(status == 200 && !text.contains(random), "{path}");
    }
}
