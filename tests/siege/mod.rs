//! The siege: many sessions that talk at random through the proxy, fences over them, the engine's
//! own word on what changed.
//!
//! Purpose: the stage (an engine and a proxy of its own), one cycle of it, and what a cycle found.
//! A cycle: sessions walk with the gate open; a fence is acquired, by force behind a short
//! deadline; from its acknowledgement to its release the engine must not commit anything, whatever
//! is said to it; behind the release sessions must be of use again, and no transaction from before
//! may write.
//!
//! Invariants: scripts come from the seed alone (`walk.rs`); the schedule is the machine's. Every
//! wait is for a level and has a limit; the pauses within a script are what clients do, and decide
//! nothing.
//!
//! Who uses it: `tests/siege_pg.rs`.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod oracle;
pub mod session;
pub mod walk;
pub mod words;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::acceptance::{Site, blockers, force_after};
use crate::support::proxy::uuid;
use crate::support::{Engine, Options, PgCluster, Proxy, ProxyOptions, poll};
use oracle::{Snapshot, culprit};
use session::{Found, Session};
use walk::{Kind, Script};

/// How long a fence over these sessions may take to be acknowledged, by force.
const ACQUIRED: Duration = Duration::from_secs(120);

/// How long force works alone before an operator helps.
const HELP: Duration = Duration::from_millis(900);

/// How long a script may take at most, on a loaded machine.
const PLAYED: Duration = Duration::from_secs(240);

/// What hides behind names that say nothing. Each names its session in what it does.
const OBJECTS: &str = "
CREATE TABLE t (who text DEFAULT current_setting('application_name'),
    began timestamptz DEFAULT now(), at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION drawn() RETURNS int LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN RETURN nextval('s_' || current_setting('application_name')); END $f$;
CREATE VIEW drawing AS SELECT drawn() AS n;
CREATE FUNCTION made() RETURNS int LANGUAGE plpgsql VOLATILE AS $f$ BEGIN
    EXECUTE format('CREATE TABLE public.made_%s_%s ()', current_setting('application_name'),
        replace(gen_random_uuid()::text, '-', ''));
    RETURN 1; END $f$;
CREATE VIEW making AS SELECT made() AS n;
CREATE FUNCTION wrote() RETURNS int LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN INSERT INTO public.t DEFAULT VALUES; RETURN 1; END $f$;
CREATE VIEW writing AS SELECT wrote() AS n;
CREATE FUNCTION large() RETURNS oid LANGUAGE sql VOLATILE AS $f$ SELECT lo_create(0) $f$;
CREATE VIEW object AS SELECT large() AS n;
CREATE FUNCTION off() RETURNS text LANGUAGE sql VOLATILE AS
    $f$ SELECT set_config('default_transaction_read_only', 'off', false) $f$;
CREATE VIEW switching AS SELECT off() AS n;
CREATE FUNCTION relaxed() RETURNS text LANGUAGE sql VOLATILE AS
    $f$ SELECT set_config('transaction_read_only', 'off', false) $f$;
CREATE VIEW relaxing AS SELECT relaxed() AS n;
CREATE FUNCTION lifted() RETURNS int LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN RESET transaction_read_only; RETURN drawn() + made(); END $f$;
CREATE VIEW lifting AS SELECT lifted() AS n;
CREATE FUNCTION failed() RETURNS int LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN RETURN drawn() / 0; END $f$;
CREATE FUNCTION checked(int) RETURNS bool LANGUAGE plpgsql VOLATILE AS
    $f$ BEGIN RETURN drawn() > 0; END $f$;
CREATE DOMAIN own AS int CHECK (checked(value));
CREATE VIEW failing AS SELECT failed() AS n;
CREATE PROCEDURE ending() LANGUAGE plpgsql AS
    $f$ BEGIN COMMIT; PERFORM drawn(); INSERT INTO public.t DEFAULT VALUES; END $f$;
";

/// An engine and a proxy with nobody else on them.
pub struct Stage {
    pub cluster: PgCluster,
    pub proxy: Proxy,
    db: String,
    removed: String,
}

impl Stage {
    /// Of the version that tests run on; the proxy goes without the guards named.
    pub fn start(removed: &str, sessions: usize) -> Self {
        let cluster = PgCluster::start(Options::default());
        let env = if removed.is_empty() {
            Vec::new()
        } else {
            vec![("FENCEWIRE_REMOVE".to_owned(), removed.to_owned())]
        };
        let engines = vec![Engine::plain("old", &cluster)];
        let proxy = Proxy::start_with(ProxyOptions { engines, env, ..ProxyOptions::default() });
        let db = cluster.fresh_db();
        let stage = Self { cluster, proxy, db, removed: removed.to_owned() };
        let site = stage.site();
        site.setup(OBJECTS);
        for number in 0..sessions {
            site.setup(&format!("CREATE SEQUENCE s_w{number:02}"));
        }
        site.sql("SELECT lo_create(4242)");
        stage
    }

    pub fn site(&self) -> Site<'_> {
        Site::at(&self.cluster, &self.proxy, &self.db)
    }

    /// Whether it is a control arm's.
    pub fn lacks_a_guard(&self) -> bool {
        !self.removed.is_empty()
    }

    /// How often a backend has died of a fault of the engine's own.
    fn crashes(&self) -> usize {
        let log = std::fs::read_to_string(self.cluster.log_file()).unwrap_or_default();
        log.matches("was terminated by signal").count()
    }

    pub fn version(&self) -> u32 {
        self.cluster.version()
    }
}

