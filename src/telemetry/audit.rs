//! The audit trail: one event per fence command answered, and per request for a capability.
//!
//! Purpose: one function for either, so that nothing can be answered with two events or a half one.
//! The event goes to the tracing target [`TARGET`] at info level, whatever the outcome; a collector
//! that keeps this target keeps the history. Called by `control` right before a command is
//! answered: under the namespace's transition lock, or behind a drain, which waits outside it. It
//! decides nothing and stores nothing; a request refused before it reached `control` (bad body, no
//! such route) emits no audit event.

/// The tracing target of every audit event.
pub const TARGET: &str = "fencewire::fence::audit";

/// How the command related to an earlier one of the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// First of its id.
    None,
    /// A final answer given again.
    Replay,
    /// An unfinished drain taken up again.
    Resume,
    /// The id was used for another request.
    Conflict,
}

impl Replay {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Replay => "replay",
            Self::Resume => "resume",
            Self::Conflict => "conflict",
        }
    }
}

/// What a committed adoption adds to its event.
#[derive(Debug, Clone, Copy)]
pub struct Adoption<'a> {
    /// The operation that owned the fence.
    pub previous_operation_id: &'a str,
    /// The operation that owns it now.
    pub new_operation_id: &'a str,
    /// Who approved, separated by commas.
    pub approvers: &'a str,
    /// The incident it was done for.
    pub incident_ref: &'a str,
    /// Why, in the operator's words.
    pub reason: &'a str,
}

/// One answered command.
#[derive(Debug, Clone, Copy)]
pub struct AuditEvent<'a> {
    /// `engine/database`.
    pub namespace: &'a str,
    /// Who moves.
    pub operation_id: &'a str,
    /// Which request.
    pub command_id: &'a str,
    /// The command's name.
    pub command: &'a str,
    /// Stable code of the answer, or `ERROR`.
    pub outcome: &'a str,
    /// Detail sub-code.
    pub detail: Option<&'a str>,
    /// Relation to an earlier request of the same id.
    pub replay: Replay,
    /// Revision before the command.
    pub revision_before: u64,
    /// Revision after it; `None` on a refusal.
    pub revision_after: Option<u64>,
    /// Revision the caller expected; given on a refusal.
    pub expected_revision: Option<u64>,
    /// State before the command.
    pub state_before: &'a str,
    /// State after it (the same on a refusal).
    pub state_after: &'a str,
    /// Kind of drain, when one ran.
    pub drain_kind: Option<&'a str>,
    /// How long it ran, in milliseconds.
    pub drain_ms: Option<u64>,
    /// Sessions that were forced, as one readable text.
    pub forced: Option<&'a str>,
    /// This proxy's instance name.
    pub server_instance: &'a str,
    /// The error's text, on a refusal or failure.
    pub error: Option<&'a str>,
    /// Set for a committed adoption, and then the event's name is `namespace_fence_adopted`.
    pub adoption: Option<Adoption<'a>>,
}

/// Emits exactly one event.
pub fn audit(event: &AuditEvent<'_>) {
    let name = match event.adoption {
        None => "namespace_fence_command",
        Some(_) => "namespace_fence_adopted",
    };
    let adoption = event.adoption.as_ref();
    tracing::info!(
        target: TARGET,
        event = name,
        namespace = event.namespace,
        operation_id = event.operation_id,
        command_id = event.command_id,
        command = event.command,
        outcome = event.outcome,
        detail = event.detail,
        replay = event.replay.as_str(),
        revision_before = event.revision_before,
        revision_after = event.revision_after,
        expected_revision = event.expected_revision,
        state_before = event.state_before,
        state_after = event.state_after,
        drain_kind = event.drain_kind,
        drain_ms = event.drain_ms,
        forced = event.forced,
        server_instance = event.server_instance,
        error = event.error,
        previous_operation_id = adoption.map(|a| a.previous_operation_id),
        new_operation_id = adoption.map(|a| a.new_operation_id),
        approvers = adoption.map(|a| a.approvers),
        incident_ref = adoption.map(|a| a.incident_ref),
        reason = adoption.map(|a| a.reason),
    );
}

/// One answered request for a capability. There is no field for its secret.
#[derive(Debug, Clone, Copy)]
pub struct CapabilityEvent<'a> {
    /// `engine/database`.
    pub namespace: &'a str,
    /// Who asked.
    pub operation_id: &'a str,
    /// `import` or `validation`.
    pub purpose: &'a str,
    /// `APPLIED` where one was given out, else the stable code of the refusal, or `ERROR`.
    pub outcome: &'a str,
    /// Detail sub-code.
    pub detail: Option<&'a str>,
    /// Which of the gate's capabilities was given out; `None` on a refusal.
    pub capability: Option<u64>,
    /// State of the target, which it didn't change.
    pub state: &'a str,
    /// Its revision.
    pub revision: u64,
    /// Revision the caller expected; given on a refusal.
    pub expected_revision: Option<u64>,
    /// This proxy's instance name.
    pub server_instance: &'a str,
    /// The error's text, on a refusal or failure.
    pub error: Option<&'a str>,
}

/// Emits exactly one event, `namespace_fence_capability`.
pub fn audit_capability(event: &CapabilityEvent<'_>) {
    tracing::info!(
        target: TARGET,
        event = "namespace_fence_capability",
        namespace = event.namespace,
        operation_id = event.operation_id,
        purpose = event.purpose,
        outcome = event.outcome,
        detail = event.detail,
        capability = event.capability,
        state = event.state,
        revision = event.revision,
        expected_revision = event.expected_revision,
        server_instance = event.server_instance,
        error = event.error,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::trace::tests::Captured;

    fn event() -> AuditEvent<'static> {
        AuditEvent {
            namespace: "old/app",
            operation_id: "op",
            command_id: "cmd",
            command: "acquire_source_write_fence",
            outcome: "APPLIED",
            detail: None,
            replay: Replay::None,
            revision_before: 0,
            revision_after: Some(2),
            expected_revision: None,
            state_before: "UNFENCED",
            state_after: "SOURCE_WRITE_FENCED",
            drain_kind: Some("write"),
            drain_ms: Some(12),
            forced: None,
            server_instance: "fw-1",
            error: None,
            adoption: None,
        }
    }

    #[test]
    fn one_call_is_one_event_with_its_fields() {
        let captured = Captured::default();
        let guard = captured.install();
        audit(&event());
        drop(guard);
        let text = captured.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["target"], TARGET);
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["event"], "namespace_fence_command");
        assert_eq!(line["namespace"], "old/app");
        assert_eq!(line["revision_after"], 2);
        assert_eq!(line["drain_ms"], 12);
        assert!(line.get("detail").is_none() && line.get("approvers").is_none(), "{text}");
    }

    #[test]
    fn an_adoption_has_its_own_name_and_fields() {
        let captured = Captured::default();
        let guard = captured.install();
        let adoption = Adoption {
            previous_operation_id: "a",
            new_operation_id: "b",
            approvers: "ann,bob",
            incident_ref: "INC-1",
            reason: "owner gone",
        };
        audit(&AuditEvent { adoption: Some(adoption), ..event() });
        drop(guard);
        let line: serde_json::Value = serde_json::from_str(&captured.text()).unwrap();
        assert_eq!(line["event"], "namespace_fence_adopted");
        assert_eq!(line["approvers"], "ann,bob");
    }
}
