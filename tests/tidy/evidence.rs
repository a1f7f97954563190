//! Evidence can't be made outside the part that establishes it, as far as the text tells.
//!
//! From outside the crate the compiler says so (`docs/EVIDENCE.md`); within it a visibility that is
//! one step too wide would go unnoticed there.

use super::rules::{Finding, word_ends, word_starts};
use super::source::{Source, line_of};

/// One type: where it is defined, and which of its functions may make one for everybody.
struct Piece {
    path: &'static str,
    name: &'static str,
    makers: &'static [&'static str],
}

const fn piece(path: &'static str, name: &'static str, makers: &'static [&'static str]) -> Piece {
    Piece { path, name, makers }
}

const PIECES: &[Piece] = &[
    piece("src/store/mod.rs", "Persisted", &[]),
    // In debug builds, for tests.
    piece("src/store/mod.rs", "LoadedFence", &["of_an_empty_store"]),
    piece("src/gate/lease.rs", "Lease", &[]),
    piece("src/gate/drain.rs", "Drained", &[]),
    // From the three claims; who may call it is the rule `proof makers`.
    piece("src/fence/proof.rs", "DrainProof", &["assemble"]),
    piece("src/engine/census.rs", "Cutoff", &[]),
    piece("src/engine/census.rs", "CensusClear", &[]),
    piece("src/engine/boundary.rs", "Boundary", &[]),
    piece("src/engine/boundary.rs", "LogBoundary", &[]),
    piece("src/engine/postgres/lock.rs", "LockHandle", &[]),
    piece("src/engine/mysql/lock.rs", "MyLockHandle", &[]),
    piece("src/engine/postgres/connect.rs", "Control", &[]),
    piece("src/engine/postgres/connect.rs", "Session", &[]),
    piece("src/engine/mysql/connect.rs", "Control", &[]),
    piece("src/engine/mysql/connect.rs", "Session", &[]),
];

/// Visible beyond the part: to the whole crate, or to everybody.
fn is_wide(code: &str) -> bool {
    let code = code.trim_start();
    code.starts_with("pub ") || code.starts_with("pub(crate) ")
}

/// Where the item that begins with `head` stands, with what is between its braces.
fn items<'a>(text: &'a str, head: &str) -> Vec<(usize, &'a str)> {
    let starts = word_starts(text, head).into_iter().filter(|at| word_ends(text, *at, head));
    let with_body = starts.filter_map(|at| {
        let open = at + text[at..].find('{')?;
        let mut depth = 0_i32;
        let end = text[open..].char_indices().find_map(|(i, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            (depth == 0).then_some(open + i)
        })?;
        Some((open + 1, &text[open + 1..end]))
    });
    with_body.collect()
}

/// Fields that others can set, and functions that make one for them.
pub fn forgeable(source: &Source, out: &mut Vec<Finding>) {
    let text = source.text();
    for piece in PIECES.iter().filter(|piece| piece.path == source.path) {
        let mut found = |offset: usize, why: String| {
            let line = line_of(&text, offset);
            if !source.test[line - 1] {
                out.push(Finding::new(source, line, "evidence", why));
            }
        };
        for (start, body) in items(&text, &format!("struct {}", piece.name)) {
            let before = text[..start].trim_end().lines().rev().skip(1);
            let mut attributes = before.take_while(|line| line.trim_start().starts_with('#'));
            if attributes.any(|line| line.contains("Default")) {
                found(start, format!("a {} that is made of nothing", piece.name));
            }
            let mut at = start;
            for line in body.split('\n') {
                if is_wide(line) {
                    found(at, format!("a field of {} that others can set", piece.name));
                }
                at += line.len() + 1;
            }
        }
        for (start, body) in items(&text, &format!("impl {}", piece.name)) {
            for at in word_starts(body, "fn ") {
                let line = body[..at].rfind('\n').map_or(0, |end| end + 1);
                let signature = body[at..].split('{').next().unwrap_or_default();
                let name = signature[3..].split(['(', '<']).next().unwrap_or_default();
                let answer = signature.split_once("->").map_or("", |(_, answer)| answer);
                let makes = ["Self", piece.name].into_iter().any(|word| {
                    word_starts(answer, word).into_iter().any(|at| word_ends(answer, at, word))
                });
                if makes && is_wide(&body[line..]) && !piece.makers.contains(&name) {
                    found(start + at, format!("`{name}` makes a {} for anybody", piece.name));
                }
            }
        }
    }
}

#[test]
fn each_piece_is_where_the_table_says() {
    for piece in PIECES {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(piece.path);
        let source = Source::new(piece.path, &std::fs::read_to_string(path).unwrap());
        let text = source.text();
        let there = items(&text, &format!("struct {}", piece.name));
        assert_eq!(there.len(), 1, "{} in {}", piece.name, piece.path);
    }
}

#[test]
fn control_evidence() {
    let rule = "evidence";
    let caught = |path, text: &str| assert_eq!(super::broken(path, text), [(3, rule)], "{text}");
    let drain = "src/gate/drain.rs";
    caught(drain, "pub struct Drained {\n    pub generation: Generation,\n}");
    caught(drain, "pub struct Drained {\n    pub(crate) generation: Generation,\n}");
    super::passes(drain, "pub struct Drained {\n    generation: Generation,\n}");
    super::passes(drain, "pub struct Drain {\n    pub generation: Generation,\n}");
    caught(drain, "#[derive(Debug, Default)]\npub struct Drained {\n    g: Generation,\n}");
    super::passes(drain, "#[derive(Debug)]\npub struct Drained {\n    g: Generation,\n}");
    let boundary = "src/engine/boundary.rs";
    let field = "pub struct Boundary {\n    pub(in crate::engine) lsn: Lsn,\n}";
    super::passes(boundary, field);
    let lease = "src/gate/lease.rs";
    for answer in ["Self", "Lease", "Option<Self>", "Result<Lease, Refusal>"] {
        let maker = |visible| format!("impl Lease {{\n    {visible}fn new() -> {answer} {{}}\n}}");
        caught(lease, &maker("pub "));
        caught(lease, &maker("pub(crate) const "));
        super::passes(lease, &maker("pub(super) const "));
        super::passes(lease, &maker(""));
        super::passes("src/gate/admission.rs", &maker("pub "));
    }
    super::passes(lease, "impl Lease {\n    pub fn stamp(&self) -> Stamp {}\n}");
    let assemble = "impl DrainProof {\n    pub fn assemble() -> Self {}\n}";
    super::passes("src/fence/proof.rs", assemble);
    caught("src/fence/proof.rs", "impl DrainProof {\n    pub fn trusted() -> Self {}\n}");
}
