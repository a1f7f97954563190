//! What is owed, against a model of what PostgreSQL answers: many scripts, in many interleavings.
//!
//! Purpose: the counting has two inputs that race, what the client sends and what the engine says.
//! Here the engine is a few lines (what it does with each message in order, as observed on live
//! ones; `tests/relay/mixed.rs` holds them to it), and a seeded generator makes scripts and the
//! moments at which answers arrive. Never may fewer be owed than are to come; and when all is said
//! and done nothing may be.

use std::collections::VecDeque;

use super::{Owed, Unclear, Whose};

/// A small generator of numbers: the same seed, the same test.
pub(in crate::wire::pg) struct Dice(pub(in crate::wire::pg) u64);

impl Dice {
    pub(in crate::wire::pg) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

/// Messages: `P` `p` one of a pipeline that works or fails, `X` an Execute of COPY FROM STDIN, `Q`
/// `q` a query, `K` one that is a COPY FROM STDIN, `V` and `v` such ones that fail unread, `d` `D`
/// good and bad data, `c` its end, `S` a Sync, `h` a Flush that an error comes on, if one can; and
/// `t` an end of a COPY that an error comes on, if none is under way: it has the engine skip
/// nothing.
#[derive(Default)]
struct Engine {
    skipping: bool,
    /// In COPY: whether by an Execute, and whether a Sync has come behind data of it.
    copy: Option<(bool, bool)>,
    data: bool,
    /// Something was done that no ReadyForQuery has answered.
    midway: bool,
    /// Data or its end came, in a program, that no COPY was under way for.
    stray: bool,
    /// A COPY of this program has gone well.
    second: bool,
    /// A COPY by an Execute failed, and no Sync has been answered since.
    unanswered: bool,
    /// A Flush was sent in this program.
    flushed: bool,
    /// A COPY failed, and its client hasn't sent its end yet.
    late: bool,
    /// An error came on an end of a COPY outside a COPY.
    astray: bool,
    /// An error came in a program that had COPY messages outside a COPY.
    unclear: bool,
    /// A COPY failed with Syncs among its data, or its client went on to something else without
    /// ending it, or one began
    /// behind another one in its program, or behind stray data; or a query came behind a Flush.
    doubtful: bool,
}

impl Engine {
    /// Notes what makes the answers to come uncountable.
    fn doubts(&mut self, message: char) {
        let program = self.copy.is_none() && "PpQqXKVv".contains(message);
        self.doubtful |= program && (self.late || self.unanswered);
        self.doubtful |= "ct".contains(message) && self.copy.is_none() && !self.late;
        self.late &= !"ct".contains(message);
        self.flushed |= message == 'h' && self.midway && self.copy.is_none();
        self.doubtful |= self.flushed && "QqKv".contains(message);
    }

    /// Notes where it stands behind what it has said.
    fn after(&mut self, said: &str) {
        self.midway = match said {
            said if said.ends_with('Z') => false,
            "" => self.midway,
            _ => true,
        };
        let goes_on = !said.ends_with('Z');
        self.stray &= goes_on;
        self.flushed &= goes_on;
        self.unanswered &= goes_on;
        self.second &= goes_on;
    }

    /// What it says to one message: `1`, `G`, `E`, `Z`; `e` is an error behind which it doesn't
    /// skip. `None` if it would end the session.
    fn hears(&mut self, message: char) -> Option<&'static str> {
        self.doubts(message);
        let stray = self.stray || self.second;
        let said = match (self.copy, message) {
            (Some(_), 'd') => {
                self.data = true;
                ""
            }
            (Some((by_execute, doubtful)), 'D') => {
                self.doubtful |= doubtful;
                self.copy = None;
                self.skipping = by_execute;
                self.unanswered = by_execute;
                self.late = true;
                if by_execute { "E" } else { "EZ" }
            }
            (Some((by_execute, _)), 'c' | 't') => {
                self.copy = None;
                self.second = true;
                if by_execute { "1" } else { "1Z" }
            }
            (Some((by_execute, doubtful)), 'S') => {
                self.copy = Some((by_execute, doubtful || self.data));
                ""
            }
            (Some(_), 'h') => "",
            (Some(_), _) => return None,
            (None, 't') if self.midway && !self.skipping => {
                self.astray = true;
                "eZ"
            }
            (None, 'd' | 'D' | 'c' | 't') => {
                self.stray |= self.midway;
                ""
            }
            (None, 'S') => {
                self.skipping = false;
                "Z"
            }
            (None, _) if self.skipping => "",
            (None, 'h') if !self.midway => "",
            (None, 'h' | 'p') => {
                self.skipping = true;
                "E"
            }
            (None, 'P') => "1",
            (None, 'q') => "EZ",
            (None, 'V') => {
                self.skipping = true;
                self.unanswered = true;
                self.late = true;
                "GE"
            }
            (None, 'v') => {
                self.late = true;
                "GEZ"
            }
            (None, 'X' | 'K') => {
                self.copy = Some((message == 'X', false));
                self.data = false;
                self.doubtful |= self.stray || self.second;
                "G"
            }
            (None, _) => "1Z",
        };
        self.unclear |= stray && said.contains('E');
        self.after(said);
        Some(said)
    }
}

