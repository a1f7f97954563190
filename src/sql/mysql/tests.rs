//! Tables of statements and their classes, shapes and details; properties.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::super::statement::{Classified, Detail, Kill, StatementClass, TxEffect};
use super::super::trusted::Trusted;
use super::super::{Classifier, fingerprint};
use super::*;

const ENGINES: [(char, &str); 2] = [('m', "5.5.5-10.11.19-MariaDB-log"), ('o', "9.7.4-2")];

fn standard(greeting: &str) -> MyLexing {
    MyLexing::standard(MyServer::from_greeting(greeting))
}

fn maria() -> MyLexing {
    standard(ENGINES[0].1)
}

fn oracle() -> MyLexing {
    standard(ENGINES[1].1)
}

fn classifier() -> Classifier {
    Classifier::new(Arc::new(Trusted::default()), 64)
}

fn under(text: &[u8], lexing: MyLexing) -> Classified {
    classifier().classify(text, lexing)
}

fn of(text: &str) -> Classified {
    let (one, two) = (under(text.as_bytes(), maria()), under(text.as_bytes(), oracle()));
    assert_eq!(one, two, "{text}");
    one
}

fn class(text: &str) -> StatementClass {
    of(text).class()
}

/// Expected class, engines it holds for, text.
fn cases() -> impl Iterator<Item = (StatementClass, MyLexing, &'static str)> {
    let lines = include_str!("cases.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("# "));
    lines.flat_map(|line| {
        let (head, text) = line.split_once('|').unwrap();
        let (class, engine) = head.trim().split_once(' ').unwrap_or((head.trim(), ""));
        let class = match class {
            "r" => StatementClass::Read,
            "s" => StatementClass::Session,
            "t" => StatementClass::TransactionControl,
            "w" => StatementClass::Write,
            "d" => StatementClass::Ddl,
            "l" => StatementClass::Lifecycle,
            "u" => StatementClass::Unprovable,
            other => panic!("no such class: {other}"),
        };
        let wanted = move |(name, _): &(char, &str)| engine.is_empty() || engine.starts_with(*name);
        ENGINES
            .into_iter()
            .filter(wanted)
            .map(move |(_, greeting)| (class, standard(greeting), text.trim()))
    })
}

#[test]
fn every_case_has_its_class() {
    let found = |lexing, text: &str| under(text.as_bytes(), lexing).class();
    let wrong: Vec<String> = cases()
        .filter(|(expected, lexing, text)| found(*lexing, text) != *expected)
        .map(|(expected, lexing, text)| {
            let flavour = lexing.server.flavour;
            format!("{text}\n   is {}, not {expected} ({flavour:?})", found(lexing, text))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases().count() > 600, "the table lost its cases");
}

#[test]
fn one_classifier_answers_like_a_fresh_one() {
    let mut shared = classifier();
    for round in 0..2 {
        for (expected, lexing, text) in cases() {
            let found = shared.classify(text.as_bytes(), lexing);
            assert_eq!(found.class(), expected, "round {round}: {text}");
            assert_eq!(found, under(text.as_bytes(), lexing), "round {round}: {text}");
        }
    }
}
