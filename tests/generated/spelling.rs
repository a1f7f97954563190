//! Other spellings of the same statement: case, gaps, comments, quoting, encodings.
//!
//! The engine reads what comes out as what went in; whoever looks for strings doesn't.

use super::Dice;

/// The functions of the catalog among the entries, and those of the schema `public`.
const BUILT_IN: &[&str] = &[
    "nextval",
    "setval",
    "lo_create",
    "lo_creat",
    "lo_from_bytea",
    "lo_put",
    "lo_unlink",
    "lo_open",
    "lo_truncate",
    "lowrite",
    "lo_import",
    "txid_current",
    "pg_current_xact_id",
    "pg_notify",
    "query_to_xml",
    "table_to_xml",
    "pg_switch_wal",
    "set_config",
    "pg_logical_emit_message",
    "pg_reload_conf",
    "ts_stat",
];
const OWN: &[&str] = &["w", "iw", "isw", "sw", "counted", "run", "off", "wset", "dblink_exec"];
const TABLES: &[&str] = &["t", "victim", "writing", "counting", "guarded_view", "nested"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Word,
    Text,
    Dollar,
    Other,
}

/// Splits a statement that is written as the entries are: no comments, no escapes in strings.
fn tokens(sql: &str) -> Vec<(Kind, &str)> {
    let mut out = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let until = |end: &dyn Fn(char) -> bool| rest.find(end).unwrap_or(rest.len());
        let (kind, length) = if first.is_whitespace() {
            (Kind::Space, until(&|c| !c.is_whitespace()))
        } else if first.is_ascii_alphabetic() || first == '_' {
            (Kind::Word, until(&|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        } else if first == '\'' {
            let mut end = 1;
            loop {
                end += rest[end..].find('\'').expect("a string has an end") + 1;
                if !rest[end..].starts_with('\'') {
                    break (Kind::Text, end);
                }
                end += 1;
            }
        } else if let Some(tag) = dollar(rest) {
            let body = rest[tag..].find(&rest[..tag]).expect("a dollar string has an end");
            (Kind::Dollar, 2 * tag + body)
        } else {
            (Kind::Other, first.len_utf8())
        };
        out.push((kind, &rest[..length]));
        rest = &rest[length..];
    }
    out
}

/// The length of a dollar quote's opening.
fn dollar(text: &str) -> Option<usize> {
    let end = text.strip_prefix('$')?.find('$')? + 2;
    let name = &text[1..end - 1];
    let fine = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    fine.then_some(end)
}

/// One statement, spelled anew.
pub fn spelled(dice: &mut Dice, sql: &str) -> String {
    if dice.one_in(4) {
        return sql.to_owned();
    }
    let all = tokens(sql);
    let mut out = String::new();
    if dice.one_in(4) {
        out.push_str(dice.pick(&["/* a */ ", "-- a\n", "\n\t", ";", " ; ;", "/*/**/;*/"]));
    }
    for (at, (kind, text)) in all.iter().enumerate() {
        match kind {
            Kind::Space => out.push_str(gap(dice)),
            Kind::Word => {
                let called = all.get(at + 1).is_some_and(|next| next.1 == "(");
                let member = at > 0 && all[at - 1].1 == ".";
                out.push_str(&word(dice, text, called, member));
            }
            Kind::Text => out.push_str(&string(dice, text)),
            Kind::Dollar => out.push_str(text),
            Kind::Other => {
                out.push_str(text);
                if matches!(*text, "(" | ")" | ",") && dice.one_in(6) {
                    out.push_str(gap(dice));
                }
            }
        }
    }
    if dice.one_in(4) {
        out.push_str(dice.pick(&[";", " ;; ", " -- '", " /* \" */", "\n", "/**/;--"]));
    }
    out
}

fn gap(dice: &mut Dice) -> &'static str {
    if dice.one_in(2) {
        return " ";
    }
    dice.pick(&[
        "\t",
        "\n",
        "\r\n",
        "  ",
        "\x0c",
        "/**/",
        "/* x */",
        "/*/* y */*/",
        "/*'*/",
        "/*\"*/",
        "/*$q$*/",
        "--\n",
        "-- '\n",
        "--*/\n",
        "/*;*/",
        "/*--*/",
    ])
}

