//! Acceptance 20 of the fence contract on PostgreSQL: what makes, drops, renames, copies or
//! configures a fenced database is refused from wherever it comes, and a migration tool that comes
//! to one gets the fence's code and leaves nothing half done.
//!
//! The engine is the oracle: what it says of the database's own row, its settings, its comment and
//! its tables must be the same before and after. Control arm: without a fence each of the same
//! statements and tools changes just that.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acceptance;
mod support;

use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use acceptance::{Latch, Site, applied, code, fail_after, still_draining};
use support::proxy::uuid;
use support::talk::{Language, Talk};
use support::tools::{Target, run, run_failing};
use support::wire::Answer;
use support::{Options, PgCluster, Proxy, Wire};

/// A cluster of this suite's own: its statements are about the whole server.
fn cluster() -> &'static PgCluster {
    static OWN: OnceLock<PgCluster> = OnceLock::new();
    OWN.get_or_init(own_cluster)
}

fn own_cluster() -> PgCluster {
    let settings = vec![("allow_in_place_tablespaces".to_owned(), "on".to_owned())];
    let cluster = PgCluster::start(Options { settings, ..Options::default() });
    cluster.sql("postgres", "ALTER ROLE app SUPERUSER; ALTER ROLE wire SUPERUSER");
    cluster.sql("postgres", "CREATE TABLESPACE elsewhere LOCATION ''");
    cluster
}

fn proxy() -> &'static Proxy {
    static OWN: OnceLock<Proxy> = OnceLock::new();
    OWN.get_or_init(|| Proxy::start(cluster()))
}