/// What a cycle found.
#[derive(Default)]
pub struct Outcome {
    /// What must never be.
    pub violations: Vec<String>,
    /// The session that a violation names.
    pub culprit: Option<String>,
    /// By session: what was said.
    pub logs: BTreeMap<String, Vec<String>>,
    /// The engine itself has crashed: nothing of this cycle counts.
    pub crashed: bool,
    /// How sessions were found, and what closed them, counted.
    pub found: BTreeMap<String, usize>,
}

/// How far the cycle has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    Fenced,
    Released,
}

/// Where the cycle stands.
struct Progress {
    phase: Phase,
    /// Sessions that have come to their next wait.
    waiting: usize,
    /// Sessions whose thread is gone.
    lost: usize,
}

/// The cycle's phase, which sessions wait for, and which waits for them.
struct Pace {
    now: Mutex<Progress>,
    moved: Condvar,
}

impl Pace {
    fn new() -> Self {
        let now = Mutex::new(Progress { phase: Phase::Open, waiting: 0, lost: 0 });
        Self { now, moved: Condvar::new() }
    }

    /// A session has come this far, and waits for the phase.
    fn wait(&self, phase: Phase) {
        let mut now = self.now.lock().unwrap();
        now.waiting += 1;
        self.moved.notify_all();
        let early = |now: &mut Progress| now.phase < phase;
        let over = self.moved.wait_timeout_while(now, PLAYED + ACQUIRED, early);
        assert!(!over.unwrap().1.timed_out(), "no {phase:?}");
    }

    /// Waits until so many sessions wait, or have gone.
    fn gathered(&self, count: usize) {
        let now = self.now.lock().unwrap();
        let few = |now: &mut Progress| now.waiting + now.lost < count;
        let over = self.moved.wait_timeout_while(now, PLAYED, few);
        assert!(!over.unwrap().1.timed_out(), "sessions don't come to an end");
    }

    fn enter(&self, phase: Phase) {
        let mut now = self.now.lock().unwrap();
        (now.phase, now.waiting) = (phase, 0);
        self.moved.notify_all();
    }
}

/// A session's place in the pace: a thread that panics is not waited for.
struct Place<'a>(&'a Pace);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.now.lock().unwrap().lost += 1;
            self.0.moved.notify_all();
        }
    }
}

/// One session's part in a cycle.
fn besiege(stage: &Stage, script: &Script, pace: &Pace) -> (Session, Found) {
    let _place = Place(pace);
    if script.kind == Kind::Fresh {
        pace.wait(Phase::Fenced);
    }
    let mut session = Session::open(stage.proxy.port(), &stage.db, &script.who);
    session.play(&script.before);
    if script.kind == Kind::Parked {
        pace.wait(Phase::Fenced);
        session.note("behind the fence");
    }
    session.play(&script.during);
    if script.kind == Kind::Racing {
        pace.wait(Phase::Fenced);
        session.note("behind the fence");
    }
    session.play(&script.late);
    pace.wait(Phase::Released);
    session.note("released");
    session.play(&script.after);
    let found = session.recover();
    (session, found)
}

