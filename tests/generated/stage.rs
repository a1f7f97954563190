//! Where cases are played: a database, a proxy, and what the engine says of it.
//!
//! Every case is played twice by the same messages: first with no fence, which shows whether it
//! changes anything at all and takes the change back; then from before a fence to behind it. What
//! the engine shows afterwards decides.

use super::Case;
use super::atoms::{FURNITURE, filled};
use crate::acceptance::Site;
use crate::support::wire::{Answer, Failed, frame};
use crate::support::{Engine, Options, PgCluster, Proxy, ProxyOptions, Wire};

/// A cluster with a database to copy, and a proxy in front.
pub struct Stage {
    cluster: PgCluster,
    proxy: Proxy,
}

/// What came of some cases.
#[derive(Default)]
pub struct Tally {
    pub played: usize,
    /// Cases that change something, or must be refused whatever they do.
    pub telling: usize,
    /// For each entry by its text: how often it was telling, and the last codes where it wasn't.
    pub entries: std::collections::BTreeMap<String, (usize, String)>,
    /// How many telling cases each position had.
    pub positions: std::collections::BTreeMap<super::Position, usize>,
    /// What was refused, by code.
    pub codes: std::collections::BTreeMap<String, usize>,
    /// Cases that wrote before a fence could come.
    pub early: usize,
    /// Cases whose session the fence waited for.
    pub waited: usize,
    pub violations: Vec<String>,
}

/// A session that plays a case.
struct Player {
    wire: Option<Wire>,
    codes: Vec<String>,
}

impl Player {
    fn connect(port: u16, db: &str, case: &Case) -> Self {
        let startup: Vec<_> = case.startup.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let mut player = match Wire::try_connect(port, "wire", db, &startup) {
            Ok(wire) => Self { wire: Some(wire), codes: Vec::new() },
            Err(fields) => Self { wire: None, codes: vec![fields[&'C'].clone()] },
        };
        if case.role {
            player.say(&frame(b'Q', b"SET ROLE app\0"), 1);
        }
        player
    }

    /// Sends bytes and reads this many answers.
    fn say(&mut self, bytes: &[u8], ready: usize) {
        for turn in 0..ready {
            let Some(wire) = &mut self.wire else { return };
            match wire.try_exchange(if turn == 0 { bytes } else { &[] }) {
                Ok(answer) => self.codes.extend(codes(&answer)),
                Err(failed) => {
                    self.codes.push(match failed {
                        Failed::Closed(Some(code)) => code,
                        Failed::Closed(None) => "closed".to_owned(),
                        Failed::Silent => "silent".to_owned(),
                    });
                    self.wire = None;
                }
            }
        }
    }

    fn attack(&mut self, case: &Case, function: Option<u32>) {
        for step in &case.attack {
            self.say(&step.bytes, step.ready);
        }
        if let (Some((_, arguments)), Some(oid)) = (case.call, function) {
            let mut body = oid.to_be_bytes().to_vec();
            body.extend_from_slice(&[0, 0]);
            body.extend_from_slice(&u16::try_from(arguments.len()).unwrap().to_be_bytes());
            for argument in arguments {
                body.extend_from_slice(&u32::try_from(argument.len()).unwrap().to_be_bytes());
                body.extend_from_slice(argument.as_bytes());
            }
            body.extend_from_slice(&[0, 0]);
            self.say(&frame(b'F', &body), 1);
        }
        if self.wire.as_ref().is_some_and(|wire| wire.status != 'I') {
            self.say(&frame(b'Q', b"COMMIT\0"), 1);
        }
    }
}

fn codes(answer: &Answer) -> Vec<String> {
    let errors = answer.frames.iter().filter(|f| f.0 == b'E');
    errors.map(|(_, body)| crate::support::wire::fields(body)[&'C'].clone()).collect()
}

