//! The built program in front of a cluster: `fencewire serve`, its admin API, its end.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::certs::{CertFiles, Certs};
use super::cluster::PgCluster;
use super::guard::Guard;
use super::http;
use super::my_cluster::MyCluster;

/// How long the program may take to be ready or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether every PostgreSQL listener has `auto_prepare`: what clients see is the same.
fn auto_prepares() -> bool {
    std::env::var_os("FENCEWIRE_TEST_AUTO_PREPARE").is_some()
}

/// One `[[engine]]`.
pub struct Engine {
    pub name: String,
    pub url: String,
    /// `disable`, `prefer`, `require`, `verify-ca` or `verify-full`.
    pub tls: String,
    pub ca: Option<PathBuf>,
}

impl Engine {
    /// A cluster under a name, without TLS.
    pub fn plain(name: &str, cluster: &PgCluster) -> Self {
        Self { name: name.into(), url: cluster.control_url(), tls: "disable".into(), ca: None }
    }

    /// A cluster under a name, with the given TLS mode.
    pub fn tls(name: &str, cluster: &PgCluster, mode: &str) -> Self {
        // An authority that nobody would check is a mistake in the settings, and refused as one.
        let files = cluster.certs().filter(|_| mode.starts_with("verify-"));
        let ca = files.map(|files| files.ca.clone());
        Self { tls: mode.into(), ca, ..Self::plain(name, cluster) }
    }

    /// A MariaDB or MySQL under a name, without TLS.
    pub fn my_plain(name: &str, cluster: &MyCluster) -> Self {
        Self { name: name.into(), url: cluster.control_url(), tls: "disable".into(), ca: None }
    }

    /// A MariaDB or MySQL under a name, with the given TLS mode.
    pub fn my_tls(name: &str, cluster: &MyCluster, mode: &str) -> Self {
        let files = cluster.certs().filter(|_| mode.starts_with("verify-"));
        let ca = files.map(|files| files.ca.clone());
        Self { tls: mode.into(), ca, ..Self::my_plain(name, cluster) }
    }

    /// What its clients speak, as `[[listen]]` takes it: `postgres` or `mysql`.
    fn protocol(&self) -> &str {
        self.url.split_once("://").expect("an engine's URL has a scheme").0
    }
}

/// What a proxy with a settings file is to be like.
#[derive(Default)]
pub struct ProxyOptions {
    /// The first one is where databases without a route go.
    pub engines: Vec<Engine>,
    /// The listener's `tls`: `disable` (also when empty), `allow` or `require`.
    pub client_tls: String,
    /// Whether its PostgreSQL listener has `auto_prepare`.
    pub auto_prepare: bool,
    /// More TOML behind what is written here, such as `[fence]` tables.
    pub extra: String,
    /// More lines of the `[proxy]` table.
    pub proxy: String,
    /// More lines of the `[admin]` table.
    pub admin: String,
    /// Environment of the program.
    pub env: Vec<(String, String)>,
    /// The state folder, where it isn't to be in the proxy's own.
    pub state_dir: Option<PathBuf>,
    /// A command that the program is started through.
    pub wrapper: Vec<OsString>,
}

/// A running `fencewire serve`, killed when this value (or the test program) is gone.
pub struct Proxy {
    dir: PathBuf,
    port: u16,
    admin_port: u16,
    arguments: Vec<OsString>,
    env: Vec<(String, String)>,
    wrapper: Vec<OsString>,
    state_dir: PathBuf,
    certs: Option<CertFiles>,
    // None between `kill9`/`stop` and `restart`.
    guard: Option<Guard>,
}

impl Proxy {
    /// Starts the program without a file before `cluster`, which it knows as engine `old`.
    pub fn start(cluster: &PgCluster) -> Self {
        Self::start_without_file(&Engine::plain("old", cluster))
    }

    /// As [`Self::start`], before a MariaDB or MySQL.
    pub fn start_my(cluster: &MyCluster) -> Self {
        Self::start_without_file(&Engine::my_plain("old", cluster))
    }

