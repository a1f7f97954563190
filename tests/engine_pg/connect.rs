//! Connections: TLS modes against a server that demands it, failures by family, reuse.

use std::path::PathBuf;
use std::time::Duration;

use fencewire::base::ids::Namespace;
use fencewire::base::secret::Secret;
use fencewire::engine::{CensusOutcome, EngineError, PgEngine, ProxyView, Settings};
use fencewire::tls::{ClientTls, TlsMode};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::cluster::{Pg, app, eventually};

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn with_tls(pg: &Pg, mode: TlsMode, ca_file: Option<PathBuf>) -> PgEngine {
    let tls = ClientTls { mode, ca_file };
    PgEngine::new(Settings { tls, ..pg.settings("postgres") }).unwrap()
}

#[tokio::test]
async fn tls_modes_mean_what_libpq_says() {
    let mut pg = Pg::start().await;
    let plain = with_tls(&pg, TlsMode::Require, None).check().await.unwrap_err();
    assert!(matches!(plain, EngineError::Unreachable { .. }), "{plain}");
    with_tls(&pg, TlsMode::Prefer, None).check().await.unwrap();

    pg.down("INT");
    let (ca, key) = (authority(), KeyPair::generate().unwrap());
    let names = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    pg.place("server.crt", &names.signed_by(&key, &ca).unwrap().pem());
    pg.place("server.key", &key.serialize_pem());
    pg.place("ca.pem", &ca.pem());
    pg.place("foreign.pem", &authority().pem());
    pg.place("pg_hba.conf", "local all all trust\nhostssl all all all scram-sha-256\n");
    pg.place("postgresql.auto.conf", "ssl = on\n");
    pg.up().await;
    let (good, foreign) = (pg.data().join("ca.pem"), pg.data().join("foreign.pem"));

    let refused = with_tls(&pg, TlsMode::Disable, None).check().await.unwrap_err();
    assert!(matches!(refused, EngineError::Denied { .. }), "{refused}");
    for (mode, ca_file, works) in [
        (TlsMode::Prefer, None, true),
        (TlsMode::Require, None, true),
        (TlsMode::Require, Some(&good), true),
        (TlsMode::Require, Some(&foreign), false),
        (TlsMode::VerifyCa, Some(&good), true),
        (TlsMode::VerifyCa, Some(&foreign), false),
        (TlsMode::VerifyFull, Some(&good), true),
        (TlsMode::VerifyFull, Some(&foreign), false),
        (TlsMode::VerifyFull, None, false),
    ] {
        let result = with_tls(&pg, mode, ca_file.cloned()).check().await;
        assert_eq!(result.is_ok(), works, "{mode:?} {ca_file:?}: {result:?}");
    }
    let localhost = |mode| {
        let tls = ClientTls { mode, ca_file: Some(good.clone()) };
        let host = "localhost".to_owned();
        PgEngine::new(Settings { host, tls, ..pg.settings("postgres") }).unwrap()
    };
    localhost(TlsMode::VerifyCa).check().await.unwrap();
    let wrong = localhost(TlsMode::VerifyFull).check().await.unwrap_err();
    assert!(wrong.to_string().contains("localhost"), "{wrong}");
}

#[tokio::test]
async fn failures_have_families_and_the_engines_words() {
    let mut pg = Pg::start().await;
    let password = Some(Secret::new("wrong".to_owned()));
    let denied = PgEngine::new(Settings { password, ..pg.settings("postgres") }).unwrap();
    let denied = denied.check().await.unwrap_err();
    assert!(matches!(denied, EngineError::Denied { .. }), "{denied}");
    assert!(denied.to_string().contains("28P01") && denied.to_string().contains("old"), "{denied}");

    let engine = PgEngine::new(pg.socket_settings()).unwrap();
    engine.check().await.unwrap();
    let absent = engine.identity("nowhere").await.unwrap_err();
    assert!(matches!(absent, EngineError::Unexpected { .. }), "{absent}");
    let foreign = engine.cutoff(&Namespace::parse("new/app").unwrap()).await.unwrap_err();
    assert!(foreign.to_string().contains("another engine"), "{foreign}");

    let hasty =
        Settings { statement_timeout: Duration::from_millis(200), ..pg.settings("postgres") };
    let hasty = PgEngine::new(hasty).unwrap();
    hasty.cutoff(&app()).await.unwrap();
    let client = pg.client("app").await;
    client.batch_execute("BEGIN; LOCK TABLE pg_database").await.unwrap();
    let late = hasty.cutoff(&app()).await.unwrap_err();
    assert!(matches!(late, EngineError::Timeout { .. }), "{late}");
    client.batch_execute("ROLLBACK").await.unwrap();

    pg.down("QUIT");
    eventually("it is unreachable", async || {
        matches!(engine.check().await, Err(EngineError::Unreachable { .. }))
    })
    .await;
    pg.up().await;
    engine.check().await.unwrap();
}

