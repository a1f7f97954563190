//! The fence routes: from a path and a body to a command, and from an answer to JSON.
//!
//! Purpose: the checks of the contract in their order. 404 means that the feature is off or that
//! there is no such namespace. Called by `admin/http/routes.rs`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, Response};

use super::AdminApi;
use super::fields::{BadBody, Fields};
use super::refusal::{coded, json_answer, plain, precondition};
use crate::admin::view;
use crate::base::ids::{EngineName, Namespace};
use crate::base::limits;
use crate::control::status::InspectError;
use crate::fence::code::{ControlCode, Detail};
use crate::fence::command::{Actor, ActorSurface, Arguments, Command, CommandKind};
use crate::store::StoreError;

/// The header of the second key, which adoptions need.
pub(crate) const ADOPTION_KEY_HEADER: &str = "x-fencewire-adoption-key";

pub(super) type Names = Result<Path<(String, String)>, PathRejection>;
pub(super) type Answered = Response<Body>;

/// The namespace of a path; its parts arrive percent-decoded, so a database name may hold slashes.
fn namespace(names: Names) -> Result<Namespace, Box<Answered>> {
    let wrong = |message: String| Box::new(precondition(Detail::InvalidArgument, &message));
    let Path((engine, database)) =
        names.map_err(|error| wrong(format!("the path's namespace: {error}")))?;
    let engine = EngineName::new(&engine).map_err(|error| wrong(error.to_string()))?;
    Namespace::new(engine, &database).map_err(|error| wrong(error.to_string()))
}

/// Refuses what needs a configured admin key where there is none.
pub(super) fn key_required(api: &AdminApi) -> Option<Answered> {
    api.key.is_none().then(|| {
        precondition(
            Detail::AdminAuthRequired,
            "no admin key is configured, so command routes are off; set [admin] key_file",
        )
    })
}

fn off() -> Answered {
    plain(404, "the fence feature is off ([fence] enabled = false); existing fences are enforced")
}

/// The checks before the body: feature, name, key, namespace.
pub(super) fn may_command(api: &AdminApi, names: Names) -> Result<Namespace, Box<Answered>> {
    if !api.control.capabilities().enabled {
        return Err(Box::new(off()));
    }
    let namespace = namespace(names)?;
    if let Some(refused) = key_required(api) {
        return Err(Box::new(refused));
    }
    if api.control.engine_of(&namespace).is_none() && !api.control.has_fence_state(&namespace) {
        let message = api.control.no_engine(&namespace).to_string();
        return Err(Box::new(plain(404, &message)));
    }
    Ok(namespace)
}

pub(super) async fn bytes(body: Body) -> Result<axum::body::Bytes, Box<Answered>> {
    let wrong = |message: String| Box::new(precondition(Detail::InvalidArgument, &message));
    let bound = Duration::from_millis(limits::ADMIN_BODY_MS);
    let read = axum::body::to_bytes(body, limits::ADMIN_BODY_BYTES_MAX);
    match tokio::time::timeout(bound, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(wrong(format!(
            "the body could not be read ({error}); at most {} bytes are taken",
            limits::ADMIN_BODY_BYTES_MAX
        ))),
        Err(_) => Err(wrong(format!("the body did not arrive within {bound:?}; send it again"))),
    }
}

/// Which command a route is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Acquire,
    Release,
    SetRead,
    ClearRead,
    Create,
    Seal,
    Validate,
    Publish,
    Enable,
    Abort,
    Adopt,
}

impl Wanted {
    /// The command's kind.
    pub(super) const fn kind(self) -> CommandKind {
        match self {
            Self::Acquire => CommandKind::AcquireSourceWriteFence,
            Self::Release => CommandKind::ReleaseSourceWriteFence,
            Self::SetRead => CommandKind::SetSourceReadFence,
            Self::ClearRead => CommandKind::ClearSourceReadFence,
            Self::Create => CommandKind::CreateTargetQuarantined,
            Self::Seal => CommandKind::SealTargetImport,
            Self::Validate => CommandKind::RecordTargetValidation,
            Self::Publish => CommandKind::PublishTargetReadableWriteFenced,
            Self::Enable => CommandKind::EnableTargetWrites,
            Self::Abort => CommandKind::AbortQuarantinedTarget,
            Self::Adopt => CommandKind::AdoptFence,
        }
    }
}

