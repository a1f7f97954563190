//! Acceptance 20 of the fence contract on MariaDB and MySQL 9: the twin of `lifecycle_pg.rs`.
//!
//! What makes, drops, renames, fills or configures a fenced schema is refused from wherever it
//! comes, and a migration tool gets the fence's code and leaves nothing half done. The server's own
//! `information_schema` is the oracle. Control arm: without a fence each changes just that.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod acceptance_mysql;
mod support;

use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use acceptance::{applied, fail_after, force_after};
use acceptance_mysql::{MyLatch, MySite, code, on_both, thread};
use support::my_tools::MyTarget;
use support::proxy::uuid;
use support::talk::{Language, Talk};
use support::tools::{run, run_failing};
use support::{MyCluster, MyFlavour, MyOptions, MyWire, Proxy};

on_both!(
    acceptance_20_lifecycle_is_refused_in_every_state_that_denies_it,
    acceptance_20_other_schemas_and_accounts_can_be_made_and_dropped_meanwhile,
    acceptance_20_control_arm_without_a_fence_they_all_change_something,
    acceptance_20_the_servers_own_tools_get_the_fences_code,
    acceptance_20_alembic_is_refused_and_leaves_nothing,
    acceptance_20_of_a_migration_under_way_only_what_the_server_had_committed_stays,
);

/// A server of this suite's own, with more rights for `wire` and `app`, and a proxy before it.
fn own(flavour: MyFlavour) -> &'static (MyCluster, Proxy) {
    static MARIADB: OnceLock<(MyCluster, Proxy)> = OnceLock::new();
    static MYSQL: OnceLock<(MyCluster, Proxy)> = OnceLock::new();
    let shared = match flavour {
        MyFlavour::MariaDb => &MARIADB,
        MyFlavour::MySql => &MYSQL,
    };
    shared.get_or_init(|| another(flavour))
}

fn another(flavour: MyFlavour) -> (MyCluster, Proxy) {
    let cluster = MyCluster::start(flavour, MyOptions::default());
    for account in ["app", "wire"] {
        let grant = format!("GRANT ALL ON *.* TO {account}@'127.0.0.1' WITH GRANT OPTION");
        cluster.sql("mysql", &grant);
    }
    let proxy = Proxy::start_my(&cluster);
    (cluster, proxy)
}

/// A schema, another one beside it, and an account.
struct Place {
    site: MySite<'static>,
    other: String,
    account: String,
    /// A name that no schema has.
    new: String,
}

fn number() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    COUNT.fetch_add(1, Ordering::SeqCst)
}

impl Place {
    fn new(flavour: MyFlavour) -> Self {
        let (cluster, proxy) = own(flavour);
        Self::at(cluster, MySite::new(cluster, proxy))
    }

    fn at(cluster: &MyCluster, site: MySite<'static>) -> Self {
        let (number, other) = (number(), cluster.fresh_db());
        let account = format!("someone{number}@'127.0.0.1'");
        cluster.sql(&other, &format!("CREATE TABLE o (n int); CREATE USER {account}"));
        cluster.sql(&site.db, &format!("GRANT CREATE ON `{}`.* TO {account}", site.db));
        Self { site, other, account, new: format!("new{number}") }
    }

    fn text(&self, form: &str) -> String {
        form.replace("{db}", &self.site.db)
            .replace("{other}", &self.other)
            .replace("{new}", &self.new)
            .replace("{account}", &self.account)
    }

    /// What the server says of the schema, of what is in it, and of itself.
    fn oracle(&self) -> String {
        self.site.cluster.sql("mysql", &self.text(ORACLE))
    }

    fn target(&self) -> MyTarget<'static> {
        MyTarget {
            cluster: self.site.cluster,
            port: self.site.proxy.port(),
            client_tls: false,
            engine_tls: false,
        }
    }
}

const ORACLE: &str = "
SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA
 WHERE SCHEMA_NAME IN ('{db}', '{new}') ORDER BY 1;
SELECT TABLE_NAME, TABLE_TYPE, ENGINE, CREATE_OPTIONS, TABLE_COMMENT FROM information_schema.TABLES
 WHERE TABLE_SCHEMA = '{db}' ORDER BY 1;
SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COLUMN_DEFAULT FROM information_schema.COLUMNS
 WHERE TABLE_SCHEMA = '{db}' ORDER BY 1, ORDINAL_POSITION;
SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS
 WHERE TABLE_SCHEMA = '{db}' ORDER BY 1, 2, 3;
SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = '{db}' ORDER BY 1;
SELECT ROUTINE_NAME, SQL_DATA_ACCESS, ROUTINE_COMMENT FROM information_schema.ROUTINES
 WHERE ROUTINE_SCHEMA = '{db}' ORDER BY 1;
SELECT EVENT_NAME, STATUS FROM information_schema.EVENTS WHERE EVENT_SCHEMA = '{db}' ORDER BY 1;
SELECT GRANTEE, PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES
 WHERE TABLE_SCHEMA = '{db}' ORDER BY 1, 2;
SELECT GRANTEE, TABLE_NAME, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES
 WHERE TABLE_SCHEMA = '{db}' ORDER BY 1, 2, 3;
SELECT @@GLOBAL.max_connect_errors;
";

/// What a statement about the schema does when there is no fence.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    /// It changes what the oracle sees.
    Change,
    /// It doesn't: the server has its own reason against it, or it changes another schema.
    Nothing,
    /// As `Change`, on MariaDB; MySQL doesn't know it.
    MariaDb,
}

use Does::{Change, MariaDb, Nothing};

/// With the code that they are refused with.
const FORMS: &[(&str, &str, Does)] = &[
    ("DROP DATABASE {db}", "ZF007", Change),
    ("drop /* x */ schema if exists `{db}`", "ZF007", Change),
    ("CREATE DATABASE {db}", "ZF007", Nothing),
    ("CREATE SCHEMA IF NOT EXISTS {db} CHARACTER SET latin1", "ZF007", Nothing),
    ("CREATE OR REPLACE DATABASE {db}", "ZF007", MariaDb),
    ("ALTER DATABASE {db} CHARACTER SET ascii", "ZF007", Change),
    ("ALTER SCHEMA `{db}` COLLATE ascii_bin", "ZF007", Change),
    ("ALTER DATABASE {db} UPGRADE DATA DIRECTORY NAME", "ZF007", Nothing),
    ("SET GLOBAL max_connect_errors = 17", "ZF007", Change),
    ("RENAME TABLE {db}.t TO {other}.went", "ZF001", Change),
    ("RENAME TABLE {other}.o TO {db}.came", "ZF001", Change),
    ("RENAME TABLE {other}.o TO {other}.p, {db}.t TO {db}.u", "ZF001", Change),
    ("ALTER TABLE {db}.t RENAME TO {other}.went", "ZF001", Change),
    ("ALTER TABLE {other}.o RENAME {db}.came", "ZF001", Change),
    ("CREATE TABLE {db}.made LIKE {other}.o", "ZF001", Change),
    ("CREATE TABLE {db}.made AS SELECT * FROM {other}.o", "ZF001", Change),
    ("CREATE TABLE {other}.copy LIKE {db}.t", "ZF001", Nothing),
    ("CREATE TABLE {other}.copy AS SELECT * FROM {db}.t", "ZF001", Nothing),
    ("CREATE TABLE {db}.made (n int)", "ZF001", Change),
    ("DROP TABLE {other}.o, {db}.t", "ZF001", Change),
    ("ALTER TABLE {db}.t ADD COLUMN m int, ALGORITHM = INSTANT", "ZF001", Change),
    ("CREATE INDEX i ON {db}.t (n)", "ZF001", Change),
    ("CREATE VIEW {db}.v AS SELECT 1 AS one", "ZF001", Change),
    ("CREATE TRIGGER {db}.b BEFORE INSERT ON {db}.t FOR EACH ROW SET @x = 1", "ZF001", Change),
    ("CREATE PROCEDURE {db}.p() SELECT 1", "ZF001", Change),
    ("CREATE EVENT {db}.e ON SCHEDULE EVERY 1 YEAR DO SELECT 1", "ZF001", Change),
    ("GRANT SELECT ON {db}.* TO {account}", "ZF001", Change),
    ("GRANT SELECT ON `{db}`.t TO {account}", "ZF001", Change),
    ("REVOKE CREATE ON {db}.* FROM {account}", "ZF001", Change),
];

const COM_CREATE_DB: u8 = 5;
const COM_DROP_DB: u8 = 6;