/// Plays one cycle of these scripts.
pub fn cycle(stage: &Stage, scripts: &[Script], help: bool) -> Outcome {
    let (pace, mut outcome) = (Pace::new(), Outcome::default());
    let crashes = stage.crashes();
    std::thread::scope(|scope| {
        let start = |script| {
            let pace = &pace;
            std::thread::Builder::new()
                .name("besieger".into())
                .spawn_scoped(scope, move || besiege(stage, script, pace))
                .unwrap()
        };
        let handles: Vec<_> = scripts.iter().map(|script| (script, start(script))).collect();
        let span = under_the_fence(stage, &pace, scripts, help, &mut outcome);
        for (script, handle) in handles {
            match handle.join() {
                Ok((session, found)) => ended(&mut outcome, script, session, &found),
                Err(_) => outcome.violations.push(format!("{}: its thread panicked", script.who)),
            }
        }
        if let Some((acknowledged, released)) = span {
            no_older_writer(stage, &acknowledged, &released, &mut outcome);
        }
    });
    nothing_left(stage, &mut outcome);
    if stage.crashes() > crashes {
        // Its recovery moves sequences on, and ends every session without a word.
        outcome.crashed = true;
        outcome.violations.clear();
    }
    outcome
}

/// Raises a fence over the sessions, looks twice, lifts it. Answers the engine's clock at its
/// acknowledgement and right before its release.
fn under_the_fence(
    stage: &Stage,
    pace: &Pace,
    scripts: &[Script],
    help: bool,
    outcome: &mut Outcome,
) -> Option<(String, String)> {
    let site = stage.site();
    let racing = scripts.iter().filter(|script| script.kind == Kind::Racing).count();
    pace.gathered(scripts.len() - racing);
    let operation = uuid();
    let acquired = acquire(&site, &operation, help);
    if let Err(why) = &acquired {
        outcome.violations.push(format!("not acquired by force: {why}"));
    }
    let (first, acknowledged) = Snapshot::take(&site);
    pace.gathered(scripts.len());
    pace.enter(Phase::Fenced);
    pace.gathered(scripts.len());
    let (second, released) = Snapshot::take(&site);
    if acquired.is_ok() {
        let differences = first.differences(&second, &site);
        outcome.culprit = culprit(&differences);
        let differences = differences.into_iter();
        outcome.violations.extend(differences.map(|what| format!("behind the fence: {what}")));
        let seen = site.inspect();
        if seen["fence"]["state"] != "SOURCE_WRITE_FENCED" {
            outcome.violations.push(format!("the fence is gone: {seen:#}"));
        }
    }
    let body = site.release_body(&operation);
    let answer = site.release(&body);
    if answer.0 != 200 {
        outcome.violations.push(format!("not released: {:#}", answer.1));
    }
    pace.enter(Phase::Released);
    acquired.is_ok().then_some((acknowledged, released))
}

/// Acquires by force. With `help` an operator ends at the engine, as soon as force has had its
/// turn, whom the drain still waits for: the proxy itself gives them a grace of ten seconds and
/// more.
fn acquire(site: &Site<'_>, operation: &str, help: bool) -> Result<(), String> {
    let body = site.acquire_body(operation, &force_after(250));
    let mut last = (0, Value::Null);
    let over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            let asked = Instant::now();
            poll(ACQUIRED, || {
                if help && asked.elapsed() > HELP {
                    end_blockers(site);
                }
                over.load(Ordering::SeqCst).then_some(())
            })
        });
        let done = poll(ACQUIRED, || {
            last = site.acquire(&body);
            (last.0 != 202).then_some(())
        });
        over.store(true, Ordering::SeqCst);
        done
    });
    match (done, last.0) {
        (Some(()), 200) => Ok(()),
        _ => Err(format!("{} {:#}\n{:#}", last.0, last.1, site.inspect())),
    }
}

fn end_blockers(site: &Site<'_>) {
    let pids: Vec<String> =
        blockers(&site.inspect()).iter().map(|blocker| blocker["engine_pid"].to_string()).collect();
    if !pids.is_empty() {
        let all = pids.join("), (");
        oracle::ask(
            site,
            &format!(
                "SELECT pg_terminate_backend(pid) FROM (VALUES ({all})) b (pid) \
                 WHERE pid IS NOT NULL"
            ),
        );
    }
}

