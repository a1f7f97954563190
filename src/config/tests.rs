//! Tests of the whole configuration: text in, values or report out.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::base::ids::{EngineName, Namespace};

/// A made-up machine: files by path, variables by name.
#[derive(Default)]
struct Fake {
    files: HashMap<String, Vec<u8>>,
    variables: HashMap<String, String>,
    /// Every file can be read, every variable is set, and holds this.
    any_file: Option<&'static str>,
}

impl Surroundings for Fake {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = self.files.get(path.to_str().unwrap()).cloned();
        let any = self.any_file.map(|text| text.as_bytes().to_vec());
        found.or(any).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        path.ends_with("open").then_some(0o644)
    }

    fn variable(&self, name: &str) -> Option<String> {
        let any = self.any_file.map(str::to_owned);
        self.variables.get(name).cloned().or(any)
    }

    fn host_name(&self) -> Option<String> {
        Some("host-1".to_owned())
    }
}

fn generous() -> Fake {
    Fake { any_file: Some("sesame-from-file\n"), ..Fake::default() }
}

fn load(text: &str, around: &Fake) -> Result<Config, ConfigError> {
    Config::from_text(Path::new("f.toml"), text, around)
}

fn problems(text: &str, around: &Fake) -> Vec<Problem> {
    match load(text, around).unwrap_err() {
        ConfigError::Invalid(problems) => problems.list,
        ConfigError::Unreadable { .. } => panic!("the text was given"),
    }
}

const SMALL: &str = r#"
[[engine]]
name = "old"
url = "postgres://fw:sesame@10.0.0.5:5432/postgres"

[[listen]]
protocol = "postgres"
address = "127.0.0.1:6432"
"#;

/// The documented file, every key present, without what is not available yet.
const FULL: &str = r#"
[proxy]
instance = "fw-1"
state_dir = "/var/lib/fencewire"
shutdown_grace_ms = 20000
max_sessions = 500
workers = 3

[log]
level = "info,fencewire::gate=debug"
format = "json"

[store]
url = "sqlite:///var/lib/fencewire/other.db"

[admin]
http = "127.0.0.1:6490"
key_file = "/etc/fencewire/admin.key"
adoption_key_file = "/etc/fencewire/adoption.key"
open_metrics = true
show_literals = true

[[engine]]
name = "old"
url = "postgres://fencewire@10.0.0.5:5432/postgres"
password_file = "/etc/fencewire/old.pw"
tls = "verify-full"
ca_file = "/etc/ssl/old-ca.pem"
connect_timeout_ms = 4000

[[engine]]
name = "new"
url = "postgres://fencewire:sesame@/control?host=/run/pg"

[[listen]]
protocol = "postgres"
address = "0.0.0.0:6432"
default_engine = "old"
auth = "passthrough"
tls = "allow"
cert_file = "/etc/fencewire/server.crt"
key_file = "/etc/fencewire/server.key"
client_ca_file = ""
proxy_protocol = false
auto_prepare = true

[[listen]]
protocol = "postgres"
address = "unix:/run/fencewire/.s.PGSQL.6432"

[[route]]
name = "app"
engine = "old"
database = "app_v1"

[[route]]
name = "plain"
engine = "new"

[fence]
enabled = true
write_drain_ms = 31000
read_drain_ms = 32000
in_flight = "refuse"
hold_ms = 1500
max_held = 7
sole_path = "require"
authority = "proxy"
engine_lock = "confirm"
trusted_functions = ["public.note_visit"]
receipt_retention_days = 60

[namespace."old/app_v1"]
write_drain_ms = 1000
in_flight = "finish"
hold_ms = 20

[compat.sqlstate]
ZF002 = "40001"
"#;

