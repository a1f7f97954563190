//! The grammar's own tests: every command, every mistake, and the round trip.

use proptest::prelude::*;

use super::*;

const OP: &str = "6e0b8c7e-5d0f-4c7e-9d39-1d2b8f9f3a11";
const ID: &str = "0d9f8c5e-0d1f-4c7e-9d39-1d2b8f9f3a12";

fn pg(text: &str) -> Result<Statement, Wrong> {
    parse(text, Dialect::Postgres)
}

#[track_caller]
fn fence(text: &str) -> FenceStatement {
    let Ok(Statement::Fence(fence)) = pg(text) else { panic!("{text}: {:?}", pg(text)) };
    *fence
}

#[test]
fn every_command_is_read_and_printed() {
    for (text, kind) in [
        (format!("FENCE ACQUIRE WRITE ON 'old/app' OPERATION '{OP}'"), 1),
        (format!("fence set read on old/app operation {OP} deadline 30s"), 2),
        (format!("FENCE CLEAR READ ON 'old/app' OPERATION '{OP}';"), 3),
        (format!("FENCE RELEASE WRITE 'old/app' OPERATION '{OP}' COMMAND '{ID}'"), 4),
        (format!("FENCE RELEASE WRITE ON 'old/app' BESIDE TARGET OPERATION '{OP}'"), 4),
        (format!("FENCE CREATE TARGET ON 'new/app' OPERATION '{OP}' OWNER 'a' LOCALE 'C'"), 5),
        (format!("FENCE SEAL IMPORT ON 'new/app' OPERATION '{OP}' FORCE ROLLBACK"), 6),
        (format!("FENCE RECORD VALIDATION ON 'new/app' RESULT OK OPERATION '{OP}' SUMMARY 's'"), 7),
        (format!("FENCE PUBLISH ON 'new/app' OPERATION '{OP}'"), 8),
        (format!("FENCE ENABLE WRITES ON 'new/app' OPERATION '{OP}'"), 9),
        (format!("FENCE ABORT ON 'new/app' OPERATION '{OP}'"), 10),
        (
            format!(
                "FENCE ADOPT ON 'old/app' OPERATION '{OP}' FROM '{ID}' APPROVERS 'Ada', 'Grace' \
                 INCIDENT 'INC-7' REASON 'it''s gone' KEY 'the-second-key'"
            ),
            11,
        ),
    ] {
        let statement = fence(&text);
        assert_eq!(statement.kind.number(), kind, "{text}");
        for dialect in [Dialect::Postgres, Dialect::Mysql] {
            let written = statement.written(dialect, Keys::Shown);
            let again = parse(&written, dialect);
            assert_eq!(again, Ok(Statement::Fence(Box::new(statement.clone()))), "{written}");
        }
        assert!(statement.arguments(None).is_some() || kind == 1, "{text}");
        assert!(form(statement.kind)[0].starts_with("FENCE "));
    }
}

#[test]
fn a_wish_for_a_capability_is_read_and_printed() {
    for (more, purpose, revision) in [
        ("", Purpose::Import, None),
        ("REVISION 3 PURPOSE validation", Purpose::Validation, Some(Revision(3))),
    ] {
        let text = format!("fence import capability new/app {more} OPERATION '{OP}';");
        let Ok(Statement::Capability(wish)) = pg(&text) else { panic!("{text}: {:?}", pg(&text)) };
        assert_eq!((wish.purpose, wish.revision), (purpose, revision));
        assert_eq!(wish.namespace.to_string(), "new/app");
        let statement = Statement::Capability(wish);
        let written = statement.written(Dialect::Mysql, Keys::Hidden).unwrap();
        assert_eq!(parse(&written, Dialect::Mysql), Ok(statement), "{written}");
    }
    let wish = "FENCE IMPORT CAPABILITY ON 'new/app'";
    for (text, position, message) in [
        ("FENCE IMPORT".to_owned(), 13, "expected CAPABILITY, found the end"),
        (wish.to_owned(), 37, "expected OPERATION 'uuid', found the end"),
        (format!("{wish} DEADLINE 3s"), 38, "one of OPERATION, PURPOSE, REVISION or the end"),
        (format!("{wish} PURPOSE both"), 46, "expected IMPORT or VALIDATION"),
        (format!("{wish} REVISION 1 REVISION 1"), 49, "REVISION is given twice"),
    ] {
        let wrong = pg(&text).unwrap_err();
        assert!(wrong.message.contains(message), "{text}: {wrong:?}");
        assert_eq!((wrong.position, wrong.is_value), (position, false), "{text}: {wrong:?}");
    }
}

