//! The rules about single files: size, shape, words, names. Limits and word lists are data.

use super::source::Source;

/// A rule that a file breaks.
#[derive(Debug)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub rule: &'static str,
    pub why: String,
}

impl Finding {
    pub fn new(source: &Source, line: usize, rule: &'static str, why: impl Into<String>) -> Self {
        Self { path: source.path.clone(), line, rule, why: why.into() }
    }
}

/// Production lines per file: those before the first `#[cfg(test)]` module, and between such.
const FILE_LINES: usize = 800;
/// Lines of code in a function's body, without blank lines and comments.
const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 100;
/// Columns of indentation: 8 levels of 4.
const INDENT: usize = 32;

/// Layers 0 and 1, and the gate's core: no clock, no runtime, no input or output.
const PURE: &[&str] = &[
    "src/base/",
    "src/sql/",
    "src/fence/",
    "src/ledger/",
    "src/moves/",
    "src/checker/",
    "src/gate/core.rs",
];

/// Module names that say nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager", "misc"];

/// Who may make a `DrainProof`: where it is defined, where it is earned, where it is loaded.
const PROOF_MAKERS: &[&str] =
    &["src/fence/proof.rs", "src/control/drain.rs", "src/store/record.rs"];

/// Where a ban holds.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    /// Production and test code alike.
    All,
    /// Not in test code.
    Production,
    /// Only in test code.
    Tests,
}

/// A word (or path) that must not occur.
struct Ban {
    word: &'static str,
    /// Where it is banned; empty = everywhere.
    places: &'static [&'static str],
    except: &'static [&'static str],
    scope: Scope,
    instead: &'static str,
}

const fn ban(
    word: &'static str,
    places: &'static [&'static str],
    except: &'static [&'static str],
    scope: Scope,
    instead: &'static str,
) -> Ban {
    Ban { word, places, except, scope, instead }
}

const SRC: &[&str] = &["src/"];
const SPAWN: &[&str] = &["src/telemetry/spawn.rs"];
const CLOCK: &[&str] = &["src/base/clock.rs"];
/// Fault points park tasks, in debug builds; release builds have none of it.
const FAULT: &[&str] = &["src/base/fault.rs"];
const NAMED_TASK: &str = "tasks have names: use telemetry::spawn";
const TIME_ARGUMENT: &str = "time is an argument in pure code (base::clock)";
const NO_TIMERS: &str = "a worker's runtime has no timers: use telemetry::timer";
const NO_RUNTIME: &str = "pure code has no async and no runtime";
const NO_SLEEP: &str =
    "a sleep wins no race: wait for a level, or say `// tidy: not a race: REASON`";

const BANS: &[Ban] = &[
    ban("tokio::spawn", SRC, SPAWN, Scope::Production, NAMED_TASK),
    ban("task::spawn", SRC, SPAWN, Scope::Production, NAMED_TASK),
    ban("task::spawn_local", SRC, SPAWN, Scope::Production, NAMED_TASK),
    ban("tokio::time", &["src/wire/", "src/gate/"], &[], Scope::Production, NO_TIMERS),
    ban("Instant::now", PURE, CLOCK, Scope::Production, TIME_ARGUMENT),
    ban("SystemTime::now", PURE, CLOCK, Scope::Production, TIME_ARGUMENT),
    ban("async", PURE, FAULT, Scope::All, NO_RUNTIME),
    ban("tokio", PURE, FAULT, Scope::All, NO_RUNTIME),
    ban("serde", PURE, &["src/gate/"], Scope::All, "shapes live in store/record.rs, admin/view.rs"),
    ban("Relaxed", &["src/gate/"], &[], Scope::All, "the gate's order is sequentially consistent"),
    ban("unbounded_channel", &[], &[], Scope::All, "every queue has a bound"),
    ban("UnboundedSender", &[], &[], Scope::All, "every queue has a bound"),
    ban("from_utf8_lossy", &["src/sql/", "src/wire/"], &[], Scope::Production, "keep the bytes"),
    ban("todo!", &[], &[], Scope::All, "write it, or return an error that says so"),
    ban("unimplemented!", &[], &[], Scope::All, "write it, or return an error that says so"),
    ban("sleep", &[], &[], Scope::Tests, NO_SLEEP),
    ban("sleep_ms", &[], &[], Scope::Tests, NO_SLEEP),
    ban("sleep_until", &[], &[], Scope::Tests, NO_SLEEP),
];

/// Words that must not occur.
pub fn banned_words(source: &Source, out: &mut Vec<Finding>) {
    for ban in BANS {
        let here = ban.places.is_empty() || source.is_in_any(ban.places);
        if !here || source.is_in_any(ban.except) {
            continue;
        }
        for (line, code) in source.numbered() {
            let in_scope = match ban.scope {
                Scope::All => true,
                Scope::Production => !source.test[line - 1],
                Scope::Tests => source.test[line - 1],
            };
            // A sleep is banned as a call; the word alone may name anything.
            let call = ban.scope == Scope::Tests;
            let hit = word_starts(code, ban.word).into_iter().any(|at| {
                let rest = &code[at + ban.word.len()..];
                if call { rest.starts_with('(') } else { word_ends(code, at, ban.word) }
            });
            let excused = call
                && source.excuse(line).is_some_and(|e| {
                    e.strip_prefix("not a race: ").is_some_and(|reason| !reason.trim().is_empty())
                });
            if in_scope && hit && !excused {
                let why = format!("`{}`: {}", ban.word, ban.instead);
                out.push(Finding::new(source, line, "banned word", why));
            }
        }
    }
}

