//! What is put around an entry: queries, cursors, plans, blocks, functions, views.

use super::Dice;
use super::atoms::{Atom, Form};
use super::spelling::spelled;

/// Where an expression can stand.
const AROUND_VALUE: &[&str] = &[
    "SELECT #",
    "SELECT (#)::text",
    "(SELECT #)",
    "VALUES ((#)::text)",
    "SELECT 1 WHERE (#) IS NOT NULL",
    "SELECT (SELECT #)",
    "SELECT q.* FROM (SELECT # AS v OFFSET 0) q",
    "SELECT count(v) FROM (SELECT # AS v OFFSET 0) q",
    "WITH x AS MATERIALIZED (SELECT # AS v) SELECT v FROM x",
    "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 2 AND (#) IS NOT \
     NULL) SELECT * FROM x",
    "SELECT CASE WHEN (#) IS NULL THEN 1 ELSE 2 END",
    "SELECT ARRAY[(#)::text]",
    "SELECT coalesce(NULL, (#)::text)",
    "SELECT id FROM victim WHERE (#) IS NOT NULL ORDER BY id",
    "SELECT id FROM victim ORDER BY (#)::text",
    "SELECT EXISTS (SELECT FROM victim WHERE (#) IS NOT NULL)",
    "SELECT 1 UNION ALL SELECT 2 WHERE (#) IS NOT NULL",
    "SELECT max(id) OVER (PARTITION BY (#)::text) FROM victim",
    "SELECT id FROM victim GROUP BY id HAVING (#) IS NOT NULL",
    "SELECT * FROM victim JOIN LATERAL (SELECT #) q(v) ON true",
    "SELECT 1 LIMIT (SELECT length((#)::text))",
    "SELECT ROW((#)::text, 2)",
    "SELECT DISTINCT ON ((#)::text) 1",
    "SELECT id FROM victim WHERE id IN (SELECT 1 WHERE (#) IS NOT NULL)",
    "SELECT json_build_object('a', (#)::text)",
    "SELECT xmlelement(name a, (#)::text)",
    "SELECT GREATEST((#)::text, 'a')",
    "SELECT * FROM generate_series(1, length((#)::text))",
    "SELECT string_agg((#)::text, ',') FILTER (WHERE id > 0) FROM victim",
    "SELECT (#)::text COLLATE \"C\"",
    "SELECT NOT ((#) IS NULL)",
    "SELECT * FROM (VALUES ((#)::text)) AS q(v)",
];

/// Where rows can stand.
const AROUND_ROWS: &[&str] = &[
    "SELECT * FROM #",
    "(SELECT * FROM #)",
    "SELECT count(*) FROM (SELECT * FROM # OFFSET 0) q",
    "SELECT * FROM victim CROSS JOIN #",
    "WITH x AS MATERIALIZED (SELECT * FROM #) SELECT count(*) FROM x",
    "SELECT 1 WHERE EXISTS (SELECT * FROM #)",
    "SELECT (SELECT count(*) FROM (SELECT * FROM # OFFSET 0) q)",
    "SELECT ARRAY(SELECT q::text FROM (SELECT * FROM #) q)",
    "VALUES ((SELECT count(*) FROM (SELECT * FROM # OFFSET 0) q))",
    "SELECT CASE WHEN EXISTS (SELECT * FROM #) THEN 1 END",
];

/// What one case does, before it is brought to a position.
pub struct Program {
    /// Made beforehand, by the owner of the database.
    pub setup: Vec<String>,
    /// One after the other, by one session.
    pub statements: Vec<String>,
}

impl Program {
    fn of(statements: Vec<String>) -> Self {
        Self { setup: Vec::new(), statements }
    }
}

fn filled(template: &str, with: &str) -> String {
    template.replace('#', with)
}

/// The entry as one statement that can be planned; `None` for what can't.
pub fn plannable(dice: &mut Dice, form: Form) -> Option<String> {
    match form {
        Form::Value(sql) => Some(filled(dice.pick(AROUND_VALUE), sql)),
        Form::Rows(sql) => Some(filled(dice.pick(AROUND_ROWS), sql)),
        Form::Plan(sql) => Some(sql.to_owned()),
        Form::Command(_) | Form::Script(_) | Form::CopyIn(_) | Form::Call(..) => None,
    }
}

