//! Unnamed statements kept under names of the proxy's: what the client sees is what it would see.
//!
//! A few lines are the engine here (what PostgreSQL does with statements, portals, transactions and
//! errors in pipelines; `tests/auto_prepare_pg.rs` and the corpus hold live ones to the same). A
//! seeded generator makes conversations and the moments at which answers come; each is compared,
//! byte for byte, with the same conversation without a proxy.

use std::collections::HashMap;

use super::*;
use crate::wire::pg::auto_prepare::{AutoPrepare, Awaited};
use crate::wire::pg::owed::model::Dice;

/// A text as it was parsed: with the setting that it was read by.
type Text = (String, u32);

/// PostgreSQL, as far as statements go. Its answers to an Execute say what was run.
#[derive(Default)]
struct Pg {
    heard: BytesMut,
    unnamed: Option<Text>,
    named: HashMap<String, Text>,
    portals: HashMap<String, Text>,
    block: Option<bool>,
    setting: u32,
    before: u32,
    begun: bool,
    skipping: bool,
    /// Statements that it was asked to parse.
    parses: usize,
}

impl Pg {
    fn hears(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.heard.extend_from_slice(bytes);
        let mut said = Vec::new();
        while let Ok(Some(header)) = crate::wire::pg::frame::header(&self.heard) {
            if self.heard.len() < 5 + header.body {
                break;
            }
            let frame = self.heard.split_to(5 + header.body);
            self.hears_one(header.tag, &frame[5..], &mut said);
        }
        said
    }

    fn hears_one(&mut self, tag: u8, body: &[u8], said: &mut Vec<u8>) {
        let mut texts = body.split(|byte| *byte == 0);
        let mut next = || String::from_utf8_lossy_owned_or(texts.next().unwrap_or_default());
        match tag {
            b'S' => {
                self.skipping = false;
                self.ends_implicit(true, said);
                return;
            }
            b'H' => return,
            _ if self.skipping => return,
            _ => {}
        }
        if !self.begun && tag != b'C' {
            (self.begun, self.before) = (true, self.setting);
        }
        let done = match tag {
            b'Q' => {
                self.unnamed = None;
                let text = (next(), self.setting);
                let done = self.runs(&text);
                self.says(done, said);
                self.skipping = false;
                return self.ends_implicit(true, said);
            }
            b'P' => {
                let (name, text) = (next(), next());
                self.parses(name, text)
            }
            b'B' => {
                let (portal, name) = (next(), next());
                self.finds(&name).and_then(|text| {
                    self.may_run(&text)?;
                    self.portals.insert(portal, text);
                    Ok(message(b'2', b""))
                })
            }
            b'D' => {
                let name = next();
                let found = match name.split_at(1) {
                    ("S", name) => self.finds(name),
                    (_, portal) => self.portals.get(portal).cloned().ok_or("34000"),
                };
                found.map(|(text, _)| message(b'T', text.as_bytes()))
            }
            b'E' => match self.portals.get(&next()).cloned() {
                Some(text) => self.runs(&text),
                None => Err("34000"),
            },
            _ => {
                let name = next();
                match name.split_at(1) {
                    ("S", "") => self.unnamed = None,
                    ("S", name) => drop(self.named.remove(name)),
                    (_, portal) => drop(self.portals.remove(portal)),
                }
                Ok(message(b'3', b""))
            }
        };
        self.says(done, said);
    }

