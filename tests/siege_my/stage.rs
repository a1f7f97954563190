//! Where a siege takes place: a server, a proxy in front, the schemas, and what the engine shows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Dice;
use super::session::{Outcome, Session};
use super::texts::{Grammar, Setting};
use crate::support::my_wire::MyLogin;
use crate::support::proxy::uuid;
use crate::support::{Engine, MyCluster, MyFlavour, MyOptions, MyWire, Proxy, ProxyOptions, poll};

/// How long a fence, or the end of all leases, may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long somebody's table lock may be in the way of a look.
const LOCKED: Duration = Duration::from_secs(5);

/// Sessions at once.
const SESSIONS: usize = 10;

/// Steps of one session while the gate is open, and under a fence.
const OPEN_STEPS: usize = 9;
const FENCED_STEPS: usize = 10;

/// Cycles of a campaign, with the same sessions and schemas.
pub const CYCLES: usize = 3;

/// A server and a proxy in front.
pub struct Stage {
    pub cluster: MyCluster,
    pub proxy: Proxy,
    root: MyWire,
}

/// What a siege came to.
#[derive(Default, Debug)]
pub struct Tally {
    pub cycles: usize,
    pub steps: usize,
    /// Steps with the gate open behind which the log had moved.
    pub open_writes: usize,
    /// The same under a fence: all of it in other schemas.
    pub fenced_writes: usize,
    /// Answers by error's number, under a fence.
    pub codes: BTreeMap<u16, usize>,
    /// Answers that took longer than half a second: waits for locks.
    pub slow: usize,
    /// The time that fences took to be acknowledged, and looks at the engine.
    pub fencing: Duration,
    pub looking: Duration,
    /// Sessions that ended under a fence or behind it by no word of their own.
    pub lost: usize,
    /// Fences behind which a lock of before kept the engine from being asked.
    pub locked: usize,
    /// Servers that died of a statement by themselves; each ends a campaign.
    pub crashes: usize,
    pub violations: Vec<String>,
    /// What hung, or wasn't useful any more.
    pub faults: Vec<String>,
}

impl Stage {
    pub fn start(flavour: MyFlavour, removed: &str) -> Self {
        // As short as each can.
        let wait = |name: &str| {
            let seconds = if flavour == MyFlavour::MariaDb { "0" } else { "1" };
            (name.to_owned(), seconds.to_owned())
        };
        let settings = vec![wait("lock_wait_timeout"), wait("innodb_lock_wait_timeout")];
        let cluster = MyCluster::start(flavour, MyOptions { settings, ..MyOptions::default() });
        cluster.sql(
            "mysql",
            "CREATE USER siege@'127.0.0.1' IDENTIFIED BY ''; \
             GRANT ALL ON *.* TO siege@'127.0.0.1'; \
             GRANT ALL ON d.* TO wire@'127.0.0.1'; GRANT ALL ON a.* TO wire@'127.0.0.1'; \
             GRANT ALL ON D.* TO wire@'127.0.0.1'; GRANT ALL ON other.* TO wire@'127.0.0.1';",
        );
        let mut env = Vec::new();
        if !removed.is_empty() {
            env.push(("FENCEWIRE_REMOVE".to_owned(), removed.to_owned()));
        }
        let proxy = Proxy::start_with(ProxyOptions {
            engines: vec![Engine::my_plain("old", &cluster)],
            // Nothing but the proxy keeps anybody from writing.
            extra: "[fence]\nengine_lock = \"off\"\n".to_owned(),
            env,
            ..ProxyOptions::default()
        });
        let mut login = MyLogin::of("siege", "");
        login.password = String::new();
        let root = MyWire::login(cluster.port(), &login).unwrap();
        Self { cluster, proxy, root }
    }

    /// Whether the server has died of something by itself.
    pub fn crashed(&self) -> bool {
        let log = std::fs::read(self.cluster.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&log).contains("got signal")
    }

    fn flavour(&self) -> MyFlavour {
        self.cluster.flavour()
    }