/// Reads a command's body, strictly.
pub(super) fn parse(
    namespace: Namespace,
    wanted: Wanted,
    bytes: &[u8],
) -> Result<Command, BadBody> {
    let mut fields = Fields::of_body(bytes)?;
    let (operation, command) = (fields.operation()?, fields.command()?);
    let (expected_state, expected_revision) = fields.expectation()?;
    let arguments = match wanted {
        Wanted::Acquire => Arguments::AcquireSourceWriteFence {
            identity: fields.identity()?,
            drain_policy: fields.drain_policy()?,
        },
        Wanted::Release => Arguments::ReleaseSourceWriteFence,
        Wanted::SetRead => Arguments::SetSourceReadFence { drain_policy: fields.drain_policy()? },
        Wanted::Create => Arguments::CreateTargetQuarantined {
            owner: fields.optional_text("owner")?,
            encoding: fields.optional_text("encoding")?,
            locale: fields.optional_text("locale")?,
            template: fields.optional_text("template")?,
        },
        Wanted::Seal => Arguments::SealTargetImport { drain_policy: fields.drain_policy()? },
        Wanted::Validate => Arguments::RecordTargetValidation {
            result: fields.validation_result()?,
            summary: fields.optional_text("summary")?,
        },
        Wanted::Publish => Arguments::PublishTargetReadableWriteFenced,
        Wanted::Enable => Arguments::EnableTargetWrites,
        Wanted::Abort => Arguments::AbortQuarantinedTarget,
        Wanted::ClearRead => Arguments::ClearSourceReadFence,
        Wanted::Adopt => Arguments::AdoptFence {
            current_operation: fields.current_operation()?,
            approvers: fields.approvers()?,
            incident_ref: fields.required_text("incident_ref")?,
            reason: fields.required_text("reason")?,
        },
    };
    fields.done()?;
    Ok(Command { namespace, operation, command, expected_state, expected_revision, arguments })
}

/// `POST` of a command; an adoption has the second key in [`ADOPTION_KEY_HEADER`].
pub(super) async fn command(
    State(api): State<Arc<AdminApi>>,
    names: Names,
    headers: HeaderMap,
    body: Body,
    wanted: Wanted,
) -> Answered {
    let namespace = match may_command(&api, names) {
        Ok(namespace) => namespace,
        Err(refused) => return *refused,
    };
    let bytes = match bytes(body).await {
        Ok(bytes) => bytes,
        Err(refused) => return *refused,
    };
    let command = match parse(namespace, wanted, &bytes) {
        Ok(command) => command,
        Err(error) => return precondition(Detail::InvalidArgument, &error.to_string()),
    };
    let second_key = headers.get(ADOPTION_KEY_HEADER);
    let actor = Actor {
        surface: ActorSurface::AdminHttp,
        name: "admin key".to_owned(),
        has_adoption_key: wanted == Wanted::Adopt && matches(&api, second_key),
    };
    // The command runs on a task of its own; if this handler is dropped, it goes on.
    let answer = api.control.execute(actor, command).await;
    json_answer(answer.code.http_status(), &view::answer(&answer, api.shown))
}

/// Whether a header holds the adoption key. Nobody has it where none is configured.
fn matches(api: &AdminApi, given: Option<&HeaderValue>) -> bool {
    match (&api.adoption_key, given) {
        (Some(key), Some(given)) => key.is(given.as_bytes()),
        (Some(_) | None, _) => false,
    }
}

/// `GET …/fence[?receipts=all]`.
pub(super) async fn inspect(
    State(api): State<Arc<AdminApi>>,
    names: Names,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Answered {
    let namespace = match namespace(names) {
        Ok(namespace) => namespace,
        Err(refused) => return *refused,
    };
    if !api.control.capabilities().enabled && !api.control.has_fence_state(&namespace) {
        return off();
    }
    let pairs = match query {
        Ok(Query(pairs)) => pairs,
        Err(error) => return precondition(Detail::InvalidArgument, &error.to_string()),
    };
    let mut all = false;
    for (name, value) in &pairs {
        if name != "receipts" || value != "all" {
            let message = format!("{name}={value} is not a query of this route; only receipts=all");
            return precondition(Detail::InvalidArgument, &message);
        }
        all = true;
    }
    match api.control.inspect(&namespace, all).await {
        Ok(inspection) => json_answer(200, &view::inspection(&inspection, api.shown)),
        Err(error @ (InspectError::NotFound(_) | InspectError::NoEngine { .. })) => {
            plain(404, &error.to_string())
        }
        Err(InspectError::Store(error)) => store_error(&error),
    }
}

fn store_error(error: &StoreError) -> Answered {
    match error {
        StoreError::Corrupt { detail, .. } => {
            coded(ControlCode::StateUnavailable, Some(*detail), &error.to_string())
        }
        StoreError::Unavailable { .. }
        | StoreError::Inconsistent { .. }
        | StoreError::BadName { .. }
        | StoreError::Schema { .. } => plain(503, &error.to_string()),
    }
}
