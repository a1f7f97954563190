//! The play: load, fence, proof, release.
//!
//! Purpose: the order of the steps, and what is looked at when. Everything it claims is a check of
//! `checks.rs` over what was recorded; the engine's side of it is read around the proxy.
//!
//! Called by `demo.rs`, which sets the stage and clears it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::bank::{Auditor, DATABASE, TOTAL, login};
use super::checks::{self, Check, Direct, WRITE_FENCED, Window};
use super::client::{SLOW_NAME, SlowTransaction};
use super::error::DemoError;
use super::fence::{self, Acquired, Commander, DEADLINE};
use super::history::{Attempt, End, History, Recorder};
use super::link::{LinkError, Login};
use super::load::{self, Load, READERS, WRITERS};
use super::narrator::Narrator;
use super::sabotage::Sabotage;
use super::server::Server;
use crate::base::ids::{EngineName, Namespace};
use crate::control::Control;

/// The engine's name in the demo's namespace.
pub(super) const ENGINE: &str = "demo";
/// How long anything may take that must happen to every client.
const EVERYONE: Duration = Duration::from_secs(10);
/// The transfers of the direct session: while fenced, and after the release.
const DIRECT: [i64; 2] = [900_000_101, 900_000_102];
/// A transfer that nobody makes.
const NOBODYS: i64 = 900_000_999;

/// What the play is played on.
pub(super) struct Stage<'a> {
    pub(super) server: &'a Server,
    pub(super) control: &'a Arc<Control>,
    /// The port of the proxy on 127.0.0.1.
    pub(super) proxy_port: u16,
    pub(super) auditor: &'a Auditor,
    /// The threads of the clients.
    pub(super) threads: &'a Handle,
    pub(super) sabotage: Sabotage,
}

/// What was seen while the fence stood.
struct Fenced {
    acquired: Acquired,
    commander: Commander,
    boundary: String,
    table: Check,
    sum: i64,
    direct: Direct,
    changes: checks::Changes,
}