#[test]
fn the_full_example_arrives_value_by_value() {
    let config = load(FULL, &generous()).unwrap();
    assert_eq!(config.source.as_deref(), Some(Path::new("f.toml")));
    assert_eq!(config.proxy.instance, "fw-1");
    assert_eq!(config.proxy.shutdown_grace, Duration::from_secs(20));
    assert_eq!((config.proxy.max_sessions, config.proxy.workers.unwrap().get()), (500, 3));
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.store, Store::Sqlite("/var/lib/fencewire/other.db".into()));
    assert_eq!(config.admin.http.to_string(), "127.0.0.1:6490");
    assert_eq!(config.admin.key, KeySource::File("/etc/fencewire/admin.key".into()));
    assert!(config.admin.open_metrics && config.admin.show_literals);
    let old = &config.engines[0];
    assert_eq!(old.host, EngineHost::Tcp { host: "10.0.0.5".into(), port: 5432 });
    assert_eq!(old.password.as_ref().unwrap().expose(), "sesame-from-file");
    assert_eq!((old.tls, old.connect_timeout), (EngineTls::VerifyFull, Duration::from_secs(4)));
    let new = &config.engines[1];
    assert_eq!(new.host, EngineHost::Unix { path: "/run/pg".into(), port: 5432 });
    assert_eq!((new.database.as_str(), new.tls), ("control", EngineTls::Disable));
    let first = &config.listens[0];
    assert_eq!((first.tls, first.default_engine.as_str()), (ListenTls::Allow, "old"));
    assert!(first.certificate.as_ref().unwrap().client_ca_file.is_none());
    assert_eq!(config.listens[1].address.to_string(), "unix:/run/fencewire/.s.PGSQL.6432");
    assert_eq!(config.listens[1].tls, ListenTls::Disable);
    let routes: Vec<_> = config.routes.iter().map(|r| r.namespace.to_string()).collect();
    assert_eq!(routes, ["old/app_v1", "new/plain"]);
    assert_eq!(config.fence.receipt_retention_days, 60);
    assert_eq!(config.fence.trusted_functions, ["public.note_visit"]);
    assert_eq!(config.compat_sqlstate["ZF002"], "40001");
}

#[test]
fn a_namespace_overrides_only_what_it_names() {
    let config = load(FULL, &generous()).unwrap();
    let own = config.fence_for(&Namespace::parse("old/app_v1").unwrap());
    let other = config.fence_for(&Namespace::parse("new/plain").unwrap());
    assert_eq!((own.write_drain, own.in_flight), (Duration::from_secs(1), InFlight::Finish));
    assert_eq!((own.read_drain, own.max_held), (Duration::from_secs(32), 7));
    assert_eq!((own.hold, other.hold), (Duration::from_millis(20), Duration::from_millis(1500)));
    assert_eq!(*other, config.fence);
}

#[test]
fn a_small_file_gets_the_documented_defaults() {
    let config = load(SMALL, &Fake::default()).unwrap();
    assert_eq!(config.proxy.instance, "host-1");
    assert_eq!(config.proxy.max_sessions, 10_000);
    assert_eq!(config.proxy.workers, None);
    assert_eq!(config.proxy.shutdown_grace, Duration::from_secs(30));
    assert_eq!(config.store, Store::Sqlite("./fencewire-state/fence.db".into()));
    assert_eq!(config.admin.http.to_string(), ADMIN_HTTP);
    assert_eq!(config.admin.key, KeySource::Off);
    assert_eq!((config.log.filter.as_str(), config.log.format), ("info", LogFormat::Text));
    assert_eq!(config.engines[0].connect_timeout, Duration::from_secs(5));
    assert_eq!(config.engines[0].tls, EngineTls::Prefer);
    assert_eq!(config.listens[0].default_engine.as_str(), "old");
    let fence = &config.fence;
    assert_eq!((fence.write_drain, fence.hold), (Duration::from_secs(30), Duration::ZERO));
    assert_eq!((fence.sole_path, fence.engine_lock), (SolePath::Report, EngineLock::Hold));
    assert!(fence.enabled);
}