/// A database with an owner and a grantee of its own.
struct Place {
    site: Site<'static>,
    owner: String,
    grantee: String,
    /// A name that nothing has.
    new: String,
}

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let site = Site::new(cluster(), proxy());
        let (owner, grantee) = (format!("owner{number}"), format!("grantee{number}"));
        cluster().sql(
            "postgres",
            &format!(
                "CREATE ROLE {owner}; CREATE ROLE {grantee}; \
                 ALTER DATABASE {0} OWNER TO {owner}; GRANT TEMP ON DATABASE {0} TO {grantee}",
                site.db
            ),
        );
        Self { site, owner, grantee, new: format!("new{number}") }
    }

    fn text(&self, form: &str) -> String {
        form.replace("{db}", &self.site.db)
            .replace("{new}", &self.new)
            .replace("{owner}", &self.owner)
            .replace("{grantee}", &self.grantee)
    }

    /// What the engine says of the database, of what was made under the new name, and of itself.
    fn oracle(&self) -> String {
        cluster().sql("postgres", &self.text(ORACLE))
    }

    /// Its tables and their rows, as its own tools write them.
    fn dump(&self) -> String {
        let direct = Target {
            cluster: cluster(),
            port: cluster().port(),
            client_tls: false,
            engine_tls: false,
        };
        run(direct.tool("pg_dump", &self.site.db).args(["--no-owner", "--inserts"]))
            .lines()
            // Another one at each run.
            .filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

const ORACLE: &str = "
SELECT d.oid = (SELECT oid FROM pg_database WHERE datname = '{db}'), datname, r.rolname, t.spcname,
       datacl, datconnlimit, datallowconn, datistemplate,
       shobj_description(d.oid, 'pg_database')
  FROM pg_database d JOIN pg_roles r ON r.oid = datdba
  JOIN pg_tablespace t ON t.oid = dattablespace
 WHERE datname IN ('{db}', '{new}') ORDER BY datname;
SELECT coalesce(d.datname, '-'), coalesce(r.rolname, '-'), setconfig
  FROM pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = setdatabase
  LEFT JOIN pg_roles r ON r.oid = setrole
 WHERE d.datname IN ('{db}', '{new}') OR r.rolname IN ('{owner}', '{grantee}') ORDER BY 1, 2;
SELECT name, setting FROM pg_file_settings WHERE sourcefile LIKE '%.auto.conf'
   AND name = 'vacuum_cost_page_miss';
";

/// Where a statement about the database works when there is no fence.
#[derive(Clone, Copy, PartialEq)]
enum Works {
    /// From any session.
    Anywhere,
    /// From sessions of other databases.
    Elsewhere,
    /// Nowhere: the engine has its own reason against it. The fence's comes first.
    Nowhere,
}

use Works::{Anywhere, Elsewhere, Nowhere};

const FORMS: &[(&str, Works)] = &[
    ("DROP DATABASE {db}", Elsewhere),
    ("DROP DATABASE IF EXISTS {db} WITH (FORCE)", Elsewhere),
    ("drop /* x */ database \"{db}\" (force)", Elsewhere),
    ("CREATE DATABASE {db}", Nowhere),
    ("CREATE DATABASE {new} TEMPLATE {db}", Elsewhere),
    ("CREATE DATABASE {new} WITH OWNER {grantee} TEMPLATE = {db} STRATEGY = file_copy", Elsewhere),
    ("CREATE DATABASE {new} STRATEGY wal_log TEMPLATE '{db}'", Elsewhere),
    ("ALTER DATABASE {db} RENAME TO {new}", Elsewhere),
    ("ALTER DATABASE {db} SET TABLESPACE elsewhere", Elsewhere),
    ("ALTER DATABASE {db} SET work_mem = '5MB'", Anywhere),
    ("ALTER DATABASE {db} RESET ALL", Nowhere),
    ("ALTER DATABASE {db} OWNER TO {grantee}", Anywhere),
    ("ALTER DATABASE {db} CONNECTION LIMIT 7", Anywhere),
    ("ALTER DATABASE {db} WITH IS_TEMPLATE true", Anywhere),
    ("ALTER DATABASE {db} ALLOW_CONNECTIONS false", Elsewhere),
    ("DROP OWNED BY {grantee}", Anywhere),
    ("REASSIGN OWNED BY {owner} TO {grantee}", Anywhere),
    ("ALTER ROLE {owner} IN DATABASE {db} SET work_mem = '6MB'", Anywhere),
    ("ALTER ROLE ALL IN DATABASE {db} SET work_mem = '6MB'", Anywhere),
    ("ALTER USER {grantee} IN DATABASE {db} SET search_path TO 'other'", Anywhere),
    ("ALTER ROLE {owner} SET work_mem = '7MB'", Anywhere),
    ("GRANT CONNECT ON DATABASE {db} TO {grantee}", Anywhere),
    ("GRANT ALL ON DATABASE postgres, {db} TO {grantee} WITH GRANT OPTION", Anywhere),
    ("REVOKE ALL ON DATABASE {db} FROM PUBLIC", Anywhere),
    ("COMMENT ON DATABASE {db} IS 'said'", Anywhere),
    ("SECURITY LABEL ON DATABASE {db} IS 'said'", Nowhere),
    ("ALTER SYSTEM SET vacuum_cost_page_miss = 5", Anywhere),
];

/// A form may not run inside a transaction block: neither do these programs.
fn asks(client: &mut Wire, text: &str) -> [Answer; 3] {
    [client.query(text), client.extended(text, &[]), client.query(&format!("{text}; SELECT 1"))]
}

fn refuses(place: &Place, client: &mut Wire, what: &str) {
    for (form, _) in FORMS {
        let text = place.text(form);
        for answer in asks(client, &text) {
            let said = code(&answer);
            assert_eq!(said, "ZF007", "VIOLATION: lifecycle: {what}: {text}: {answer:?}");
        }
    }
    // In a transaction it is the transaction's error. Where reads are fenced none begins.
    if client.query("BEGIN").code().is_some() {
        return;
    }
    assert_eq!(code(&client.query(&place.text("COMMENT ON DATABASE {db} IS 'x'"))), "ZF007");
    assert_eq!(code(&client.query("SELECT 1")), "25P02");
    client.query("ROLLBACK").ok();
}

#[test]
fn acceptance_20_lifecycle_is_refused_in_every_state_that_denies_it() {
    let place = Place::new();
    let mut elsewhere = Wire::connect(proxy().port(), "wire", "postgres");
    let mut here = place.site.client();
    let before = place.oracle();
    let all = |here: &mut Wire, elsewhere: &mut Wire, state: &str| {
        assert_eq!(place.site.state(), state);
        refuses(&place, here, &format!("{state}, from the database itself"));
        refuses(&place, elsewhere, &format!("{state}, from another one"));
        assert_eq!(place.oracle(), before, "VIOLATION: lifecycle: changed while {state}");
    };

    let latch = Latch::shut(&place.site);
    let mut writer = place.site.client();
    let text = format!("INSERT INTO t SELECT 1 FROM {}", Latch::WAIT);
    writer.send(b'Q', &[text.as_bytes(), b"\0"].concat());
    place.site.wait_at_latch(writer.backend_pid());
    let operation = uuid();
    still_draining(&place.site.acquire(&place.site.acquire_body(&operation, &fail_after(0))));
    all(&mut here, &mut elsewhere, "SOURCE_DRAINING");
    latch.open();
    writer.until_ready().ok();

    let body = place.site.acquire_body(&operation, &acceptance::patient());
    place.site.acquire_at_last(&body);
    all(&mut here, &mut elsewhere, "SOURCE_WRITE_FENCED");
    place.site.fence_reads(&operation);
    all(&mut here, &mut elsewhere, "SOURCE_READ_FENCED");
    place.site.unfence_reads(&operation);
    place.site.unfence(&operation);
    elsewhere.query(&place.text("COMMENT ON DATABASE {db} IS 'open again'")).ok();
    assert_ne!(place.oracle(), before);
}

/// Databases beside the fenced one are nobody's business.
#[test]
fn acceptance_20_other_databases_can_be_made_and_dropped_meanwhile() {
    let place = Place::new();
    let operation = place.site.fence();
    let mut client = Wire::connect(proxy().port(), "wire", "postgres");
    for form in [
        "CREATE DATABASE {new}",
        "ALTER DATABASE {new} SET work_mem = '5MB'",
        "GRANT CONNECT ON DATABASE {new} TO {grantee}",
        "CREATE DATABASE {new}_copy TEMPLATE {new}",
        "DROP DATABASE {new}_copy",
        "DROP DATABASE {new}",
        // Roles belong to no database.
        "CREATE ROLE {new}",
        "DROP ROLE {new}",
    ] {
        client.query(&place.text(form)).ok();
    }
    assert_eq!(code(&place.site.client().query(&place.text("CREATE ROLE {new}"))), "ZF001");
    place.site.unfence(&operation);
}

/// Whoever reindexes a catalog of all databases waits for everybody who has it locked, and every
/// login waits behind: the fence's lock holder mustn't have one of them.
#[test]
fn acceptance_20_no_catalog_of_all_databases_is_locked_by_a_fence() {
    let (fenced, other) = (Place::new(), Place::new());
    let operation = fenced.site.fence();
    let shared = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                   JOIN pg_stat_activity a ON a.pid = l.pid
                  WHERE c.relisshared AND a.datname = '{db}'
                    AND a.application_name LIKE 'fencewire/%'";
    assert_eq!(cluster().sql("postgres", &fenced.text(shared)), "0");
    let mut reindex = through_proxy().tool("reindexdb", &other.site.db);
    run(reindex.env("PGOPTIONS", "-c lock_timeout=30s").arg(&other.site.db));
    fenced.site.unfence(&operation);
}

/// Control arm: without a fence each of them passes, and changes what the oracle sees.
#[test]
fn acceptance_20_control_arm_without_a_fence_they_all_change_something() {
    // A server-wide statement of this arm must not meet the fences of the others.
    let own = own_cluster();
    let its_proxy = Proxy::start(&own);
    let count = AtomicU32::new(1);
    for (form, works) in FORMS {
        // From the database itself the engine has its own reasons against some of them.
        for from_here in [true, false].into_iter().filter(|here| !here || *works == Anywhere) {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let (owner, grantee) = (format!("owner{number}"), format!("grantee{number}"));
            let (db, new) = (own.fresh_db(), format!("new{number}"));
            let text = |form: &str| {
                form.replace("{db}", &db)
                    .replace("{new}", &new)
                    .replace("{owner}", &owner)
                    .replace("{grantee}", &grantee)
            };
            let roles = "CREATE ROLE {owner}; CREATE ROLE {grantee}; ALTER DATABASE {db} OWNER TO \
                         {owner}; GRANT TEMP ON DATABASE {db} TO {grantee}";
            own.sql("postgres", &text(roles));
            let before = own.sql("postgres", &text(ORACLE));
            let from = if from_here { db.as_str() } else { "postgres" };
            let mut client = Wire::connect(its_proxy.port(), "wire", from);
            let answer = client.query(&text(form));
            let said = code(&answer);
            assert!(!said.starts_with("ZF"), "{form}: {answer:?}");
            let changes = *works != Nowhere;
            let changed = own.sql("postgres", &text(ORACLE)) != before;
            assert_eq!(changed, changes, "{form} from {from}: {answer:?}");
            if form.starts_with("ALTER SYSTEM") {
                own.sql("postgres", "ALTER SYSTEM RESET vacuum_cost_page_miss");
            }
        }
    }
}

fn through_proxy() -> Target<'static> {
    Target { cluster: cluster(), port: proxy().port(), client_tls: false, engine_tls: false }
}

