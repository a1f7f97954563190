//! Tests of `ctl` against a made-up admin surface on a real socket.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::cli::exit;
use crate::cli::terminal::tests::{capture, capture_live};

mod replays;
mod shown;
mod targets;

const OP: &str = "11111111-1111-4111-8111-111111111111";
const CMD: &str = "22222222-2222-4222-8222-222222222222";
const KEY: &str = "sesame-sesame-sesame";
const FENCE: &str = "GET /v1/namespaces/old/app/fence";
const ACQUIRE: &str = "POST /v1/namespaces/old/app/fence/source/acquire-write-fence";
const RELEASE: &str = "POST /v1/namespaces/old/app/fence/source/release-write-fence";

enum Reply {
    Json(u16, Value),
    Raw(&'static str),
    /// The connection ends without an answer.
    Close,
}

/// One request as it arrived.
#[derive(Clone)]
struct Seen {
    line: String,
    head: String,
    body: Value,
}

/// A made-up admin surface: one thread per connection, one request per connection.
struct Fake {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Fake {
    fn new(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&seen));
        // The thread ends with the test process; it holds nothing that needs an end.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                std::thread::spawn(move || serve_one(stream.unwrap(), &*answer, &log));
            }
        });
        Self { url, seen }
    }

    fn run(&self, args: &[&str]) -> (u8, String, String) {
        self.run_live(args, false)
    }

    fn run_live(&self, args: &[&str], live: bool) -> (u8, String, String) {
        let vars = [("FENCEWIRE_ADMIN_URL", self.url.as_str()), ("FENCEWIRE_ADMIN_KEY", KEY)];
        capture_live(&[&["ctl"], args].concat(), &vars, live)
    }

    fn posts(&self) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|s| s.line.starts_with("POST")).map(|s| s.body.clone()).collect()
    }
}

fn serve_one(mut stream: TcpStream, answer: &dyn Fn(&Seen) -> Reply, log: &Mutex<Vec<Seen>>) {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).unwrap();
        if count == 0 {
            return;
        }
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
            })
            .unwrap_or(0);
        if rest.len() >= length {
            break (head.to_owned(), length);
        }
    };
    let body = &bytes[bytes.len() - length..];
    let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let body = serde_json::from_slice(body).unwrap_or(Value::Null);
    let seen = Seen { line, head, body };
    log.lock().unwrap().push(seen.clone());
    let (status, body) = match answer(&seen) {
        Reply::Json(status, body) => (status, body.to_string()),
        Reply::Raw(text) => (404, text.to_owned()),
        Reply::Close => return,
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
}

fn view(state: &str, revision: u64) -> Value {
    json!({
        "namespace": "old/app", "state": state, "revision": revision, "operation_id": OP,
        "incarnation": { "engine_id": "7412", "timeline": 1, "database_id": "16384" },
        "admission": { "write": "closed", "read": "open", "generation": 4 },
        "drain_policy": { "deadline_ms": 30000, "on_deadline": "fail" },
    })
}

fn inspected(state: &str, revision: u64) -> Value {
    json!({ "outcome": "APPLIED", "fence": view(state, revision), "receipts": [] })
}

fn blockers() -> Value {
    json!({ "blockers": [{
        "session": 17, "client": "10.0.0.9:5000", "user": "app",
        "application_name": "p\u{1b}[2Jsql",
        "engine_pid": 99, "class": "write", "age_ms": 12400, "statement": "update t set a = ?",
        "why": "transaction open",
    }] })
}

/// Answers every question with an unfenced namespace, and every command with this.
fn answering(status: u16, body: Value) -> Fake {
    Fake::new(move |seen| match seen.line.starts_with("GET") {
        true => Reply::Json(200, inspected("UNFENCED", 0)),
        false => Reply::Json(status, body.clone()),
    })
}

fn applied() -> Value {
    let mut fence = view("SOURCE_WRITE_FENCED", 2);
    fence["frozen_boundary"] = json!({ "kind": "lsn", "value": "0/16B3748", "timeline": 1 });
    let receipt = json!({ "command_id": CMD, "outcome": "APPLIED" });
    json!({ "outcome": "APPLIED", "replayed": false, "fence": fence, "receipt": receipt })
}