    fn start_without_file(engine: &Engine) -> Self {
        if engine.protocol() == "postgres" && auto_prepares() {
            let (name, url, tls) = (engine.name.clone(), engine.url.clone(), engine.tls.clone());
            let engines = vec![Engine { name, url, tls, ca: engine.ca.clone() }];
            return Self::start_with(ProxyOptions { engines, ..ProxyOptions::default() });
        }
        let mut proxy = Self::new(Vec::new());
        let (port, admin) = (proxy.port, proxy.admin_port);
        proxy.arguments = vec![
            "--listen".into(),
            format!("{}://127.0.0.1:{port}", engine.protocol()).into(),
            "--engine".into(),
            format!("{}={}", engine.name, engine.url).into(),
            "--state-dir".into(),
            proxy.state_dir().into(),
            "--admin".into(),
            format!("127.0.0.1:{admin}").into(),
        ];
        proxy.restart();
        proxy
    }

    /// A proxy in front of [`PgCluster::shared_18`] that goes without this guard, if one is named.
    pub fn without_18(guard: &str) -> Self {
        Self::start_with(ProxyOptions {
            engines: vec![Engine::plain("old", PgCluster::shared_18())],
            env: vec![("FENCEWIRE_REMOVE".into(), guard.into())],
            ..ProxyOptions::default()
        })
    }

    /// Starts the program with a settings file.
    pub fn start_with(options: ProxyOptions) -> Self {
        let mut proxy = Self::new(options.env.clone());
        proxy.wrapper.clone_from(&options.wrapper);
        if let Some(dir) = &options.state_dir {
            proxy.state_dir.clone_from(dir);
        }
        let file = proxy.dir.join("fencewire.toml");
        if !matches!(options.client_tls.as_str(), "" | "disable") {
            proxy.certs = Some(Certs::shared().write(&proxy.dir));
        }
        std::fs::write(&file, proxy.settings(&options)).unwrap();
        std::fs::write(proxy.dir.join("given.key"), GIVEN_KEY).unwrap();
        proxy.arguments = vec!["--config".into(), file.into()];
        proxy.restart();
        proxy
    }

    fn new(env: Vec<(String, String)>) -> Self {
        let dir = super::test_dir("proxy");
        let state_dir = dir.join("state");
        std::fs::create_dir(&state_dir).unwrap();
        let (port, admin_port) = (super::free_port(), super::free_port());
        let (arguments, wrapper) = (Vec::new(), Vec::new());
        Self { dir, port, admin_port, arguments, env, wrapper, state_dir, certs: None, guard: None }
    }

    fn settings(&self, options: &ProxyOptions) -> String {
        let first = options.engines.first().expect("a proxy needs an engine");
        let mut toml = format!(
            "[proxy]\ninstance = \"test-{port}\"\nstate_dir = \"{state}\"\n\
             shutdown_grace_ms = 3000\n{more}\
             [admin]\nhttp = \"127.0.0.1:{admin}\"\nkey_file = \"{key}\"\n{admin_more}\
             [[listen]]\nprotocol = \"{protocol}\"\naddress = \"127.0.0.1:{port}\"\n\
             default_engine = \"{name}\"\n",
            protocol = first.protocol(),
            name = first.name,
            port = self.port,
            more = options.proxy,
            admin_more = options.admin,
            admin = self.admin_port,
            state = self.state_dir().display(),
            key = self.dir.join("given.key").display(),
        );
        if first.protocol() == "postgres" && (auto_prepares() || options.auto_prepare) {
            writeln!(toml, "auto_prepare = true").unwrap();
        }
        if let Some(files) = &self.certs {
            writeln!(toml, "tls = \"{}\"", options.client_tls).unwrap();
            writeln!(toml, "cert_file = \"{}\"", files.cert.display()).unwrap();
            writeln!(toml, "key_file = \"{}\"", files.key.display()).unwrap();
        }
        for engine in &options.engines {
            let Engine { name, url, tls, ca } = engine;
            write!(toml, "[[engine]]\nname = \"{name}\"\nurl = \"{url}\"\n").unwrap();
            writeln!(toml, "tls = \"{tls}\"").unwrap();
            if let Some(ca) = ca {
                writeln!(toml, "ca_file = \"{}\"", ca.display()).unwrap();
            }
        }
        toml.push_str(&options.extra);
        toml
    }