/// Each: lines put in the place of line 3 on of SMALL's `[[engine]]` or appended; expected line,
/// key and part of the message.
#[test]
fn each_bad_value_names_line_key_and_expectation() {
    let appended = [
        ("[proxy]\ninstance = \"\"", "proxy.instance", "1 to 63 visible"),
        ("[proxy]\nstate_dir = \"\"", "proxy.state_dir", "directory"),
        ("[proxy]\nshutdown_grace_ms = -1", "proxy.shutdown_grace_ms", "0 to 3600000 milli"),
        ("[proxy]\nmax_sessions = 0", "proxy.max_sessions", "1 to 1000000 sessions"),
        ("[proxy]\nworkers = 5000", "proxy.workers", "0 to 1024 threads"),
        ("[proxy]\nworkers = \"sesame\"", "proxy.workers", "whole number"),
        ("[proxy]\nworker = 1", "proxy.worker", "unknown field `worker`, expected"),
        ("[log]\nlevel = \"fencewire=loudly\"", "log.level", "write a level"),
        ("[log]\nformat = \"xml\"", "log.format", "\"text\" or \"json\", got \"xml\""),
        ("[store]\nurl = \"fence.db\"", "store.url", "sqlite:///"),
        ("[store]\nurl = \"postgres://u:sesame@h/d\"", "store.url", "not available yet"),
        ("[admin]\nhttp = \"6480\"", "admin.http", "host:port"),
        ("[admin]\nhttp = \"unix:/x\"", "admin.http", "host:port"),
        ("[admin]\npostgres = \"6481\"", "admin.postgres", "host:port"),
        ("[admin]\npostgres = \"unix:/x\"", "admin.postgres", "such as 127.0.0.1:6481"),
        ("[admin]\nmysql = \"h\"", "admin.mysql", "host:port"),
        ("[admin]\nmysql = \"unix:/x\"", "admin.mysql", "such as 127.0.0.1:6482"),
        ("[admin]\nmysql = \"127.0.0.1:6480\"", "admin.mysql", "address of its own"),
        ("[admin]\ntls_cert = \"x\"", "admin.tls_cert", "not available yet"),
        ("[admin]\nkey_file = \"/none\"", "admin.key_file", "readable file; /none"),
        ("[admin]\nkey_env = \"NONE\"", "admin.key_env", "variable that is set"),
        ("[admin]\nadoption_key_file = \"/none\"", "admin.adoption_key_file", "readable file"),
        ("[fence]\nwrite_drain_ms = 86400001", "fence.write_drain_ms", "0 to 86400000"),
        ("[fence]\nread_drain_ms = -5", "fence.read_drain_ms", "got -5"),
        ("[fence]\nin_flight = \"kill\"", "fence.in_flight", "\"finish\" or \"refuse\""),
        ("[fence]\nhold_ms = 600001", "fence.hold_ms", "0 to 600000"),
        ("[fence]\nmax_held = -1", "fence.max_held", "programs"),
        ("[fence]\nsole_path = \"no\"", "fence.sole_path", "\"report\" or \"require\""),
        ("[fence]\nauthority = \"engine\"", "fence.authority", "not available yet"),
        ("[fence]\nauthority = \"me\"", "fence.authority", "\"proxy\" or \"engine\""),
        ("[fence]\nengine_lock = \"yes\"", "fence.engine_lock", "\"confirm\" or \"off\""),
        ("[fence]\ntrusted_functions = [\"f\"]", "fence.trusted_functions", "full names"),
        ("[fence]\nreceipt_retention_days = 1", "fence.receipt_retention_days", "30 to"),
        ("[fence]\nenabled = 1", "fence.enabled", "true or false"),
        ("\n[namespace.\"app\"]", "namespace.\"app\"", "engine/database"),
        ("\n[namespace.\"new/app\"]", "namespace.\"new/app\"", "name of an [[engine]]"),
        ("[namespace.\"old/a\"]\nhold_ms = -2", "namespace.\"old/a\".hold_ms", "got -2"),
        ("[namespace.\"old/a\"]\nenabled = true", "namespace.\"old/a\".enabled", "in [fence]"),
        (
            "[namespace.\"old/a\"]\ntrusted_functions = []",
            "namespace.\"old/a\".trusted_functions",
            "in [fence]",
        ),
        ("[compat.sqlstate]\nZF2 = \"40001\"", "compat.sqlstate.ZF2", "ZF001"),
        ("[compat.sqlstate]\nZF002 = \"4000\"", "compat.sqlstate.ZF002", "five digits"),
        ("[compat.sqlstate]\nZF002 = \"00000\"", "compat.sqlstate.ZF002", "error class"),
        ("\n[nonsense]", "nonsense", "unknown field `nonsense`"),
        ("\nthis is not toml", "syntax", ""),
    ];
    let line = SMALL.lines().count() + 2;
    for (lines, key, message) in appended {
        let text = format!("{SMALL}{lines}\n");
        let found = problems(&text, &Fake::default());
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert_eq!(found[0].line, Some(line), "{lines}: {found:?}");
        assert_eq!(found[0].key, key, "{lines}: {found:?}");
        assert!(found[0].message.contains(message), "{lines}: {found:?}");
        assert!(!format!("{found:?}").contains("sesame"), "{lines}: {found:?}");
    }
}

