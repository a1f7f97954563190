//! Conversations as functions of a number: what is said, and where answers are waited for.
//!
//! Purpose: a few texts come again and again in odd orders of messages, between what changes how
//! texts are read: settings, definitions, transactions, names. Not here: COPY (the corpus has it,
//! `relay_pg`) and DISCARD or DEALLOCATE ALL by a named statement (`docs/CONTRACT.md`).

use crate::support::wire::{bind, close, describe, execute, flush, frame, parse, query, sync};

pub enum Step {
    /// Bytes, and what they say.
    Send { bytes: Vec<u8>, says: Vec<String> },
    /// That many ReadyForQuery have come, in all.
    Ready(usize),
}

pub struct Script {
    pub steps: Vec<Step>,
}

impl Script {
    /// For people.
    pub fn story(&self) -> String {
        let step = |step: &Step| match step {
            Step::Send { says, .. } => says.join("; "),
            Step::Ready(count) => format!("-- until ready {count}"),
        };
        self.steps.iter().map(step).collect::<Vec<_>>().join("\n    ")
    }
}

/// Texts, and how many values each takes.
const TEXTS: &[(&str, usize)] = &[
    ("SELECT 1", 0),
    ("SELECT $1::int + 1", 1),
    ("SELECT $1", 1),
    ("SELECT n, v FROM w ORDER BY n", 0),
    ("SELECT * FROM w ORDER BY n", 0),
    ("SELECT * FROM w WHERE n = $1", 1),
    ("INSERT INTO w (n, v) VALUES ($1, 'new')", 1),
    ("INSERT INTO w (n) SELECT max(n) + 1 FROM w RETURNING n", 0),
    ("UPDATE w SET v = v || 'u' WHERE n = $1 RETURNING n, v", 1),
    ("DELETE FROM w WHERE n > $1", 1),
    ("WITH q AS (SELECT n FROM w) SELECT count(*) FROM q", 0),
    ("SELECT 10 / $1::int", 1),
    ("SELECT 1/0", 0),
    ("SELECT * FROM missing", 0),
    ("SELEC", 0),
    ("", 0),
    ("SELECT '01/02/2026'::date", 0),
    ("SELECT date '01/02/2026' + $1::int", 1),
    ("SELECT 'a\\b'", 0),
    // The engine has a notice for it: names are cut at 63 bytes.
    ("SELECT 1 AS a_name_of_more_bytes_than_the_engine_keeps_of_any_name_that_it_is_told", 0),
    ("SELECT generate_series(1, 5)", 0),
    ("SELECT x FROM place", 0),
    ("SELECT n FROM made", 0),
    ("SELECT current_setting('DateStyle')", 0),
    ("SHOW DateStyle", 0),
    ("EXPLAIN (COSTS off) SELECT n FROM w", 0),
];

/// What changes how texts are read, or where they are run.
const CHANGES: &[&str] = &[
    "BEGIN",
    "BEGIN",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "SET DateStyle = 'German'",
    "SET DateStyle = 'ISO, DMY'",
    "SET LOCAL DateStyle = 'SQL, DMY'",
    "RESET ALL",
    "SELECT set_config('DateStyle', 'ISO, DMY', false)",
    "SELECT set_config('DateStyle', 'ISO, DMY', true)",
    "SELECT hidden()",
    "DO $$BEGIN PERFORM set_config('DateStyle', 'ISO, DMY', false); END$$",
    "SET search_path = a, public",
    "SET search_path = b, public",
    "SET LOCAL search_path = b, public",
    "CREATE TEMP TABLE place (x int)",
    "DROP TABLE IF EXISTS pg_temp.place",
    "CREATE TABLE made (n int)",
    "DROP TABLE made",
    "SELECT 5 AS n INTO made",
    "ALTER TABLE w ADD COLUMN more int",
    "ALTER TABLE w DROP COLUMN more",
    "SET standard_conforming_strings = off",
    "DEALLOCATE ALL",
    "DISCARD ALL",
    "DISCARD PLANS",
    "PREPARE q AS SELECT n FROM w ORDER BY n",
    "EXECUTE q",
    "DECLARE c CURSOR FOR SELECT n FROM w ORDER BY n",
    "FETCH c",
];

struct Dice(u64);

