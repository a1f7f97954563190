//! The MySQL lexer against the engines' own: texts put together at random from pieces that open and
//! close strings, names and comments, with an INSERT somewhere among them.
//!
//! The engine is the oracle: where a row appears, the classifier must have called the text a writer
//! under the rules that the session had. Every combination of the modes that move the ends of
//! strings is tried, and character sets of every kind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod support;

use std::sync::Arc;

use fencewire::sql::{Classifier, MyEncoding, MyLexing, MyServer, SqlMode, Trusted};
use support::my_wire::{MyLogin, flag};
use support::{MyCluster, MyFlavour, MyOptions, MyWire};

const MODES: [&str; 4] =
    ["", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES"];

const CHARSETS: [&str; 5] = ["utf8mb4", "latin1", "gbk", "euckr", "ascii"];

/// Texts for each mode and character set.
const TEXTS: u32 = 60;

const WRITERS: &[&[u8]] = &[
    b"insert into w values (1)",
    b";insert into w values (1);",
    b";insert into w values (1)",
    b"insert into w values (1) -- ",
    b";insert into w values (1)/*",
    b";insert into w values (1)#",
    b"*/insert into w values (1)",
    b"*/;insert into w values (1)",
    b"';insert into w values (1)-- ",
    b"\";insert into w values (1)-- ",
    b"`;insert into w values (1)-- ",
    b"\n;insert into w values (1)#",
];

const PIECES: &[&[u8]] = &[
    b"'",
    b"\"",
    b"`",
    b"\\",
    b"\\\\",
    b"''",
    b"\"\"",
    b"``",
    b"/*",
    b"*/",
    b"/*!",
    b"/*!50000",
    b"/*!99999",
    b"/*!100100",
    b"/*!050000",
    b"/*M!",
    b"/*M!100100",
    b"/*+",
    b"-- ",
    b"--",
    b"#",
    b"\n",
    b"\r",
    b" ",
    b";",
    b"select ",
    b"select 1",
    b"1",
    b",",
    b"(",
    b")",
    b"@",
    b"@@",
    b".",
    b"1e",
    b"1e1",
    b"0x",
    b"0x1g",
    b"a",
    b"N'",
    b"x'",
    b"b'",
    b"_utf8'",
    b"$$",
    b"$a$",
    b"*",
    b"/",
    b"-",
    b"\0",
    b"\t",
    b"\x0b",
    b"\xc3\xa4",
    b"\xbf\x5c",
    b"\xa0",
    b"\xe4\x27",
    b"as x",
    b"\\N",
    b" from dual ",
    b"{",
    b"}",
    b"begin ",
    b"end",
    b"into @x",
    b":=",
    b":",
    b"w.",
    b"=",
    b"and ",
    b"case ",
    b"create procedure p() ",
    b"not atomic ",
];

/// A fixed sequence of numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn text(&mut self) -> Vec<u8> {
        let count = 1 + self.below(9);
        let mut parts: Vec<&[u8]> = (0..count).map(|_| PIECES[self.below(PIECES.len())]).collect();
        parts.insert(self.below(count + 1), WRITERS[self.below(WRITERS.len())]);
        match self.below(10) {
            0..6 => parts.insert(0, b"select 1 "),
            6..8 => parts.insert(0, b"select '"),
            _ => {}
        }
        parts.concat()
    }
}

fn connect(cluster: &MyCluster, db: &str, mode: &str, charset: &str) -> MyWire {
    let login = MyLogin::of("wire", db).with(flag::MULTI_STATEMENTS | flag::MULTI_RESULTS);
    let mut wire = MyWire::login(cluster.port(), &login).unwrap();
    wire.query(&format!("SET sql_mode = '{mode}', lock_wait_timeout = 1")).ok();
    wire.query(&format!("SET NAMES {charset}")).ok();
    wire
}

/// Sends a text; answers whether the session lives on.
fn run(wire: &mut MyWire, text: &[u8]) -> bool {
    wire.command(&[&[3], text].concat());
    wire.answer(&[]).is_ok()
}

fn a_text_that_wrote_was_called_a_writer(flavour: MyFlavour) {
    let cluster = MyCluster::start(flavour, MyOptions::default());
    let db = cluster.fresh_db();
    cluster.sql(&db, "CREATE TABLE w (a int)");
    let mut watch = MyWire::connect(cluster.port(), "wire", &db);
    let server = MyServer::from_greeting(&watch.greeting.version);
    let mut classifier = Classifier::new(Arc::new(Trusted::default()), 1_024);
    let mut dice = Dice(20_261_201);
    let (mut texts, mut wrote) = (0, 0);
    let mut holes = Vec::new();
    for (mode, charset) in MODES.iter().flat_map(|mode| CHARSETS.map(|charset| (*mode, charset))) {
        let modes = SqlMode::from_value(mode);
        let lexing = MyLexing {
            ansi_quotes: modes.ansi_quotes,
            no_backslash_escapes: modes.no_backslash_escapes,
            encoding: MyEncoding::from_charset(charset),
            ..MyLexing::standard(server)
        };
        let mut wire = connect(&cluster, &db, mode, charset);
        for _ in 0..TEXTS {
            let text = dice.text();
            let found = classifier.classify(&text, lexing);
            let doubt = classifier.classify(&text, lexing.uncertain());
            // COMMIT ends what the text may have begun; a routine it made must not stay.
            if !run(&mut wire, &text) || !run(&mut wire, b"COMMIT") {
                wire = connect(&cluster, &db, mode, charset);
            }
            texts += 1;
            if watch.query("SELECT COUNT(*) FROM w").ok().cell() == "0" {
                continue;
            }
            wrote += 1;
            watch.query("DELETE FROM w").ok();
            if !found.class().is_writer() || !doubt.class().is_writer() {
                let shown = String::from_utf8_lossy(&text).into_owned();
                holes.push(format!("{} under '{mode}', {charset}: {shown:?}", found.class()));
            }
        }
    }
    eprintln!("{}: {texts} texts, {wrote} of them wrote", flavour.name());
    assert!(holes.is_empty(), "wrote, and weren't called writers:\n{}", holes.join("\n"));
    assert!(wrote >= 50, "only {wrote} of {texts} texts wrote: the test shows nothing");
}

#[test]
fn mariadb() {
    a_text_that_wrote_was_called_a_writer(MyFlavour::MariaDb);
}

#[test]
fn mysql() {
    a_text_that_wrote_was_called_a_writer(MyFlavour::MySql);
}