/// What a statement could have changed, as one text. The last part is the next transaction id.
const SEEN: &str = "
SELECT concat_ws(' | ',
    (SELECT 't ' || coalesce(string_agg(n::text, ',' ORDER BY n), '') FROM t),
    (SELECT 'victim ' || coalesce(string_agg(id || s, ',' ORDER BY id), '') FROM victim),
    (SELECT 's ' || last_value || is_called FROM s),
    (SELECT 'objects ' || coalesce(string_agg(oid::text, ',' ORDER BY oid), '')
        FROM pg_largeobject_metadata),
    (SELECT coalesce(md5(string_agg(l::text, ',' ORDER BY loid, pageno)), '')
        FROM pg_largeobject l),
    (SELECT 'prepared ' || coalesce(string_agg(gid, ','), '') FROM pg_prepared_xacts),
    (SELECT 'slots ' || coalesce(string_agg(slot_name, ','), '') FROM pg_replication_slots),
    (SELECT 'origins ' || coalesce(string_agg(roname, ','), '') FROM pg_replication_origin),
    (SELECT 'relations ' || md5(string_agg(concat_ws(' ', relname, relfilenode, relpages,
        reltuples, relallvisible, relacl, relhastriggers, relpersistence), ',' ORDER BY oid))
        FROM pg_class WHERE oid >= 16384),
    'next id ' || pg_snapshot_xmax(pg_current_snapshot())::text)";

/// Transactions that have an id.
const WRITING: &str = "SELECT count(backend_xid) FROM pg_stat_activity WHERE backend_type = \
                       'client backend'";

/// The catalog, as numbers. Slower: once for some cases.
const CATALOG: &[&str] = &[
    "pg_class",
    "pg_attribute",
    "pg_attrdef",
    "pg_proc",
    "pg_namespace",
    "pg_type",
    "pg_enum",
    "pg_description",
    "pg_shdescription",
    "pg_db_role_setting",
    "pg_authid",
    "pg_auth_members",
    "pg_index",
    "pg_constraint",
    "pg_trigger",
    "pg_rewrite",
    "pg_policy",
    "pg_extension",
    "pg_default_acl",
    "pg_statistic",
    "pg_statistic_ext",
    "pg_publication",
    "pg_operator",
    "pg_cast",
    "pg_aggregate",
    "pg_sequence",
    "pg_depend",
    "pg_shdepend",
    "pg_database",
    "pg_foreign_server",
    "pg_event_trigger",
    "pg_subscription",
    "pg_tablespace",
    "pg_collation",
];

/// Back to where every case begins, what is in tables, sequences and objects.
const RESTORE: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS victim (id int PRIMARY KEY, s text)",
    "ALTER TABLE victim OWNER TO app",
    "DELETE FROM t",
    "DELETE FROM victim",
    "INSERT INTO victim VALUES (1, 'a'), (2, 'b')",
    "SELECT setval('s', 1, false)",
    "SELECT lo_unlink(oid) FROM pg_largeobject_metadata",
    "SELECT lo_from_bytea(4242, 'hello'); ALTER LARGE OBJECT 4242 OWNER TO app",
];

/// One case under way.
struct Played<'a> {
    case: &'a Case,
    function: Option<u32>,
    telling: bool,
    player: Option<Player>,
}