fn refuses(place: &Place, client: &mut MyWire, what: &str) {
    for (form, wanted, _) in FORMS {
        let text = place.text(form);
        let answer = client.query(&text);
        let said = code(&answer);
        assert_eq!(said, *wanted, "VIOLATION: lifecycle: {what}: {text}: {answer:?}");
    }
    for command in [COM_CREATE_DB, COM_DROP_DB] {
        client.command(&[&[command], place.site.db.as_bytes()].concat());
        let answer = client.answer(&[]).unwrap();
        assert_eq!(code(&answer), "ZF007", "VIOLATION: lifecycle: {what}: {command}: {answer:?}");
    }
}

fn acceptance_20_lifecycle_is_refused_in_every_state_that_denies_it(flavour: MyFlavour) {
    let place = Place::new(flavour);
    let mut here = place.site.client();
    let mut elsewhere = MyWire::connect(place.site.proxy.port(), "wire", &place.other);
    let mut nowhere = MyWire::connect(place.site.proxy.port(), "wire", "");
    let before = place.oracle();
    let mut all = |state: &str| {
        assert_eq!(place.site.state(), state);
        refuses(&place, &mut here, &format!("{state}, from the schema itself"));
        refuses(&place, &mut elsewhere, &format!("{state}, from another one"));
        refuses(&place, &mut nowhere, &format!("{state}, without a default schema"));
        assert_eq!(place.oracle(), before, "VIOLATION: lifecycle: changed while {state}");
    };

    let latch = MyLatch::shut(&place.site);
    let mut writer = place.site.client();
    writer.begin_query(&format!("INSERT INTO t SELECT {}", latch.wait())).unwrap();
    place.site.wait_at_latch(thread(&writer));
    let operation = uuid();
    let body = place.site.acquire_body(&operation, &fail_after(0));
    acceptance::still_draining(&place.site.acquire(&body));
    all("SOURCE_DRAINING");
    latch.open();
    writer.answer(&[]).unwrap().ok();
    place.site.acquire_at_last(&place.site.acquire_body(&operation, &acceptance::patient()));
    all("SOURCE_WRITE_FENCED");
    place.site.fence_reads(&operation);
    all("SOURCE_READ_FENCED");
    place.site.unfence_reads(&operation);
    place.site.unfence(&operation);
    elsewhere.query(&place.text("ALTER DATABASE {db} CHARACTER SET ascii")).ok();
    assert_ne!(place.oracle(), before);
}

fn acceptance_20_other_schemas_and_accounts_can_be_made_and_dropped_meanwhile(flavour: MyFlavour) {
    let place = Place::new(flavour);
    let operation = place.site.fence();
    let mut client = MyWire::connect(place.site.proxy.port(), "wire", &place.other);
    for form in [
        "CREATE DATABASE {new}",
        "ALTER DATABASE {new} CHARACTER SET latin1",
        "CREATE TABLE {new}.made (n int)",
        "RENAME TABLE {new}.made TO {other}.made",
        "GRANT SELECT ON {new}.* TO {account}",
        "DROP DATABASE {new}",
        // Accounts belong to no schema.
        "CREATE USER {new}@'127.0.0.1'",
        "GRANT PROCESS ON *.* TO {new}@'127.0.0.1'",
        "DROP USER {new}@'127.0.0.1'",
    ] {
        client.query(&place.text(form)).ok();
    }
    let text = place.text("CREATE USER {new}@'127.0.0.1'");
    assert_eq!(code(&place.site.client().query(&text)), "ZF001");
    place.site.unfence(&operation);
}

/// Control arm: without a fence each of them passes, and changes what the oracle sees.
fn acceptance_20_control_arm_without_a_fence_they_all_change_something(flavour: MyFlavour) {
    let (cluster, proxy) = another(flavour);
    for (form, _, does) in FORMS {
        let site = MySite::new(&cluster, &proxy);
        let (number, other) = (number(), cluster.fresh_db());
        let account = format!("someone{number}@'127.0.0.1'");
        let text = |form: &str| {
            form.replace("{db}", &site.db)
                .replace("{other}", &other)
                .replace("{new}", "none")
                .replace("{account}", &account)
        };
        cluster.sql(&other, &format!("CREATE TABLE o (n int); CREATE USER {account}"));
        cluster.sql(&site.db, &text("GRANT CREATE ON `{db}`.* TO {account}"));
        let before = cluster.sql("mysql", &text(ORACLE));
        let mut client = MyWire::connect(proxy.port(), "wire", &other);
        let answer = client.query(&text(form));
        assert!(!code(&answer).starts_with("ZF"), "{form}: {answer:?}");
        let changes = match does {
            Change => true,
            Nothing => false,
            MariaDb => flavour == MyFlavour::MariaDb,
        };
        let changed = cluster.sql("mysql", &text(ORACLE)) != before;
        assert_eq!(changed, changes, "{form}: {answer:?}");
    }
}

