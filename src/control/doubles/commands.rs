//! What a command that puts a fence up asks before it, of all engines.
//!
//! Purpose: who is a standby of the server that the fence will stand on is heard before it does, so
//! that one that is promoted behind it is known. And neither fence nor target comes to be on an
//! engine that is another fence's server, or may be: it would stand on what is closed, and behind a
//! restart its record would say that the engine is no promoted standby. So before a target is made
//! the engine must say who it is to this very command: what was a standby, or silent, may be
//! promoted by now. A source's fence closes, and its later record speaks for nobody (`doubles.rs`):
//! it goes up on a silent engine, too.
//!
//! Invariant: 4. Caller: `control/fences/turn.rs`, before the commit and before a target's database
//! is made. It closes nothing: the look that follows does.

use std::sync::Arc;
use std::time::Duration;

use super::{Beside, Known, Seen, Standing, beside, is_of_another_kind, is_the_fenced, standing};
use crate::base::arm::{Removable, removed};
use crate::base::ids::EngineName;
use crate::base::limits;
use crate::control::answer::Answer;
use crate::control::fences::Control;
use crate::control::port::{EnginePort, Server};
use crate::fence::code::{ControlCode, Detail};
use crate::fence::command::{Command, CommandKind};
use crate::fence::transition::ControlRefusal;
use crate::store::StoreError;

/// Why a fence doesn't go up.
pub(in crate::control) enum NotHere {
    /// The fences that stand can't be listed.
    Unread(StoreError),
    /// This is the command's answer.
    Answered(Box<Answer>),
}

/// What a command's own engine is, by its word to this command.
enum Place {
    /// No other fence's server.
    Free,
    /// Another fence's, or taken for it; why.
    Shut(String),
    /// That isn't known yet; why.
    Unknown(String),
}

impl Place {
    /// Of an engine that has said who it is. `seen` is what was heard before and now; `None` where
    /// a look is under way: then a later timeline of a fence's server says nothing yet.
    fn of(
        name: &EngineName,
        (engine, said): (&dyn EnginePort, &Server),
        fences: &[Standing],
        seen: Option<&Seen>,
    ) -> Self {
        let others = fences.iter().filter(|fence| fence.namespace.engine() != name);
        for fence in others.filter(|fence| !is_of_another_kind(engine, &fence.identity)) {
            let Some(seen) = seen else {
                let unseen = Known {
                    said: Some(said),
                    silent: false,
                    shut: false,
                    followed: true,
                    in_place: false,
                    own: None,
                };
                match beside(&fence.identity, &unseen) {
                    Beside::Fenced if is_the_fenced(said, &fence.identity) => {
                        return Self::Shut(super::is_double(name, fence));
                    }
                    Beside::Fenced => {
                        return Self::Unknown(format!(
                            "engine {name} has the id of the server of {} and a later timeline, \
                             and engines are being looked at just now",
                            fence.namespace
                        ));
                    }
                    Beside::MayBe | Beside::AskedOn | Beside::Another => continue,
                }
            };
            match beside(&fence.identity, &seen.known(name, fence)) {
                Beside::Fenced => return Self::Shut(seen.why_fenced(name, fence)),
                Beside::MayBe | Beside::AskedOn | Beside::Another => {}
            }
        }
        Self::Free
    }
}

impl NotHere {
    fn shut(command: &Command, why: &str) -> Self {
        let (kind, namespace) = (command.kind(), &command.namespace);
        let message = format!("{kind} on {namespace}: nothing was changed, because {why}");
        let code = ControlCode::StateUnavailable;
        let refusal = ControlRefusal { code, detail: None, message };
        Self::Answered(Box::new(Answer::refused(refusal)))
    }

    fn unknown(command: &Command, why: &str) -> Self {
        Self::Answered(Box::new(Answer::failed(format!(
            "{} on {}: nothing was changed, because {why}; send the command again",
            command.kind(),
            command.namespace
        ))))
    }

    /// A target is a database that is made; a standby makes none.
    fn standby(command: &Command) -> Self {
        let (kind, namespace) = (command.kind(), &command.namespace);
        let message = format!(
            "{kind} on {namespace}: nothing was changed, because engine {} is a standby, where no \
             database can be made; create the target on a primary",
            namespace.engine()
        );
        let (code, detail) = (ControlCode::PreconditionFailed, Some(Detail::InvalidArgument));
        Self::Answered(Box::new(Answer::refused(ControlRefusal { code, detail, message })))
    }
}

impl Control {
    /// Before a fence goes up: asks who is a standby of the server that it will stand on, so that
    /// one that is promoted behind it is known, and one that was promoted before is another server;
    /// and whether its own engine is no other fence's server. Takes two seconds per question at
    /// most, and up to two more while a look is under way.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Errors
    /// [`NotHere`]: nothing was changed. FENCE_STATE_UNAVAILABLE where the engine is shut, or has
    /// to be; `invalid_argument` for a target on a standby; for a target a failure where its engine
    /// didn't say who it is, or a look is under way that must say it first.
    pub(in crate::control) async fn hear_of_standbys(
        self: &Arc<Self>,
        command: &Command,
    ) -> Result<(), NotHere> {
        let name = command.namespace.engine();
        let checks = !removed(Removable::ShutCommand);
        if let Some(why) = self.gates.shut_engines().get(name).filter(|_| checks) {
            return Err(NotHere::shut(command, why));
        }
        let mut engines = self.engines();
        let Some(own) = engines.get(name).cloned() else {
            return Ok(());
        };
        engines.retain(|_, engine| engine.has_timelines() == own.has_timelines());
        if engines.len() < 2 {
            return Ok(());
        }
        let servers = self.servers(&engines).await;
        let patience = Duration::from_millis(limits::RECOVERY_SERVER_MS);
        // Whoever looks so long has asked them by itself, and its words count.
        let seen = tokio::time::timeout(patience, self.looking.lock()).await.ok();
        // Behind the answers, as in a look.
        let fences = standing(&self.store.fence_list().await.map_err(NotHere::Unread)?);
        let seen = seen.map(|mut seen| {
            seen.hear(&fences, engines.keys(), &servers);
            seen.news = true;
            seen
        });
        if !checks {
            return Ok(());
        }
        // Closing waits for nobody's word, and a source's later record speaks for no engine.
        let closes = command.kind() == CommandKind::AcquireSourceWriteFence;
        let Some(said) = servers.get(name) else {
            if closes {
                return Ok(());
            }
            let words = "did not say in time which server it is; see to its control connection";
            return Err(NotHere::unknown(command, &format!("engine {name} {words}")));
        };
        if said.standby && command.kind() == CommandKind::CreateTargetQuarantined {
            return Err(NotHere::standby(command));
        }
        match Place::of(name, (own.as_ref(), said), &fences, seen.as_deref()) {
            Place::Free => Ok(()),
            Place::Shut(why) => Err(NotHere::shut(command, &why)),
            Place::Unknown(_) if closes => Ok(()),
            Place::Unknown(why) => Err(NotHere::unknown(command, &why)),
        }
    }
}
