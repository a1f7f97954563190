//! Ending a thread or its statement, and looking at some.
//!
//! Purpose: the last step of a forced rollback, and names for the live view; the twin of
//! `postgres::terminate`. A thread is named by its id *and* the run of the server, since ids begin
//! anew with each run and are not given out twice within one. `KILL` only asks: that the thread is
//! gone is what a later census says, and until then it is still rolling back.
//!
//! Called by `control`, which bounds and records it.

use std::collections::HashSet;

use super::connect::{Control, Flavour, kill};
use super::judge::Thread;
use super::value::{key, of_key};
use super::{MyEngine, same_run};
use crate::engine::error::EngineError;
use crate::engine::identity::{BackendKey, EngineTime};
use crate::engine::{Activity, Terminated};

/// How a thread that waits for a table lock says so.
const WAITS: [&str; 2] = ["Waiting for table metadata lock", "Waiting for table level lock"];

/// Who waits for a lock to write to a table of the schema.
const WAITING_MYSQL: &str = "SELECT 1 FROM performance_schema.setup_instruments \
    WHERE NAME = 'wait/lock/metadata/sql/mdl' AND ENABLED = 'YES'";

/// Whose locks a thread waits for.
#[derive(Default)]
struct Waits {
    /// The holders, of our engine locks.
    blocked_by: Vec<i32>,
    /// It may be any of them, beside those: the engine doesn't say.
    unlisted: bool,
}

impl MyEngine {
    /// Asks the engine to end a thread's connection, if it is still the one meant.
    ///
    /// # Errors
    /// `Denied` when the control account may not (MySQL: `CONNECTION_ADMIN`, and `SYSTEM_USER` for
    /// an account that has it; MariaDB: `CONNECTION ADMIN`); `Unexpected` for one of our own; any
    /// other [`EngineError`].
    pub async fn terminate(&self, backend: BackendKey) -> Result<Terminated, EngineError> {
        self.end(backend, "ending a thread", &kill(of_key(backend.pid))).await
    }

    /// Asks the engine to stop the statement that a thread runs, if it is still the one meant. Its
    /// transaction stays open: this is never a step of a drain.
    ///
    /// # Errors
    /// As [`MyEngine::terminate`].
    pub async fn cancel(&self, backend: BackendKey) -> Result<Terminated, EngineError> {
        let statement = format!("KILL QUERY {}", of_key(backend.pid));
        self.end(backend, "stopping a statement", &statement).await
    }

    /// Ends threads of our own that had a lock, or were taking one, when their connection was lost
    /// on this side: behind a broken link the engine may not know that, and would keep their locks.
    /// Answers how many it still had. Asks nothing while there are none.
    ///
    /// Each is looked up first: same run of the server, same number, the control account's own.
    ///
    /// # Errors
    /// As [`MyEngine::terminate`]; those that weren't asked about stay for the next time.
    pub async fn end_strays(&self) -> Result<u64, EngineError> {
        let strays = self.connections.strays();
        if strays.is_empty() {
            return Ok(0);
        }
        let what = "ending a lost lock holder";
        let mut control = self.connections.control().await?;
        let run = self.see_engine(&mut control, "").await?.identity.server_start;
        let threads = self.threads(&mut control).await?;
        let mut ended = 0;
        for stray @ (thread, start) in strays {
            let user = &self.connections.settings().user;
            let ours = |seen: &Thread| same_run(run, start) && seen.user == *user;
            if !threads.get(&thread).is_some_and(ours) {
                self.connections.stray_gone(stray);
                continue;
            }
            match control.run(what, &kill(thread)).await {
                // Once more until the list shows it gone: a thread ends a while after the word.
                Ok(()) => ended += 1,
                Err(error) if is_no_such_thread(&error) => self.connections.stray_gone(stray),
                Err(other) => return Err(other),
            }
        }
        Ok(ended)
    }