/// The servers' own tools, with the ends of their names.
const TOOLS: &[(&str, &[&str])] = &[
    ("admin", &["--force", "drop", "{db}"]),
    ("admin", &["create", "{db}"]),
    ("check", &["--optimize", "{db}"]),
    ("check", &["--analyze", "{db}"]),
];

fn tool(place: &Place, end: &str, arguments: &[&str]) -> Command {
    let name = match place.site.cluster.flavour() {
        MyFlavour::MariaDb => format!("mariadb-{end}"),
        MyFlavour::MySql => format!("mysql{end}"),
    };
    let mut command = place.target().tool(&name);
    command.args(arguments.iter().map(|argument| place.text(argument)));
    command
}

fn acceptance_20_the_servers_own_tools_get_the_fences_code(flavour: MyFlavour) {
    let place = Place::new(flavour);
    place.site.sql("INSERT INTO t VALUES (1)");
    let before = place.oracle();
    let operation = place.site.fence();
    for (end, arguments) in TOOLS {
        // The checking tool reports a table's error as its answer, and ends well.
        let output = tool(&place, end, arguments).output().unwrap();
        let said = format!("{output:?}");
        assert!(said.contains("MIGRATION_WRITE_FENCED"), "{end} {arguments:?}: {said}");
        assert_eq!(place.oracle(), before, "VIOLATION: lifecycle: {end} {arguments:?}");
    }
    assert_eq!(place.site.rows(), "1");
    place.site.unfence(&operation);
    run(&mut tool(&place, TOOLS[2].0, TOOLS[2].1));
    run(&mut tool(&place, TOOLS[0].0, TOOLS[0].1));
    assert_ne!(place.oracle(), before);
}

// --- migration tools ---------------------------------------------------------------------------

fn alembic(place: &Place, way: &str) -> Command {
    let mut command =
        place.target().script(Language::Python, &place.site.db, "alembic_migrate.py", way);
    command.env("MIGRATE_URL", "mysql+pymysql");
    command
}

fn acceptance_20_alembic_is_refused_and_leaves_nothing(flavour: MyFlavour) {
    let place = Place::new(flavour);
    run(&mut alembic(&place, "first"));
    let before = place.oracle();
    let rows = || place.site.sql("SELECT * FROM item; SELECT * FROM alembic_version");
    let had = rows();
    let operation = place.site.fence();
    let said = run(&mut alembic(&place, "refused"));
    assert_eq!(said.trim(), "ZF001 ZF001", "up and down");
    assert_eq!((place.oracle(), rows()), (before.clone(), had), "VIOLATION: lifecycle: half done");
    place.site.unfence(&operation);
    run(&mut alembic(&place, "rest"));
    assert_ne!(place.oracle(), before);
    // Control arm: without a fence the script sees no refusal.
    let said = run_failing(&mut alembic(&place, "refused"));
    assert!(said.contains("expected"), "{said}");
}

/// The server commits each CREATE by itself: a fence can't take that back, and nothing is added.
fn acceptance_20_of_a_migration_under_way_only_what_the_server_had_committed_stays(
    flavour: MyFlavour,
) {
    let place = Place::new(flavour);
    run(&mut alembic(&place, "first"));
    let mut talk = Talk::start(alembic(&place, "slowly"));
    assert_eq!(talk.hear(), "half way");
    let body = place.site.acquire_body(&uuid(), &force_after(0));
    applied(&place.site.acquire(&body));
    let before = place.oracle();
    talk.go_on();
    assert_eq!(talk.hear(), "ZF009");
    assert!(talk.last_words().0);
    assert_eq!(place.oracle(), before, "VIOLATION: lifecycle: a table was made behind the fence");
    let sql = "SELECT version_num FROM alembic_version; SELECT count(*) FROM before_it";
    assert_eq!(place.site.sql(sql), "first\n0");
}
