//! Drivers and frameworks, unchanged, through the proxy: plaintext and TLS, passwords by SCRAM.
//!
//! Each has a script in `tests/drivers/` that runs in two ways. `work`: what the driver does all
//! day, without the proxy (which shows that the script is right) and through it. `fence`: a write
//! fence goes up around a connected driver; it must get ZF001 as its own kind of error, try nothing
//! again by itself, go on reading, and write again on the same connection afterwards. The control
//! arm raises no fence: then the script must fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod rust_driver;
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use acceptance::{PATIENCE, Site, metric};
use support::certs::{CertFiles, Certs};
use support::tools::Target;
use support::{Engine, PgCluster, Proxy, ProxyOptions, poll};

/// How a driver's script is started.
#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
}

/// The proxy that takes TLS from clients.
fn proxy() -> &'static Proxy {
    static PROXY: OnceLock<Proxy> = OnceLock::new();
    PROXY.get_or_init(|| {
        Proxy::start_with(ProxyOptions {
            engines: vec![Engine::plain("old", PgCluster::shared())],
            client_tls: "allow".into(),
            ..ProxyOptions::default()
        })
    })
}

fn direct(tls: bool) -> Target<'static> {
    let cluster = PgCluster::shared();
    Target { cluster, port: cluster.port(), client_tls: tls, engine_tls: tls }
}

fn proxied(tls: bool) -> Target<'static> {
    let (cluster, port) = (PgCluster::shared(), proxy().port());
    Target { cluster, port, client_tls: tls, engine_tls: false }
}

/// One module per driver.
macro_rules! driver {
    ($name:ident, $language:ident, $script:literal) => {
        mod $name {
            use crate::{direct, fenced, not_fenced, proxied, work};

            #[test]
            fn work_direct_plain() {
                work(&direct(false), crate::Language::$language, $script);
            }

            #[test]
            fn work_direct_tls() {
                work(&direct(true), crate::Language::$language, $script);
            }

            #[test]
            fn work_proxied_plain() {
                work(&proxied(false), crate::Language::$language, $script);
            }

            #[test]
            fn work_proxied_tls() {
                work(&proxied(true), crate::Language::$language, $script);
            }

            #[test]
            fn fence_plain() {
                fenced(&proxied(false), crate::Language::$language, $script);
            }

            #[test]
            fn fence_tls() {
                fenced(&proxied(true), crate::Language::$language, $script);
            }

            #[test]
            fn fence_control_arm() {
                not_fenced(&proxied(false), crate::Language::$language, $script);
            }
        }
    };
}

driver!(psycopg3, Python, "psycopg3_driver.py");
driver!(psycopg2, Python, "psycopg2_driver.py");
driver!(asyncpg, Python, "asyncpg_driver.py");
driver!(node_postgres, Node, "node_postgres.cjs");
driver!(postgres_js, Node, "postgres_js.cjs");
driver!(sqlalchemy, Python, "sqlalchemy_orm.py");
driver!(django, Python, "django_site/site_driver.py");

/// Where `tools/setup.sh` puts the drivers.
fn installed(part: &str) -> PathBuf {
    let given = std::env::var_os("FENCEWIRE_TOOLS_DIR").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    let tools = given.unwrap_or_else(|| home().join(".cache/fencewire-tools"));
    let path = tools.join("drivers").join(part);
    assert!(path.exists(), "{} is not there: run tools/setup.sh test", path.display());
    path
}

/// The authority's certificate as a file.
fn ca() -> &'static Path {
    static FILES: OnceLock<(tempfile::TempDir, CertFiles)> = OnceLock::new();
    let (_, files) = FILES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let files = Certs::shared().write(dir.path());
        (dir, files)
    });
    &files.ca
}

/// A driver's script, to be run in one of its ways.
fn script(target: &Target<'_>, db: &str, language: Language, file: &str, way: &str) -> Command {
    let program = match language {
        Language::Python => installed("python/bin/python"),
        Language::Node => PathBuf::from("node"),
    };
    let mut command = target.command(program, db);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers");
    command.arg(folder.join(file)).arg(way);
    command.env_remove("PGCHANNELBINDING").env("PYTHONDONTWRITEBYTECODE", "1");
    if target.client_tls {
        command.env("PGSSLMODE", "verify-full").env("PGSSLROOTCERT", ca());
    }
    match language {
        Language::Python => {}
        Language::Node => {
            command.env("NODE_PATH", installed("node/node_modules"));
        }
    }
    command
}