impl Stage {
    /// Starts both; `removed` names guards that the proxy goes without.
    pub fn start(removed: &str) -> Self {
        let cluster = PgCluster::start(Options {
            settings: vec![("max_connections".into(), "300".into())],
            ..Options::default()
        });
        cluster.sql("postgres", "ALTER ROLE wire SUPERUSER REPLICATION");
        cluster.create_db("furnished");
        let sql = "CREATE TABLE t (n int);";
        cluster.sql("furnished", "CREATE EXTENSION dblink");
        cluster.sql("furnished", &format!("SET ROLE app; {sql} {FURNITURE}"));
        let env = (!removed.is_empty())
            .then(|| ("FENCEWIRE_REMOVE".to_owned(), removed.to_owned()))
            .into_iter()
            .collect();
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::plain("old", &cluster)],
            env,
            ..ProxyOptions::default()
        });
        Self { cluster, proxy }
    }

    /// Plays some cases in a database of their own.
    pub fn play(&self, number: usize, cases: &[Case], tally: &mut Tally) {
        let db = format!("g{number}");
        let sql = format!("CREATE DATABASE {db} OWNER app TEMPLATE furnished");
        self.cluster.sql("postgres", &sql);
        let site = Site::at(&self.cluster, &self.proxy, &db);
        let mut oracle = site.direct();
        for sql in RESTORE {
            oracle.query(sql).ok();
        }
        let cases: Vec<Case> = cases.iter().map(|case| self.at(case, &db)).collect();
        let mut played: Vec<Played<'_>> = Vec::new();
        for case in &cases {
            played.extend(self.control(&site, &mut oracle, case, tally));
        }
        for one in &mut played {
            one.player = (!one.case.fresh).then(|| {
                let mut player = Player::connect(self.proxy.port(), &db, one.case);
                one.case.before.iter().for_each(|step| player.say(&step.bytes, step.ready));
                player.codes.clear();
                player
            });
        }
        let operation = self.fence(&site, &mut played, tally);
        let catalog = catalog(&mut oracle);
        for one in &mut played {
            self.judge(&site, &mut oracle, one, tally);
        }
        if catalog != self::catalog(&mut oracle) {
            let seeds: Vec<_> = cases.iter().map(|case| case.seed.to_string()).collect();
            tally.violations.push(format!("the catalog changed; cases {}", seeds.join(" ")));
        }
        site.unfence(&operation);
    }

    /// The case with the stage's names in it.
    fn at(&self, case: &Case, db: &str) -> Case {
        let here = |bytes: &[u8]| {
            // Lengths are inside: only frames made of text are rewritten, one by one.
            refilled(bytes, self.cluster.port(), db)
        };
        let steps = |all: &[super::Step]| {
            let each = all.iter().map(|step| super::Step::new(here(&step.bytes), step.ready));
            each.collect()
        };
        Case {
            setup: case.setup.iter().map(|sql| filled(sql, self.cluster.port(), db)).collect(),
            startup: case.startup.clone(),
            before: steps(&case.before),
            attack: steps(&case.attack),
            ..*case
        }
    }

    /// Without a fence: does it change anything?
    fn control<'a>(
        &self,
        site: &Site<'_>,
        oracle: &mut Wire,
        case: &'a Case,
        tally: &mut Tally,
    ) -> Option<Played<'a>> {
        for sql in &case.setup {
            oracle.query(&format!("SET ROLE app; {sql}"));
            oracle.query("RESET ROLE").ok();
        }
        let function = case.call.map(|(signature, _)| {
            let sql = format!("SELECT '{signature}'::regprocedure::oid");
            oracle.query(&sql).ok().cell().parse().unwrap()
        });
        let before = seen(oracle);
        let mut player = Player::connect(self.proxy.port(), &site.db, case);
        case.before.iter().for_each(|step| player.say(&step.bytes, step.ready));
        // What is planned is run where it is declared immutable: such a case has written before a
        // fence could come, and a fence waits for it.
        let early = oracle.query(WRITING).ok().cell() != "0" || seen(oracle) != before;
        player.attack(case, function);
        let changed = seen(oracle) != before;
        // Prepared transactions that don't exist are refused by the engine itself.
        let fine = player.codes.iter().all(|code| code == "42704");
        let telling = changed || (case.atom.unseen && fine);
        if changed || case.atom.unseen {
            drop(player.wire.take());
            self.restore(oracle, case, &site.db);
        }
        tally.played += 1;
        let entry = tally.entries.entry(format!("{:?}", case.atom.form)).or_default();
        if early {
            tally.early += 1;
        } else if telling {
            entry.0 += 1;
            tally.telling += 1;
            *tally.positions.entry(case.position).or_default() += 1;
        } else {
            entry.1 = player.codes.join(" ");
        }
        (!early).then_some(Played { case, function, telling, player: None })
    }

    fn restore(&self, oracle: &mut Wire, case: &Case, db: &str) {
        let undo = filled(case.atom.undo, self.cluster.port(), db);
        for sql in [undo.as_str(), "DROP TABLE IF EXISTS made CASCADE"] {
            // What wasn't made can't be taken back.
            oracle.query(sql);
        }
        for sql in RESTORE {
            oracle.query(sql).ok();
        }
    }

    /// Raises the fence. A session that it waits for, because what it has begun may be a write, is
    /// ended: that is no way around it.
    fn fence(&self, site: &Site<'_>, played: &mut Vec<Played<'_>>, tally: &mut Tally) -> String {
        let operation = crate::support::proxy::uuid();
        let body = site.acquire_body(&operation, &crate::acceptance::fail_after(2_000));
        for _ in 0..30 {
            let answer = site.acquire(&body);
            if answer.0 == 200 {
                return operation;
            }
            assert_eq!(answer.0, 202, "no fence: {:#}", answer.1);
            let waits = crate::acceptance::blockers(&answer.1);
            let before = played.len();
            played.retain(|one| {
                let wire = one.player.as_ref().and_then(|player| player.wire.as_ref());
                let pid = wire.map(Wire::backend_pid);
                !pid.is_some_and(|pid| waits.iter().any(|blocker| blocker["engine_pid"] == pid))
            });
            tally.waited += before - played.len();
        }
        let seeds: Vec<_> = played.iter().map(|one| one.case.seed).collect();
        panic!("no fence comes about; cases {seeds:?}");
    }

    /// Under a fence: nothing changes, and what would have is refused with a code.
    fn judge(&self, site: &Site<'_>, oracle: &mut Wire, one: &mut Played<'_>, tally: &mut Tally) {
        let before = seen(oracle);
        let mut player = one
            .player
            .take()
            .unwrap_or_else(|| Player::connect(self.proxy.port(), &site.db, one.case));
        player.attack(one.case, one.function);
        let after = seen(oracle);
        let typed = player.codes.iter().find(|code| code.starts_with("ZF"));
        let code = typed.or(player.codes.first()).cloned().unwrap_or_default();
        let why = if before != after {
            format!("it changed something:\n    {before}\n    {after}")
        } else if one.telling && typed.is_none() {
            format!("it isn't refused with a code, but {:?}", player.codes)
        } else {
            if one.telling {
                *tally.codes.entry(code).or_default() += 1;
            }
            return;
        };
        tally.violations.push(format!("case {}: {why}\n    {}", one.case.seed, one.case.told()));
    }
}

fn seen(oracle: &mut Wire) -> String {
    let answer = oracle.query(SEEN);
    match answer.code() {
        Some(code) => format!("error {code}"),
        None => answer.cell(),
    }
}

fn catalog(oracle: &mut Wire) -> String {
    let each = CATALOG.iter().map(|name| {
        format!(
            "(SELECT '{name} ' || count(*) || ' ' || sum(hashtext(c::text)::bigint) FROM {name} c)"
        )
    });
    let sql = format!("SELECT concat_ws(', ', {})", each.collect::<Vec<_>>().join(", "));
    oracle.query(&sql).ok().cell()
}

/// Frames with the stage's names filled in, lengths made right.
fn refilled(bytes: &[u8], port: u16, db: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while rest.len() >= 5 {
        let length = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
        let body = &rest[5..=length];
        let text = String::from_utf8(body.to_vec());
        let body = text.map_or_else(|_| body.to_vec(), |t| filled(&t, port, db).into_bytes());
        out.extend(frame(rest[0], &body));
        rest = &rest[1 + length..];
    }
    out
}