/// PostgreSQL's own tools, and what they change.
const TOOLS: &[(&str, &[&str])] = &[
    ("dropdb", &["--maintenance-db=postgres", "{db}"]),
    ("dropdb", &["--maintenance-db=postgres", "--force", "{db}"]),
    ("createdb", &["--maintenance-db=postgres", "-T", "{db}", "{new}"]),
    ("vacuumdb", &["{db}"]),
    ("vacuumdb", &["--full", "--table=t", "{db}"]),
    ("vacuumdb", &["--analyze-only", "{db}"]),
    ("reindexdb", &["{db}"]),
    ("reindexdb", &["--concurrently", "--table=t", "{db}"]),
    ("clusterdb", &["{db}"]),
];

fn tool(place: &Place, program: &str, arguments: &[&str]) -> Command {
    let mut command = through_proxy().tool(program, &place.site.db);
    command.args(arguments.iter().map(|argument| place.text(argument)));
    command
}

#[test]
fn acceptance_20_the_engines_own_tools_get_the_fences_code() {
    let place = Place::new();
    place.site.sql("INSERT INTO t VALUES (1); CREATE INDEX i ON t (n); CLUSTER t USING i");
    // The file changes with VACUUM FULL, REINDEX and CLUSTER; the statistics with ANALYZE.
    let inside = |place: &Place| {
        place.site.sql(
            "SELECT relname, relfilenode, reltuples FROM pg_class
              WHERE relnamespace = 'public'::regnamespace ORDER BY 1",
        )
    };
    let (before, files) = (place.oracle(), inside(&place));
    let operation = place.site.fence();
    for (program, arguments) in TOOLS {
        let said = run_failing(&mut tool(&place, program, arguments));
        assert!(said.contains("MIGRATION_WRITE_FENCED"), "{program} {arguments:?}: {said}");
        let now = (place.oracle(), inside(&place));
        assert_eq!(now, (before.clone(), files.clone()), "VIOLATION: lifecycle: {program}");
    }
    place.site.unfence(&operation);
    // Control arm: where no fence was they work; the one that drops it last.
    let place = Place::new();
    place.site.sql("INSERT INTO t VALUES (1); CREATE INDEX i ON t (n); CLUSTER t USING i");
    let (before, files) = (place.oracle(), inside(&place));
    for (program, arguments) in TOOLS.iter().rev().filter(|(program, _)| *program != "dropdb") {
        run(&mut tool(&place, program, arguments));
    }
    let changed = (place.oracle() != before, inside(&place) != files);
    assert_eq!(changed, (true, true));
    run(&mut tool(&place, TOOLS[1].0, TOOLS[1].1));
    assert!(place.site.cluster.try_sql(&place.site.db, "SELECT 1").is_err());
}