/// A script that the engine takes to its end, with what it says to each message; and whether its
/// answers can't be counted.
fn script(dice: &mut Dice, alphabet: &[char]) -> (Vec<(char, &'static str)>, Engine) {
    let mut engine = Engine::default();
    let mut script = Vec::new();
    for _ in 0..4 + dice.roll(24) {
        let message = alphabet[dice.roll(alphabet.len())];
        if let Some(said) = engine.hears(message) {
            script.push((message, said));
        }
    }
    for message in ['c', 'S'] {
        let said = engine.hears(message).unwrap();
        script.push((message, said));
    }
    (script, engine)
}

fn forward(owed: &mut Owed, message: char) {
    match message {
        'P' | 'p' | 'X' | 'V' => {
            owed.extended();
        }
        'S' => owed.sync(),
        'h' => owed.flush(),
        'd' | 'D' => owed.copy(false),
        'c' | 't' => owed.copy(true),
        _ => {
            owed.simple(Whose::Client);
        }
    }
}

fn hear(owed: &mut Owed, said: char) -> Result<(), Unclear> {
    if said != 'Z' {
        owed.speaks();
    }
    match said {
        '1' => owed.completed(),
        'G' => owed.copy_in_began(),
        'E' | 'e' => return owed.errored(),
        _ => return owed.answered().map(|_| ()),
    }
    Ok(())
}

/// How a script ends.
enum Played {
    /// With so many programs still owed.
    Left(usize, String),
    /// The session ended: nobody can tell what the engine does.
    Ended(String),
}

/// Plays one script in one interleaving; what went wrong, and how.
fn play(dice: &mut Dice, script: &[(char, &'static str)]) -> Result<Played, String> {
    let mut owed = Owed::default();
    let (mut engine, mut saying) = (Engine::default(), VecDeque::new());
    let (mut at, mut story) = (0, String::new());
    let lean = dice.roll(8);
    let mut astray = false;
    loop {
        if at < script.len() && (saying.is_empty() || dice.roll(8) <= lean) {
            let (message, said) = script[at];
            let _known = engine.hears(message);
            story.push(message);
            forward(&mut owed, message);
            saying.extend(said.chars());
            at += 1;
        } else if let Some(said) = saying.pop_front() {
            story.push_str(&format!("<{said}"));
            astray |= said == 'e';
            if hear(&mut owed, said).is_err() {
                return Ok(Played::Ended(story));
            }
            if astray && said == 'Z' {
                return Err(format!("goes on with what nobody knows: {story}"));
            }
        } else {
            let left = owed.iter().filter(|entry| !entry.is_lone()).count();
            return Ok(Played::Left(left, story));
        }
        // Every ReadyForQuery of a program that is to come has an entry that stands for one.
        let mut spoken = owed.spoken;
        let mut to_come = 0;
        for said in &saying {
            to_come += usize::from(*said == 'Z' && spoken);
            spoken = *said != 'Z';
        }
        let counted = owed.iter().filter(|entry| entry.alone == 0).count();
        // Behind an error that it doesn't skip for the session ends, whatever is owed.
        if engine.astray {
            continue;
        }
        if counted < to_come || engine.midway && owed.is_empty() {
            return Err(format!("{counted} of {to_come} are owed: {story}"));
        }
    }
}

#[test]
fn never_too_few_are_owed_and_none_in_the_end() {
    let pipelines = ['P', 'P', 'p', 'Q', 'q', 'S'];
    let flushes = ['P', 'P', 'P', 'p', 'h', 'Q', 'q', 'S', 'S', 'S'];
    let copies = ['P', 'p', 'X', 'X', 'K', 'V', 'v', 'Q', 'q', 'd', 'd', 'D', 'c', 'c', 'S', 'S'];
    let lates = ['P', 'P', 'P', 'p', 't', 'c', 'd', 'X', 'K', 'Q', 'q', 'S', 'S', 'S'];
    let alphabets: [&[char]; 4] = [&pipelines, &copies, &flushes, &lates];
    let mut dice = Dice(0x00f3_9c1e);
    let (mut counted, mut uncounted, mut ended) = (0, 0, 0);
    for round in 0..40_000 {
        let (script, engine) = script(&mut dice, alphabets[round % 4]);
        for _ in 0..4 {
            let played = play(&mut dice, &script);
            let text: String = script.iter().map(|(message, _)| *message).collect();
            match played {
                Err(wrong) => panic!("round {round}, {text}: {wrong}"),
                Ok(Played::Left(0, _)) => counted += 1,
                Ok(Played::Left(left, story)) if !engine.doubtful => {
                    panic!("round {round}, {text}: {left} are left: {story}")
                }
                Ok(Played::Left(..)) => uncounted += 1,
                Ok(Played::Ended(story)) => {
                    let may = engine.astray || engine.doubtful || engine.unclear;
                    assert!(may, "round {round}, {text}: ended: {story}");
                    ended += 1;
                }
            }
        }
    }
    assert!(counted > 10 * uncounted && ended > 1000, "{counted}, {uncounted}, {ended}");
}