#[test]
fn acquire_reads_what_it_expects_and_sends_it() {
    let fake = answering(200, applied());
    let args = [
        "acquire-write-fence",
        "old/app",
        "--operation",
        OP,
        "--deadline",
        "20s",
        "--force-rollback",
    ];
    let (code, out, err) = fake.run(&args);
    assert_eq!((code, err.as_str()), (exit::DONE, ""), "{out}");
    let first = out.lines().next().unwrap();
    let id = first.strip_prefix("command ").unwrap();
    assert!(out.contains("old/app is SOURCE_WRITE_FENCED at revision 2 (APPLIED)"), "{out}");
    assert!(out.contains("boundary       lsn 0/16B3748 (timeline 1)"), "{out}");
    assert_eq!(
        fake.posts(),
        [json!({
            "operation_id": OP, "command_id": id, "expected_state": "UNFENCED",
            "expected_revision": 0,
            "expected_namespace_identity": { "engine_id": "7412", "database_id": "16384" },
            "drain_policy": { "deadline_ms": 20000, "on_deadline": "force_rollback" },
        })]
    );
    let seen = fake.seen.lock().unwrap();
    let lines: Vec<_> = seen.iter().map(|seen| seen.line.as_str()).collect();
    assert_eq!(lines, [FENCE, ACQUIRE]);
    assert!(seen.iter().all(|s| s.head.contains(&format!("authorization: Bearer {KEY}"))));
}

#[test]
fn release_sends_no_identity_and_no_policy() {
    let fake = Fake::new(|seen| match seen.line.starts_with("GET") {
        true => Reply::Json(200, inspected("SOURCE_WRITE_FENCED", 2)),
        false => Reply::Json(200, json!({ "outcome": "APPLIED", "fence": view("RELEASED", 3) })),
    });
    let (code, out, _) = fake.run(&["release-write-fence", "old/app", "--operation", OP]);
    assert_eq!(code, exit::DONE);
    assert!(out.contains("old/app is RELEASED at revision 3"), "{out}");
    let sent = &fake.posts()[0];
    assert_eq!(sent["expected_state"], "SOURCE_WRITE_FENCED");
    assert_eq!(sent["expected_revision"], 2);
    assert_eq!(sent.as_object().unwrap().len(), 4, "{sent}");
    assert_eq!(fake.seen.lock().unwrap()[1].line, RELEASE);
}

#[test]
fn each_outcome_has_its_exit_code_and_says_what_next() {
    let error = |code: &str| json!({ "outcome": code, "error": "because", "fence": null });
    let detailed =
        |code: &str, detail: &str| json!({ "outcome": code, "error": "because", "detail": detail });
    let replay = "--expect UNFENCED@0";
    let cases = [
        (200, json!({ "outcome": "ALREADY_APPLIED" }), exit::DONE, ""),
        (202, json!({ "outcome": "DRAINING", "drain": blockers() }), exit::DRAINING, replay),
        (409, error("FENCE_OWNED_BY_ANOTHER_OPERATION"), exit::REFUSED, "under its id"),
        (409, error("FENCE_REVISION_MISMATCH"), exit::REFUSED, "new command"),
        (409, error("FENCE_COMMAND_CONFLICT"), exit::REFUSED, "same options"),
        (409, error("INVALID_FENCE_TRANSITION"), exit::REFUSED, "see inspect"),
        (409, detailed("INVALID_FENCE_TRANSITION", "operation_finished"), exit::REFUSED, "new op"),
        (409, error("FENCE_COMMIT_INDETERMINATE"), exit::UNKNOWN, replay),
        (423, error("FENCE_STATE_UNAVAILABLE"), exit::UNKNOWN, replay),
        (412, error("FENCE_PRECONDITION_FAILED"), exit::REFUSED, "cause"),
        (412, detailed("FENCE_PRECONDITION_FAILED", "admin_auth_required"), exit::REFUSED, "key_"),
        (401, json!({ "error": "no" }), exit::REFUSED, "FENCEWIRE_ADMIN_KEY"),
        (404, json!({ "error": "no" }), exit::REFUSED, "no such namespace"),
        (500, json!({ "error": "oops" }), exit::UNKNOWN, replay),
        (503, json!({}), exit::UNKNOWN, replay),
    ];
    for (status, body, expected, next) in cases {
        let fake = answering(status, body.clone());
        let args = ["acquire-write-fence", "old/app", "--operation", OP, "--command", CMD];
        let (code, out, err) = fake.run(&args);
        assert_eq!(code, expected, "{status} {body}: {out}{err}");
        assert!(err.contains(next), "{status} {body}: {err}");
        if expected == exit::REFUSED || expected == exit::UNKNOWN {
            let shown = body["outcome"].as_str().map_or(format!("HTTP {status}"), str::to_owned);
            assert!(err.starts_with(&shown), "{err}");
            assert_eq!(out, format!("command {CMD}\n"));
        }
        // The same as JSON: the same code, exactly the proxy's object, nothing else on stdout.
        let (code, out, err) = fake.run(&[&args[..], &["--json"]].concat());
        assert_eq!(code, expected, "{status} {body}");
        assert_eq!(out.lines().count(), 1, "{out}");
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), body);
        assert_eq!(err, format!("command {CMD}\n"));
    }
}

