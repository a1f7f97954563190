//! The house rules, as a test: import direction, third-party walls, sizes, banned words, headers.
//!
//! `the_tree_is_tidy` reads `src`, `tests` and `benches`; each rule also has a control test with
//! samples it must catch and samples it must let pass. The tables are in `tidy/layers.rs` and
//! `tidy/rules.rs`. Two comments lift a rule where it doesn't fit: `// tidy: not a race: REASON` at
//! (or above) a sleep in a test, and `// tidy: table` … `// tidy: end of table` around deep tables.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "tidy/evidence.rs"]
mod evidence;
#[path = "tidy/invariants.rs"]
mod invariants;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rules::Finding;
use source::Source;

type Rule = fn(&Source, &mut Vec<Finding>);

const RULES: &[Rule] = &[
    layers::direction,
    layers::walls,
    rules::banned_words,
    rules::shape,
    rules::function_size,
    rules::proof_makers,
    rules::cancel_safety,
    evidence::forgeable,
];

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.map(|e| e.unwrap().path()) {
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        rule(source, &mut findings);
    }
    findings
}

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in ["src", "tests", "benches"] {
        rust_files(&root.join(dir), &mut files);
    }
    files.sort();
    assert!(files.len() > 15, "the walk found only {} files", files.len());
    let sources = files.iter().map(|file| {
        let path = file.strip_prefix(root).unwrap().to_str().unwrap();
        Source::new(path, &std::fs::read_to_string(file).unwrap())
    });
    let sources: Vec<Source> = sources.collect();
    let tests: BTreeSet<String> = sources.iter().flat_map(Source::test_modules).collect();
    let mut report = String::new();
    for source in sources {
        let is_test = tests.contains(&source.path);
        let source = if is_test { source.into_test() } else { source };
        for Finding { path, line, rule, why } in check(&source) {
            report.push_str(&format!("{path}:{line}: {rule}: {why}\n"));
        }
    }
    assert!(report.is_empty(), "house rules broken:\n{report}");
}

/// The rules that a sample breaks, with the lines. A header is put before it, on line 1.
fn broken(path: &str, text: &str) -> Vec<(usize, &'static str)> {
    let source = Source::new(path, &format!("//! Header.\n{text}"));
    check(&source).into_iter().map(|f| (f.line, f.rule)).collect()
}

#[track_caller]
fn caught(path: &str, text: &str, rule: &'static str) {
    assert_eq!(broken(path, text), [(2, rule)], "{path}: {text}");
}

#[track_caller]
fn passes(path: &str, text: &str) {
    assert_eq!(broken(path, text), [], "{path}: {text}");
}

#[test]
fn control_import_direction() {
    let rule = "import direction";
    caught("src/base/ids.rs", "use crate::sql::Class;", rule);
    caught("src/sql/classify.rs", "use crate::fence::Scope;", rule);
    passes("src/fence/verdict.rs", "use crate::sql::Class;");
    caught("src/fence/verdict.rs", "use crate::gate::Lease;", rule);
    caught("src/gate/drain.rs", "use crate::store::sqlite::Sqlite;", rule);
    passes("src/gate/drain.rs", "use crate::store::Persisted;");
    caught("src/gate/drain.rs", "use crate::store::{Persisted, FenceStore};", rule);
    caught("src/store/mod.rs", "use crate::engine::Census;", rule);
    passes("src/store/mod.rs", "use crate::{base::ids::Revision, telemetry, tls};");
    caught("src/tls/mod.rs", "fn f() -> crate::store::Row { g() }", rule);
    caught("src/control/fences.rs", "use crate::wire::pg::Session;", rule);
    passes("src/control/fences.rs", "use crate::{gate::Lease, store, engine, fence};");
    caught("src/wire/pg/relay.rs", "use crate::admin::view::View;", rule);
    caught("src/admin/view.rs", "use crate::wire::shared::Session;", rule);
    caught("src/wire/pg/relay.rs", "use crate::wire::mysql::relay;", rule);
    caught("src/wire/mysql/relay.rs", "use crate::wire::pg::relay;", rule);
    caught("src/control/fences.rs", "use crate::config::Raw;", rule);
    caught("src/wire/mod.rs", "use crate::{base::ids, config::Raw};", rule);
    passes("src/app.rs", "use crate::config::Checked;");
    passes("src/cli/serve.rs", "use crate::{app, config::Checked, wire};");
    caught("src/app.rs", "use crate::cli::Arguments;", rule);
    caught("src/config/checked.rs", "use crate::app::App;", rule);
    passes("src/config/checked.rs", "use crate::wire::Settings;");
    caught("src/main.rs", "use fencewire::app::App;", rule);
    passes("src/main.rs", "fn main() { fencewire::cli::run() }");
}

