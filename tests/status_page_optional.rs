//! The status page in a browser: what a hostile name does there, and what a person sees.
//!
//! Optional: it needs Chromium (`chromium`, `chromium-browser` or `google-chrome` on the path, or
//! `FENCEWIRE_CHROMIUM`), which is too large for the gate; without one it says that it was skipped.
//! The browser is spoken to over its debugging pipe: two FIFOs, one JSON object per zero byte. With
//! `FENCEWIRE_SCREENSHOTS=docs` it writes the pictures that the documents show.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use acceptance::{Site, applied, fail_after};
use base64::Engine as _;
use serde_json::{Value, json};
use support::proxy::uuid;
use support::{Engine, PgCluster, Proxy, ProxyOptions};

/// How long something may take to show on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Names that would do something if they were taken for HTML.
const HOSTILE: &str = "<img src=x onerror=window.pwned=1>";

fn chromium() -> Option<PathBuf> {
    if let Ok(given) = std::env::var("FENCEWIRE_CHROMIUM") {
        return Some(given.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let all = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    all.into_iter().find(|file| file.is_file())
}

/// A headless browser with one page.
struct Browser {
    child: Child,
    to: File,
    from: File,
    unread: Vec<u8>,
    number: u64,
    session: Option<String>,
    /// What the page complained of: errors, and what its policy stopped.
    complaints: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Browser {
    fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (to, from) = (folder.path().join("to"), folder.path().join("from"));
        let made = Command::new("mkfifo").args([&to, &from]).status().unwrap();
        assert!(made.success());
        let script = "exec \"$1\" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
                      --no-first-run --hide-scrollbars --user-data-dir=\"$4\" \
                      --remote-debugging-pipe about:blank 3<\"$2\" 4>\"$3\"";
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([program, to.as_path(), from.as_path(), &folder.path().join("profile")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Opening a FIFO waits for the other end; the shell opens them in this order.
        let to = File::options().write(true).open(to).unwrap();
        let from = File::open(from).unwrap();
        let mut browser = Self {
            child,
            to,
            from,
            unread: Vec::new(),
            number: 0,
            session: None,
            complaints: Vec::new(),
            _folder: folder,
        };
        let target = browser.say("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.say("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.say(domain, &json!({}));
        }
        browser
    }

    fn message(&mut self) -> Value {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&message[..end]).unwrap();
            }
            let mut chunk = vec![0; 64 << 10];
            let n = self.from.read(&mut chunk).unwrap();
            assert!(n > 0, "the browser is gone");
            self.unread.extend_from_slice(&chunk[..n]);
        }
    }

    fn say(&mut self, method: &str, params: &Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.message();
            if answer["id"] == self.number {
                assert!(answer.get("error").is_none(), "{method}: {answer:#}");
                return answer["result"].take();
            }
            match answer["method"].as_str().unwrap_or_default() {
                "Log.entryAdded" => self.complaints.push(answer["params"]["entry"].to_string()),
                "Runtime.exceptionThrown" => self.complaints.push(answer["params"].to_string()),
                _ => {}
            }
        }
    }

    /// The value of an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let answer = self.say("Runtime.evaluate", &params);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true there.
    #[track_caller]
    fn until(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.value(expression) != true {
            let text = self.value("document.body.innerText");
            let complaints = &self.complaints;
            assert!(Instant::now() < end, "never {expression}:\n{text:#}\n{complaints:#?}");
        }
    }

    fn window(&mut self, width: u32, height: u32) {
        let (mobile, scale) = (width < 500, 1);
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile,
        });
        self.say("Emulation.setDeviceMetricsOverride", &screen);
    }

    fn picture(&mut self, name: &str) {
        let Ok(folder) = std::env::var("FENCEWIRE_SCREENSHOTS") else { return };
        let taken = self.say("Page.captureScreenshot", &json!({ "format": "png" }));
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(taken["data"].as_str().unwrap())
            .unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
        std::fs::write(file, bytes).unwrap();
    }
}

/// A proxy with a fenced database, and one of a hostile name that drains behind a writer.
fn scene(proxy: &Proxy) -> support::Wire {
    let cluster = PgCluster::shared();
    let calm = Site::new(cluster, proxy);
    calm.fence();
    drop(calm.client().query("INSERT INTO t VALUES (1)"));
    cluster.create_db(HOSTILE);
    let hostile = Site::at(cluster, proxy, HOSTILE);
    // Not by psql, which takes a name with = in it for a connection string.
    hostile.direct().query("SET ROLE app; CREATE TABLE t (n int)").ok();
    let mut writer = hostile.client();
    writer.query(&format!("SET application_name = '{HOSTILE}'")).ok();
    writer.query("BEGIN").ok();
    writer.query(&format!("INSERT INTO t VALUES (1) /* {HOSTILE} */")).ok();
    writer
}