    /// Makes the schemas anew.
    fn furnish(&mut self) {
        let maria = self.flavour() == MyFlavour::MariaDb;
        for schema in ["d", "a", "D"] {
            self.root.query(&format!("DROP DATABASE IF EXISTS {schema}")).ok();
            self.root.query(&format!("CREATE DATABASE {schema}")).ok();
            self.root.query(&format!("USE {schema}")).ok();
            for sql in FURNITURE {
                self.root.query(sql).ok();
            }
            let sequence = if maria { SEQUENCES } else { NO_SEQUENCES };
            for sql in sequence.iter().chain(VIEWS) {
                self.root.query(sql).ok();
            }
        }
        self.root.query("USE mysql").ok();
    }

    /// The position of the engine's log: it moves with every commit in any schema.
    fn position(&mut self) -> String {
        let asked = match self.flavour() {
            MyFlavour::MariaDb => "SELECT @@global.gtid_binlog_pos",
            MyFlavour::MySql => "SELECT @@global.gtid_executed",
        };
        let answer = self.root.try_query(asked);
        answer.unwrap_or_else(|e| panic!("{e}\n{}", self.cluster.log_tail())).ok().cell()
    }

    /// Everything in `d`, one line each; `None` where somebody's lock stays in the way.
    fn everything(&mut self) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        let tables = self.listed(
            "SELECT table_name, table_type FROM information_schema.tables \
             WHERE table_schema = 'd' ORDER BY 1",
        )?;
        for row in &tables {
            let (name, kind) = (&row[0], row[1].as_str());
            // MariaDB runs functions of a view that is opened.
            let shape = match kind {
                "VIEW" => self.listed(&format!(
                    "SELECT view_definition FROM information_schema.views \
                     WHERE table_schema = 'd' AND table_name = '{name}'"
                ))?,
                _ => self.listed(&format!("SHOW CREATE TABLE d.`{name}`"))?,
            };
            lines.push(format!("{kind} {name}: {shape:?}"));
            match kind {
                "VIEW" => {}
                "SEQUENCE" => {
                    let value = self.listed(&format!("SELECT * FROM d.`{name}`"))?;
                    lines.push(format!("{name} is at {value:?}"));
                }
                _ => {
                    let sum = self.listed(&format!("CHECKSUM TABLE d.`{name}`"))?;
                    let count = self.listed(&format!("SELECT COUNT(*) FROM d.`{name}`"))?;
                    lines.push(format!("{name} has {count:?}, sum {sum:?}"));
                }
            }
        }
        for asked in OTHERS {
            lines.extend(self.listed(asked)?.into_iter().map(|row| row.join(" ")));
        }
        Some(lines)
    }

    /// Rows of a statement, asked again while somebody's lock is in the way.
    fn listed(&mut self, sql: &str) -> Option<Vec<Vec<String>>> {
        let answer = poll(LOCKED, || {
            let answer = self.root.query(sql);
            (answer.code() != 1205).then_some(answer)
        })?;
        if let Some(error) = &answer.error {
            return Some(vec![vec![format!("{} {}", error.code, error.message)]]);
        }
        let cells = |row: &Vec<Option<String>>| row.iter().flatten().cloned().collect();
        Some(answer.rows().iter().map(cells).collect())
    }

    /// Raises the fence and waits for its acknowledgement.
    fn fence(&mut self, operation: &str) -> Result<(), String> {
        let policy = json!({ "deadline_ms": 300, "on_deadline": "force_rollback" });
        let command = uuid();
        let body = {
            let mut body = self.proxy.command_body("old/d", operation, &command);
            let incarnation = self.proxy.inspect("old/d")["fence"]["incarnation"].clone();
            body["expected_namespace_identity"] = json!({
                "engine_id": incarnation["engine_id"],
                "database_id": incarnation["database_id"],
            });
            body["drain_policy"] = policy;
            body
        };
        let mut last = Value::Null;
        let fenced = poll(PATIENCE, || {
            let (status, answer) = self.proxy.command("old/d", "source/acquire-write-fence", &body);
            last = answer;
            if status == 200 {
                return Some(());
            }
            // Prepared branches and LOCK TABLES stay for ever: those are the operator's to end.
            self.end_branches();
            for blocker in last["drain"]["blockers"].as_array().into_iter().flatten() {
                if let Some(thread) = blocker["engine_pid"].as_u64() {
                    drop(self.root.query(&format!("KILL {thread}")));
                }
            }
            None
        });
        fenced.ok_or_else(|| format!("no fence: {last:#}\n{:#}", self.proxy.inspect("old/d")))
    }

    fn end_branches(&mut self) {
        for row in self.root.query("XA RECOVER").ok().rows() {
            let data = row.last().cloned().flatten().unwrap_or_default();
            drop(self.root.query(&format!("XA ROLLBACK '{data}'")));
        }
    }

    /// Some cycles with the same sessions, by one seed.
    pub fn campaign(&mut self, seed: u64, tally: &mut Tally) {
        self.furnish();
        let mut campaign = Campaign { dice: Dice::new(seed), seed, sessions: Vec::new(), count: 0 };
        for _ in 0..CYCLES {
            campaign.cycle(self, tally);
            tally.cycles += 1;
            if !tally.violations.is_empty() || !tally.faults.is_empty() {
                break;
            }
        }
        for session in &mut campaign.sessions {
            session.close();
        }
        self.settled(seed, tally);
    }

    /// All sessions are closed: no lease and no transaction stays.
    fn settled(&mut self, seed: u64, tally: &mut Tally) {
        let mut last = Value::Null;
        let none = poll(PATIENCE, || {
            last = self.proxy.admin("GET", "/v1/sessions", &Value::Null).1;
            let open = last["sessions"].as_array().is_some_and(Vec::is_empty);
            self.end_branches();
            open.then_some(())
        });
        if none.is_none() {
            tally.faults.push(format!("seed {seed:#x}: sessions stay: {last:#}"));
        }
    }
}