/// The entry behind a view of its own, which tells nothing: what makes it, and its name.
pub fn behind_view(dice: &mut Dice, atom: &Atom, number: usize) -> Option<(String, String)> {
    if !atom.hidable {
        return None;
    }
    let inner = if let Form::Command(sql) = atom.form {
        sql.to_owned()
    } else {
        plannable(dice, atom.form)?
    };
    let name = format!("view_{number}");
    let inner = spelled(dice, &inner);
    Some((format!("CREATE VIEW {name} AS SELECT run($vw${inner}$vw$) AS n"), name))
}

/// A query that looks like a read and isn't one: what makes it, and the query.
pub fn read_like(dice: &mut Dice, atom: &Atom, number: usize) -> Option<(Vec<String>, String)> {
    const VIEWS: &[&str] = &["writing", "counting", "guarded_view", "nested"];
    if let Form::Rows(name) = atom.form
        && VIEWS.contains(&name)
    {
        return Some((Vec::new(), filled(dice.pick(AROUND_ROWS), name)));
    }
    let (setup, name) = behind_view(dice, atom, number)?;
    Some((vec![setup], filled(dice.pick(AROUND_ROWS), &name)))
}

/// Something around the entry, or nothing.
pub fn wrapped(dice: &mut Dice, atom: &Atom, number: usize) -> Program {
    match atom.form {
        Form::Script(all) => return Program::of(all.iter().map(|s| (*s).to_owned()).collect()),
        Form::Command(sql) if dice.one_in(2) => return Program::of(vec![sql.to_owned()]),
        Form::CopyIn(sql) => return Program::of(vec![sql.to_owned()]),
        Form::Call(..) => return Program::of(Vec::new()),
        Form::Value(_) | Form::Rows(_) | Form::Plan(_) | Form::Command(_) => {}
    }
    if dice.one_in(5)
        && let Some((setup, query)) = read_like(dice, atom, number)
    {
        let mut program = around(dice, &query);
        program.setup = setup;
        return program;
    }
    match plannable(dice, atom.form) {
        Some(sql) if dice.one_in(3) => Program::of(vec![sql]),
        Some(sql) => around(dice, &sql),
        None => {
            let Form::Command(sql) = atom.form else { return Program::of(Vec::new()) };
            in_code(dice, sql)
        }
    }
}

/// A statement that can be planned, in something.
fn around(dice: &mut Dice, sql: &str) -> Program {
    let many = |all: &[String]| Program::of(all.to_vec());
    let one = |sql: String| Program::of(vec![sql]);
    match dice.below(12) {
        0 => one(format!("EXPLAIN ANALYZE {sql}")),
        1 => one(format!("EXPLAIN (ANALYZE, FORMAT json, TIMING off) {sql}")),
        2 => one(format!("COPY ({sql}) TO STDOUT")),
        3 => many(&[format!("PREPARE pr AS {sql}"), "EXECUTE pr".into()]),
        4 => many(&[format!("PREPARE pr AS {sql}"), "EXPLAIN ANALYZE EXECUTE pr".into()]),
        5 => many(&[
            "BEGIN".into(),
            format!("DECLARE c CURSOR FOR {sql}"),
            "FETCH ALL FROM c".into(),
            "COMMIT".into(),
        ]),
        6 => many(&[format!("DECLARE c CURSOR WITH HOLD FOR {sql}"), "FETCH c".into()]),
        7 => one(format!("CREATE TABLE made AS {sql}")),
        8 => one(format!("EXPLAIN (ANALYZE true) CREATE TABLE made AS {sql}")),
        9 => one(format!("SELECT query_to_xml($qx${sql}$qx$, true, true, '')")),
        _ => in_code(dice, sql),
    }
}

/// A statement as the text of some code.
fn in_code(dice: &mut Dice, sql: &str) -> Program {
    let inner = spelled(dice, sql);
    Program::of(vec![match dice.below(4) {
        0 => format!("DO $co$ BEGIN EXECUTE $in${inner}$in$; END $co$"),
        1 => format!("CALL runp($co${inner}$co$)"),
        2 => format!("SELECT run($co${inner}$co$)"),
        _ => format!("SELECT * FROM run($co${inner}$co$) AS q(n) WHERE n > 0"),
    }])
}