impl Stage<'_> {
    fn login(&self, name: &str) -> Login {
        login(self.server, name, self.proxy_port)
    }

    fn namespace() -> Result<Namespace, DemoError> {
        let bad = |e: crate::base::ids::IdError| DemoError::Program {
            program: "fencewire".to_owned(),
            how: e.to_string(),
        };
        EngineName::new(ENGINE).and_then(|engine| Namespace::new(engine, DATABASE)).map_err(bad)
    }

    /// Plays all steps; answers what became of each promise.
    ///
    /// # Cancel safety
    /// Cancel safe: clients are told to stop.
    pub(super) async fn play(
        &self,
        narrator: &mut Narrator<'_, '_>,
    ) -> Result<Vec<Check>, DemoError> {
        let recorder = Arc::new(Recorder::new(Instant::now()));
        let load = self.load(&recorder, narrator).await?;
        let fenced = self.fence(&recorder, narrator).await?;
        let window = self.release(&fenced, &recorder, narrator).await?;
        let direct = self.auditor.insert(DIRECT[1]).await;
        load.stop().await;
        let history = recorder.history();
        let changes = self.changes(&fenced.commander, &fenced.boundary).await?;
        let mut others = self.others(&fenced.acquired.slow);
        if direct.is_ok() {
            others.insert(DIRECT[1]);
        }
        let table = self.auditor.transfers().await?;
        let sums = [fenced.sum, self.auditor.sum().await?];
        Ok(vec![
            checks::drain_waited(&fenced.acquired.slow, &window),
            checks::writes_refused(&history, &window, WRITERS),
            checks::reads_go_on(&history, &window, TOTAL),
            checks::direct_writes(&fenced.direct, &direct, self.server.kind().lock_code()),
            checks::log_ends_at_boundary(fenced.changes, changes),
            fenced.table,
            checks::traffic_resumes(&history, &window, WRITERS),
            checks::table_agrees(
                "the same at the end, new transfers too",
                &history,
                &others,
                &table,
            ),
            checks::sum_conserved(&sums, TOTAL),
        ])
    }

    async fn load(
        &self,
        recorder: &Arc<Recorder>,
        narrator: &mut Narrator<'_, '_>,
    ) -> Result<Load, DemoError> {
        narrator.step(
            "2  Load",
            &format!(
                "{WRITERS} clients move money through the proxy, half of them with prepared \
                 statements; {READERS} add it up."
            ),
        );
        let load = Load::start(self.threads, recorder, |name| self.login(name));
        let worked = |attempt: &Attempt| attempt.end == End::Acknowledged;
        self.everyone("a transfer of every client", recorder, worked).await?;
        load::watch(recorder, 2, narrator).await;
        Ok(load)
    }

    /// Waits until `wanted` has been true of an attempt of every client.
    async fn everyone(
        &self,
        what: &'static str,
        recorder: &Recorder,
        wanted: impl Fn(&Attempt) -> bool,
    ) -> Result<(), DemoError> {
        let deadline = Instant::now() + EVERYONE;
        while !recorder.each(WRITERS, &wanted) {
            if recorder.is_stopping() || Instant::now() >= deadline {
                return Err(DemoError::Late(what, EVERYONE.as_secs()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Steps 3 to 5: the fence goes up and is looked at from all sides.
    async fn fence(
        &self,
        recorder: &Arc<Recorder>,
        narrator: &mut Narrator<'_, '_>,
    ) -> Result<Fenced, DemoError> {
        narrator.step(
            "3  Fence",
            &format!(
                "AcquireSourceWriteFence, deadline {} s. One writer is kept open on purpose: the \
                 drain must wait.",
                DEADLINE.as_secs()
            ),
        );
        let slow = SlowTransaction::open(&self.login(SLOW_NAME), recorder).await;
        let slow =
            slow.map_err(|e: LinkError| DemoError::engine("opening the slow transaction", &e))?;
        let commander = Commander::new(self.control, Self::namespace()?);
        let acquired = commander.acquire(slow, recorder, narrator).await?;
        let Acquired { record, asked, fenced, .. } = &acquired;
        let took = fenced.saturating_sub(*asked).as_secs_f64();
        let text = format!("APPLIED: {} at revision {}", record.state.name(), record.revision);
        narrator.line(&format!("{took:.1} s"), &text);
        if self.sabotage == Sabotage::OpenGate {
            commander.release(record).await?;
        }
        narrator.step(
            "4  Evidence",
            "Elapsed time proves nothing: this was observed, and is stored with the fence.",
        );
        let unproven = || DemoError::Fence {
            command: "AcquireSourceWriteFence",
            code: "APPLIED",
            words: "the record has no evidence".to_owned(),
        };
        let evidence = record.evidence.as_ref().ok_or_else(unproven)?;
        fence::tell(evidence, narrator);
        let boundary = evidence.boundary.value.clone();
        self.look(commander, acquired, boundary, recorder, narrator).await
    }

    /// Step 5: what holds while the fence stands.
    async fn look(
        &self,
        commander: Commander,
        acquired: Acquired,
        boundary: String,
        recorder: &Recorder,
        narrator: &mut Narrator<'_, '_>,
    ) -> Result<Fenced, DemoError> {
        narrator.step(
            "5  Proof",
            "Clients keep trying, and so does a session around the proxy; the engine itself is \
             asked.",
        );
        let window = Window::standing(acquired.asked, acquired.fenced);
        let refused = |a: &Attempt| {
            window.holds(a.began, a.ended) && a.end == End::Refused(WRITE_FENCED.to_owned())
        };
        // Who was refused once has recorded everything from before. If that never comes, the
        // check says so.
        self.everyone("a refusal of every client", recorder, refused).await.ok();
        load::watch(recorder, 1, narrator).await;
        let direct = self.auditor.insert(DIRECT[0]).await;
        let shown = match &direct {
            Ok(()) => "INSERT around the proxy: written".to_owned(),
            Err(code) => format!("INSERT around the proxy: waits for the engine lock, {code}"),
        };
        narrator.line("direct", &shown);
        let others = self.others(&acquired.slow);
        let history: History = recorder.history();
        let table = self.auditor.transfers().await?;
        let table = checks::table_agrees(
            "acknowledged is there, refused is not",
            &history,
            &others,
            &table,
        );
        narrator.line("transfers", &table.figure);
        let sum = self.auditor.sum().await?;
        narrator.line("balances", &format!("{sum} in all, {TOTAL} at the start"));
        let changes = self.changes(&commander, &boundary).await?;
        let shown = format!(
            "{} row changes up to the boundary, {} after it",
            changes.before, changes.after
        );
        narrator.line("log decoded", &shown);
        Ok(Fenced { acquired, commander, boundary, table, sum, direct, changes })
    }

    async fn changes(
        &self,
        commander: &Commander,
        boundary: &str,
    ) -> Result<checks::Changes, DemoError> {
        self.auditor.changes(boundary, &commander.marker()).await
    }

    /// Transfers that were acknowledged to others than the writers.
    fn others(&self, slow: &Attempt) -> BTreeSet<i64> {
        let mut others = BTreeSet::new();
        if slow.end == End::Acknowledged {
            others.insert(slow.transfer);
        }
        if self.sabotage == Sabotage::LostAcknowledgement {
            others.insert(NOBODYS);
        }
        others
    }

    async fn release(
        &self,
        fenced: &Fenced,
        recorder: &Recorder,
        narrator: &mut Narrator<'_, '_>,
    ) -> Result<Window, DemoError> {
        narrator.step(
            "6  Release",
            "ReleaseSourceWriteFence; the same clients, which nobody told, succeed again.",
        );
        let acquired = &fenced.acquired;
        let releasing = recorder.now();
        fenced.commander.release(&acquired.record).await?;
        let released = recorder.now();
        let window = Window { asked: acquired.asked, fenced: acquired.fenced, releasing, released };
        let again = |a: &Attempt| a.began >= released && a.end == End::Acknowledged;
        self.everyone("a transfer of every client after the release", recorder, again).await.ok();
        load::watch(recorder, 2, narrator).await;
        Ok(window)
    }
}