/// Where `word` starts in `code` as a whole word on its left side.
pub fn word_starts(code: &str, word: &str) -> Vec<usize> {
    let whole = |at: &usize| {
        let before = code[..*at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    code.match_indices(word).map(|m| m.0).filter(whole).collect()
}

/// True when `word` at `at` also ends there as a whole word.
pub fn word_ends(code: &str, at: usize, word: &str) -> bool {
    let after = code[at + word.len()..].chars().next();
    !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// A file's size, its lines' width and indentation, its header, its name.
pub fn shape(source: &Source, out: &mut Vec<Finding>) {
    let production = source.production().count();
    if source.path.starts_with("src/") && production > FILE_LINES {
        let why = format!("{production} production lines, at most {FILE_LINES}: split the file");
        out.push(Finding::new(source, 1, "file size", why));
    }
    let first = source.raw.iter().find(|l| !l.trim().is_empty());
    if !first.is_some_and(|l| l.starts_with("//!")) {
        let why = "begin with //! lines: purpose, invariants, who calls it, what it does not do";
        out.push(Finding::new(source, 1, "module header", why));
    }
    for part in source.path.trim_end_matches(".rs").split('/') {
        if EMPTY_NAMES.contains(&part) {
            let why = format!("`{part}` names nothing: use a noun of the domain");
            out.push(Finding::new(source, 1, "module name", why));
        }
    }
    let mut in_table = false;
    for (i, raw) in source.raw.iter().enumerate() {
        let width = raw.chars().count();
        if width > COLUMNS {
            let why = format!("{width} columns, at most {COLUMNS}");
            out.push(Finding::new(source, i + 1, "line width", why));
        }
        match raw.trim() {
            "// tidy: table" => in_table = true,
            "// tidy: end of table" => in_table = false,
            _ => {}
        }
        // Lines that start within a literal or comment are blank there in `code`: no nesting.
        let indent = raw.len() - raw.trim_start().len();
        let starts_with_code = source.code[i].chars().nth(indent).is_some_and(|c| c != ' ');
        let deep = starts_with_code && indent >= INDENT;
        if deep && !in_table && !source.test[i] {
            let why = format!("{} levels deep, fewer than {}: split it", indent / 4, INDENT / 4);
            out.push(Finding::new(source, i + 1, "nesting", why));
        }
    }
}

/// The length of each function's body.
pub fn function_size(source: &Source, out: &mut Vec<Finding>) {
    let text = source.text();
    for start in word_starts(&text, "fn ") {
        let line = super::source::line_of(&text, start);
        let Some(body) = body(&text[start..]) else { continue };
        if source.test[line - 1] {
            continue;
        }
        let lines = body.lines().filter(|l| !l.trim().is_empty()).count();
        if lines > FUNCTION_LINES {
            let name = text[start + 3..].split(['(', '<']).next().unwrap_or_default();
            let why = format!("`{name}` has {lines} lines, at most {FUNCTION_LINES}");
            out.push(Finding::new(source, line, "function size", why));
        }
    }
}

/// What is between the braces of the function that `text` begins with; `None` without a body.
fn body(text: &str) -> Option<&str> {
    let (mut depth, mut round, mut open) = (0_i32, 0_i32, None);
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            ';' if open.is_none() && round == 0 => return None,
            '{' => {
                open.get_or_insert(i + 1);
                depth += 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(&text[open?..i]);
                }
            }
            _ => {}
        }
    }
    None
}

/// Where what a dropped future leaves behind decides about fences.
const CANCELLED: &[&str] = &["src/gate/", "src/wire/", "src/store/"];

/// Every `async fn` there says in its docs what dropping its future leaves behind.
pub fn cancel_safety(source: &Source, out: &mut Vec<Finding>) {
    if !source.is_in_any(CANCELLED) {
        return;
    }
    let lines: Vec<(usize, &str)> = source.production().collect();
    for (line, code) in lines {
        if word_starts(code, "async fn ").is_empty() {
            continue;
        }
        let above = source.raw[..line - 1].iter().rev();
        let mut docs = above.map(|raw| raw.trim()).take_while(|raw| {
            raw.starts_with("///") || raw.starts_with("#[") || raw.starts_with("//")
        });
        if !docs.any(|doc| doc == "/// # Cancel safety") {
            let why = "say what dropping the future leaves behind: `/// # Cancel safety`";
            out.push(Finding::new(source, line, "cancel safety", why));
        }
    }
}

/// A `DrainProof` is made only where the evidence is, or where a stored one is checked again.
pub fn proof_makers(source: &Source, out: &mut Vec<Finding>) {
    if !source.path.starts_with("src/") || source.is_in_any(PROOF_MAKERS) {
        return;
    }
    for (line, code) in source.production() {
        let hit = word_starts(code, "DrainProof").into_iter().any(|at| {
            let rest = &code[at + "DrainProof".len()..];
            let literal = rest.trim_start().starts_with('{') && !is_type_position(&code[..at]);
            let checks = rest.starts_with("::check_loaded");
            literal || rest.starts_with("::") && !checks
        });
        if hit {
            let why = format!("a DrainProof is made only in {}", PROOF_MAKERS.join(", "));
            out.push(Finding::new(source, line, "proof makers", why));
        }
    }
}

/// `-> DrainProof {` and `impl X for DrainProof {` make none.
fn is_type_position(before: &str) -> bool {
    let before = before.trim_end();
    ["->", "for", "impl", "struct", "&", "<", ":"].iter().any(|end| before.ends_with(end))
}