/// Some cycles with the same sessions.
struct Campaign {
    dice: Dice,
    seed: u64,
    sessions: Vec<Session>,
    count: usize,
}

impl Campaign {
    fn session(&mut self, stage: &Stage, fenced: bool) -> Session {
        self.count += 1;
        let home = self.dice.pick(&["d", "d", "d", "a", "a", "a", "D", ""]);
        let mut session = Session::begin(stage.proxy.port(), self.count, home, &mut self.dice);
        session.fresh = fenced;
        session
    }

    /// Enough sessions, the first of which are at `d` (its gate is there) and keep a transaction.
    fn fill(&mut self, stage: &Stage, fenced: bool) {
        self.sessions.retain(|session| !session.is_over());
        while self.sessions.len() < SESSIONS {
            let session = self.session(stage, fenced);
            self.sessions.push(session);
        }
    }

    fn cycle(&mut self, stage: &mut Stage, tally: &mut Tally) {
        let mut idler = Session::begin(stage.proxy.port(), 0, "d", &mut self.dice);
        idler.idler = true;
        idler.query(b"begin");
        idler.query(b"select * from t limit 1");
        self.fill(stage, false);
        for session in &mut self.sessions {
            session.fresh = false;
        }
        self.sessions.push(idler);
        self.walk(stage, false, OPEN_STEPS, tally);
        self.leave_some(stage);
        let mut keeper = Session::begin(stage.proxy.port(), usize::MAX, "a", &mut self.dice);
        keeper.query(b"begin");
        keeper.query(b"insert into kept values (1)");
        let operation = uuid();
        let began = Instant::now();
        if let Err(why) = stage.fence(&operation) {
            let named = |n: &usize| {
                let pid = format!("\"engine_pid\": {},", self.sessions[*n].thread());
                why.contains(&pid)
            };
            let told: Vec<String> =
                (0..self.sessions.len()).filter(named).map(|n| self.told(n)).collect();
            return self.fault(&format!("{why}\n{}", told.join("\n")), tally);
        }
        tally.fencing += began.elapsed();
        for _ in 0..4 {
            keeper.query(self.dice.pick(BESIDE).as_bytes());
        }
        keeper.query(b"rollback");
        keeper.close();
        if stage.root.query("SELECT COUNT(*) FROM a.kept").ok().cell() != "0" {
            let log = keeper.log.join("\n    ");
            let told = format!("seed {:#x}: kept what was rolled back\n    {log}", self.seed);
            tally.violations.push(told);
        }
        self.behind(stage, tally);
        let (status, body) = stage.proxy.release("old/d", &operation, &uuid());
        assert_eq!(status, 200, "{body:#}");
        if tally.violations.is_empty() {
            self.useful(stage, tally);
        }
    }

    /// Some have a slow program under way when the gate closes.
    fn leave_some(&mut self, stage: &Stage) {
        let setting = Setting { flavour: stage.flavour(), fenced: false, fresh: false };
        for n in 0..2 {
            let text = Grammar { dice: &mut self.dice, setting }.text();
            let text = [b"select sleep(0.2); ", &text[..]].concat();
            self.sessions[n].leave(&text);
        }
    }