#[test]
fn a_draining_answer_shows_the_blockers_and_both_ways_out() {
    let mut body = json!({ "outcome": "DRAINING", "drain": blockers() });
    body["fence"] = view("SOURCE_DRAINING", 1);
    let fake = answering(202, body);
    let args = ["acquire-write-fence", "old/app", "--operation", OP, "--deadline", "0"];
    let (code, out, err) = fake.run(&args);
    assert_eq!(code, exit::DRAINING);
    assert!(out.contains("old/app is SOURCE_DRAINING at revision 1 (DRAINING)"), "{out}");
    assert!(out.contains("12.4 s") && out.contains("transaction open"), "{out}");
    assert!(!out.contains('\u{1b}'), "a client's name moved the cursor");
    let id = out.lines().next().unwrap().strip_prefix("command ").unwrap();
    let replay = format!(
        "fencewire ctl acquire-write-fence old/app --operation {OP} --command {id} --expect \
         UNFENCED@0 --deadline 0ms"
    );
    assert!(err.contains(&replay), "{err}");
    assert!(err.contains(&format!("ctl release-write-fence old/app --operation {OP}")), "{err}");
    let force = format!("old/app --operation {OP} --deadline 0ms --force-rollback\n");
    assert!(err.contains(&force), "{err}");
    assert!(!out.contains("leases ") && !out.contains("proven "), "a proof without one: {out}");
    // Who has forced already is not told to.
    let (_, _, err) = fake.run(&[&args[..], &["--force-rollback"]].concat());
    assert!(!err.contains("or roll back"), "{err}");
}

#[test]
fn a_read_fence_shows_its_proof_or_the_ways_out() {
    let mut body = json!({ "outcome": "DRAINING", "drain": blockers() });
    body["fence"] = view("SOURCE_READ_DRAINING", 3);
    let args = ["set-read-fence", "old/app", "--operation", OP, "--deadline", "5s"];
    let (code, out, err) = answering(202, body).run(&args);
    assert_eq!(code, exit::DRAINING, "{out}{err}");
    assert!(err.contains("reads and writes stay closed"), "{err}");
    let back = format!("or back out:\n  fencewire ctl clear-read-fence old/app --operation {OP}");
    assert!(err.contains(&back) && !err.contains("--force-rollback"), "{err}");
    let replay = "--expect UNFENCED@0 --deadline 5000ms";
    assert!(err.contains("ctl set-read-fence old/app") && err.contains(replay), "{err}");

    let mut body = applied();
    body["fence"]["state"] = json!("SOURCE_READ_FENCED");
    body["fence"]["read_evidence"] = json!({
        "proven_at": "T4", "releases": { "by_answer": 2, "by_engine": 1 },
        "forced": [{ "kind": "sql_cancel", "session": 7, "engine_pid": 9, "at": "T5", "why": "w" }],
    });
    let (code, out, _) = answering(200, body).run(&args);
    assert_eq!(code, exit::DONE);
    assert!(out.contains("reads          proven T4") && out.contains("2 ended by"), "{out}");
    assert!(out.contains("cut            sql_cancel of session 7"), "{out}");
    let args = ["clear-read-fence", "old/app", "--operation", OP];
    assert_eq!(answering(200, applied()).run(&args).0, exit::DONE);
}