fn work(target: &Target<'_>, language: Language, file: &str) {
    let db = target.cluster.fresh_db();
    let mut talk = Talk::start(script(target, &db, language, file, "work"));
    assert_eq!(talk.hear(), "ok");
    assert!(talk.last_words().0);
}

/// A script that is being run, spoken to by lines.
struct Talk {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    errors: std::thread::JoinHandle<String>,
}

impl Talk {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let (sender, lines) = sync_channel(100);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map_or_else(|e| e.to_string(), |_| text)
        });
        Self { child, input, lines, errors }
    }

    /// The next line. Panics with the script's own words when none comes.
    #[track_caller]
    fn hear(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(e) => panic!("the script says nothing ({e}); it ended:\n{}", self.last_words().1),
        }
    }

    fn go_on(&mut self) {
        writeln!(self.input).unwrap();
    }

    /// The script's end, brought about when it doesn't come: success, and standard error.
    fn last_words(&mut self) -> (bool, String) {
        let ended = poll(PATIENCE, || self.child.try_wait().unwrap());
        if ended.is_none() {
            self.child.kill().unwrap();
        }
        let success = self.child.wait().unwrap().success();
        let errors = std::mem::replace(&mut self.errors, std::thread::spawn(String::new));
        (success && ended.is_some(), errors.join().unwrap())
    }
}

/// The count of denials is the whole proxy's: one fence test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many statements the proxy has refused for a write fence.
fn denials() -> u64 {
    let labels = "code=\"MIGRATION_WRITE_FENCED\",surface=\"pg\"";
    metric(proxy(), &format!("fencewire_fence_denials_total{{{labels}}}"))
}

fn fenced(target: &Target<'_>, language: Language, file: &str) {
    let _alone = alone();
    let site = Site::at(target.cluster, proxy(), &target.cluster.fresh_db());
    let mut talk = Talk::start(script(target, &site.db, language, file, "fence"));
    assert_eq!(talk.hear(), "ready");
    let operation = site.fence();
    let before = denials();
    talk.go_on();
    let tries: u64 = talk.hear().parse().unwrap();
    // A driver that tried again by itself would have been refused more often.
    assert_eq!(denials() - before, tries, "not one refusal for each of {tries} tries");
    assert!(tries >= 4, "only {tries} tries");
    site.unfence(&operation);
    talk.go_on();
    assert_eq!(talk.hear(), "ok");
    assert!(talk.last_words().0);
}

/// Control arm: without a fence the same script fails, and says what it had expected.
fn not_fenced(target: &Target<'_>, language: Language, file: &str) {
    let db = target.cluster.fresh_db();
    let mut talk = Talk::start(script(target, &db, language, file, "fence"));
    assert_eq!(talk.hear(), "ready");
    talk.go_on();
    let (success, errors) = talk.last_words();
    assert!(!success, "the script sees a fence where there is none");
    assert!(errors.contains("expected"), "it failed for another reason:\n{errors}");
}

mod tokio_postgres {
    use super::*;
    use rust_driver::{Fenced, Place, work};

    fn works(target: &Target<'_>) {
        let place = Place::new(target, &target.cluster.fresh_db(), ca());
        runtime().block_on(work(&place));
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn work_direct_plain() {
        works(&direct(false));
    }

    #[test]
    fn work_direct_tls() {
        works(&direct(true));
    }

    #[test]
    fn work_proxied_plain() {
        works(&proxied(false));
    }

    #[test]
    fn work_proxied_tls() {
        works(&proxied(true));
    }

    fn fences(target: &Target<'_>) {
        let _alone = alone();
        let site = Site::at(target.cluster, proxy(), &target.cluster.fresh_db());
        let runtime = runtime();
        let place = Place::new(target, &site.db, ca());
        let mut driver = runtime.block_on(Fenced::prepare(place));
        let operation = site.fence();
        let before = denials();
        let tries = runtime.block_on(driver.try_writes());
        assert_eq!(denials() - before, tries);
        site.unfence(&operation);
        runtime.block_on(driver.write());
    }

    #[test]
    fn fence_plain() {
        fences(&proxied(false));
    }

    #[test]
    fn fence_tls() {
        fences(&proxied(true));
    }

    #[test]
    #[should_panic(expected = "no error came")]
    fn fence_control_arm() {
        let target = proxied(false);
        let place = Place::new(&target, &target.cluster.fresh_db(), ca());
        let runtime = runtime();
        let mut driver = runtime.block_on(Fenced::prepare(place));
        runtime.block_on(driver.try_writes());
    }
}