#[test]
fn each_bad_peer_names_line_key_and_expectation() {
    let engine = "[[engine]]\nname = \"e2\"\nurl = \"postgres://u@h/d\"\n";
    let listen = "[[listen]]\nprotocol = \"postgres\"\naddress = \"h:1\"\n";
    let mysql = "[[listen]]\nprotocol = \"mysql\"\naddress = \"h:2\"\n";
    let route = "[[route]]\nname = \"r\"\nengine = \"old\"\n";
    let moved = "[[engine]]\nname = \"m\"\nurl = \"mysql://u:p@h/\"\n\
                 [[listen]]\nprotocol = \"mysql\"\naddress = \"h:2\"\ndefault_engine = \"m\"\n";
    let cases = [
        // (table, line to add or replace by key, key, message)
        (engine, "name = \"a b\"", "engine.name", "letters, digits"),
        (engine, "name = \"old\"", "engine.name", "used twice"),
        (engine, "url = \"postgres://x@10.0.0.5/d\"", "engine.url", "\"old\" has it"),
        (engine, "url = \"h:5432\"", "engine.url", "expected postgres://"),
        (engine, "password_file = \"/none\"", "engine.password_file", "/none can't be read"),
        (engine, "password_file = \"/two-lines\"", "engine.password_file", "one line"),
        (engine, "password_env = \"NONE\"", "engine.password_env", "that is set"),
        (engine, "tls = \"on\"", "engine.tls", "\"verify-ca\" or \"verify-full\""),
        (engine, "tls = \"verify-ca\"", "engine.tls", "expected a ca_file"),
        (engine, "ca_file = \"/two-lines\"", "engine.ca_file", "only with tls"),
        (engine, "ca_file = \"/none\"", "engine.ca_file", "readable file"),
        (engine, "connect_timeout_ms = 0", "engine.connect_timeout_ms", "1 to 600000"),
        (engine, "port = 1", "engine.port", "unknown field"),
        (listen, "protocol = \"http\"", "listen.protocol", "\"postgres\" or \"mysql\""),
        (listen, "address = \"x\"", "listen.address", "host:port"),
        (listen, "address = \"127.0.0.1:6432\"", "listen.address", "is taken"),
        (listen, "address = \"127.0.0.1:6480\"", "listen.address", "is taken"),
        (listen, "default_engine = \"new\"", "listen.default_engine", "got \"new\""),
        (mysql, "default_engine = \"old\"", "listen.default_engine", "that speaks mysql"),
        (listen, "auth = \"scram\"", "listen.auth", "not available yet"),
        (listen, "auth = \"password\"", "listen.auth", "not available yet"),
        (listen, "auth = \"trust\"", "listen.auth", "\"passthrough\""),
        (listen, "tls = \"require\"", "listen.tls", "cert_file and key_file"),
        (listen, "tls = \"prefer\"", "listen.tls", "\"allow\" or \"require\""),
        (listen, "key_file = \"/two-lines\"", "listen.key_file", "no effect"),
        (listen, "client_ca_file = \"/two-lines\"", "listen.client_ca_file", "no effect"),
        (listen, "proxy_protocol = true", "listen.proxy_protocol", "not available yet"),
        (moved, "auto_prepare = true", "listen.auto_prepare", "only PostgreSQL's"),
        (route, "name = \"\"", "route.name", "1 to 63"),
        (route, "name = \"old/app\"", "route.name", "reaches that namespace itself"),
        (route, "engine = \"new\"", "route.engine", "got \"new\""),
        (route, "database = \"\"", "route.database", "1 to 63 bytes"),
    ];
    let mut around = Fake::default();
    around.files.insert("/two-lines".into(), b"a\nb".to_vec());
    for (table, added, key, message) in cases {
        let name = format!("{} =", added.split_once(' ').unwrap().0);
        let kept: Vec<_> = table.lines().filter(|line| !line.starts_with(&name)).collect();
        let text = format!("{SMALL}{}\n{added}\n", kept.join("\n"));
        let found = problems(&text, &around);
        assert_eq!(found.len(), 1, "{added}: {found:?}");
        assert_eq!(found[0].line, Some(text.lines().count()), "{added}: {found:?}");
        assert_eq!(found[0].key, key, "{added}: {found:?}");
        assert!(found[0].message.contains(message), "{added}: {found:?}");
    }
}