    /// The fence is acknowledged: nothing in `d` changes any more.
    fn behind(&mut self, stage: &mut Stage, tally: &mut Tally) {
        let position = stage.position();
        let Some(everything) = stage.everything() else {
            // LOCK TABLES of before the fence, which nothing ends with the engine lock off.
            tally.locked += 1;
            return;
        };
        let mut seen = Seen { position, everything };
        for n in 0..self.sessions.len() {
            self.sessions[n].collect();
        }
        self.judge(stage, 0, &mut seen, tally);
        self.fill(stage, true);
        for _ in 0..FENCED_STEPS {
            for n in 0..self.sessions.len() {
                self.one_step(n, stage, true, tally);
                self.judge(stage, n, &mut seen, tally);
                if !tally.violations.is_empty() || !tally.faults.is_empty() {
                    return;
                }
            }
            self.fill(stage, true);
        }
        seen.position.clear();
        self.judge(stage, 0, &mut seen, tally);
    }

    fn walk(&mut self, stage: &mut Stage, fenced: bool, rounds: usize, tally: &mut Tally) {
        for _ in 0..rounds {
            let before = stage.position();
            for n in 0..self.sessions.len() {
                self.one_step(n, stage, fenced, tally);
            }
            tally.open_writes += usize::from(stage.position() != before);
            self.fill(stage, fenced);
        }
    }

    fn one_step(&mut self, n: usize, stage: &Stage, fenced: bool, tally: &mut Tally) {
        let setting = Setting { flavour: stage.flavour(), fenced, fresh: false };
        let began = Instant::now();
        let outcome = self.sessions[n].step(&mut self.dice, setting);
        tally.slow += usize::from(began.elapsed() > Duration::from_millis(500));
        tally.steps += 1;
        self.note(n, &outcome, fenced, tally);
    }

    fn note(&mut self, n: usize, outcome: &Outcome, fenced: bool, tally: &mut Tally) {
        if fenced {
            for code in &outcome.codes {
                *tally.codes.entry(*code).or_default() += 1;
            }
        }
        if outcome.silent {
            let told = self.told(n);
            self.fault(&format!("no answer came\n{told}"), tally);
        }
        tally.lost += usize::from(outcome.over);
    }

    /// Asks the engine whether the last step changed anything in `d`.
    fn judge(&self, stage: &mut Stage, n: usize, seen: &mut Seen, tally: &mut Tally) {
        let began = Instant::now();
        let position = stage.position();
        if position == seen.position {
            tally.looking += began.elapsed();
            return;
        }
        seen.position = position;
        tally.fenced_writes += 1;
        let Some(now) = stage.everything() else {
            return self.fault(&format!("a lock on d\n{}", self.told(n)), tally);
        };
        tally.looking += began.elapsed();
        if now == seen.everything {
            return;
        }
        let gone = seen.everything.iter().filter(|line| !now.contains(line));
        let new = now.iter().filter(|line| !seen.everything.contains(line));
        let changed: Vec<String> =
            gone.map(|l| format!("  - {l}")).chain(new.map(|l| format!("  + {l}"))).collect();
        let seed = self.seed;
        let told = format!("seed {seed:#x}: d changed\n{}\n{}", changed.join("\n"), self.told(n));
        tally.violations.push(told);
    }

    fn fault(&self, why: &str, tally: &mut Tally) {
        tally.faults.push(format!("seed {:#x}: {why}", self.seed));
    }

    /// What a session has said, and the last words of the others.
    fn told(&self, n: usize) -> String {
        let session = &self.sessions[n];
        let mut out = format!("session {} (thread {}):", session.name, session.thread());
        for line in &session.log {
            out.push_str(&format!("\n    {line}"));
        }
        for other in self.sessions.iter().filter(|other| other.name != session.name) {
            let last = other.log.last().map_or("", String::as_str);
            out.push_str(&format!("\n  session {} last: {last}", other.name));
        }
        out
    }

