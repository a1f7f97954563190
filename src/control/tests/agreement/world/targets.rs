//! The real thing's targets: creations that wait, capabilities, questions, databases that move.

use super::*;
use crate::control::targets::{TargetError, ValidationQuery};
use crate::engine::ReadTable;
use crate::fence::verdict::Purpose as RealPurpose;

/// The capabilities that were given out: the secrets, and what a session bears by the last one.
#[derive(Default)]
pub(super) struct Given {
    secrets: Vec<String>,
    last: Option<Capability>,
}

impl Given {
    /// Sessions end with their process, and what they had shown.
    pub(super) fn process_ended(&mut self) {
        self.last = None;
    }
}

/// A question that the engine hasn't answered.
pub(super) struct Question {
    task: tokio::task::JoinHandle<Result<Vec<ReadTable>, TargetError>>,
    permit: Arc<tokio::sync::Semaphore>,
}

fn told<T>(answer: Result<T, TargetError>) -> (&'static str, &'static str) {
    match answer {
        Ok(_) => ("", ""),
        Err(TargetError::Refused(refusal)) => {
            (refusal.code.name(), refusal.detail.map_or("", Detail::name))
        }
        Err(TargetError::Failed(_)) => ("ERROR", ""),
    }
}

impl World {
    /// The engine answers the creation that waits.
    pub(in crate::control::tests::agreement) fn go_on(&mut self, manner: &Manner) -> Said {
        let life = self.life.as_mut().unwrap();
        life.plan(&manner.fates, manner.blind);
        if manner.creation == Creation::Speechless {
            self.engine.unanswered_at("identity");
        }
        self.engine.creations_go_on();
        let task = life.behind.take().unwrap();
        let store = Arc::clone(&life.store);
        let said = life.runtime.block_on(async {
            tokio::select! {
                biased;
                answer = task => Some(answer.unwrap()),
                () = store.hung() => None,
            }
        });
        life.plan(&[], false);
        said.map_or(Said::Died, |answer| Said::Heard(heard(&answer)))
    }

    // --- the engine ---

    pub(in crate::control::tests::agreement) fn engine_is(&self, number: u8) {
        self.engine.becomes(database(number));
    }

    pub(in crate::control::tests::agreement) fn database(&self, exists: bool, filled: bool) {
        self.engine.has_database(exists, filled);
    }

    // --- capabilities ---

    pub(in crate::control::tests::agreement) fn issue(
        &mut self,
        purpose: Purpose,
        by: u8,
        revision: u64,
    ) -> (&'static str, &'static str) {
        let purpose = match purpose {
            Purpose::Import => RealPurpose::Import,
            Purpose::Validation => RealPurpose::Validation,
        };
        let control = Arc::clone(&self.life().control);
        let given = control.issue_capability(&namespace(), purpose, op(by), Revision(revision));
        if let Ok(issued) = &given {
            self.capabilities.secrets.push(issued.secret().expose().to_owned());
            self.capabilities.last = Some(issued.capability().clone());
        }
        told(given)
    }

    /// Which can still be shown.
    pub(super) fn shown(&self) -> Vec<bool> {
        let gate = self.life().control.gates.gate(&namespace());
        let secrets = self.capabilities.secrets.iter();
        secrets.map(|secret| gate.present(secret.as_bytes()).is_some()).collect()
    }

    /// What a session that has shown the last one may begin.
    pub(super) fn bears(&mut self) -> Option<[&'static str; 5]> {
        let last = self.capabilities.last.clone()?;
        Some(CLASSES.map(|name| self.probe(class(name), Some(last.clone()))))
    }

    pub(in crate::control::tests::agreement) fn begin_work(&mut self, name: &str) -> &'static str {
        let last = self.capabilities.last.clone();
        self.bearer = match self.begin_with(class(name), last) {
            Ok(held) => Some(held),
            Err(code) => return code,
        };
        ""
    }

    pub(in crate::control::tests::agreement) fn more(&mut self, name: &str) -> &'static str {
        let said = self.bearer.as_mut().unwrap().lease.extend(class(name), true);
        said.err().map_or("", |refusal| refusal.denial.code())
    }

    /// COMMIT.
    pub(in crate::control::tests::agreement) fn end_work(&mut self) -> &'static str {
        let mut lease = self.bearer.take().unwrap().lease;
        let said = lease.extend(StatementClass::TransactionControl, true);
        lease.answered();
        said.err().map_or("", |refusal| refusal.denial.code())
    }

    // --- questions ---

    pub(in crate::control::tests::agreement) fn is_asked(&self) -> bool {
        self.life().question.is_some()
    }

    pub(in crate::control::tests::agreement) fn ask_question(
        &mut self,
        by: u8,
        (state, revision): (Option<State>, u64),
        parks: bool,
    ) -> (&'static str, &'static str) {
        let query = ValidationQuery {
            namespace: namespace(),
            operation: op(by),
            expected_revision: Revision(revision),
            expected_state: state.map(real),
            statements: vec!["select 1".to_owned()],
        };
        let permit = Arc::new(tokio::sync::Semaphore::new(0));
        if parks {
            self.engine.reads_wait_for(Arc::clone(&permit));
        }
        let (engine, read) = (self.engine.clone(), self.engine.count("read"));
        let silent = self.engine.is_silent();
        let life = self.life.as_mut().unwrap();
        let control = Arc::clone(&life.control);
        let answered = life.runtime.block_on(async {
            let task = tokio::spawn(async move { control.validation_query(&query).await });
            while parks && !silent && !task.is_finished() {
                if engine.count("read") > read {
                    return Err(task);
                }
                tokio::task::yield_now().await;
            }
            if silent {
                permit.add_permits(1);
            }
            Ok(task.await.unwrap())
        });
        match answered {
            Ok(answer) => {
                self.engine.questions_go_on();
                told(answer)
            }
            Err(task) => {
                life.question = Some(Question { task, permit });
                (super::super::model::AT_WORK, "")
            }
        }
    }

    pub(in crate::control::tests::agreement) fn answer_question(
        &mut self,
    ) -> (&'static str, &'static str) {
        let life = self.life.as_mut().unwrap();
        let Question { task, permit } = life.question.take().unwrap();
        permit.add_permits(1);
        let answer = life.runtime.block_on(task).unwrap();
        self.engine.questions_go_on();
        told(answer)
    }
}