#[test]
fn what_is_missing_points_at_its_table() {
    for (table, key) in [
        ("[[engine]]\nname = \"x\"", "engine.url"),
        ("[[listen]]\nprotocol = \"postgres\"", "listen.address"),
        ("[[listen]]\naddress = \"h:1\"", "listen.protocol"),
        ("[[route]]\nname = \"x\"", "route.engine"),
        ("[[route]]\nengine = \"old\"", "route.name"),
    ] {
        let text = format!("{SMALL}\n{table}\n");
        let found = problems(&text, &Fake::default());
        assert_eq!(found.len(), 1, "{table}: {found:?}");
        assert_eq!((found[0].line, found[0].key.as_str()), (Some(10), key), "{found:?}");
    }
    let keys: Vec<_> = problems("", &Fake::default()).into_iter().map(|p| p.key).collect();
    assert_eq!(keys, ["engine", "listen"]);
}

#[test]
fn all_problems_come_at_once_in_line_order() {
    let text = "[fence]\nin_flight = \"x\"\nhold_ms = -5\n[proxy]\nworkers = -1\n\
                [[listen]]\nprotocol = \"mssql\"\naddress = \"h:1\"\nauth = \"scram\"\n\
                [[engine]]\nname = \"e\"\nurl = \"mssql://u:sesame@h/\"\n";
    let error = load(text, &Fake::default()).unwrap_err();
    let shown = error.to_string();
    let lines: Vec<_> = shown.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        lines,
        ["f.toml:2", "f.toml:3", "f.toml:5", "f.toml:7", "f.toml:9", "f.toml:12"],
        "{shown}"
    );
    assert!(!shown.contains("sesame"), "{shown}");
}

#[test]
fn passwords_come_from_one_place_and_never_show() {
    let with = |lines: &str| {
        let url = "postgres://fw@10.0.0.5/postgres";
        let old = "postgres://fw:sesame@10.0.0.5:5432/postgres";
        SMALL.replace(&format!("url = \"{old}\""), &format!("url = \"{url}\"\n{lines}"))
    };
    let mut around = Fake::default();
    around.files.insert("/pw".into(), b"sesame\r\n".to_vec());
    around.variables.insert("PW".into(), "sesame".into());
    for text in [SMALL.to_owned(), with("password_file = \"/pw\""), with("password_env = \"PW\"")] {
        let config = load(&text, &around).unwrap();
        assert_eq!(config.engines[0].password.as_ref().unwrap().expose(), "sesame");
        assert!(!format!("{config:?}").contains("sesame"), "{config:?}");
        assert!(!format!("{config:#?}").contains("sesame"));
    }
    assert!(load(&with(""), &around).unwrap().engines[0].password.is_none());
    let both = format!("{}\n", with("password_file = \"/pw\"\npassword_env = \"PW\""));
    let found = problems(&both, &around);
    assert!(found[0].message.contains("one place only"), "{found:?}");
    let also_url = SMALL.replace("name = \"old\"", "name = \"old\"\npassword_file = \"/pw\"");
    let found = problems(&also_url, &around);
    assert!(found[0].message.contains("one place only"), "{found:?}");
    assert!(!format!("{found:?}").contains("sesame"), "{found:?}");
}