#[test]
fn a_draining_answer_without_blockers_says_why() {
    let mut body = json!({ "outcome": "DRAINING", "reason": "census_unavailable: x; replay" });
    body["fence"] = view("SOURCE_DRAINING", 1);
    body["fence"]["evidence"] = Value::Null;
    body["drain"] = json!({ "blockers": [], "reason": null });
    let args = ["acquire-write-fence", "old/app", "--operation", OP];
    let (_, out, err) = answering(202, body.clone()).run(&args);
    assert!(out.contains("waits for      census_unavailable: x; replay"), "{out}");
    assert!(!err.contains("--force-rollback"), "force reaches no session here: {err}");
    body["drain"]["reason"] = json!("GRANT pg_monitor");
    let (_, out, _) = answering(202, body).run(&args);
    assert!(out.contains("waits for      GRANT pg_monitor"), "{out}");
}

#[test]
fn without_an_identity_no_command_is_sent() {
    let fake = Fake::new(|_| {
        let mut body = inspected("UNFENCED", 0);
        body["fence"]["incarnation"]["engine_id"] = Value::Null;
        Reply::Json(200, body)
    });
    let (code, _, err) = fake.run(&["acquire-write-fence", "old/app", "--operation", OP]);
    assert_eq!(code, exit::UNKNOWN);
    assert!(err.contains("which database this is"), "{err}");
    assert!(fake.posts().is_empty());
}

#[test]
fn a_live_line_shows_what_the_drain_waits_for() {
    let (asked, wait): (Sender<()>, Receiver<()>) = channel();
    let (asked, wait) = (Mutex::new(asked), Mutex::new(wait));
    // The command is answered when the second question was: the first is ctl's own, before it
    // sends; the third question proves that the second one's answer was shown.
    let questions = Mutex::new(0);
    let fake = Fake::new(move |seen| {
        if seen.line.starts_with("POST") {
            wait.lock().unwrap().recv().unwrap();
            return Reply::Json(200, applied());
        }
        let mut questions = questions.lock().unwrap();
        *questions += 1;
        if *questions == 3 {
            asked.lock().unwrap().send(()).unwrap();
        }
        let mut body = inspected("SOURCE_DRAINING", 1);
        body["drain"] = blockers();
        Reply::Json(200, body)
    });
    let args = ["acquire-write-fence", "old/app", "--operation", OP];
    let (code, out, err) = fake.run_live(&args, true);
    assert_eq!(code, exit::DONE);
    let line = "SOURCE_DRAINING, 1 blocker, oldest 12.4 s (session 17), ";
    assert!(err.contains(line) && err.contains(" left: old/app"), "{err:?}");
    assert_eq!(err.matches("in the way: 1").count(), 1, "named once, as nothing changed: {err:?}");
    assert!(err.ends_with("\r\u{1b}[K"), "the live line is wiped: {err:?}");
    assert!(!out.contains('\r'), "{out:?}");
}

/// Also where nobody looks at a terminal: in a script's log, or with `--json`.
#[test]
fn what_a_command_waits_for_is_told_when_it_changes() {
    let (asked, wait): (Sender<()>, Receiver<()>) = channel();
    let (asked, wait) = (Mutex::new(asked), Mutex::new(wait));
    let questions = Mutex::new(0);
    let fake = Fake::new(move |seen| {
        if seen.line.starts_with("POST") {
            wait.lock().unwrap().recv().unwrap();
            return Reply::Json(200, applied());
        }
        let mut questions = questions.lock().unwrap();
        *questions += 1;
        let mut body = inspected("SOURCE_DRAINING", 1);
        // First a session of the proxy's, twice; then the engine's own word.
        body["drain"] = match *questions {
            1..=3 => {
                let mut drain = blockers();
                drain["blockers"][0]["class"] = json!("writer");
                if *questions == 3 {
                    drain["reason"] = json!("census_unavailable: engine old was lost");
                }
                drain
            }
            4 => json!({ "phase": "engine_lock", "blockers": [] }),
            _ => {
                asked.lock().unwrap().send(()).ok();
                body["drain"].clone()
            }
        };
        Reply::Json(200, body)
    });
    let args = ["acquire-write-fence", "old/app", "--operation", OP, "--json"];
    let (code, out, err) = fake.run(&args);
    assert_eq!((code, out.lines().count()), (exit::DONE, 1), "{out}");
    let blocker = "  session 17, user app, client 10.0.0.9:5000, backend 99, 12.4 s: transaction \
                   open; update t set a = ?";
    for part in [
        " left; in the way: 1\n",
        " left; in the way: 1; census_unavailable: engine old was lost\n",
        "; taking the engine's locks\n",
    ] {
        assert_eq!(err.matches(part).count(), 1, "{part}, in:\n{err}");
    }
    for part in [blocker, "The engine is asked about all others once they have ended"] {
        assert_eq!(err.matches(part).count(), 2, "once more with the reason, in:\n{err}");
    }
    assert!(!err.contains('\u{1b}') && !err.contains('\r'), "{err:?}");
}

