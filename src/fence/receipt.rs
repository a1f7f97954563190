//! The durable answer to a command, and what sending the command again means.
//!
//! Purpose: a lost answer is resolved by replaying the same command. The fingerprint tells the
//! same request from another one under a reused id; the replay rule tells an answer that stands
//! from a drain that goes on.
//!
//! Invariant 10: a command with the same key has one effect.
//!
//! Callers: `fence::transition`, `store`, `admin`. The fingerprint's encoding is frozen: changing
//! it would turn every stored receipt into a conflict.

use sha2::{Digest as _, Sha256};

use crate::base::ids::{CommandId, Namespace, OperationId, Revision};

use super::command::{Arguments, Command, CommandKey, CommandKind};
use super::record::{Adoption, DrainPolicy, FenceRecord, Identity};
use super::state::FenceState;

/// What a stored answer says. Errors are never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The transition committed. Final.
    Applied,
    /// The record was in the wanted state. Final.
    AlreadyApplied,
    /// Closed and durable, drain not proven yet.
    Draining,
}

impl Outcome {
    /// `APPLIED`, `ALREADY_APPLIED` or `DRAINING`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "APPLIED",
            Self::AlreadyApplied => "ALREADY_APPLIED",
            Self::Draining => "DRAINING",
        }
    }

    /// Reads the name; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Applied, Self::AlreadyApplied, Self::Draining].into_iter().find(|o| o.name() == text)
    }

    /// Whether nothing can follow.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Applied | Self::AlreadyApplied => true,
            Self::Draining => false,
        }
    }
}

/// SHA-256 of everything a request asks for, its command id excepted.
///
/// The hashed bytes are the label `fencewire fence command 1`, then, in this order: namespace,
/// operation id, kind number, expected state number, expected revision, and the arguments in the
/// order of their fields. Each text is its length as eight bytes, most significant first, and its
/// UTF-8 bytes; each number is eight bytes, most significant first; each optional value is a byte 0
/// (absent), or a byte 1 and the value; a list is its length and its items; a choice is its stable
/// name as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

const LABEL: &str = "fencewire fence command 1";

impl Fingerprint {
    /// Condenses a request.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        let mut encoder = Encoder(Sha256::new());
        encoder.text(LABEL);
        encoder.text(&command.namespace.to_string());
        encoder.text(&command.operation.to_string());
        encoder.number(u64::from(command.kind().number()));
        encoder.number(u64::from(command.expected_state.wire_number()));
        encoder.number(command.expected_revision.0);
        encoder.arguments(&command.arguments);
        Self(encoder.0.finalize().into())
    }

    /// Reads the shown form; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        if digits.len() != 64 || !digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let mut bytes = [0_u8; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

struct Encoder(Sha256);

impl Encoder {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn optional<T>(&mut self, value: Option<T>, encode: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.0.update([0]),
            Some(value) => {
                self.0.update([1]);
                encode(self, value);
            }
        }
    }

    fn identity(&mut self, identity: &Identity) {
        self.text(&identity.engine_id);
        self.optional(identity.timeline, |e, timeline| e.number(u64::from(timeline)));
        self.text(&identity.database_id);
    }

    fn policy(&mut self, policy: Option<DrainPolicy>) {
        self.optional(policy, |e, policy| {
            e.number(policy.deadline_ms);
            e.text(policy.on_deadline.name());
            e.optional(policy.in_flight, |e, in_flight| e.text(in_flight.name()));
            e.optional(policy.hold_ms, Self::number);
        });
    }

    fn arguments(&mut self, arguments: &Arguments) {
        match arguments {
            Arguments::AcquireSourceWriteFence { identity, drain_policy } => {
                self.identity(identity);
                self.policy(*drain_policy);
            }
            Arguments::SetSourceReadFence { drain_policy }
            | Arguments::SealTargetImport { drain_policy } => self.policy(*drain_policy),
            Arguments::CreateTargetQuarantined { owner, encoding, locale, template } => {
                for option in [owner, encoding, locale, template] {
                    self.optional(option.as_deref(), Self::text);
                }
            }
            Arguments::RecordTargetValidation { result, summary } => {
                self.text(result.name());
                self.optional(summary.as_deref(), Self::text);
            }
            Arguments::AdoptFence { current_operation, approvers, incident_ref, reason } => {
                self.text(&current_operation.to_string());
                self.number(approvers.len() as u64);
                approvers.iter().for_each(|approver| self.text(approver));
                self.text(incident_ref);
                self.text(reason);
            }
            Arguments::ClearSourceReadFence
            | Arguments::ReleaseSourceWriteFence
            | Arguments::PublishTargetReadableWriteFenced
            | Arguments::EnableTargetWrites
            | Arguments::AbortQuarantinedTarget => {}
        }
    }
}

