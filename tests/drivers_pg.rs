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

use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use acceptance::{Site, metric};
use support::certs::ca;
use support::talk::{Language, Talk};
use support::tools::Target;
use support::{Engine, PgCluster, Proxy, ProxyOptions};

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

/// A driver's script, to be run in one of its ways.
fn script(target: &Target<'_>, db: &str, language: Language, file: &str, way: &str) -> Command {
    let mut command = target.command(language.program(), db);
    language.script(&mut command, file, way);
    command.env_remove("PGCHANNELBINDING");
    if target.client_tls {
        command.env("PGSSLMODE", "verify-full").env("PGSSLROOTCERT", ca());
    }
    command
}

fn work(target: &Target<'_>, language: Language, file: &str) {
    let db = target.cluster.fresh_db();
    let mut talk = Talk::start(script(target, &db, language, file, "work"));
    assert_eq!(talk.hear(), "ok");
    assert!(talk.last_words().0);
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
