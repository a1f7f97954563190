//! What the pure parts of the statement path cost, apart from any socket.
//!
//! Purpose: two readings of the same parts. `tools/bench/instructions.py` runs `pure_parts run PART
//! COUNT` under callgrind and compares instructions, which don't depend on neighbours, with the
//! figures that are kept in the tree; `pure_parts time` prints nanoseconds for docs/PERFORMANCE.md,
//! admission with 1 to 64 threads at one gate included.
//!
//! Run by `tools/bench/` and by hand. It opens no socket and measures no network. It decides
//! nothing: what is too much is the caller's.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use fencewire::base::ids::{Generation, Namespace, SessionId};
use fencewire::gate::admission::Seat;
use fencewire::gate::registry::{Gate, Gates};
use fencewire::gate::slot::Card;
use fencewire::sql::{Classifier, Lexing, MyLexing, MyServer, PgLexing, StatementClass};
use sqlparser::dialect::{MySqlDialect, PostgreSqlDialect};
use sqlparser::parser::Parser;

/// A statement of an ordinary application, 200 bytes long.
const SELECT: &str = "SELECT o.id, o.total, c.name FROM orders AS o JOIN customers AS c ON \
     c.id = o.customer_id WHERE o.state = 'open' AND o.total > 100 AND c.country = 'NL' ORDER BY \
     o.created_at DESC, o.id LIMIT 50 OFFSET 10";
/// What pgbench -S sends, 57 bytes with a number in it.
const SHORT: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = 4711332;";
/// Entries of the classifier's cache, as served by default.
const CACHE: usize = 4096;
/// Runs of one part for one figure of `time`.
const TIMED: u32 = 200_000;
/// Threads at one gate, for `time`.
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// One part that can be run any number of times.
type Part = Box<dyn FnMut()>;

fn postgres() -> Lexing {
    Lexing::Postgres(PgLexing::STANDARD)
}

fn mysql() -> Lexing {
    Lexing::MySql(MyLexing::standard(MyServer::from_greeting("10.11.19-MariaDB")))
}

/// A text that is in the cache from the second run on.
fn hit(text: &'static str, rules: Lexing) -> Part {
    let mut classifier = Classifier::new(Arc::default(), CACHE);
    Box::new(move || drop(black_box(classifier.classify(black_box(text.as_bytes()), rules))))
}

/// The same text where nothing is ever remembered.
fn miss(text: &'static str, rules: Lexing) -> Part {
    let mut classifier = Classifier::new(Arc::default(), 0);
    Box::new(move || drop(black_box(classifier.classify(black_box(text.as_bytes()), rules))))
}

fn open_gate() -> Option<Arc<Gate>> {
    let gates = Gates::new(Generation(1));
    gates.recovered();
    Some(gates.gate(&Namespace::parse("old/app").ok()?))
}

fn seat(gate: &Arc<Gate>, id: u64) -> Arc<Seat> {
    Seat::take(Arc::clone(gate), SessionId(id), Card::default())
}

/// Admits one program and gives its lease back.
fn admit(seat: &Arc<Seat>, class: StatementClass) {
    if let Ok((lease, guard)) = black_box(seat.begin(class, 1)) {
        black_box(guard);
        lease.answered();
    }
}

fn admission(class: StatementClass) -> Option<Part> {
    let seat = seat(&open_gate()?, 1);
    Some(Box::new(move || admit(&seat, class)))
}

/// A program within a transaction: the lease is held already.
fn extension() -> Option<Part> {
    let seat = seat(&open_gate()?, 1);
    let (mut lease, _) = seat.begin(StatementClass::Write, 1).ok()?;
    Some(Box::new(move || drop(black_box(seat.extend(&mut lease, StatementClass::Read, true)))))
}

/// The names of the parts, in the order in which they are shown.
const PARTS: [&str; 11] = [
    "pg_hit_200",
    "pg_hit_short",
    "pg_miss_200",
    "pg_sqlparser_200",
    "my_hit_200",
    "my_hit_short",
    "my_miss_200",
    "my_sqlparser_200",
    "admit_read",
    "admit_write",
    "extend",
];

fn part(name: &str) -> Option<Part> {
    let (pg, my) = (PostgreSqlDialect {}, MySqlDialect {});
    Some(match name {
        "pg_hit_200" => hit(SELECT, postgres()),
        "pg_hit_short" => hit(SHORT, postgres()),
        "pg_miss_200" => miss(SELECT, postgres()),
        "pg_sqlparser_200" => {
            Box::new(move || drop(black_box(Parser::parse_sql(&pg, black_box(SELECT)))))
        }
        "my_hit_200" => hit(SELECT, mysql()),
        "my_hit_short" => hit(SHORT, mysql()),
        "my_miss_200" => miss(SELECT, mysql()),
        "my_sqlparser_200" => {
            Box::new(move || drop(black_box(Parser::parse_sql(&my, black_box(SELECT)))))
        }
        "admit_read" => admission(StatementClass::Read)?,
        "admit_write" => admission(StatementClass::Write)?,
        "extend" => extension()?,
        _ => return None,
    })
}

/// Nanoseconds per admission and release with this many threads at one gate, each with a session.
fn contended(gate: &Arc<Gate>, threads: usize) -> f64 {
    let start = Arc::new(Barrier::new(threads + 1));
    let each = TIMED.div_ceil(u32::try_from(threads).unwrap_or(1));
    let workers: Vec<_> = (0..threads)
        .map(|id| {
            let (seat, start) = (seat(gate, id as u64), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                (0..each).for_each(|_| admit(&seat, StatementClass::Write));
            })
        })
        .collect();
    start.wait();
    let began = Instant::now();
    for worker in workers {
        drop(worker.join());
    }
    let all = f64::from(each) * threads as f64;
    began.elapsed().as_nanos() as f64 / all
}

#[allow(clippy::print_stdout)]
fn time() -> Option<()> {
    println!("| part | ns each |\n| --- | ---: |");
    for name in PARTS {
        let mut part = part(name)?;
        (0..TIMED / 10).for_each(|_| part());
        let began = Instant::now();
        (0..TIMED).for_each(|_| part());
        let each = began.elapsed().as_nanos() as f64 / f64::from(TIMED);
        println!("| {name} | {each:.0} |");
    }
    let gate = open_gate()?;
    for threads in THREADS {
        println!("| admit_write, {threads} threads | {:.0} |", contended(&gate, threads));
    }
    Some(())
}

fn run(name: &str, count: &str) -> Option<()> {
    let (mut part, count) = (part(name)?, count.parse::<u64>().ok()?);
    (0..count).for_each(|_| part());
    Some(())
}

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["parts"] => {
            println!("{}", PARTS.join("\n"));
            Some(())
        }
        ["time"] => time(),
        ["run", name, count] => run(name, count),
        _ => None,
    };
    if done.is_none() {
        eprintln!(
            "usage: pure_parts parts | time | run PART COUNT   (PART: one that `parts` shows)"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