#[tokio::test]
async fn one_connection_per_database_is_reused_and_the_number_is_bounded() {
    let pg = Pg::start().await;
    let engine = pg.engine();
    let client = pg.client("app").await;
    let ours = async || -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencewire/test'";
        client.query_one(sql, &[]).await.unwrap().get(0)
    };
    let (one, two) = tokio::join!(engine.identity("app"), engine.identity("app"));
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(ours().await, 1);
    for number in 0..fencewire::base::limits::CONTROL_KEPT_MAX {
        let database = format!("d{number}");
        client.batch_execute(&format!("CREATE DATABASE {database}")).await.unwrap();
        engine.identity(&database).await.unwrap();
    }
    let most = i64::try_from(fencewire::base::limits::CONTROL_KEPT_MAX).unwrap();
    eventually("idle connections made room", async || ours().await <= most).await;
}

/// How often a text of identity's was parsed, and executed as it had been prepared.
fn parsed_and_executed(pg: &Pg) -> (usize, usize) {
    let log = pg.log();
    let text = "SELECT (SELECT system_identifier";
    let lines = log.lines().filter(|line| line.contains(text));
    let parsed = |line: &&str| line.contains(" parse ");
    let executed = |line: &&str| line.contains(" execute s");
    (lines.clone().filter(parsed).count(), lines.filter(executed).count())
}

#[tokio::test]
async fn a_question_is_parsed_as_it_is_and_once_more_to_be_kept() {
    let mut pg = Pg::start_with(&["log_min_duration_statement=0"]).await;
    let engine = pg.engine();
    for _ in 0..4 {
        engine.identity("app").await.unwrap();
    }
    assert_eq!(parsed_and_executed(&pg), (2, 3), "{}", pg.log());
    // The census has its own order, by what is known of each text: all of it is answered.
    let cutoff = engine.cutoff(&app()).await.unwrap();
    assert_eq!(cutoff.identity().engine_id, engine.identity("app").await.unwrap().engine_id);
    assert_eq!(parsed_and_executed(&pg), (2, 5));
    // What is kept goes with its connection.
    pg.down("INT");
    pg.up().await;
    eventually("it answers again", async || engine.identity("app").await.is_ok()).await;
    engine.identity("app").await.unwrap();
    assert_eq!(parsed_and_executed(&pg), (2, 1), "a new server has a log of its own");
}

#[tokio::test]
async fn a_right_that_is_taken_away_and_given_back_is_noticed_by_what_is_prepared() {
    let pg = Pg::start().await;
    let admin = pg.client("app").await;
    let role = "CREATE ROLE ctl LOGIN PASSWORD 'secret' IN ROLE pg_monitor";
    admin.batch_execute(role).await.unwrap();
    let engine = PgEngine::new(pg.settings("ctl")).unwrap();
    for _ in 0..2 {
        engine.identity("app").await.unwrap();
    }
    let rights = |word: &str, way: &str| {
        format!("{word} EXECUTE ON FUNCTION pg_control_system() {way} PUBLIC")
    };
    admin.batch_execute(&rights("REVOKE", "FROM")).await.unwrap();
    for _ in 0..3 {
        let denied = engine.identity("app").await.unwrap_err();
        assert!(matches!(denied, EngineError::Denied { .. }), "{denied}");
        // The questions behind it were answered; the next ones aren't any worse for it.
        assert!(engine.login_triggers("app").await.is_ok());
    }
    admin.batch_execute(&rights("GRANT", "TO")).await.unwrap();
    for _ in 0..3 {
        engine.identity("app").await.unwrap();
    }
}

/// What asks a census is never a stranger to it, however many others came and went.
#[tokio::test]
async fn a_connection_that_is_kept_stays_ours_behind_hundreds_of_others() {
    let pg = Pg::start().await;
    let engine = PgEngine::new(pg.settings("postgres")).unwrap();
    let cutoff = engine.cutoff(&app()).await.unwrap();
    for _ in 0..fencewire::base::limits::OWN_BACKENDS_MAX + 20 {
        eventually("it opens", async || engine.open_holder(&app()).await.is_ok()).await;
    }
    eventually("nobody is in the way", async || {
        let outcome = engine.census(&cutoff, &ProxyView::default()).await.unwrap();
        matches!(outcome, CensusOutcome::Clear(_))
    })
    .await;
}