    /// Replaces the environment that the next start gets.
    pub fn set_env(&mut self, env: &[(&str, &str)]) {
        self.env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    }

    /// Starts the program (again), with the same arguments, ports and state; returns when ready.
    pub fn restart(&mut self) {
        self.spawn();
        self.wait_ready();
    }

    /// As [`Self::restart`], but returns as soon as the process exists.
    pub fn spawn(&mut self) {
        assert!(self.guard.is_none(), "the proxy runs already");
        let mut command = self.wrapper.clone();
        command.extend([env!("CARGO_BIN_EXE_fencewire").into(), "serve".into()]);
        command.extend(self.arguments.iter().cloned());
        self.guard = Some(Guard::spawn(&self.dir, "server", "KILL", &command, &self.env));
    }

    /// Waits for `/readyz` to say 200. Panics with the program's log when it doesn't.
    pub fn wait_ready(&self) {
        let guard = self.guard.as_ref().expect("the proxy doesn't run");
        let ready = super::poll(PATIENCE, || {
            if let Some(code) = guard.exit_code() {
                return Some(Err(code));
            }
            let answer = http::request(self.admin_port, "GET", "/readyz", &[], "");
            matches!(answer, Ok((200, _))).then_some(Ok(()))
        });
        let log = self.log_tail();
        match ready {
            Some(Ok(())) => {}
            Some(Err(code)) => panic!("the proxy ended with exit code {code}:\n{log}"),
            None => panic!("the proxy was not ready after {PATIENCE:?}:\n{log}"),
        }
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill9(&mut self) {
        self.end("KILL");
    }

    /// SIGTERM; returns the exit code.
    pub fn stop(&mut self) -> i32 {
        self.end("TERM")
    }

    fn end(&mut self, signal: &str) -> i32 {
        let guard = self.guard.take().expect("the proxy doesn't run");
        guard.signal(signal);
        let code = guard.wait_exit(PATIENCE);
        let log = self.log_tail();
        let code = code.unwrap_or_else(|| panic!("the proxy doesn't end on {signal}:\n{log}"));
        guard.finish();
        code
    }

    /// Sends a signal (such as `HUP`) and doesn't wait.
    pub fn signal(&self, signal: &str) {
        self.guard.as_ref().expect("the proxy doesn't run").signal(signal);
    }

    /// Forgets a program that has ended by itself, so that it can be started again.
    pub fn bury(&mut self) {
        self.guard.take().expect("the proxy doesn't run").finish();
    }

    /// The exit code, once the program has ended by itself.
    pub fn exit_code(&self) -> Option<i32> {
        self.guard.as_ref()?.exit_code()
    }

    /// The program's process id.
    pub fn pid(&self) -> u32 {
        self.guard.as_ref().expect("the proxy doesn't run").pid()
    }

    /// The program's resident memory, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    /// The clients' port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The admin API's port on 127.0.0.1.
    pub fn admin_port(&self) -> u16 {
        self.admin_port
    }

    /// The folder with the embedded store.
    pub fn state_dir(&self) -> PathBuf {
        self.state_dir.clone()
    }

    /// The listener's certificate files, where it has TLS.
    pub fn certs(&self) -> Option<&CertFiles> {
        self.certs.as_ref()
    }

    /// The admin key: the one given in the settings file, else the generated one.
    pub fn admin_key(&self) -> String {
        let given = self.dir.join("given.key");
        let generated = self.state_dir().join("admin.key");
        let file = if given.exists() { given } else { generated };
        let key = std::fs::read_to_string(&file);
        key.unwrap_or_else(|e| panic!("no admin key in {}: {e}", file.display())).trim().to_owned()
    }

    /// The end of what the program wrote.
    pub fn log_tail(&self) -> String {
        super::tail(&self.log_file(), 60)
    }

    /// Where the program's output goes (all runs of this proxy, one behind the other).
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// One admin request with the key; an answer without a body is `null`.
    pub fn admin(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.try_admin(method, path, body).unwrap_or_else(|e| {
            panic!("{method} {path} got no answer: {e}\nlog:\n{}", self.log_tail())
        })
    }

    /// As [`Self::admin`]; a broken connection comes back as its error.
    ///
    /// # Errors
    /// The connection's error, or `InvalidData` when the answer isn't JSON.
    pub fn try_admin(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> std::io::Result<(u16, Value)> {
        self.try_admin_with(method, path, &[], body)
    }

    /// As [`Self::try_admin`], with more headers.
    ///
    /// # Errors
    /// As there.
    pub fn try_admin_with(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &Value,
    ) -> std::io::Result<(u16, Value)> {
        let token = format!("Bearer {}", self.admin_key());
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [&[("Authorization", token.as_str())], more].concat();
        let (status, text) = http::request(self.admin_port, method, path, &headers, &body)?;
        if text.is_empty() {
            return Ok((status, Value::Null));
        }
        match serde_json::from_str(&text) {
            Ok(value) => Ok((status, value)),
            Err(e) => Err(std::io::Error::other(format!("{status}, no JSON ({e}): {text}"))),
        }
    }

    /// `InspectFence`: the whole answer (`fence`, `receipts`, `drain`).
    pub fn inspect(&self, namespace: &str) -> Value {
        let path = format!("/v1/namespaces/{namespace}/fence");
        let (status, body) = self.admin("GET", &path, &Value::Null);
        assert_eq!(status, 200, "inspect {namespace}: {body}");
        body
    }

    /// The body of a command: expectation (and identity, for an acquire) as the namespace is now.
    pub fn command_body(&self, namespace: &str, operation: &str, command: &str) -> Value {
        let fence = &self.inspect(namespace)["fence"];
        json!({
            "operation_id": operation,
            "command_id": command,
            "expected_state": fence["state"],
            "expected_revision": fence["revision"],
        })
    }

    /// `AcquireSourceWriteFence` for the namespace as it is now; `policy` null = the default.
    pub fn acquire(
        &self,
        namespace: &str,
        operation: &str,
        command: &str,
        policy: &Value,
    ) -> (u16, Value) {
        let mut body = self.command_body(namespace, operation, command);
        let incarnation = &self.inspect(namespace)["fence"]["incarnation"];
        body["expected_namespace_identity"] = json!({
            "engine_id": incarnation["engine_id"],
            "database_id": incarnation["database_id"],
        });
        if !policy.is_null() {
            body["drain_policy"] = policy.clone();
        }
        self.command(namespace, "source/acquire-write-fence", &body)
    }

    /// `ReleaseSourceWriteFence` for the namespace as it is now.
    pub fn release(&self, namespace: &str, operation: &str, command: &str) -> (u16, Value) {
        let body = self.command_body(namespace, operation, command);
        self.command(namespace, "source/release-write-fence", &body)
    }

    /// Raises the write fence with half a minute for its drain, and waits for its acknowledgement.
    /// Answers the operation.
    #[track_caller]
    pub fn fence(&self, namespace: &str) -> String {
        let operation = uuid();
        let policy = json!({ "deadline_ms": 30_000, "on_deadline": "fail" });
        let (status, body) = self.acquire(namespace, &operation, &uuid(), &policy);
        assert_eq!(status, 200, "{body:#}");
        operation
    }

    /// Lifts it.
    #[track_caller]
    pub fn unfence(&self, namespace: &str, operation: &str) {
        let (status, body) = self.release(namespace, operation, &uuid());
        assert_eq!(status, 200, "{body:#}");
    }

    /// Any command, with the body as given.
    pub fn command(&self, namespace: &str, route: &str, body: &Value) -> (u16, Value) {
        self.admin("POST", &format!("/v1/namespaces/{namespace}/fence/{route}"), body)
    }
}

/// The key that proxies with a settings file get.
const GIVEN_KEY: &str = "the-admin-key-of-the-tests\n";

/// A fresh UUID, for an operation or a command.
pub fn uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the proxy on port {}:\n{}", self.port, self.log_tail());
        }
        if self.guard.is_none() {
            let _ = std::fs::remove_dir_all(Path::new(&self.dir));
        }
    }
}
