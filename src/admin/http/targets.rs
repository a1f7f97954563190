//! The routes of targets that are no commands: capabilities, and questions of a validation.
//!
//! Purpose: neither changes a record, so neither has a command id or a receipt. A capability's
//! secret is in the answer to the request that asked for it, and nowhere else. Called by
//! `admin/http/routes.rs`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;

use super::AdminApi;
use super::fences::{Answered, Names, bytes, may_command};
use super::fields::{BadBody, Fields};
use super::refusal::{coded, json_answer, plain, precondition};
use crate::admin::view;
use crate::base::ids::{Namespace, OperationId, Revision};
use crate::control::targets::{TargetError, ValidationQuery};
use crate::fence::code::Detail;
use crate::fence::verdict::Purpose;

/// Whose capability, for what, at which revision.
pub(super) type CapabilityRequest = (OperationId, Revision, Purpose);

/// Reads the body of a request for a capability, strictly.
pub(super) fn parse_capability(bytes: &[u8]) -> Result<CapabilityRequest, BadBody> {
    let mut fields = Fields::of_body(bytes)?;
    let wanted = (fields.operation()?, fields.revision()?, fields.purpose()?);
    fields.done()?;
    Ok(wanted)
}

/// Reads the body of a question, strictly.
pub(super) fn parse_query(namespace: Namespace, bytes: &[u8]) -> Result<ValidationQuery, BadBody> {
    let mut fields = Fields::of_body(bytes)?;
    let query = ValidationQuery {
        namespace,
        operation: fields.operation()?,
        expected_revision: fields.revision()?,
        expected_state: fields.optional_state()?,
        statements: fields.statements()?,
    };
    fields.done()?;
    Ok(query)
}

/// The checks that every route of a fence begins with, and the body.
async fn begun(
    api: &AdminApi,
    names: Names,
    body: Body,
) -> Result<(Namespace, axum::body::Bytes), Box<Answered>> {
    let namespace = may_command(api, names)?;
    Ok((namespace, bytes(body).await?))
}

fn refused(error: &TargetError) -> Answered {
    match error {
        TargetError::Refused(refusal) => coded(refusal.code, refusal.detail, &refusal.message),
        TargetError::Failed(words) => plain(503, words),
    }
}

fn unreadable(error: &BadBody) -> Answered {
    precondition(Detail::InvalidArgument, &error.to_string())
}

/// `POST …/target/import-capability`.
pub(super) async fn capability(
    State(api): State<Arc<AdminApi>>,
    names: Names,
    body: Body,
) -> Answered {
    let (namespace, bytes) = match begun(&api, names, body).await {
        Ok(begun) => begun,
        Err(refused) => return *refused,
    };
    let (operation, revision, purpose) = match parse_capability(&bytes) {
        Ok(wanted) => wanted,
        Err(error) => return unreadable(&error),
    };
    match api.control.issue_capability(&namespace, purpose, operation, revision) {
        Ok(issued) => json_answer(200, &view::issued(&issued)),
        Err(error) => refused(&error),
    }
}

/// `POST …/target/validation-query`.
pub(super) async fn validation_query(
    State(api): State<Arc<AdminApi>>,
    names: Names,
    body: Body,
) -> Answered {
    let (namespace, bytes) = match begun(&api, names, body).await {
        Ok(begun) => begun,
        Err(refused) => return *refused,
    };
    let query = match parse_query(namespace, &bytes) {
        Ok(query) => query,
        Err(error) => return unreadable(&error),
    };
    match api.control.validation_query(&query).await {
        Ok(tables) => {
            let revision = query.expected_revision;
            json_answer(200, &view::read_tables(&query.namespace, revision, &tables))
        }
        Err(error) => refused(&error),
    }
}