#[test]
fn a_password_in_a_wrong_place_is_not_repeated() {
    for text in [
        "[[engine]]\nconnect_timeout_ms = \"sesame\"\n",
        "[[engine]]\nurl = \"postgres://u:sesame\n",
        "[[engine]]\nurl = \"postgres://u:sesame@h:x/d\"\n",
        "engine = \"postgres://u:sesame@h/d\"\n",
        "[admin]\nopen_metrics = \"sesame\"\n",
    ] {
        let shown = load(text, &Fake::default()).unwrap_err().to_string();
        assert!(!shown.contains("sesame"), "{shown}");
    }
}

#[test]
fn flags_alone_make_a_configuration() {
    let mut flags = Flags {
        listen: vec!["postgres://127.0.0.1:6432".into()],
        engine: vec![
            "postgres://fw:se=same@127.0.0.1:5432/postgres".into(),
            "new=postgres://fw@h/d?sslmode=require".into(),
        ],
        ..Flags::default()
    };
    let config = Config::from_flags(&flags, &Fake::default()).unwrap();
    let names: Vec<_> = config.engines.iter().map(|engine| engine.name.as_str()).collect();
    assert_eq!(names, ["postgres", "new"]);
    assert_eq!(config.engines[0].password.as_ref().unwrap().expose(), "se=same");
    assert_eq!(config.engines[1].tls, EngineTls::Require);
    assert_eq!(config.listens[0].default_engine.as_str(), "postgres");
    assert_eq!(config.admin.key, KeySource::Generated);
    assert_eq!(config.store, Store::Sqlite("./fencewire-state/fence.db".into()));
    let mut around = Fake::default();
    around.variables.insert(ADMIN_KEY_VARIABLE.into(), "k".into());
    let config = Config::from_flags(&flags, &around).unwrap();
    assert_eq!(config.admin.key, KeySource::Variable(ADMIN_KEY_VARIABLE.into()));

    let report =
        |flags: &Flags| Config::from_flags(flags, &Fake::default()).unwrap_err().to_string();
    flags.engine.push("mssql://fw:sesame@h/".into());
    let shown = report(&flags);
    assert!(shown.contains("--engine: expected postgres://"), "{shown}");
    assert!(!shown.contains("sesame"), "{shown}");
    flags.listen = vec!["127.0.0.1:6432".into()];
    assert!(report(&flags).starts_with("command line: --listen: expected postgres://"));
    let shown = report(&Flags::default());
    assert!(shown.contains("--engine: expected at least one"), "{shown}");
}

#[test]
fn each_listener_gets_the_first_engine_of_its_protocol() {
    let flags = Flags {
        listen: vec!["postgres://127.0.0.1:6432".into(), "mysql://127.0.0.1:6433".into()],
        engine: vec!["postgres://fw@10.0.0.5/".into(), "mariadb://fw@10.0.0.6/".into()],
        ..Flags::default()
    };
    let config = Config::from_flags(&flags, &Fake::default()).unwrap();
    let engines: Vec<_> = config.listens.iter().map(|l| l.default_engine.as_str()).collect();
    assert_eq!(engines, ["postgres", "mysql"]);
    assert_eq!(config.engines[1].protocol, Protocol::Mysql);
    assert_eq!(config.engines[1].database, "");
    let host = EngineHost::Tcp { host: "10.0.0.6".into(), port: 3306 };
    assert_eq!(config.engines[1].host, host);
    let alone = Flags { engine: vec!["postgres://fw@10.0.0.5/".into()], ..flags };
    let shown = Config::from_flags(&alone, &Fake::default()).unwrap_err().to_string();
    assert!(shown.contains("expected an engine that speaks mysql, and"), "{shown}");
    assert!(shown.contains("speaks postgres; one of the two has the wrong scheme"), "{shown}");
}