    /// The gate is open again: who kept a transaction may not write in it; everybody else may.
    fn useful(&mut self, stage: &mut Stage, tally: &mut Tally) {
        let idler = self.sessions.iter().position(|session| session.idler);
        let mut idler = self.sessions.remove(idler.expect("nothing ends an idle reader"));
        let written = idler.query(b"insert into t values (4242)");
        if idler.in_transaction() && written.codes.iter().all(|code| *code == 0) {
            let log = idler.log.join("\n    ");
            let told = format!("seed {:#x}: an old transaction wrote\n    {log}", self.seed);
            tally.violations.push(told);
        }
        for n in 0..self.sessions.len() {
            if self.sessions[n].is_over() {
                continue;
            }
            let before = self.sessions[n].query(b"select 1");
            self.note(n, &before, false, tally);
            if !self.dice.chance(40) {
                continue;
            }
            self.sessions[n].reset();
            let done = self.sessions[n].query(b"insert into d.u values (1)");
            // Somebody's lock or another shape of the table is nobody's fault here.
            let fences = |code: &u16| *code > 9700 || [1290, 1792].contains(code);
            if done.codes.iter().any(fences) {
                let told = self.told(n);
                self.fault(&format!("not useful any more\n{told}"), tally);
            }
        }
        stage.root.query("SELECT 1").ok();
    }
}

/// What the engine showed last.
struct Seen {
    position: String,
    everything: Vec<String>,
}

/// The same in each schema.
const FURNITURE: &[&str] = &[
    "CREATE TABLE t (n int) ENGINE=InnoDB",
    "CREATE TABLE u (n int) ENGINE=InnoDB",
    "CREATE TABLE m (n int) ENGINE=MyISAM",
    "CREATE TABLE zz (n int) ENGINE=InnoDB",
    "CREATE TABLE kept (n int) ENGINE=InnoDB",
    "INSERT INTO t VALUES (1), (2), (3)",
    "INSERT INTO zz VALUES (1)",
    "CREATE FUNCTION f() RETURNS int BEGIN INSERT INTO t VALUES (500); RETURN 1; END",
    "CREATE PROCEDURE p() \
     BEGIN SET SESSION TRANSACTION READ WRITE; COMMIT; INSERT INTO t VALUES (600); END",
    "CREATE PROCEDURE pi(n int) INSERT INTO t VALUES (n)",
    "CREATE PROCEDURE ph(n int) SET @w = n",
    // With a result, and failing behind it.
    "CREATE PROCEDURE pr() SELECT 1",
    "CREATE PROCEDURE pe() BEGIN SELECT 1; SIGNAL SQLSTATE '45000'; END",
];

/// What a session with open writes in `a` says about `d`: none of it ends its transaction.
const BESIDE: &[&str] = &[
    "select 1",
    "select * from d.t limit 1",
    "select * from d.v",
    "set autocommit = 1, @a = (select max(n) from d.t)",
    "lock tables d.t read foo",
    "begin not atomic select 1; end",
    "call d.ph(1)",
    "insert into d.t values (1)",
    "prepare s from 'select * from d.v'",
    "start transaction foo",
];

const SEQUENCES: &[&str] = &[
    "CREATE SEQUENCE sq NOCACHE",
    "CREATE FUNCTION fd() RETURNS int DETERMINISTIC RETURN (SELECT NEXTVAL(sq))",
];

/// MySQL has none: a table in their place.
const NO_SEQUENCES: &[&str] = &[
    "CREATE TABLE sq (n int)",
    "CREATE FUNCTION fd() RETURNS int DETERMINISTIC \
     BEGIN INSERT INTO sq VALUES (1); RETURN 1; END",
];

const VIEWS: &[&str] = &[
    "CREATE VIEW v AS SELECT f() AS z",
    "CREATE VIEW qv AS SELECT ROUND(1.55, fd()) AS z",
    "CREATE VIEW vs AS SELECT fd() AS z",
];

/// What else there is in `d`.
const OTHERS: &[&str] = &[
    "SELECT 'routine', routine_type, routine_name, routine_definition, last_altered \
     FROM information_schema.routines WHERE routine_schema = 'd' ORDER BY 2, 3",
    "SELECT 'trigger', trigger_name, action_statement FROM information_schema.triggers \
     WHERE trigger_schema = 'd' ORDER BY 2",
    "SELECT 'event', event_name, event_definition, last_altered FROM information_schema.events \
     WHERE event_schema = 'd' ORDER BY 2",
    "SHOW CREATE DATABASE d",
];