#[test]
fn clauses_come_in_any_order_and_mean_what_they_say() {
    let statement = fence(&format!(
        "FENCE ACQUIRE WRITE ON 'old/app' HOLD 2s IN FLIGHT refuse FORCE ROLLBACK DEADLINE 1m \
         IDENTITY '7412' DATABASE '16384' TIMELINE 3 EXPECT STATE released REVISION 7 \
         COMMAND '{ID}' OPERATION '{OP}'"
    ));
    assert_eq!(statement.deadline_ms, Some(60_000));
    assert_eq!(statement.hold_ms, Some(2_000));
    assert_eq!(statement.expect, Some((FenceState::Released, Revision(7))));
    let Some(Arguments::AcquireSourceWriteFence { identity, drain_policy }) =
        statement.arguments(None)
    else {
        panic!("no acquire");
    };
    assert_eq!((identity.engine_id.as_str(), identity.timeline), ("7412", Some(3)));
    let policy = drain_policy.unwrap();
    assert_eq!(policy.on_deadline, OnDeadline::ForceRollback);
    assert_eq!(policy.in_flight, Some(InFlight::Refuse));
    let plain = fence(&format!("FENCE SET READ ON old/app OPERATION {OP}"));
    assert_eq!(plain.arguments(None), Some(Arguments::SetSourceReadFence { drain_policy: None }));
}

#[test]
fn what_is_shown_and_what_is_none_of_ours() {
    for (text, expected) in [
        ("", Statement::Empty),
        (" ;; -- nothing\n /* at all */ ;", Statement::Empty),
        ("show namespaces", Statement::Show(Show::Namespaces)),
        ("SHOW RECEIPTS;", Statement::Show(Show::Receipts(None))),
        ("show Targets", Statement::Show(Show::Targets)),
        ("help;", Statement::Show(Show::Help)),
        ("show fences extended", Statement::Show(Show::Verbose(Box::new(Show::Fences)))),
        ("SHOW TRANSACTION ISOLATION LEVEL", Statement::Other),
        ("SELECT 'unclosed", Statement::Other),
        ("BEGIN", Statement::Other),
        ("ABORT", Statement::Other),
        ("SET read_only = 1", Statement::Other),
        ("'x'", Statement::Other),
    ] {
        assert_eq!(pg(text), Ok(expected), "{text}");
    }
    let Ok(Statement::Show(Show::Receipts(Some(name)))) = pg("SHOW RECEIPTS FOR 'old/a b'") else {
        panic!("no receipts")
    };
    assert_eq!(name.to_string(), "old/a b");
    assert_eq!(parse("# x\nSHOW HELP", Dialect::Mysql), Ok(Statement::Show(Show::Help)));
}

#[test]
fn every_mistake_says_what_was_expected_and_where() {
    let acquire = "FENCE ACQUIRE WRITE ON 'old/app'";
    for (text, position, message) in [
        ("FENCE".to_owned(), 6, "one of ACQUIRE WRITE, SET READ"),
        ("FENCE ACQUIRE READ".to_owned(), 15, "expected WRITE, found \"READ\""),
        ("FENCE PUBLISH ON".to_owned(), 17, "expected a namespace, such as 'old/app'"),
        ("INSPECT".to_owned(), 8, "expected a namespace"),
        ("INSPECT 'old/app' twice".to_owned(), 19, "expected the end of the statement"),
        ("SHOW FENCES; SHOW HELP".to_owned(), 14, "expected one statement at a time"),
        ("INSPECT $1".to_owned(), 9, "statements here take no parameters"),
        ("INSPECT 'old/app".to_owned(), 9, "this literal isn't closed"),
        (
            format!("SET READ ON 'old/app' OPERATION '{OP}'"),
            1,
            "expected FENCE in front of SET READ",
        ),
        ("abort on 'new/app'".to_owned(), 1, "expected FENCE in front of ABORT"),
        ("PUBLISH".to_owned(), 1, "expected FENCE in front of PUBLISH"),
        (acquire.to_owned(), 33, "expected OPERATION 'uuid', found the end"),
        (format!("{acquire} SOON"), 34, "expected one of OPERATION, COMMAND, EXPECT"),
        (format!("{acquire} OPERATION '{OP}' OPERATION '{OP}'"), 83, "OPERATION is given twice"),
        (format!("{acquire} FORCE"), 39, "expected ROLLBACK"),
        (format!("{acquire} BESIDE TARGET"), 34, "expected one of OPERATION"),
        (
            "FENCE RELEASE WRITE ON 'old/app' BESIDE".to_owned(),
            40,
            "expected TARGET, found the end",
        ),
        (format!("{acquire} REASON 'x'"), 34, "expected one of OPERATION"),
    ] {
        let wrong = pg(&text).unwrap_err();
        assert!(wrong.message.contains(message), "{text}: {wrong:?}");
        assert_eq!((wrong.position, wrong.is_value), (position, false), "{text}: {wrong:?}");
    }
    for (text, message) in [
        ("INSPECT app".to_owned(), "engine/database"),
        (format!("{acquire} OPERATION 'mine'"), "UUID"),
        (format!("{acquire} OPERATION '{OP}' DEADLINE soon"), "a duration such as 30s"),
        (format!("{acquire} OPERATION '{OP}' DEADLINE 99999999999999999h"), "a duration"),
        (format!("{acquire} EXPECT STATE OPEN REVISION 1"), "'OPEN' is no state; one of UNFENCED"),
        (format!("{acquire} EXPECT STATE UNFENCED REVISION -1"), "a whole number from 0"),
    ] {
        let wrong = pg(&text).unwrap_err();
        assert!(wrong.message.contains(message) && wrong.is_value, "{text}: {wrong:?}");
    }
}