// --- migration tools ---------------------------------------------------------------------------

/// A script of `tests/drivers/` that migrates, in one of its ways.
fn migration(db: &str, file: &str, way: &str) -> Command {
    let mut command = through_proxy().command(Language::Python.program(), db);
    Language::Python.script(&mut command, file, way);
    command.env("MIGRATE_URL", "postgresql+psycopg://");
    command
}

/// The first revision is there before the fence; the rest must be refused as a whole, and works
/// when the fence is down.
fn migrates(file: &str) {
    let place = Place::new();
    run(&mut migration(&place.site.db, file, "first"));
    let (oracle, dump) = (place.oracle(), place.dump());
    let operation = place.site.fence();
    let said = run(&mut migration(&place.site.db, file, "refused"));
    assert_eq!(said.trim(), "ZF001 ZF001", "up and down");
    assert_eq!(place.oracle(), oracle);
    assert_eq!(place.dump(), dump, "VIOLATION: lifecycle: a migration was half done");
    place.site.unfence(&operation);
    run(&mut migration(&place.site.db, file, "rest"));
    assert_ne!(place.dump(), dump);
    // Control arm: without a fence the script sees no refusal, and what it tried is done.
    let said = run_failing(&mut migration(&place.site.db, file, "refused"));
    assert!(said.contains("expected"), "{said}");
}