    async fn end(
        &self,
        backend: BackendKey,
        what: &'static str,
        statement: &str,
    ) -> Result<Terminated, EngineError> {
        let thread = of_key(backend.pid);
        if self.connections.is_own(thread, backend.backend_start) {
            let words = format!("thread {thread} is one of our own control connections");
            return Err(self.unexpected(what, words));
        }
        let mut control = self.connections.control().await?;
        let run = self.started(&mut control).await?;
        if !same_run(run, backend.backend_start) {
            return Ok(Terminated::Gone);
        }
        match control.run(what, statement).await {
            Ok(()) => Ok(Terminated::Signalled),
            Err(error) if is_no_such_thread(&error) => Ok(Terminated::Gone),
            Err(EngineError::Denied { engine, what, words, .. }) => {
                let right = match control.flavour() {
                    Flavour::MySql => "CONNECTION_ADMIN",
                    Flavour::MariaDb => "CONNECTION ADMIN",
                };
                let hint = format!("run: GRANT {right} ON *.* TO the control account");
                Err(EngineError::Denied { engine, what, words, hint })
            }
            Err(other) => Err(other),
        }
    }

    /// What these threads are doing; those that have ended are absent from the answer.
    ///
    /// # Errors
    /// Any [`EngineError`]; `Denied` without PROCESS.
    pub async fn activity(&self, keys: &[i32]) -> Result<Vec<Activity>, EngineError> {
        let mut control = self.connections.control().await?;
        self.see_threads(&mut control).await?;
        let seen = self.see_engine(&mut control, "").await?;
        let threads = self.threads(&mut control).await?;
        let asked: Vec<&Thread> =
            keys.iter().filter_map(|key| threads.get(&of_key(*key))).collect();
        let transactions = if asked.is_empty() {
            std::collections::HashMap::new()
        } else {
            self.transactions(&mut control).await?
        };
        let mut found = Vec::new();
        for thread in asked {
            let waits = self.waits(&mut control, thread).await?;
            let began = transactions.get(&thread.id).map(|one| one.began);
            let run = seen.identity.server_start;
            found.push(activity(thread, run, seen.now, began, waits));
        }
        Ok(found)
    }

    /// Which of our engine locks a thread waits for. Where the engine lists who waits for what, it
    /// must want to write to a table of that schema; elsewhere its state alone says that it waits
    /// for some table, and its default schema for whose.
    async fn waits(&self, control: &mut Control, thread: &Thread) -> Result<Waits, EngineError> {
        if !WAITS.contains(&thread.state.as_str()) {
            return Ok(Waits::default());
        }
        let held: Vec<(String, u32)> = self
            .connections
            .holders()
            .iter()
            .filter(|(_, holder)| !holder.is_lost())
            .map(|(namespace, holder)| (namespace.database().to_owned(), holder.thread))
            .collect();
        let listed = match control.flavour() {
            Flavour::MariaDb => false,
            Flavour::MySql => match control.rows("table locks", WAITING_MYSQL).await {
                Ok(rows) => !rows.is_empty(),
                Err(EngineError::Denied { .. } | EngineError::Unexpected { .. }) => false,
                Err(
                    other @ (EngineError::Unreachable { .. }
                    | EngineError::Timeout { .. }
                    | EngineError::Changed { .. }),
                ) => return Err(other),
            },
        };
        let (mut blocking, mut unlisted) = (HashSet::new(), false);
        for (schema, holder) in held {
            let locks = if listed { self.table_locks(control, &schema).await? } else { None };
            let waits = match locks {
                Some(locks) => locks.iter().any(|lock| {
                    lock.thread == Some(thread.id)
                        && !lock.granted
                        && lock.lock == super::judge::TableLock::Write
                }),
                None => {
                    unlisted = true;
                    thread.schema.as_deref() == Some(&schema)
                }
            };
            if waits {
                blocking.insert(key(holder));
            }
        }
        Ok(Waits { blocked_by: blocking.into_iter().collect(), unlisted })
    }
}

fn is_no_such_thread(error: &EngineError) -> bool {
    matches!(error, EngineError::Unexpected { words, .. } if words.ends_with("(1094)"))
}

fn activity(
    thread: &Thread,
    run: EngineTime,
    now: EngineTime,
    began: Option<EngineTime>,
    waits: Waits,
) -> Activity {
    Activity {
        backend: BackendKey { pid: key(thread.id), backend_start: run },
        database: thread.schema.clone().unwrap_or_default(),
        user: thread.user.clone(),
        application_name: String::new(),
        client: thread.client.clone(),
        state: thread.command.clone(),
        wait: Some(thread.state.clone()).filter(|state| !state.is_empty()),
        transaction_ms: began.map(|began| now.ms_since(began)),
        statement: thread.statement.clone(),
        blocked_by: waits.blocked_by,
        waits_unlisted: waits.unlisted,
    }
}
