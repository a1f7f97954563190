//! MySQL's drivers, unchanged, through the proxy, to MariaDB and to MySQL: plaintext and TLS on
//! either side (W22, W24, W25).
//!
//! Each has a script in `tests/drivers/` that runs in two ways. `work`: what the driver does all
//! day, without the proxy (which shows that the script is right) and through it. `fence`: a write
//! fence goes up around a connected driver; it must get error 9701, SQLSTATE ZF001, as its own kind
//! of error, try nothing again by itself, keep its session and its transaction, go on reading, and
//! write again on the same connection afterwards. What was refused is in no log of the engine's
//! and counted once by the proxy (acceptance 19); under the same fence other failures keep their
//! own numbers (1045, 1049, 1205, 2006 or 2013 for a lost connection). The control arm raises no
//! fence: then the script must fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod my_rust_driver;
mod support;

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use acceptance::{PATIENCE, applied, fail_after, metric};
use my_rust_driver::{Fenced, Place};
use serde_json::Value;
use support::my_tools::MyTarget;
use support::proxy::uuid;
use support::talk::{Language, Talk};
use support::{Engine, MyCluster, MyFlavour, MyOptions, Proxy, ProxyOptions, poll};

/// What a proxy is for. Each purpose has its own: while any schema of an engine is fenced, a CALL
/// in another one may be refused too, because nobody can say what it reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Work,
    Fences,
}

/// The server that a purpose's proxies lead to. Where fences are, it logs whatever reaches it.
fn cluster(purpose: Purpose, flavour: MyFlavour) -> &'static MyCluster {
    static LOGGING: [OnceLock<MyCluster>; 2] = [const { OnceLock::new() }; 2];
    if purpose == Purpose::Work {
        return MyCluster::shared(flavour);
    }
    LOGGING[usize::from(flavour == MyFlavour::MySql)].get_or_init(|| {
        let log = [("general_log", "ON"), ("log_output", "TABLE")];
        let settings = log.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        MyCluster::start(flavour, MyOptions { tls: true, settings, ..MyOptions::default() })
    })
}

/// The proxy that takes TLS from clients and speaks to a flavour's server in plaintext or with TLS.
fn proxy(purpose: Purpose, flavour: MyFlavour, engine_tls: bool) -> &'static Proxy {
    static PROXIES: [OnceLock<Proxy>; 8] = [const { OnceLock::new() }; 8];
    let bits = [engine_tls, flavour == MyFlavour::MySql, purpose == Purpose::Fences];
    let at = bits.iter().rev().fold(0, |sum, bit| 2 * sum + usize::from(*bit));
    PROXIES[at].get_or_init(|| {
        let mode = if engine_tls { "verify-full" } else { "disable" };
        Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_tls("old", cluster(purpose, flavour), mode)],
            client_tls: "allow".into(),
            ..ProxyOptions::default()
        })
    })
}

fn direct(flavour: MyFlavour, tls: bool) -> MyTarget<'static> {
    let cluster = MyCluster::shared(flavour);
    MyTarget { cluster, port: cluster.port(), client_tls: tls, engine_tls: tls }
}

fn proxied(flavour: MyFlavour, client_tls: bool, engine_tls: bool) -> MyTarget<'static> {
    behind(Purpose::Work, flavour, client_tls, engine_tls)
}

fn behind(
    purpose: Purpose,
    flavour: MyFlavour,
    client_tls: bool,
    engine_tls: bool,
) -> MyTarget<'static> {
    let port = proxy(purpose, flavour, engine_tls).port();
    MyTarget { cluster: cluster(purpose, flavour), port, client_tls, engine_tls }
}

