//! Random walks: the scripts of sessions, each from a seed alone.
//!
//! Purpose: what a hostile reader types, weighed so that the odd is common. A script is a row of
//! phrases: letters at random, whole pipelines, and the beginnings of everything that once led past
//! a fence (`docs/TESTING.md`), each with random ends. Pure, and it looks at no answer: the same
//! seed gives the same script, whatever the machine does.
//!
//! Who uses it: `tests/siege_pg.rs`.

use super::words::{BLOCKS, CALLS, COPIES, CURSORS, ERRORS, HIDDEN, LIFTING, Message, PORTALS};
use super::words::{PREPARES, READS, SETTINGS, STATEMENTS, Step, WRITES};

/// Seeded dice.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % end as u64).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// When a session goes on while a fence is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Stands still from before the acquire to its acknowledgement.
    Parked,
    /// Goes on all the while.
    Racing,
    /// Comes behind the acknowledgement.
    Fresh,
}

/// What one session does in one cycle.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its `application_name`, which names its sequence, tables and rows.
    pub who: String,
    pub kind: Kind,
    /// With the gate open; one that comes behind the fence has none.
    pub before: Vec<Step>,
    /// Behind the acknowledgement, or for a racing one until then.
    pub during: Vec<Step>,
    /// Behind the acknowledgement.
    pub late: Vec<Step>,
    /// Right behind the release.
    pub after: Vec<Step>,
}

/// The script of session `number` of a cycle, against this major version.
pub fn script(seed: u64, cycle: u64, number: usize, version: u32) -> Script {
    let mut dice = Dice::new(seed ^ cycle.wrapping_mul(0x1_0000_01b3));
    let mut dice = Dice::new(dice.roll() ^ ((number as u64) << 17));
    let kind = match dice.below(8) {
        0..4 => Kind::Parked,
        4..6 => Kind::Racing,
        _ => Kind::Fresh,
    };
    let mut walk = Walk { dice, version, steps: Vec::new() };
    if kind != Kind::Fresh {
        walk.prelude();
        let count = walk.dice.below(4);
        walk.phrases(count);
        if kind == Kind::Parked && !walk.dice.one_in(3) {
            walk.say(vec![Message::Sync, q("ROLLBACK")]);
        }
        // Where it stands when the fence comes.
        walk.stance();
    }
    let before = std::mem::take(&mut walk.steps);
    if kind == Kind::Fresh || walk.dice.one_in(4) {
        walk.prelude();
    }
    let count = 1 + walk.dice.below(4);
    walk.phrases(count);
    let during = std::mem::take(&mut walk.steps);
    let count = walk.dice.below(3);
    walk.phrases(count);
    walk.steps.push(Step::Settle);
    let late = std::mem::take(&mut walk.steps);
    if walk.dice.one_in(2) {
        walk.say(vec![Message::Query("INSERT INTO t DEFAULT VALUES".into())]);
    }
    let who = format!("w{number:02}");
    Script { who, kind, before, during, late, after: walk.steps }
}

struct Walk {
    dice: Dice,
    version: u32,
    steps: Vec<Step>,
}

fn q(text: &str) -> Message {
    Message::Query(text.into())
}

fn p(name: &'static str, text: &str) -> Message {
    Message::Parse(name, text.into())
}

fn b(statement: &'static str) -> Message {
    Message::Bind("", statement)
}

const E: Message = Message::Execute("", 0);

impl Walk {
    fn phrases(&mut self, count: usize) {
        for _ in 0..count {
            match self.dice.below(27) {
                0..4 => self.soup(),
                4..7 => self.pipelines(),
                7..9 => self.open_block(),
                9..12 => self.late_error(),
                12..14 => self.swap(),
                14..16 => self.copy(),
                16..18 => self.transaction(),
                18 => self.by_sql(),
                19 => self.cursor(),
                20..22 => self.single(),
                22 => self.cancelled(),
                23 => self.portals(),
                _ => self.attack(),
            }
        }
    }

