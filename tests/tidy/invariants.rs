//! `docs/INVARIANTS.md` names, for every invariant, a switch that breaks it and the test that is
//! red with it; what is named must be there.

use std::collections::BTreeSet;
use std::path::Path;

use fencewire::base::arm::Removable;

/// Every invariant there must be.
fn numbers() -> BTreeSet<String> {
    let all = (1..=14).map(|number| number.to_string());
    all.chain((1..=6).map(|number| format!("M{number}"))).collect()
}

/// What stands between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// What is wrong with the tables; `read` gives a file's text, `None` where there is none.
fn faults(document: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for line in document.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (number, switch) = (cells[0], cells[cells.len() - 1]);
        if number == "#" && switch != "switch" {
            found.push("a table without the column `switch`".to_owned());
        }
        if !number.ends_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        seen.insert(number.to_owned());
        let mut texts = String::new();
        for path in quoted(switch).filter(|word| word.contains('.')) {
            match read(path) {
                Some(text) => texts.push_str(&text),
                None => found.push(format!("{number}: there is no file {path}")),
            }
        }
        let mut tests = 0;
        for word in quoted(switch).filter(|word| !word.contains('.')) {
            let is_guard = Removable::ALL.into_iter().any(|guard| guard.name() == word);
            let is_test = texts.contains(&format!("fn {word}("));
            tests += usize::from(is_test);
            if !is_guard && !is_test {
                found.push(format!("{number}: {word} is no guard, and no test of a named file"));
            }
        }
        if tests == 0 {
            found.push(format!("{number}: no test is named"));
        }
    }
    for number in numbers().difference(&seen) {
        found.push(format!("{number}: it isn't in the table"));
    }
    found
}

fn document() -> String {
    read("docs/INVARIANTS.md").unwrap()
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok()
}

#[test]
fn every_invariant_has_a_switch_and_a_test_that_is_red_with_it() {
    let found = faults(&document(), read);
    assert!(found.is_empty(), "docs/INVARIANTS.md: {found:#?}");
}

#[test]
fn control_a_switch_that_is_missing_or_misnamed_is_found() {
    let sound = document();
    let row = sound.lines().find(|line| line.starts_with("| 5 |")).unwrap();
    let switch = row.trim_end_matches(" |").rsplit("| ").next().unwrap();
    let spoils = [
        (row.to_owned(), String::new(), "5: it isn't in the table"),
        (switch.to_owned(), String::new(), "5: no test is named"),
        ("`generation-start`".to_owned(), "`generation-begin`".to_owned(), "is no guard"),
        ("src/app/sequences.rs".to_owned(), "src/app/sequence.rs".to_owned(), "there is no file"),
        ("| shown by | switch |".to_owned(), "| switch | shown by |".to_owned(), "without the"),
    ];
    for (from, to, expected) in spoils {
        assert!(sound.contains(&from), "{from}");
        let found = faults(&sound.replace(&from, &to), read);
        assert!(found.iter().any(|fault| fault.contains(expected)), "{expected}: {found:#?}");
    }
}