/// The path of a namespace whose database's name needs encoding.
fn fence_path(database: &str) -> String {
    let encoded: String = database.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/v1/namespaces/old/{encoded}/fence")
}

fn acquire(proxy: &Proxy, database: &str, policy: &Value) -> (u16, Value) {
    let path = fence_path(database);
    let fence = proxy.admin("GET", &path, &Value::Null).1["fence"].clone();
    let live = &fence["incarnation"];
    let body = json!({
        "operation_id": uuid(), "command_id": uuid(),
        "expected_state": fence["state"], "expected_revision": fence["revision"],
        "expected_namespace_identity": {
            "engine_id": live["engine_id"], "database_id": live["database_id"],
        },
        "drain_policy": policy,
    });
    let route = format!("{path}/source/acquire-write-fence");
    proxy.admin("POST", &route, &body)
}

fn log_in(browser: &mut Browser, key: &str) {
    browser.until("document.activeElement === document.getElementById('key')");
    browser.value(&format!("document.getElementById('key').value = {}", json!(key)));
    browser.value("document.getElementById('form').requestSubmit()");
}

#[test]
fn a_hostile_name_is_text_on_the_status_page() {
    let Some(program) = chromium() else {
        eprintln!("SKIPPED: no Chromium here; the status page was not looked at in a browser");
        return;
    };
    let proxy = Proxy::start_with(ProxyOptions {
        engines: vec![Engine::plain("old", PgCluster::shared())],
        admin: "show_literals = true\n".to_owned(),
        ..ProxyOptions::default()
    });
    let mut writer = scene(&proxy);
    let mut browser = Browser::start(&program);
    browser.window(1200, 1500);
    let url = format!("http://127.0.0.1:{}/", proxy.admin_port());
    browser.say("Page.navigate", &json!({ "url": url }));

    // Nothing is shown without the key, and a wrong one is asked for again.
    log_in(&mut browser, "not the key of this proxy");
    browser.until("document.body.innerText.includes('not the admin key')");
    assert_eq!(browser.value("document.getElementById('main').hidden"), true);
    log_in(&mut browser, &proxy.admin_key());
    browser.until("!document.getElementById('main').hidden");

    // Live: a drain comes up by itself, with its blocker, all of it as text.
    let policy = fail_after(600_000);
    let (hostile_text, drain) = (json!(HOSTILE), json!("SOURCE_DRAINING"));
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| acquire(&proxy, HOSTILE, &policy));
        browser.until("document.querySelectorAll('#drains .box.warn td').length > 0");
        browser.until(&format!(
            "[...document.querySelectorAll('#namespaces tr')].some((row) => \
             row.innerText.includes({hostile_text}) && row.innerText.includes({drain}))"
        ));
        browser.until("/ to its deadline/.test(document.getElementById('drains').innerText)");
        let blockers = browser.value("document.getElementById('drains').innerText");
        assert!(blockers.as_str().unwrap().matches(HOSTILE).count() >= 2, "{blockers:#}");
        browser.until("[...document.querySelectorAll('#chosen h3')].length > 0");
        browser.until("document.querySelectorAll('svg g.here').length === 2");
        browser.picture("status-page.png");
        browser.window(390, 844);
        let fits = "document.documentElement.scrollWidth <= window.innerWidth";
        assert_eq!(browser.value(fits), true, "a phone must scroll sideways");
        browser.picture("status-page-phone.png");
        browser.window(1200, 1500);
        writer.query("COMMIT").ok();
        let answer = answer.join().unwrap();
        applied(&answer);
    });
    browser.until("document.querySelectorAll('#drains .box').length === 0");
    browser.until("/APPLIED/.test(document.getElementById('chosen').innerText)");
    browser.until("/MIGRATION_WRITE_FENCED/.test(document.getElementById('denials').innerText)");

    // It was never HTML: no element was made of it, nothing of it ran, and nothing tried to.
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 0);
    assert_eq!(browser.value("typeof window.pwned"), "undefined");
    let stored = browser.value("JSON.stringify(Object.keys(sessionStorage))");
    assert_eq!(stored, json!("[\"fencewire.admin.key\"]"));
    assert_eq!(browser.value("localStorage.length + document.cookie.length"), 0);
    // The one complaint that there must be is the 401 of the wrong key, and of none.
    let others: Vec<_> = browser.complaints.iter().filter(|one| !one.contains("401")).collect();
    assert!(others.is_empty(), "{others:#?}");
}