impl Dice {
    /// splitmix64
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

struct Writer {
    dice: Dice,
    /// The texts that this conversation is about.
    favourites: Vec<(&'static str, usize)>,
    /// How many values the text takes that was parsed last.
    values: usize,
    /// Queries stand anywhere; then how many answers come can't be told, and none is waited for.
    wild: bool,
    /// A pipeline is open.
    open: bool,
    ready: usize,
    /// One text in so many changes something.
    steady: usize,
    bytes: Vec<u8>,
    says: Vec<String>,
    steps: Vec<Step>,
}

/// The conversation with this number.
pub fn script(number: u64) -> Script {
    let mut dice = Dice(number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let count = 2 + dice.below(3);
    let favourites = (0..count).map(|_| TEXTS[dice.below(TEXTS.len())]).collect();
    let wild = dice.one_in(3);
    let patience = 1 + dice.below(6);
    let steady = [4, 10, 30][dice.below(3)];
    let mut writer = Writer {
        dice,
        favourites,
        values: 0,
        wild,
        open: false,
        ready: 0,
        steady,
        bytes: Vec::new(),
        says: Vec::new(),
        steps: Vec::new(),
    };
    for _ in 0..50 {
        writer.says_something();
        if writer.dice.one_in(patience) {
            writer.send();
            if !writer.wild {
                writer.steps.push(Step::Ready(writer.ready));
            }
        }
    }
    writer.send();
    Script { steps: writer.steps }
}

impl Writer {
    fn send(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.steps.push(Step::Send { bytes, says: std::mem::take(&mut self.says) });
    }

    fn say(&mut self, bytes: Vec<u8>, what: String) {
        self.open = match bytes[0] {
            b'S' | b'Q' => {
                self.ready += 1;
                false
            }
            b'H' => self.open,
            _ => true,
        };
        self.bytes.extend(bytes);
        self.says.push(what);
    }

    fn text(&mut self) -> (&'static str, usize) {
        if self.dice.one_in(self.steady) {
            (CHANGES[self.dice.below(CHANGES.len())], 0)
        } else {
            self.favourites[self.dice.below(self.favourites.len())]
        }
    }

    fn parse(&mut self) {
        let (text, values) = self.text();
        self.values = values;
        let mut bytes = parse("", text);
        let mut typed = "";
        if values == 1 && self.dice.one_in(4) {
            let body = [b"\0", text.as_bytes(), b"\0\0\x01\0\0\0\x17"].concat();
            (bytes, typed) = (frame(b'P', &body), " (int)");
        }
        self.say(bytes, format!("parse {text}{typed}"));
    }

    fn bind(&mut self, portal: &str, statement: &str) {
        let wrong = self.dice.one_in(24);
        let count = if wrong { 1 - self.values.min(1) } else { self.values };
        let value = ["0", "1", "2", "7", "x"][self.dice.below(5)];
        let values = if count == 1 { vec![Some(value)] } else { Vec::new() };
        self.say(bind(portal, statement, &values), format!("bind {portal}<{statement} {values:?}"));
    }

    fn execute(&mut self, portal: &str) {
        let rows = u32::from(self.dice.one_in(6));
        self.say(execute(portal, rows), format!("execute {portal} {rows}"));
    }

    fn describe(&mut self, kind: u8, name: &str) {
        self.say(describe(kind, name), format!("describe {} {name}", kind as char));
    }

    fn close(&mut self, kind: u8, name: &str) {
        self.say(close(kind, name), format!("close {} {name}", kind as char));
    }

    fn sync(&mut self) {
        self.say(sync(), "sync".into());
    }

    fn query(&mut self) {
        if self.open && !self.wild {
            self.sync();
        }
        let (text, _) = self.text();
        self.say(query(text), format!("query {text}"));
    }

    /// A whole program, as drivers send it.
    fn program(&mut self) {
        self.parse();
        if self.dice.one_in(3) {
            self.describe(b'S', "");
        }
        self.bind("", "");
        if self.dice.one_in(3) {
            self.describe(b'P', "");
        }
        self.execute("");
        if !self.dice.one_in(4) {
            self.sync();
        }
    }

    fn says_something(&mut self) {
        match self.dice.below(32) {
            0..16 => self.program(),
            16 | 17 => self.parse(),
            18 | 19 => {
                self.bind("", "");
                self.execute("");
            }
            20 => self.execute(""),
            21 => self.describe(b'S', ""),
            22 => self.describe(b'P', ""),
            23 => self.close(b'S', ""),
            24 => {
                self.close(b'S', "s");
                let (text, values) = self.favourites[0];
                self.values = values;
                self.say(parse("s", text), format!("parse s {text}"));
            }
            25 => self.bind("", "s"),
            26 => {
                self.bind("p", "");
                self.execute("p");
            }
            27 => self.close(b'P', "p"),
            28 => self.say(flush(), "flush".into()),
            29 => self.query(),
            _ => self.sync(),
        }
    }
}