/// A line that is printed must find the same proxy, with the same keys.
#[test]
fn printed_lines_have_the_options_that_ctl_was_given() {
    let fake = answering(202, json!({ "outcome": "DRAINING", "drain": blockers() }));
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("a key");
    std::fs::write(&key, KEY).unwrap();
    let args = ["acquire-write-fence", "old/app", "--operation", OP, "--admin-url", &fake.url];
    let all = [&["ctl"], &args[..], &["--key-file", key.to_str().unwrap()]].concat();
    let (code, _, err) = capture(&all, &[]);
    assert_eq!(code, exit::DRAINING);
    let lines: Vec<&str> = err.lines().filter(|line| line.contains("fencewire ctl")).collect();
    assert_eq!(lines.len(), 3, "replay, force and back: {err}");
    let found_by = format!(" --admin-url {} --key-file '{}'", fake.url, key.display());
    assert!(lines.iter().all(|line| line.ends_with(&found_by)), "{err}");
    let (_, _, err) = fake.run(&args[..4]);
    assert!(!err.contains("--admin-url") && !err.contains(KEY), "{err}");
}

#[test]
fn questions_refused_or_garbled() {
    let fake = Fake::new(|_| Reply::Raw("not found"));
    let (code, out, err) = fake.run(&["inspect", "old/app"]);
    assert_eq!((code, out.as_str()), (exit::REFUSED, ""));
    assert!(err.contains("HTTP 404") && err.contains("no such namespace"), "{err}");
    let fake = Fake::new(|_| Reply::Json(401, json!({ "error": "wrong key" })));
    let (code, _, err) = fake.run(&["status"]);
    assert_eq!(code, exit::REFUSED);
    assert!(err.contains("HTTP 401: wrong key"), "{err}");
}

#[test]
fn the_key_comes_from_a_file_or_the_environment() {
    let (code, _, err) = capture(&["ctl", "status"], &[]);
    assert_eq!(code, exit::USAGE);
    assert!(err.contains("FENCEWIRE_ADMIN_KEY") && err.contains("--key-file"), "{err}");
    let fake = Fake::new(|_| Reply::Json(200, json!({ "namespaces": [] })));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, "from-a-file\n").unwrap();
    let (code, out, _) = fake.run(&["status", "--key-file", path.to_str().unwrap()]);
    assert_eq!(code, exit::DONE);
    assert!(out.contains("no namespace yet"), "{out}");
    assert!(fake.seen.lock().unwrap()[0].head.contains("Bearer from-a-file"));
    let (code, _, err) = fake.run(&["status", "--key-file", "/nowhere"]);
    assert_eq!(code, exit::USAGE);
    assert!(err.contains("/nowhere"), "{err}");
}

/// What the engine said, and exit 4 where asking again doesn't help.
#[test]
fn an_engine_that_does_not_say_which_database_it_is_is_quoted() {
    let words = "engine old denied identity: Access denied (1044); grant it";
    for (kind, expected) in [
        ("denied", exit::REFUSED),
        ("missing", exit::REFUSED),
        ("unreachable", exit::UNKNOWN),
        ("timeout", exit::UNKNOWN),
    ] {
        let mut body = inspected("UNFENCED", 0);
        body["fence"]["incarnation"] = json!({ "engine_id": null, "database_id": null });
        body["identity_error"] = json!(words);
        body["identity_error_kind"] = json!(kind);
        let fake = Fake::new(move |_| Reply::Json(200, body.clone()));
        let (code, out, err) = fake.run(&["acquire-write-fence", "old/app", "--operation", OP]);
        assert_eq!(code, expected, "{kind}: {err}");
        assert!(err.contains("No command was sent") && err.contains(words), "{err}");
        assert!(fake.posts().is_empty());
        assert_eq!(out, "", "a command has an id once it is sent");
        let (code, out, _) = fake.run(&["inspect", "old/app"]);
        assert_eq!(code, exit::DONE);
        assert!(out.contains(&format!("not known: {words}")), "{out}");
    }
}