#[test]
fn control_import_direction_by_other_spellings() {
    let rule = "import direction";
    caught("src/sql/mod.rs", "use super::gate::Lease;", rule);
    caught("src/gate/core.rs", "use super::super::control::fences;", rule);
    passes("src/gate/core.rs", "use super::lease::Lease;");
    let group = "use crate::{\n    base::ids,\n    gate::{\n        lease::Lease,\n    },\n};";
    caught("src/fence/state.rs", group, rule);
    passes("src/fence/state.rs", "// use crate::gate::Lease;\nconst S: &str = \"crate::gate\";");
    let test = "#[cfg(test)]\nmod tests { use crate::control::fences; }";
    assert_eq!(broken("src/fence/state.rs", test), [(3, rule)]);
}

#[test]
fn control_third_party_walls() {
    let rule = "third-party wall";
    for (krate, inside, outside) in [
        ("sqlparser", "src/sql/classify.rs", "src/wire/pg/session.rs"),
        ("pgwire", "src/wire/pg/startup.rs", "src/wire/shared/outcome.rs"),
        ("pgwire", "src/admin/console/pg.rs", "src/admin/console/table.rs"),
        ("rustls", "src/tls/server.rs", "src/wire/pg/startup.rs"),
        ("tokio_rustls", "src/tls/server.rs", "src/engine/postgres.rs"),
        ("tokio_postgres", "src/engine/postgres.rs", "src/control/drain.rs"),
        ("tokio_postgres", "src/cli/demo/load.rs", "src/cli/ctl.rs"),
        ("rusqlite", "src/store/sqlite.rs", "src/control/recovery.rs"),
        ("axum", "src/admin/http/routes.rs", "src/telemetry/metrics.rs"),
        ("clap", "src/cli/ctl.rs", "src/config/raw.rs"),
        ("toml", "src/config/raw.rs", "src/app.rs"),
    ] {
        let text = format!("use {krate}::Thing;");
        passes(inside, &text);
        caught(outside, &text, rule);
        caught(outside, &format!("fn f(t: &{krate}::Thing) {{}}"), rule);
        caught(outside, &format!("use {krate};"), rule);
    }
    passes("src/wire/pg/startup.rs", "use crate::tls::rustls::Thing;");
    passes("src/wire/pg/startup.rs", "fn f(rustls: u8) {}");
}

#[test]
fn control_banned_words() {
    let rule = "banned word";
    caught("src/wire/pg/relay.rs", "fn f() { tokio::spawn(g()); }", rule);
    passes("src/telemetry/spawn.rs", "fn f() { tokio::spawn(g()); }");
    passes("src/wire/pg/relay.rs", "fn f() { telemetry::spawn(g()); }");
    caught("src/wire/pg/relay.rs", "use tokio::task::spawn;", rule);
    caught("src/wire/pg/auth.rs", "use tokio::time::timeout;", rule);
    caught("src/gate/logins.rs", "fn f() { tokio::time::sleep(d); }", rule);
    passes("src/wire/pg/auth.rs", "use crate::telemetry::timer::timeout;");
    passes("src/control/drain.rs", "use tokio::time::timeout;");
    caught("src/fence/state.rs", "fn f() { std::time::Instant::now(); }", rule);
    caught("src/sql/mod.rs", "fn f() { SystemTime::now(); }", rule);
    caught("src/gate/core.rs", "fn f() { Instant::now(); }", rule);
    passes("src/base/clock.rs", "fn f() { Instant::now(); }");
    caught("src/fence/state.rs", "async fn f() {}", rule);
    caught("src/gate/core.rs", "use tokio::sync::Notify;", rule);
    passes("src/gate/hold.rs", "use tokio::sync::Notify;");
    caught("src/base/ids.rs", "#[derive(serde::Serialize)]", rule);
    caught("src/fence/receipt.rs", "use serde::Serialize;", rule);
    passes("src/store/record.rs", "use serde::Serialize;");
    caught("src/gate/core.rs", "fn f() { w.load(Ordering::Relaxed); }", rule);
    passes("src/telemetry/metrics.rs", "fn f() { w.load(Ordering::Relaxed); }");
    caught("src/gate/hold.rs", "fn f() { mpsc::unbounded_channel(); }", rule);
    caught("src/wire/pg/relay.rs", "fn f() { String::from_utf8_lossy(b); }", rule);
    caught("src/sql/mod.rs", "fn f() { String::from_utf8_lossy(b); }", rule);
    passes("src/admin/view.rs", "fn f() { String::from_utf8_lossy(b); }");
    caught("src/app.rs", "fn f() { todo!() }", rule);
    caught("src/app.rs", "fn f() { unimplemented!() }", rule);
    passes("src/app.rs", "// todo! here\nfn f() { g(\"todo!\", 't', '\"', r#\"todo!\"#) }");
}

#[test]
fn control_sleeps_in_tests() {
    let rule = "banned word";
    let call = "fn f() { std::thread::sleep(d); }";
    caught("tests/engines.rs", call, rule);
    caught("tests/support/x.rs", "fn f() { sleep(d).await; }", rule);
    passes("tests/engines.rs", &format!("{call} // tidy: not a race: a level"));
    passes("tests/engines.rs", &format!("// tidy: not a race: a level\n{call}"));
    caught("tests/engines.rs", &format!("{call} // tidy: not a race: "), rule);
    passes("tests/engines.rs", "const SQL: &str = \"SELECT sleep(1)\"; fn pg_sleep() {}");
    passes("src/wire/pg/relay.rs", call);
    let module = format!("#[cfg(test)]\nmod tests {{\n    {call}\n}}");
    assert_eq!(broken("src/wire/pg/relay.rs", &module), [(4, rule)]);
    caught("src/wire/pg/tests.rs", call, rule);
}