    fn parses(&mut self, name: String, text: String) -> Result<Vec<u8>, &'static str> {
        self.parses += 1;
        if name.is_empty() {
            self.unnamed = None;
        }
        let text = (text, self.setting);
        self.may_run(&text)?;
        if text.0.contains("missing") {
            return Err("42P01");
        }
        if name.is_empty() {
            self.unnamed = Some(text);
        } else if self.named.insert(name, text).is_some() {
            // Only the answer shows it: the client closes a name before it parses it anew.
            return Err("42P05");
        }
        Ok(message(b'1', b""))
    }

    fn finds(&self, name: &str) -> Result<Text, &'static str> {
        let found = if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) };
        found.cloned().ok_or("26000")
    }

    fn may_run(&self, text: &Text) -> Result<(), &'static str> {
        let ends = text.0 == "COMMIT" || text.0 == "ROLLBACK";
        if self.block == Some(false) && !ends { Err("25P02") } else { Ok(()) }
    }

    fn runs(&mut self, text: &Text) -> Result<Vec<u8>, &'static str> {
        self.may_run(text)?;
        match text.0.as_str() {
            "SELECT 1/0" => return Err("22012"),
            "SELECT * FROM missing" => return Err("42P01"),
            "BEGIN" if self.block.is_none() => self.block = Some(true),
            "COMMIT" | "ROLLBACK" => {
                let undone = text.0 == "ROLLBACK" || self.block == Some(false);
                self.block = None;
                self.ends(!undone);
            }
            "SET DateStyle = 'German'" => self.setting += 1,
            "DEALLOCATE ALL" => self.named.clear(),
            _ => {}
        }
        Ok(done(&format!("{} as of {}", text.0, text.1)))
    }

    fn says(&mut self, done: Result<Vec<u8>, &'static str>, said: &mut Vec<u8>) {
        match done {
            Ok(answer) => said.extend(answer),
            Err(code) => {
                said.extend(error(code, "no"));
                self.skipping = true;
                match &mut self.block {
                    Some(works) => *works = false,
                    None => self.ends(false),
                }
            }
        }
    }

    fn ends(&mut self, kept: bool) {
        if !kept && self.begun {
            self.setting = self.before;
        }
        self.begun = false;
        self.portals.clear();
    }

    fn ends_implicit(&mut self, kept: bool, said: &mut Vec<u8>) {
        let status = match self.block {
            None => {
                self.ends(kept);
                b'I'
            }
            Some(true) => b'T',
            Some(false) => b'E',
        };
        said.extend(ready(status));
    }
}

fn drop<T>(_: T) {}

fn keeping(chunk: usize) -> Stage {
    let mut stage = Stage::new(chunk);
    let trusted = Arc::new(Trusted::default().asking_steadiness(true));
    stage.classifier = Classifier::new(trusted, 64);
    let counters = Arc::new(WorkerCounters::default());
    stage.conversation.auto = Some(Box::new(AutoPrepare::new(counters)));
    stage
}

fn keeping_both(test: impl Fn(&mut Stage)) {
    for chunk in [usize::MAX, 1, 7] {
        test(&mut keeping(chunk));
    }
}

const TEXTS: [&str; 10] = [
    "SELECT 1",
    "SELECT 1",
    "SELECT 1",
    "SELECT 2",
    "INSERT INTO t VALUES ($1)",
    "SELECT 1/0",
    "SELECT * FROM missing",
    "BEGIN",
    "ROLLBACK",
    "SET DateStyle = 'German'",
];

fn describe(kind: u8, name: &str) -> Vec<u8> {
    message(b'D', &[&[kind][..], name.as_bytes(), b"\0"].concat())
}

fn close(kind: u8, name: &str) -> Vec<u8> {
    message(b'C', &[&[kind][..], name.as_bytes(), b"\0"].concat())
}

fn any(dice: &mut Dice) -> Vec<u8> {
    let text = TEXTS[dice.roll(TEXTS.len())];
    match dice.roll(32) {
        0..8 => [parse("", text), bind("", ""), execute(), sync()].concat(),
        8..11 => [parse("", text), bind("", ""), execute()].concat(),
        11..14 => parse("", text),
        14..17 => bind("", ""),
        17 => execute(),
        18 => describe(b'S', ""),
        19 => close(b'S', ""),
        20 => query(text),
        21 => [close(b'S', "s"), parse("s", text)].concat(),
        22 => bind("", "s"),
        23 => message(b'H', b""),
        24 => query("COMMIT"),
        25 => query("DEALLOCATE ALL"),
        26 => bind("p", ""),
        27 => describe(b'P', ""),
        _ => sync(),
    }
}

/// One conversation, through the proxy; answers how many texts the two engines parsed.
fn plays(seed: u64) -> (usize, usize) {
    let mut dice = Dice(seed);
    let (mut alone, mut engine, mut stage) = (Pg::default(), Pg::default(), keeping(usize::MAX));
    let (mut expected, mut story) = (Vec::new(), Vec::new());
    let lean = dice.roll(4);
    for step in 0..40 {
        let bytes = if step == 39 { sync() } else { any(&mut dice) };
        expected.extend(alone.hears(&bytes));
        stage.client(&bytes);
        story.extend(bytes);
        if step == 39 || dice.roll(4) <= lean {
            while !stage.to_engine.is_empty() {
                let sent = stage.sent();
                stage.engine(&engine.hears(&sent));
            }
        }
    }
    let seen = std::mem::take(&mut stage.to_client);
    assert!(
        expected == seen[..],
        "VIOLATION: invariant 17: seed {seed}: {}\n  instead of {}\n  for {}",
        seen.escape_ascii(),
        expected.escape_ascii(),
        story.escape_ascii()
    );
    assert!(stage.conversation.owed.is_empty() && !stage.blocked, "seed {seed}");
    (alone.parses, engine.parses)
}