    /// Sends, and goes on in one of the ways that clients go on.
    fn say(&mut self, messages: Vec<Message>) {
        let cut = self.dice.one_in(6).then(|| self.dice.below(200));
        self.steps.push(Step::Send(messages, cut));
        match self.dice.below(10) {
            0..2 => {}
            2 => self.steps.push(Step::Listen(20)),
            _ => self.steps.push(Step::Settle),
        }
    }

    fn statement(&mut self) -> &'static str {
        self.dice.pick(&STATEMENTS)
    }

    fn portal(&mut self) -> &'static str {
        if self.dice.one_in(2) { "" } else { self.dice.pick(&PORTALS) }
    }

    fn hidden(&mut self) -> String {
        let lifts = self.version >= 18 && self.dice.one_in(9);
        if lifts { LIFTING.into() } else { self.dice.pick(&HIDDEN).into() }
    }

    /// One statement.
    fn text(&mut self) -> String {
        let text = match self.dice.below(20) {
            0..4 => self.dice.pick(&READS),
            4..9 => return self.hidden(),
            9..11 => self.dice.pick(&WRITES),
            11..14 => self.dice.pick(&BLOCKS),
            14..16 => self.dice.pick(&SETTINGS),
            16 => self.dice.pick(&PREPARES),
            17 => self.dice.pick(&CURSORS),
            18 => self.dice.pick(&COPIES),
            _ => self.dice.pick(&ERRORS),
        };
        let names = if text.contains("CURSOR") || CURSORS.contains(&text) {
            ["p1", "p2", "p1"]
        } else {
            ["s", "c", "v"]
        };
        let name = self.dice.pick(&names);
        text.replace('@', name).replace('#', &format!("{:08x}", self.dice.roll() as u32))
    }

    /// One text of a simple query: one statement, or some.
    fn texts(&mut self) -> String {
        let count = if self.dice.one_in(5) { 2 + self.dice.below(2) } else { 1 };
        let all: Vec<String> = (0..count).map(|_| self.text()).collect();
        all.join("; ")
    }

    fn letter(&mut self) -> Message {
        match self.dice.below(26) {
            0..4 => Message::Parse(self.statement(), self.text()),
            4..8 => Message::Bind(self.portal(), self.statement()),
            8..12 => {
                let rows = u32::from(self.dice.one_in(4));
                Message::Execute(self.portal(), rows)
            }
            12 => Message::Describe(b'S', self.statement()),
            13 => Message::Describe(b'P', self.portal()),
            14 => Message::Close(b'S', self.statement()),
            15 => Message::Close(b'P', self.portal()),
            16..18 => Message::Flush,
            18..21 => Message::Sync,
            21..23 => Message::Query(self.texts()),
            23 => self.call(),
            24 => Message::CopyData,
            _ if self.dice.one_in(3) => Message::CopyFail,
            _ => Message::CopyDone,
        }
    }

    fn call(&mut self) -> Message {
        let (function, arguments) = self.dice.pick(&CALLS);
        Message::Call(function, arguments.to_vec())
    }

    /// Letters at random.
    fn soup(&mut self) {
        let count = 1 + self.dice.below(7);
        let letters = (0..count).map(|_| self.letter()).collect();
        self.say(letters);
    }

    /// One program of a pipeline, without an end.
    fn program(&mut self) -> Vec<Message> {
        let name = if self.dice.one_in(2) { "" } else { self.statement() };
        match self.dice.below(5) {
            0 => vec![b(name), E],
            1 => vec![Message::Parse(name, self.hidden()), b(name), E],
            2 => {
                let describe = Message::Describe(b'P', "");
                vec![Message::Parse(name, self.text()), b(name), describe, E]
            }
            _ => vec![Message::Parse(name, self.text()), b(name), E],
        }
    }

    /// What ends a pipeline, or doesn't.
    fn end(&mut self) -> Vec<Message> {
        match self.dice.below(10) {
            0..4 => vec![Message::Sync],
            4..7 => vec![Message::Query(self.texts())],
            7 => vec![self.call()],
            8 => vec![Message::Flush],
            _ => Vec::new(),
        }
    }

    fn pipelines(&mut self) {
        let mut all = Vec::new();
        for _ in 0..1 + self.dice.below(3) {
            for _ in 0..1 + self.dice.below(2) {
                all.extend(self.program());
                if self.dice.one_in(6) {
                    let letter = self.letter();
                    all.push(letter);
                }
            }
            all.extend(self.end());
        }
        self.say(all);
    }

    /// A block that a pipeline begins by itself, and that a query at its end leaves open (18).
    fn open_block(&mut self) {
        let first = if self.dice.one_in(3) { self.text() } else { "SELECT 1".into() };
        let last = match self.dice.below(4) {
            0 => "RESET ALL".into(),
            1 => "SELECT 2".into(),
            _ => self.texts(),
        };
        let end = if self.dice.one_in(5) { self.call() } else { Message::Query(last) };
        self.say(vec![p("", &first), b(""), E, end]);
        match self.dice.below(4) {
            0 => {
                let lone = vec![Message::Close(b'S', "zz"), Message::Sync];
                self.say(lone);
            }
            1 => self.say(vec![Message::Sync]),
            _ => {}
        }
        if self.dice.one_in(2) {
            self.single();
        }
    }

    /// An error that comes where none is expected: on a Flush, on the end of a COPY outside one.
    fn late_error(&mut self) {
        if self.dice.one_in(2) {
            self.say(vec![q("SET statement_timeout = 40")]);
        }
        let mut first = if self.dice.one_in(2) { vec![p("", "SELECT 1")] } else { self.program() };
        first.push(Message::Flush);
        self.steps.push(Step::Send(first, None));
        self.steps.push(Step::Listen(if self.dice.one_in(4) { 5 } else { 90 }));
        let late = match self.dice.below(8) {
            0..4 => Message::CopyDone,
            4 => Message::CopyFail,
            5 => Message::CopyData,
            6 => Message::Flush,
            _ => self.letter(),
        };
        self.steps.push(Step::Send(vec![late], None));
        if self.dice.one_in(3) {
            self.steps.push(Step::Listen(30));
        }
        match self.dice.below(5) {
            0..2 => self.swap(),
            2 => self.pipelines(),
            3 => self.single(),
            _ => self.soup(),
        }
    }

    /// Names that are given up and taken again within one pipeline, for what drops the guard.
    fn swap(&mut self) {
        let mut all = Vec::new();
        if self.dice.one_in(3) {
            let sleep = p("", "SELECT pg_sleep(0.1)");
            all.extend([sleep, b(""), E]);
        }
        let flooded = self.dice.one_in(8);
        if flooded {
            // Around the bound of what may be pending beside the names that there are.
            let count = 65_515 + u32::try_from(self.dice.below(25)).unwrap();
            all.push(Message::Closes(count));
        }
        let ends = self.dice.pick(&["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK TO a"]);
        let drops = self.dice.pick(&[
            "RESET ALL",
            "RESET ALL",
            "DISCARD ALL",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            "RESET default_transaction_read_only",
        ]);
        match self.dice.below(if flooded { 4 } else { 8 }) {
            0..2 => {
                for name in ["s", "c"] {
                    all.extend([p(name, "SELECT 1"), Message::Close(b'S', name)]);
                }
            }
            2 => {}
            _ => all.extend([Message::Close(b'S', "s"), Message::Close(b'S', "c")]),
        }
        if flooded && self.dice.one_in(3) {
            let write = self.write();
            all.extend([Message::Parse("s", write), Message::Sync]);
            self.say(all);
            return self.portals();
        }
        all.extend([p("c", ends), p("s", drops)]);
        let bound = match self.dice.below(3) {
            0 => vec![b("s"), E, b("c"), E],
            1 => vec![b("c"), E, b("s"), E],
            _ => vec![b("s"), E],
        };
        all.extend(bound);
        let hidden =
            if self.dice.one_in(3) { vec![p("", &self.hidden()), b("")] } else { vec![b("v")] };
        all.extend(hidden);
        all.push(E);
        all.extend(self.end());
        self.say(all);
    }

    /// A portal that is bound in one pipeline of a block and executed in another.
    fn portals(&mut self) {
        if !self.dice.one_in(4) {
            self.say(vec![q("BEGIN")]);
        }
        let (portal, name) = (self.dice.pick(&["p1", "p2"]), self.dice.pick(&["s", "c", "v"]));
        self.say(vec![Message::Bind(portal, name), Message::Sync]);
        self.say(vec![Message::Execute(portal, 0), Message::Sync]);
        if !self.dice.one_in(4) {
            self.say(vec![q("COMMIT")]);
        }
    }

    fn write(&mut self) -> String {
        let text = self.dice.pick(&WRITES);
        text.replace('#', &format!("{:08x}", self.dice.roll() as u32))
    }

    /// A COPY, its data, and what clients put where it doesn't belong.
    fn copy(&mut self) {
        let text = self.dice.pick(&COPIES);
        let begin = if self.dice.one_in(2) {
            vec![q(text)]
        } else {
            let mut all = vec![p("", text), b(""), E];
            if self.dice.one_in(2) {
                all.push(Message::Sync);
            }
            all
        };
        let mut rest = Vec::new();
        for _ in 0..self.dice.below(6) {
            rest.push(match self.dice.below(12) {
                0..4 => Message::CopyData,
                4..7 => Message::CopyDone,
                7 => Message::CopyFail,
                8..11 => Message::Sync,
                _ => self.letter(),
            });
        }
        if self.dice.one_in(2) {
            self.say(begin);
            self.say(rest);
        } else {
            self.say([begin, rest].concat());
        }
    }

    /// A block of some statements, by queries and by pipelines.
    fn transaction(&mut self) {
        let begins = self.dice.pick(&BLOCKS[..5]);
        self.say(vec![q(begins)]);
        for _ in 0..1 + self.dice.below(3) {
            match self.dice.below(3) {
                0 => self.single(),
                1 => {
                    let text = self.dice.pick(&BLOCKS[5..]);
                    self.say(vec![q(text)]);
                }
                _ => {
                    let mut all = self.program();
                    all.push(Message::Sync);
                    self.say(all);
                }
            }
        }
        if self.dice.one_in(2) {
            let ends = self.dice.pick(&["COMMIT", "COMMIT", "ROLLBACK", "COMMIT AND CHAIN"]);
            self.say(vec![q(ends)]);
        }
    }

    fn by_sql(&mut self) {
        for _ in 0..1 + self.dice.below(3) {
            let name = self.dice.pick(&["s", "c", "v"]);
            let text = self.dice.pick(&PREPARES).replace('@', name);
            self.say(vec![q(&text)]);
            if self.dice.one_in(3) {
                self.say(vec![b(name), E, Message::Sync]);
            }
        }
    }

    fn cursor(&mut self) {
        if self.dice.one_in(2) {
            self.say(vec![q("BEGIN")]);
        }
        for _ in 0..1 + self.dice.below(3) {
            let name = self.dice.pick(&["p1", "p2"]);
            let text = self.dice.pick(&CURSORS).replace('@', name);
            self.say(vec![q(&text)]);
        }
        if self.dice.one_in(2) {
            let portal = self.dice.pick(&["p1", "p2"]);
            self.say(vec![Message::Execute(portal, 1), Message::Sync]);
        }
    }

    fn single(&mut self) {
        let text = if self.dice.one_in(2) { self.hidden() } else { self.texts() };
        self.say(vec![Message::Query(text)]);
    }

    /// Something is cancelled, or what comes behind it.
    fn cancelled(&mut self) {
        let mut messages = match self.dice.below(4) {
            0 => vec![q("SELECT pg_sleep(0.2)")],
            1 => [self.program(), vec![Message::Sync]].concat(),
            2 => self.program(),
            _ => vec![Message::Query(self.hidden())],
        };
        if self.dice.one_in(3) {
            messages.extend(self.program());
            messages.extend(self.end());
        }
        self.steps.push(Step::Send(messages, None));
        if self.dice.one_in(2) {
            self.steps.push(Step::Listen(10));
        }
        self.steps.push(Step::Cancel);
        if self.dice.one_in(2) {
            self.steps.push(Step::Settle);
        }
        if self.dice.one_in(2) {
            self.swap();
        }
    }

    /// The plainest ways, which the guard alone is in front of.
    fn attack(&mut self) {
        match self.dice.below(8) {
            4 => self.say(vec![q("COMMIT")]),
            5 => {
                let hold = "DECLARE p2 CURSOR WITH HOLD FOR SELECT n FROM drawing";
                self.say(vec![q("SAVEPOINT a"), q(hold), q("COMMIT")]);
            }
            6..8 => {
                let portal = self.dice.pick(&PORTALS);
                let all = [vec![Message::Execute(portal, 0)], self.program(), self.end()];
                self.say(all.concat());
            }
            0 => {
                let all = vec![q("SELECT n FROM switching; COMMIT"), q("SELECT n FROM drawing")];
                self.say(all);
            }
            1 => self.say(vec![b("v"), E, Message::Sync]),
            2 => {
                let all = vec![p("", &self.hidden()), b(""), E, Message::Sync];
                self.say(all);
            }
            _ => {
                let all = (0..6).map(|_| Message::Query(self.hidden())).collect();
                self.say(all);
            }
        }
    }

    /// Names and settings that most ways past a fence begin with.
    fn prelude(&mut self) {
        if self.dice.one_in(3) {
            return;
        }
        let vs = self.hidden();
        let mut all = vec![p("s", "SELECT 1"), p("c", "SELECT 1"), Message::Parse("v", vs)];
        if self.dice.one_in(4) {
            let first = p("s", WRITES[0]);
            all[0] = first;
        }
        all.push(Message::Sync);
        self.say(all);
        if self.dice.one_in(5) {
            self.by_sql();
        }
    }

    /// Where a session stands when the fence comes.
    fn stance(&mut self) {
        match self.dice.below(18) {
            0..2 => self.say(vec![q("BEGIN"), q("SELECT 1")]),
            2 => self.say(vec![q("BEGIN"), q("SELECT 1"), q("SAVEPOINT a")]),
            3..5 => self.say(vec![p("", "SELECT 1"), b(""), E, q("SELECT 2")]),
            5 => self.say(vec![p("", "SELECT 1"), b(""), E, Message::Flush]),
            6 => self.say(vec![q("COPY t (who) FROM STDIN")]),
            7 => {
                let rows = "SELECT n FROM drawing, generate_series(1, 9)";
                let portal = vec![p("", rows), Message::Bind("p1", ""), Message::Execute("p1", 1)];
                self.say([vec![q("BEGIN")], portal, vec![Message::Sync]].concat());
            }
            8 => self.open_block(),
            9 => self.transaction(),
            10 => {
                let program = self.program();
                self.say(program);
            }
            12 => {
                let hold = "DECLARE p1 CURSOR WITH HOLD FOR SELECT n FROM drawing";
                self.say(vec![q("BEGIN"), q(hold), q("SAVEPOINT a")]);
            }
            13 => {
                let portal = self.dice.pick(&PORTALS);
                self.say(vec![p("c", "COMMIT"), Message::Sync, q("BEGIN")]);
                self.say(vec![Message::Bind(portal, "c"), Message::Sync]);
            }
            11 => {
                let cursor = "DECLARE p1 CURSOR FOR SELECT n FROM drawing, generate_series(1, 9)";
                self.say(vec![q("BEGIN"), q(cursor)]);
            }
            _ => {}
        }
    }
}