#[test]
fn an_unreadable_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.toml");
    let shown = Config::from_file(&absent).unwrap_err().to_string();
    assert!(shown.contains("absent.toml") && shown.contains("can't be read"), "{shown}");
    let path = folder.path().join("f.toml");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(Config::from_file(&path).unwrap_err().to_string().contains("UTF-8"));
    let big = vec![b'#'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
    std::fs::write(&path, big).unwrap();
    assert!(Config::from_file(&path).unwrap_err().to_string().contains("larger than"));
    std::fs::write(&path, SMALL).unwrap();
    assert_eq!(Config::from_file(&path).unwrap().engines.len(), 1);
}

/// Every example file must load, on any machine: files they name count as present.
#[test]
fn the_example_files_load() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let around = generous();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|ext| ext == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            if let Err(error) = Config::from_text(&path, &text, &around) {
                panic!("{error}");
            }
        }
    }
}

fn changed(edit: impl Fn(&str) -> String) -> Result<Changes, Vec<NeedsRestart>> {
    let old = load(FULL, &generous()).unwrap();
    let text = edit(FULL);
    assert_ne!(text, FULL, "the edit must change something");
    Config::live_difference(&old, &load(&text, &generous()).unwrap())
}

#[test]
fn nothing_changed_still_reads_certificates_again() {
    let config = load(FULL, &generous()).unwrap();
    let changes = Config::live_difference(&config, &config).unwrap();
    assert_eq!(changes.certificates, [config.listens[0].address.clone()]);
    assert_eq!(changes.sentences().len(), 1);
}

#[test]
fn live_changes_are_named() {
    let added = "[[engine]]\nname = \"third\"\nurl = \"postgres://u@h/d\"\n[[route]]\n\
                 name = \"more\"\nengine = \"third\"\n";
    let changes = changed(|text| format!("{text}{added}")).unwrap();
    assert_eq!(changes.engines_added, [EngineName::new("third").unwrap()]);
    assert_eq!(changes.routes_set[0].namespace.to_string(), "third/more");
    let changes = changed(|text| text.replace("name = \"plain\"", "name = \"flat\"")).unwrap();
    assert_eq!(changes.routes_removed, ["plain"]);
    assert_eq!(changes.routes_set[0].name, "flat");
    let changes = changed(|text| text.replace("server.crt", "renewed.crt")).unwrap();
    assert_eq!(changes.certificates.len(), 1);
    let changes = changed(|text| text.replace("write_drain_ms = 31000", "")).unwrap();
    assert!(changes.fence_defaults && changes.namespaces.is_empty(), "{changes:?}");
    let changes = changed(|text| text.replace("write_drain_ms = 1000", "")).unwrap();
    assert!(!changes.fence_defaults);
    assert_eq!(changes.namespaces, [Namespace::parse("old/app_v1").unwrap()]);
}

#[test]
fn everything_else_needs_a_restart_and_says_so() {
    let edits: [(&str, &str, &str); 13] = [
        ("fw-1", "fw-2", "proxy"),
        ("workers = 3", "workers = 4", "proxy"),
        ("json", "text", "log"),
        ("other.db", "third.db", "store"),
        ("6490", "6491", "admin"),
        ("40001", "40P01", "compat"),
        ("enabled = true", "enabled = false", "fence.enabled"),
        ("\"public.note_visit\"", "", "fence.trusted_functions"),
        ("10.0.0.5", "10.0.0.6", "engine"),
        (":sesame@", ":other@", "engine"),
        ("0.0.0.0:6432", "0.0.0.0:6433", "listen"),
        ("tls = \"allow\"", "tls = \"require\"", "listen"),
        ("default_engine = \"old\"", "default_engine = \"new\"", "listen"),
    ];
    for (from, to, key) in edits {
        let refused = changed(|text| text.replacen(from, to, 1)).unwrap_err();
        assert!(refused.iter().all(|r| r.key == key), "{from}: {refused:?}");
        let restart = |r: &NeedsRestart| r.sentence.contains("restart it, or take the change back");
        assert!(refused.iter().all(restart), "{refused:?}");
        assert!(!format!("{refused:?}").contains("sesame"));
    }
}