/// What one driver does in its two ways, and what it says when there is no fence to be seen.
trait Driver {
    fn work(target: &MyTarget<'_>);
    fn fenced(target: &MyTarget<'_>);
    fn not_fenced(target: &MyTarget<'_>);
}

/// One module per driver and flavour.
macro_rules! on {
    ($driver:ty, $module:ident, $flavour:ident) => {
        mod $module {
            use super::*;

            const FLAVOUR: MyFlavour = MyFlavour::$flavour;

            #[test]
            fn work_direct_plain() {
                <$driver>::work(&direct(FLAVOUR, false));
            }

            #[test]
            fn work_direct_tls() {
                <$driver>::work(&direct(FLAVOUR, true));
            }

            #[test]
            fn work_proxied_plain() {
                <$driver>::work(&proxied(FLAVOUR, false, false));
            }

            #[test]
            fn work_proxied_client_tls() {
                <$driver>::work(&proxied(FLAVOUR, true, false));
            }

            #[test]
            fn work_proxied_engine_tls() {
                <$driver>::work(&proxied(FLAVOUR, false, true));
            }

            #[test]
            fn work_proxied_tls_on_both_sides() {
                <$driver>::work(&proxied(FLAVOUR, true, true));
            }

            #[test]
            fn fence_plain() {
                <$driver>::fenced(&behind(Purpose::Fences, FLAVOUR, false, false));
            }

            #[test]
            fn fence_tls() {
                <$driver>::fenced(&behind(Purpose::Fences, FLAVOUR, true, true));
            }

            #[test]
            fn fence_control_arm() {
                <$driver>::not_fenced(&proxied(FLAVOUR, false, false));
            }
        }
    };
}

/// A driver with a script, on both flavours.
macro_rules! script {
    ($name:ident, $language:ident, $file:literal) => {
        mod $name {
            use super::*;

            struct Script;

            impl Driver for Script {
                fn work(target: &MyTarget<'_>) {
                    script_works(target, Language::$language, $file);
                }

                fn fenced(target: &MyTarget<'_>) {
                    script_is_fenced(target, Language::$language, $file);
                }

                fn not_fenced(target: &MyTarget<'_>) {
                    script_is_not_fenced(target, Language::$language, $file);
                }
            }

            on!(Script, mariadb, MariaDb);
            on!(Script, mysql, MySql);
        }
    };
}

script!(pymysql, Python, "pymysql_driver.py");
script!(mysql_connector, Python, "mysql_connector.py");
script!(mysql2, Node, "mysql2_node.cjs");

fn script_works(target: &MyTarget<'_>, language: Language, file: &str) {
    let db = target.cluster.fresh_db();
    let mut talk = Talk::start(target.script(language, &db, file, "work"));
    assert_eq!(talk.hear(), "ok");
    assert!(talk.last_words().0);
}

/// The count of denials is the whole proxy's: one fence test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A database behind the target's proxy, and its fence.
struct Site {
    cluster: &'static MyCluster,
    proxy: &'static Proxy,
    db: String,
}

impl Site {
    fn new(target: &MyTarget<'_>) -> Self {
        let flavour = target.cluster.flavour();
        let proxy = proxy(Purpose::Fences, flavour, target.engine_tls);
        let cluster = cluster(Purpose::Fences, flavour);
        Self { cluster, proxy, db: cluster.fresh_db() }
    }

    /// Raises a write fence, which waits for what goes on; returns its operation.
    fn fence(&self) -> String {
        let (operation, namespace) = (uuid(), format!("old/{}", self.db));
        applied(&self.proxy.acquire(&namespace, &operation, &uuid(), &fail_after(60_000)));
        operation
    }

    fn unfence(&self, operation: &str) {
        let mut last = (0, Value::Null);
        let done = poll(PATIENCE, || {
            last = self.proxy.release(&format!("old/{}", self.db), operation, &uuid());
            (last.0 == 200).then_some(())
        });
        assert!(done.is_some(), "{:#}", last.1);
        applied(&last);
    }

    /// How many of the scripts' writes the engine has ever seen, prepared ones included.
    fn seen(&self) -> u64 {
        let sql = "SELECT COUNT(*) FROM mysql.general_log
            WHERE command_type IN ('Query', 'Prepare', 'Execute')
            AND CONVERT(argument USING utf8mb4) REGEXP '^(INSERT INTO|UPDATE|DELETE FROM) f '";
        self.cluster.sql("mysql", sql).parse().unwrap()
    }

    /// How many statements the proxy has refused for a write fence.
    fn denials(&self) -> u64 {
        let labels = "code=\"MIGRATION_WRITE_FENCED\",surface=\"mysql\"";
        metric(self.proxy, &format!("fencewire_fence_denials_total{{{labels}}}"))
    }
}

fn script_is_fenced(target: &MyTarget<'_>, language: Language, file: &str) {
    let _alone = alone();
    let site = Site::new(target);
    let mut talk = Talk::start(target.script(language, &site.db, file, "fence"));
    assert_eq!(talk.hear(), "ready");
    let operation = site.fence();
    let (before, seen) = (site.denials(), site.seen());
    talk.go_on();
    let tries: u64 = talk.hear().parse().unwrap();
    // A driver that tried again by itself would have been refused more often.
    assert_eq!(site.denials() - before, tries, "not one refusal for each of {tries} tries");
    assert!(tries >= 4, "only {tries} tries");
    assert_eq!(site.seen(), seen, "a refused statement reached the engine");
    site.unfence(&operation);
    talk.go_on();
    assert_eq!(talk.hear(), "ok");
    assert!(talk.last_words().0);
    assert!(site.seen() > seen, "the log is one that would have shown it");
}

/// Control arm: without a fence the same script fails, and says what it had expected.
fn script_is_not_fenced(target: &MyTarget<'_>, language: Language, file: &str) {
    let db = target.cluster.fresh_db();
    let mut talk = Talk::start(target.script(language, &db, file, "fence"));
    assert_eq!(talk.hear(), "ready");
    talk.go_on();
    let (success, errors) = talk.last_words();
    assert!(!success, "the script sees a fence where there is none");
    assert!(errors.contains("expected"), "it failed for another reason:\n{errors}");
}

mod mysql_async {
    use super::*;

    struct InProcess;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Runs something that must end.
    fn run<T>(what: impl Future<Output = T>) -> T {
        let limit = PATIENCE + Duration::from_secs(60);
        let runtime = runtime();
        runtime.block_on(async { tokio::time::timeout(limit, what).await }).expect("no end")
    }

    impl Driver for InProcess {
        fn work(target: &MyTarget<'_>) {
            let place = Place::new(target, &target.cluster.fresh_db());
            run(my_rust_driver::work(&place));
        }

        fn fenced(target: &MyTarget<'_>) {
            let _alone = alone();
            let site = Site::new(target);
            let place = Place::new(target, &site.db);
            run(async {
                let mut driver = Fenced::prepare(place).await;
                let operation = site.fence();
                let (before, seen) = (site.denials(), site.seen());
                driver.other_errors().await;
                let tries = driver.try_writes().await.unwrap();
                assert_eq!(site.denials() - before, tries);
                assert_eq!(site.seen(), seen, "a refused statement reached the engine");
                site.unfence(&operation);
                driver.write().await;
                assert!(site.seen() > seen, "the log is one that would have shown it");
            });
        }

        fn not_fenced(target: &MyTarget<'_>) {
            let place = Place::new(target, &target.cluster.fresh_db());
            run(async {
                let mut driver = Fenced::prepare(place).await;
                assert_eq!(driver.try_writes().await, Err("no error came".to_owned()));
            });
        }
    }

    on!(InProcess, mariadb, MariaDb);
    on!(InProcess, mysql, MySql);
}