fn word(dice: &mut Dice, text: &str, called: bool, member: bool) -> String {
    let built_in = called && BUILT_IN.contains(&text);
    let own = called && OWN.contains(&text);
    let name = built_in || own || TABLES.contains(&text);
    if name && dice.one_in(3) {
        return quoted(dice, text);
    }
    if (built_in || own) && !member && dice.one_in(3) {
        let schema = if built_in { "pg_catalog" } else { "public" };
        let name = if dice.one_in(2) { quoted(dice, text) } else { cased(dice, text) };
        return format!("{}{}.{}{name}", cased(dice, schema), gap(dice), gap(dice));
    }
    cased(dice, text)
}

fn cased(dice: &mut Dice, text: &str) -> String {
    match dice.below(4) {
        0 => text.to_ascii_uppercase(),
        1 => text.to_ascii_lowercase(),
        2 => text.to_owned(),
        _ => text
            .chars()
            .map(|c| if dice.one_in(2) { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
            .collect(),
    }
}

/// A lower-case name in double quotes.
fn quoted(dice: &mut Dice, text: &str) -> String {
    let (first, rest) = (text.as_bytes()[0], &text[1..]);
    match dice.below(3) {
        0 => format!("U&\"\\{first:04x}{rest}\""),
        1 => format!("U&\"!+{first:06x}{rest}\" UESCAPE '!'"),
        _ => format!("\"{text}\""),
    }
}

/// A string in another form.
fn string(dice: &mut Dice, text: &str) -> String {
    let body = &text[1..text.len() - 1];
    if body.len() < 2 || body.contains(['\'', '\\', '$']) || !body.is_ascii() {
        return text.to_owned();
    }
    let (first, rest) = (body.as_bytes()[0], &body[1..]);
    match dice.below(10) {
        0 => format!("E'\\x{first:02x}{rest}'"),
        1 => format!("e'{body}'"),
        2 => format!("$${body}$$"),
        3 => format!("$Zq_9${body}$Zq_9$"),
        4 => format!("U&'\\{first:04x}{rest}'"),
        5 => format!("'{}'\n'{rest}'", char::from(first)),
        6 => format!("'{}' -- '\n '{rest}'", char::from(first)),
        7 => format!("E'\\u{first:04x}{rest}'"),
        _ => text.to_owned(),
    }
}

/// A client's encoding, and one of its characters.
#[derive(Clone, Copy)]
pub struct Encoding {
    pub name: &'static str,
    pub sign: &'static [u8],
}

/// Where a character may have a backslash as its second byte, and where none has.
pub const ENCODINGS: &[Encoding] = &[
    Encoding { name: "SJIS", sign: b"\x83\x5c" },
    Encoding { name: "GBK", sign: b"\x81\x5c" },
    Encoding { name: "BIG5", sign: b"\xa5\x5c" },
    Encoding { name: "LATIN1", sign: b"\xe9" },
    Encoding { name: "EUC_JP", sign: b"\xa4\xa2" },
    Encoding { name: "UTF8", sign: "\u{30bd}".as_bytes() },
    Encoding { name: "SQL_ASCII", sign: "\u{e9}".as_bytes() },
];

/// Puts a sign of the encoding into a comment, where it mustn't matter.
pub fn with_sign(dice: &mut Dice, encoding: Encoding, sql: &str) -> Vec<u8> {
    let pieces: [[&[u8]; 3]; 3] = [
        [b"/* ", encoding.sign, b" */ "],
        [b"-- ", encoding.sign, b"\n"],
        [b"/*'", encoding.sign, b"*/"],
    ];
    [pieces[dice.below(3)].concat(), sql.as_bytes().to_vec()].concat()
}

/// A string of statements in which a reader that takes the sign's bytes for single characters sees
/// the statement inside a string or a name.
pub fn hidden(dice: &mut Dice, encoding: Encoding, sql: &str) -> Vec<u8> {
    let sign = encoding.sign;
    let sql = sql.as_bytes();
    let pieces: [Vec<&[u8]>; 5] = [
        vec![
            b"SELECT $",
            sign,
            b"$ ' $",
            sign,
            b"$; ",
            sql,
            b"; SELECT $",
            sign,
            b"$ ' $",
            sign,
            b"$",
        ],
        vec![b"SELECT '", sign, b"'; ", sql, b" --'"],
        vec![b"SELECT E'", sign, b"'; ", sql, b" --'"],
        vec![b"SELECT 1 AS \"", sign, b"\"; ", sql, b" --\""],
        vec![b"SELECT U&'", sign, b"'; ", sql, b" --'"],
    ];
    pieces[dice.below(pieces.len())].concat()
}