/// The engine can't know how the client came to the proxy.
#[test]
fn a_listener_without_tls_in_front_of_an_engine_with_it_is_noticed() {
    let text = |listen: &str, engine: &str| {
        format!(
            "[[engine]]\nname = \"old\"\nurl = \"mysql://fw:s@10.0.0.5:3306\"\ntls = \"{engine}\"\n\
             [[listen]]\nprotocol = \"mysql\"\naddress = \"127.0.0.1:6033\"\ntls = \"{listen}\"\n\
             cert_file = \"/c\"\nkey_file = \"/k\"\n"
        )
    };
    let notices = |listen, engine| load(&text(listen, engine), &generous()).unwrap().notices();
    let found = notices("allow", "prefer");
    assert!(found.len() == 1 && found[0].contains("127.0.0.1:6033"), "{found:?}");
    assert!(found[0].contains("REQUIRE SSL"), "{found:?}");
    assert!(notices("require", "require").is_empty());
    assert!(notices("allow", "disable").is_empty());
    assert!(load(SMALL, &generous()).unwrap().notices().is_empty());
}

#[test]
fn secrets_that_others_can_read_are_noticed_and_accepted() {
    let text = |key: &str, password: &str| {
        format!(
            "[admin]\nkey_file = \"/etc/{key}\"\nadoption_key_file = \"/etc/a\"\n\
             [[engine]]\nname = \"old\"\nurl = \"postgres://fw@10.0.0.5/postgres\"\n\
             password_file = \"/etc/{password}\"\n\
             [[listen]]\nprotocol = \"postgres\"\naddress = \"127.0.0.1:6432\"\n"
        )
    };
    let notices = |key, password| load(&text(key, password), &generous()).unwrap().notices();
    assert_eq!(notices("k", "p"), Vec::<String>::new());
    let found = notices("open", "p");
    assert!(found.len() == 1 && found[0].starts_with("admin.key_file: /etc/open is"), "{found:?}");
    assert!(found[0].contains("mode 0644") && found[0].contains("chmod 600"), "{found:?}");
    assert!(notices("k", "open")[0].starts_with("engine.password_file: "));
}

/// On the command line nobody is asked for a setting that only a file can have.
#[test]
fn the_first_of_two_engines_on_the_command_line_is_taken_and_told() {
    let flags = |engines: &[&str]| Flags {
        listen: vec!["postgres://127.0.0.1:6432".into()],
        engine: engines.iter().map(|engine| (*engine).to_owned()).collect(),
        ..Flags::default()
    };
    let both = ["old=postgres://fw@10.0.0.5/", "new=postgres://fw@10.0.0.6/"];
    let config = Config::from_flags(&flags(&both), &Fake::default()).unwrap();
    assert_eq!(config.listens[0].default_engine.as_str(), "old");
    let found = config.notices();
    assert!(found.len() == 1 && found[0].starts_with("--engine: old and new"), "{found:?}");
    assert!(found[0].contains("go to old") && found[0].contains("new/database"), "{found:?}");
    assert!(!found[0].contains("default_engine"), "{found:?}");
}

#[test]
fn the_first_of_two_engines_is_taken_and_told() {
    let text = |more: &str| {
        format!(
            "[[engine]]\nname = \"old\"\nurl = \"postgres://fw:s@10.0.0.5/postgres\"\n\
             [[engine]]\nname = \"new\"\nurl = \"postgres://fw:s@10.0.0.6/postgres\"\n\
             [[listen]]\nprotocol = \"postgres\"\naddress = \"127.0.0.1:6432\"\n{more}"
        )
    };
    let silent = load(&text(""), &generous()).unwrap();
    assert_eq!(silent.listens[0].default_engine.as_str(), "old");
    let found = silent.notices();
    assert!(found.len() == 1 && found[0].contains("127.0.0.1:6432"), "{found:?}");
    assert!(found[0].contains("old and new") && found[0].contains("go to old"), "{found:?}");
    let said = load(&text("default_engine = \"old\"\n"), &generous()).unwrap();
    assert_eq!(said.notices(), Vec::<String>::new());
}