#[test]
fn acceptance_20_alembic_is_refused_and_leaves_nothing() {
    migrates("alembic_migrate.py");
}

#[test]
fn acceptance_20_django_is_refused_and_leaves_nothing() {
    migrates("django_site/migrate_driver.py");
}

/// A fence that comes while a migration runs: its transaction is waited for and is whole, or it is
/// rolled back and is nothing.
fn midway(policy: &serde_json::Value, whole: bool) {
    let place = Place::new();
    run(&mut migration(&place.site.db, "alembic_migrate.py", "first"));
    let dump = place.dump();
    let mut talk = Talk::start(migration(&place.site.db, "alembic_migrate.py", "slowly"));
    assert_eq!(talk.hear(), "half way");
    let operation = uuid();
    let body = place.site.acquire_body(&operation, policy);
    let answer = std::thread::scope(|scope| {
        let acquired = scope.spawn(|| place.site.acquire(&body));
        place.site.wait("the drain", acceptance::draining);
        if whole {
            talk.go_on();
        }
        acquired.join().unwrap()
    });
    applied(&answer);
    if !whole {
        talk.go_on();
    }
    let said = talk.hear();
    assert_eq!(said, if whole { "done" } else { "ZF009" });
    assert!(talk.last_words().0);
    let revision = place.site.sql("SELECT version_num FROM alembic_version");
    assert_eq!(revision, if whole { "slow" } else { "first" });
    assert_eq!(place.dump() != dump, whole, "VIOLATION: lifecycle: a migration was half done");
    place.site.unfence(&operation);
}

#[test]
fn acceptance_20_a_migration_under_way_is_waited_for_and_whole() {
    midway(&acceptance::patient(), true);
}

#[test]
fn acceptance_20_a_migration_under_way_is_rolled_back_and_nothing() {
    midway(&acceptance::force_after(0), false);
}