/// A session's end: its log, and how it was found.
fn ended(outcome: &mut Outcome, script: &Script, mut session: Session, found: &Found) {
    let mut count = |what: String| *outcome.found.entry(what).or_default() += 1;
    for code in &session.closes {
        count(format!("closed {code}"));
    }
    let text = format!("{script:?}");
    let bad = match found {
        Found::Useful => {
            count("useful".into());
            used(&mut session, &text)
        }
        Found::Closed(code) => {
            let known = code.as_deref().is_some_and(|code| CLOSES.contains(&code));
            (!known).then(|| format!("closed with {code:?}"))
        }
        Found::Silent if excused(&text) => {
            count("silent, as told".into());
            None
        }
        Found::Silent => Some("silent".into()),
        Found::Wrong(what) => Some(format!("answers {what}")),
    };
    if let Some(bad) = bad {
        outcome.violations.push(format!("{}: {bad}", script.who));
        outcome.culprit = outcome.culprit.take().or(Some(script.who.clone()));
    }
    outcome.logs.insert(script.who.clone(), session.log);
}

/// How a session may end that asked for it: a broken protocol; the engine's own termination, where
/// force had nothing else; what the fence rolled back.
const CLOSES: [&str; 4] = ["08P01", "57P01", "ZF009", "in a message"];

/// A session that is of use writes like any other.
fn used(session: &mut Session, text: &str) -> Option<String> {
    let own = text.contains("READ ONLY") || text.contains("read_only");
    let read_only = session.asks("SHOW default_transaction_read_only");
    if read_only != "off" && !own {
        return Some(format!("default_transaction_read_only is {read_only} of itself"));
    }
    let wrote = session.asks("INSERT INTO t DEFAULT VALUES");
    let expected = wrote.is_empty() || own && wrote == "25006";
    (!expected).then(|| format!("a write gets {wrote}"))
}

/// Where `docs/CONTRACT.md` says that a session may hang: an answer too many is counted as owed
/// where an error comes on a Flush, or something else is sent into a COPY.
fn excused(text: &str) -> bool {
    text.contains("FROM STDIN") || (text.contains("Flush") && text.contains("statement_timeout"))
}

/// A transaction from before the release never becomes a writer behind it.
fn no_older_writer(stage: &Stage, acknowledged: &str, released: &str, outcome: &mut Outcome) {
    let late = oracle::ask(
        &stage.site(),
        &format!(
            "SELECT who || ' began ' || began || ' at ' || at FROM t
         WHERE began < '{released}' AND at > '{acknowledged}'"
        ),
    );
    for line in late.lines() {
        outcome.violations.push(format!("an older transaction wrote: {line}"));
        outcome.culprit = outcome.culprit.take().or(culprit(&[line.to_owned()]));
    }
}

/// With every session gone nothing of theirs is left, and no worker has panicked.
fn nothing_left(stage: &Stage, outcome: &mut Outcome) {
    let mut seen = Value::Null;
    let gone = poll(Duration::from_secs(60), || {
        seen = stage.proxy.admin("GET", "/v1/sessions", &Value::Null).1;
        let list = seen["sessions"].as_array();
        list.is_some_and(Vec::is_empty).then_some(())
    });
    if gone.is_none() {
        outcome.violations.push(format!("sessions are left: {seen:#}"));
    }
    let log = std::fs::read_to_string(stage.proxy.log_file()).unwrap_or_default();
    let panics: Vec<&str> = log.lines().filter(|line| line.contains("panicked")).collect();
    if !panics.is_empty() {
        outcome.violations.push(format!("the proxy panicked: {panics:?}"));
    }
}

/// Takes steps out of a script that alone shows a violation, as long as it still does.
pub fn smallest(stage: &Stage, script: &Script, until: Instant) -> Script {
    let mut best = script.clone();
    let shows = |script: &Script| {
        let outcome = cycle(stage, std::slice::from_ref(script), true);
        outcome.violations.iter().any(|what| what.contains("behind the fence"))
    };
    let parts: [fn(&mut Script) -> &mut Vec<words::Step>; 4] =
        [|s| &mut s.after, |s| &mut s.late, |s| &mut s.during, |s| &mut s.before];
    for part in parts {
        let mut at = part(&mut best).len();
        while at > 0 && Instant::now() < until {
            at -= 1;
            let mut less = best.clone();
            part(&mut less).remove(at);
            if shows(&less) {
                best = less;
            }
        }
    }
    best
}