#[test]
fn invariant_17_the_client_sees_no_difference() {
    let (mut alone, mut kept) = (0, 0);
    for seed in 1..4_000 {
        let (one, other) = plays(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        alone += one;
        kept += other;
    }
    assert!(kept + 500 < alone, "nothing is kept: {kept} instead of {alone}");
}

#[cfg(debug_assertions)]
#[test]
fn invariant_17_what_is_kept_too_long_or_guessed_is_reported() {
    let check = "wire::pg::tests::auto_prepare::invariant_17_the_client_sees_no_difference";
    let guards = [("auto-forget", "invariant 17"), ("auto-meaning", "invariant 17")];
    crate::base::arm::missed(check, &guards).unwrap();
}

fn once(text: &str) -> Vec<u8> {
    [parse("", text), bind("", ""), execute(), sync()].concat()
}

/// What an engine says to [`once`]; `first` is its word on what stands for the Parse.
fn answer(first: u8) -> Vec<u8> {
    [message(first, b""), message(b'2', b""), done("SELECT 1"), ready(b'I')].concat()
}

/// Has a text kept, and answers the name it has.
fn keep(stage: &mut Stage, text: &str) -> String {
    for _ in 0..2 {
        stage.client(&once(text));
        stage.engine(&answer(b'1'));
    }
    assert_eq!(stage.told(), ["1", "2", "C", "ZI", "1", "2", "C", "ZI"]);
    let sent = String::from_utf8_lossy_owned_or(&stage.sent());
    let at = sent.find("fencewire_").expect("the second one has a name");
    sent[at..].split('\0').next().unwrap().to_owned()
}

#[test]
fn a_text_is_named_when_it_comes_again_and_then_not_sent_any_more() {
    keeping_both(|stage| {
        let name = keep(stage, "SELECT 1");
        let nobody = name.rsplit_once('_').unwrap().0.to_owned();
        stage.client(&[parse("", "SELECT 1"), describe(b'S', ""), bind("", "")].concat());
        stage.client(&[execute(), sync()].concat());
        let sent = [close(b'P', &nobody), describe(b'S', &name), bind("", &name)].concat();
        assert_eq!(stage.sent(), [sent, execute(), sync()].concat());
        let described = [message(b'3', b""), message(b't', b"\0\0"), message(b'T', b"\0\0")];
        stage.engine(&described.concat());
        stage.engine(&answer(b'2')[5..]);
        assert_eq!(stage.told(), ["1", "t", "T", "2", "C", "ZI"]);
        assert!(stage.conversation.lease.is_none(), "released by answer");
        // Other types are another statement, and values stay what they are.
        let typed = message(b'P', b"\0SELECT 1\0\0\x01\0\0\0\x17");
        stage.client(&typed);
        assert_eq!(stage.sent(), typed);
    });
}

#[test]
fn behind_an_error_no_parse_is_complete() {
    keeping_both(|stage| {
        keep(stage, "SELECT 1");
        stage.client(&[parse("", "SELECT 1/0"), bind("", ""), execute()].concat());
        stage.client(&once("SELECT 1"));
        let failed = [message(b'1', b""), message(b'2', b""), error("22012", "no")].concat();
        stage.engine(&[failed, ready(b'I')].concat());
        assert_eq!(stage.told(), ["1", "2", "E:22012", "ZI"]);
    });
}

/// At a closed gate everything goes as it came, and what is kept is judged by its text.
#[test]
fn a_fence_steps_in_front_of_what_is_kept() {
    keeping_both(|stage| {
        keep(stage, "INSERT INTO t VALUES (1)");
        stage.client(&[parse("", "INSERT INTO t VALUES (1)"), sync()].concat());
        stage.engine(&[message(b'3', b""), ready(b'I')].concat());
        assert_eq!(stage.told(), ["1", "ZI"]);
        stage.sent();
        stage.close();
        stage.client(&[bind("", ""), execute(), sync()].concat());
        assert_eq!(stage.told(), ["E:ZF001", "ZI"], "VIOLATION: a write by a kept name");
        assert!(stage.sent().is_empty());
        stage.client(&[parse("", "SELECT 2"), sync()].concat());
        let guard = stage.own(GUARD);
        assert_eq!(stage.sent(), guard);
        stage.engine(&ended(b'I'));
        let ahead = stage.short_guard();
        assert_eq!(stage.sent(), [parse("", "SELECT 2"), sync(), ahead].concat());
    });
}

#[test]
fn where_there_is_no_unnamed_statement_the_engine_is_made_to_have_none() {
    keeping_both(|stage| {
        let name = keep(stage, "SELECT 1");
        stage.client(&query("SELECT 2"));
        stage.engine(&[done("SELECT 1"), ready(b'I')].concat());
        stage.sent();
        stage.client(&[bind("", ""), sync()].concat());
        assert_eq!(stage.sent(), [close(b'S', ""), bind("", ""), sync()].concat());
        stage.engine(&[message(b'3', b""), error("26000", "none"), ready(b'I')].concat());
        assert_eq!(stage.told(), ["C", "ZI", "E:26000", "ZI"]);
        // That error had everything forgotten.
        stage.client(&once("SELECT 1"));
        assert_eq!(stage.sent(), once("SELECT 1"), "{name} is kept");
    });
}

#[test]
fn in_a_failed_transaction_and_with_moving_literals_a_parse_goes_as_it_is() {
    keeping_both(|stage| {
        keep(stage, "SELECT 1");
        for text in ["SELECT 'today'::date"; 4] {
            stage.client(&once(text));
            assert_eq!(stage.sent(), once(text));
            stage.engine(&answer(b'1'));
        }
        stage.client(&query("BEGIN"));
        stage.engine(&[done("BEGIN"), ready(b'T')].concat());
        stage.client(&query("SELECT 1/0"));
        stage.engine(&[error("22012", "no"), ready(b'E')].concat());
        stage.sent();
        stage.client(&once("SELECT 1"));
        assert_eq!(stage.sent(), once("SELECT 1"));
    });
}

#[test]
fn what_is_kept_is_bounded_and_what_is_forgotten_is_closed() {
    let mut stage = keeping(usize::MAX);
    let mut engine = Pg::default();
    for number in 0..3 * limits::AUTO_PREPARE_NAMES_MAX {
        for _ in 0..2 {
            stage.client(&once(&format!("SELECT c{number} FROM t")));
            let sent = stage.sent();
            stage.engine(&engine.hears(&sent));
        }
        assert!(engine.named.len() <= limits::AUTO_PREPARE_ALIVE_MAX);
        if number % 500 == 499 {
            stage.client(&query("SET DateStyle = 'German'"));
            let sent = stage.sent();
            stage.engine(&engine.hears(&sent));
        }
    }
    assert!(engine.named.len() > 1, "control arm: something is kept");
    let told = stage.told();
    assert!(told.iter().all(|tag| matches!(tag.as_str(), "1" | "2" | "C" | "ZI")), "{told:?}");
}

#[test]
fn a_client_that_uses_the_proxys_names_is_told() {
    for of in [parse("NAME", "DELETE FROM t"), close(b'S', "NAME")] {
        let mut stage = keeping(usize::MAX);
        let name = keep(&mut stage, "SELECT 1");
        stage.may_break = true;
        let mut taken = of.clone();
        let at = taken.windows(4).position(|part| part == b"NAME").unwrap();
        taken.splice(at..at + 4, name.bytes());
        let length = u32::try_from(taken.len() - 1).unwrap();
        taken[1..5].copy_from_slice(&length.to_be_bytes());
        stage.client(&taken);
        let broken = stage.broken.as_deref().unwrap_or_default();
        assert!(broken.contains("the proxy's own"), "VIOLATION: {broken:?}");
        assert!(stage.sent().is_empty());
    }
}

/// What runs unseen may have prepared another text under a kept name.
#[test]
fn invariant_17_a_name_that_may_mean_another_text_is_judged_as_opaque() {
    let mut stage = keeping(usize::MAX);
    keep(&mut stage, "SELECT 1");
    let opaque = [parse("d", "DO $$ BEGIN END $$"), bind("", "d"), execute(), sync()].concat();
    stage.client(&[parse("", "SELECT 1"), sync(), opaque].concat());
    stage.engine(&[message(b'3', b""), ready(b'I')].concat());
    stage.engine(&[message(b'1', b""), message(b'2', b""), done("DO"), ready(b'I')].concat());
    stage.told();
    stage.sent();
    stage.close();
    stage.client(&[bind("", ""), execute(), sync()].concat());
    let told = stage.told();
    assert_eq!(told, ["E:ZF008", "ZI"], "VIOLATION: invariant 17: judged by a text of before");
    // Control arm: what is parsed anew is what it says.
    stage.client(&[parse("", "SELECT 1"), sync()].concat());
    assert_eq!(stage.sent(), stage.own(GUARD));
}

#[cfg(debug_assertions)]
#[test]
fn invariant_17_a_name_that_is_trusted_too_long_is_reported() {
    let check = "wire::pg::tests::auto_prepare::\
                 invariant_17_a_name_that_may_mean_another_text_is_judged_as_opaque";
    crate::base::arm::missed(check, &[("auto-doubt", "invariant 17")]).unwrap();
}

#[test]
fn an_error_names_no_statement_of_the_proxys() {
    keeping_both(|stage| {
        let name = keep(stage, "SELECT 1");
        stage.client(&once("SELECT 1"));
        let fails = |name: &str| error("08P01", &format!("statement \"{name}\" requires 0"));
        stage.engine(&[message(b'3', b""), fails(&name), ready(b'I')].concat());
        let seen = std::mem::take(&mut stage.to_client);
        assert_eq!(seen, [message(b'1', b""), fails(""), ready(b'I')].concat());
    });
}

/// The engine warns as it parses, and a client hears that each time.
#[test]
fn a_text_that_the_engine_has_a_notice_for_is_not_kept() {
    keeping_both(|stage| {
        stage.client(&once("SELECT 1"));
        stage.engine(&answer(b'1'));
        stage.client(&once("SELECT 1"));
        assert_ne!(stage.sent(), [once("SELECT 1"), once("SELECT 1")].concat(), "it is named");
        let notice = message(b'N', b"SWARNING\0C22023\0Mless\0\0");
        stage.engine(&[notice.clone(), answer(b'1')].concat());
        for _ in 0..3 {
            stage.client(&once("SELECT 1"));
            assert_eq!(stage.sent(), once("SELECT 1"));
            stage.engine(&[notice.clone(), answer(b'1')].concat());
        }
        // One in front of that Parse is another message's, and this text is kept.
        let other = [parse("", "SELECT 2"), bind("", ""), execute(), sync()].concat();
        stage.client(&other);
        stage.engine(&answer(b'1'));
        stage.client(&[bind("", ""), execute(), other.clone()].concat());
        let ran = [message(b'2', b""), notice.clone(), done("SELECT 1")].concat();
        // The name of before is closed on this occasion.
        stage.engine(&[ran, message(b'3', b""), answer(b'1')].concat());
        stage.sent();
        stage.client(&other);
        assert_ne!(stage.sent(), other);
        stage.engine(&answer(b'3'));
        let told = stage.told();
        assert_eq!(told.iter().filter(|tag| *tag == "N").count(), 5, "{told:?}");
    });
}

fn alone() -> AutoPrepare {
    AutoPrepare::new(Arc::new(WorkerCounters::default()))
}

/// A message that waited, and was dropped by something else, holds up nobody behind it.
#[test]
fn a_wait_ends_with_its_message() {
    let mut auto = alone();
    auto.awaits(1, 1, Awaited::StandIn(1));
    assert!(auto.meaning(2).is_none() && auto.must_wait());
    let _given = auto.completed(b'3');
    assert!(!auto.must_wait() && auto.goes_on());
    auto.awaits(3, 1, Awaited::Parse);
    assert!(!auto.must_wait(), "what is behind it would wait for an answer that comes at the Sync");
}

/// What an engine skips for ever isn't kept account of for ever.
#[test]
fn what_is_unanswered_is_bounded() {
    let mut auto = alone();
    for at in 0..limits::AUTO_PREPARE_UNANSWERED_MAX as u32 {
        assert!(auto.goes_on());
        auto.awaits(1, at, Awaited::Parse);
    }
    assert!(!auto.goes_on());
}