#[test]
fn a_second_key_is_never_shown() {
    let key = "correct-horse-battery-staple";
    let adopt = format!(
        "FENCE ADOPT ON 'old/app' OPERATION '{OP}' FROM '{ID}' APPROVERS 'a', 'b' INCIDENT 'i' \
         REASON 'r' KEY "
    );
    let statement = fence(&format!("{adopt}'{key}'"));
    assert!(!statement.written(Dialect::Postgres, Keys::Hidden).contains(key));
    assert!(!format!("{statement:?}").contains(key));
    for broken in [format!("{adopt}{key}"), format!("{adopt}'{key}"), format!("{adopt}'{key}' x")] {
        assert!(!pg(&broken).unwrap_err().message.contains(key), "{broken}");
    }
}

#[test]
fn a_long_text_is_refused_by_its_length() {
    let wrong = pg(&format!("INSPECT '{}'", "x".repeat(70_000))).unwrap_err();
    assert!(wrong.message.contains("65536"), "{wrong:?}");
    assert!(pg(&format!("INSPECT '{}'", "x".repeat(10_000))).unwrap_err().is_value);
}

/// Any text that a clause may hold.
fn text() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[ -~äß\n]{0,20}").unwrap()
}

fn namespace() -> impl Strategy<Value = Namespace> {
    ("[a-z]{1,8}", "[ -~]{1,20}")
        .prop_map(|(engine, database)| Namespace::parse(&format!("{engine}/{database}")).unwrap())
}

fn statement() -> impl Strategy<Value = Statement> {
    let ids = (any::<u128>(), any::<Option<u128>>(), any::<u128>());
    let policy = (any::<Option<u32>>(), any::<bool>(), any::<Option<u32>>(), 0_usize..3);
    let expect = proptest::option::of((0_usize..FenceState::ALL.len(), any::<u64>()));
    let texts = proptest::collection::vec(text(), 9);
    let kind = 0_usize..CommandKind::ALL.len();
    (kind, namespace(), ids, policy, expect, texts).prop_map(
        |(kind, namespace, (operation, command, from), policy, expect, texts)| {
            let kind = CommandKind::ALL[kind];
            let has = |clause| clauses(kind).contains(&clause);
            let uuid = uuid::Uuid::from_u128;
            let at = |index: usize| Some(texts[index].clone());
            let (deadline, force, hold, in_flight) = policy;
            let adopts = kind == CommandKind::AdoptFence;
            let validates = kind == CommandKind::RecordTargetValidation;
            let fence = FenceStatement {
                kind,
                namespace,
                operation: OperationId::from_uuid(uuid(operation)),
                command: command.map(|id| CommandId::from_uuid(uuid(id))),
                expect: expect.map(|(state, n)| (FenceState::ALL[state], Revision(n))),
                identity: has(Clause::Identity).then(|| Identity {
                    engine_id: texts[0].clone(),
                    database_id: texts[1].clone(),
                    timeline: deadline,
                }),
                deadline_ms: deadline.map(u64::from).filter(|_| has(Clause::Deadline)),
                force_rollback: force && has(Clause::Force),
                in_flight: [None, Some(InFlight::Finish), Some(InFlight::Refuse)][in_flight]
                    .filter(|_| has(Clause::InFlight)),
                hold_ms: hold.map(u64::from).filter(|_| has(Clause::Hold)),
                beside_target: force && has(Clause::Beside),
                adoption: adopts.then(|| AdoptionClauses {
                    from: OperationId::from_uuid(uuid(from)),
                    approvers: vec![texts[2].clone(), texts[3].clone()],
                    incident: texts[4].clone(),
                    reason: texts[5].clone(),
                    key: force.then(|| Secret::new(texts[6].clone())),
                }),
                target: TargetClauses {
                    owner: at(2).filter(|_| has(Clause::Owner)),
                    encoding: None,
                    locale: at(3).filter(|_| has(Clause::Locale) && force),
                    template: at(4).filter(|_| has(Clause::Template)),
                },
                validation: validates.then(|| (ValidationResult::Failed, at(7))),
            };
            Statement::Fence(Box::new(fence))
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_reads_the_same(statement in statement()) {
        for dialect in [Dialect::Postgres, Dialect::Mysql] {
            let written = statement.written(dialect, Keys::Shown).unwrap();
            prop_assert_eq!(parse(&written, dialect), Ok(statement.clone()), "{}", written);
        }
    }

    #[test]
    fn nothing_panics(text in any::<String>()) {
        for dialect in [Dialect::Postgres, Dialect::Mysql] {
            for front in ["", "FENCE ", "SHOW RECEIPTS FOR "] {
                let _read = parse(&format!("{front}{text}"), dialect);
            }
        }
    }
}