/// The durable answer to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Which database.
    pub namespace: Namespace,
    /// On whose behalf.
    pub operation: OperationId,
    /// Which request.
    pub command: CommandId,
    /// What was asked.
    pub kind: CommandKind,
    /// The whole request, condensed.
    pub fingerprint: Fingerprint,
    /// The answer.
    pub outcome: Outcome,
    /// The record's revision before; 0 without a record.
    pub revision_before: Revision,
    /// The record's revision after; equal to `revision_before` where nothing moved.
    pub revision_after: Revision,
    /// The record's state after.
    pub state_after: FenceState,
    /// When, in milliseconds since the Unix epoch.
    pub applied_at_ms: u64,
    /// The instance that answered.
    pub instance: String,
    /// What an adoption moved; `None` for every other command.
    pub adoption: Option<Adoption>,
}

impl Receipt {
    /// Operation and command id.
    #[must_use]
    pub const fn key(&self) -> CommandKey {
        CommandKey { operation: self.operation, command: self.command }
    }
}

/// What sending a command again means, once its receipt was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// The stored answer stands, whatever the record is now.
    Final,
    /// The drain it began is still this very one: go on with it.
    Resume,
    /// The drain it began was superseded: answer with history and do nothing.
    Historical,
    /// The id stands for another request.
    Conflict,
}

impl Receipt {
    /// Judges a replay. `record` is the present one, `None` without a record.
    ///
    /// A drain is the same one only at exactly the revision it was begun at, so that a release, a
    /// cleared read fence, a later cycle and an adoption all supersede it.
    #[must_use]
    pub fn replay(&self, fingerprint: Fingerprint, record: Option<&FenceRecord>) -> Replay {
        if self.fingerprint != fingerprint {
            return Replay::Conflict;
        }
        if self.outcome.is_final() {
            return Replay::Final;
        }
        let same_drain = record.is_some_and(|record| {
            Some(record.state) == self.kind.draining() && record.revision == self.revision_after
        });
        if same_drain { Replay::Resume } else { Replay::Historical }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::sample;

    fn fingerprint(command: &Command) -> String {
        Fingerprint::of(command).to_string()
    }

    fn acquire() -> Command {
        let view = sample::view(FenceState::Unfenced);
        sample::command(CommandKind::AcquireSourceWriteFence, &view, 1, 10)
    }

    fn with_policy(drain_policy: Option<DrainPolicy>) -> Command {
        let identity = sample::identity();
        let arguments = Arguments::AcquireSourceWriteFence { identity, drain_policy };
        Command { arguments, ..acquire() }
    }

    #[test]
    fn the_encoding_is_frozen() {
        // Computed from the documented encoding by another program. If these change, every stored
        // receipt becomes a conflict: don't change them.
        assert_eq!(
            fingerprint(&acquire()),
            "sha256:125daabf946fe171e58ef78b3cf2269d9b2208a5ccae16ce10a224441b759982"
        );
        let policy = DrainPolicy { hold_ms: Some(5), ..sample::policy() };
        assert_eq!(
            fingerprint(&with_policy(Some(policy))),
            "sha256:c51728c0dd78241ed16e45aece1345fcf76c348b44234f3ce074df85b7b1b0c4"
        );
        let view = sample::view(FenceState::SourceWriteFenced);
        let adopt = sample::command(CommandKind::AdoptFence, &view, 2, 10);
        assert_eq!(
            fingerprint(&adopt),
            "sha256:e62915a9ab2b4f988db3504d0dd4d375096ab3b1d98bb442ce6dd3eef09afecb"
        );
    }

    #[test]
    fn the_command_id_is_left_out_and_everything_else_is_in() {
        let base = acquire();
        let same = Command { command: sample::command_id(99), ..base.clone() };
        assert_eq!(fingerprint(&base), fingerprint(&same));
        let view = sample::view(FenceState::Unfenced);
        let mut all = vec![
            Command { operation: sample::operation(2), ..base.clone() },
            Command { namespace: Namespace::parse("old/ap").unwrap(), ..base.clone() },
            Command { expected_state: FenceState::Absent, ..base.clone() },
            Command { expected_revision: Revision(1), ..base.clone() },
            with_policy(Some(sample::policy())),
            with_policy(Some(DrainPolicy { hold_ms: Some(0), ..sample::policy() })),
            with_policy(Some(DrainPolicy { deadline_ms: 1, ..sample::policy() })),
        ];
        all.extend(CommandKind::ALL.map(|kind| sample::command(kind, &view, 1, 10)));
        let distinct: std::collections::HashSet<_> = all.iter().map(fingerprint).collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn texts_cannot_run_into_each_other() {
        let create = |owner: &str, encoding: &str| {
            let arguments = Arguments::CreateTargetQuarantined {
                owner: Some(owner.to_owned()),
                encoding: Some(encoding.to_owned()),
                locale: None,
                template: None,
            };
            fingerprint(&Command { arguments, ..acquire() })
        };
        assert_ne!(create("ab", "c"), create("a", "bc"));
    }

    #[test]
    fn the_shown_form_reads_back() {
        let print = Fingerprint::of(&acquire());
        assert_eq!(Fingerprint::parse(&print.to_string()), Some(print));
        let upper = print.to_string().to_uppercase();
        for bad in ["", "sha256:", "sha256:zz", upper.as_str()] {
            assert_eq!(Fingerprint::parse(bad), None, "{bad}");
        }
    }
}