#[test]
fn control_shape() {
    let line = |n: usize| "x".repeat(n);
    passes("src/app.rs", &format!("// {}", line(97)));
    caught("src/app.rs", &format!("// {}", line(98)), "line width");
    passes("src/app.rs", &format!("// {}", "ü".repeat(97)));
    caught("src/app.rs", &format!("{}x();", " ".repeat(32)), "nesting");
    passes("src/app.rs", &format!("{}x();", " ".repeat(31)));
    passes("src/app.rs", &format!("f(\"a \\\n{}b\");", " ".repeat(40)));
    let table = format!("// tidy: table\n{}x();\n// tidy: end of table", " ".repeat(32));
    passes("src/app.rs", &table);
    let after = format!("{table}\n{}x();", " ".repeat(32));
    assert_eq!(broken("src/app.rs", &after), [(5, "nesting")]);

    // The header is one line more.
    passes("src/app.rs", &"const X: u8 = 0;\n".repeat(799));
    let long = "const X: u8 = 0;\n".repeat(800);
    assert_eq!(broken("src/app.rs", &long), [(1, "file size")]);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n");
    passes("src/app.rs", &tests);

    let headless = check(&Source::new("src/app.rs", "// Not a header.\n"));
    assert_eq!(headless.iter().map(|f| f.rule).collect::<Vec<_>>(), ["module header"]);
    for name in ["utils", "common", "helpers", "manager", "misc"] {
        let paths = [format!("src/wire/{name}.rs"), format!("src/{name}/mod.rs")];
        assert!(paths.iter().all(|p| broken(p, "") == [(1, "module name")]), "{name}");
    }
    passes("src/wire/shared/mod.rs", "");
}

#[test]
fn control_function_size() {
    let function = |n: usize| format!("fn long(x: [u8; 3]) {{\n{}}}", "    x();\n".repeat(n));
    passes("src/app.rs", &function(70));
    caught("src/app.rs", &function(71), "function size");
    let remarks = "    // why\n\n    x(\"}\");\n".repeat(70);
    passes("src/app.rs", &format!("fn long() {{\n{remarks}}}"));
    passes("src/app.rs", &format!("trait T {{ fn f(&self); }}\n{}", function(70)));
    passes("src/app.rs", &format!("#[cfg(test)]\nmod tests {{\n{}\n}}", function(71)));
}

#[test]
fn control_proof_makers() {
    let rule = "proof makers";
    caught("src/control/fences.rs", "fn f() { DrainProof::new(a, b, c) }", rule);
    caught("src/store/sqlite.rs", "fn f() { let p = DrainProof { boundary }; }", rule);
    for maker in ["src/fence/proof.rs", "src/control/drain.rs", "src/store/record.rs"] {
        passes(maker, "fn f() { DrainProof::new(a, b, c) }");
    }
    passes("src/fence/transition.rs", "fn f(p: DrainProof) -> DrainProof {\n    p\n}");
    passes("src/fence/transition.rs", "use crate::fence::proof::DrainProof;");
    passes("src/fence/record.rs", "fn f() { DrainProof::check_loaded(r, e) }");
    passes("src/fence/state.rs", "#[cfg(test)]\nmod tests { fn f() { DrainProof::new() } }");
}

#[test]
fn control_what_is_test_code() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n\
                #[cfg(test)]\nmod more;\nfn d() {}";
    let source = Source::new("src/app.rs", text);
    assert_eq!(source.test, [false, true, true, true, true, false, true, true, false]);
    assert!(source.test_modules().contains(&"src/app/more.rs".to_owned()));
    let tricky = "fn f<'a>(x: &'a str) -> char { '{' } /* { /* nested */ } */ // }";
    let source = Source::new("src/app.rs", tricky);
    assert_eq!(source.code[0].trim_end(), "fn f<'a>(x: &'a str) -> char {     }");
}

#[test]
fn control_cancel_safety() {
    let rule = "cancel safety";
    for dir in ["gate", "wire/pg", "store"] {
        let path = format!("src/{dir}/some.rs");
        caught(&path, "async fn f() {}", rule);
        caught(&path, "pub(crate) async fn f() {}", rule);
        passes(&path, "/// Does it.\n///\n/// # Cancel safety\n/// Safe.\nasync fn f() {}");
        passes(&path, "/// # Cancel safety\n/// Safe.\n#[inline]\nasync fn f() {}");
        passes(&path, "#[cfg(test)]\nmod tests { async fn f() {} }");
        let other = "/// # Cancel safety\n/// Safe.\nasync fn f() {}\n\nasync fn g() {}";
        assert_eq!(broken(&path, other), [(6, rule)]);
    }
    passes("src/control/some.rs", "async fn f() {}");
}
