//! Answers of the admin API that are refusals, and the headers that all answers share.
//!
//! Purpose: one place that turns a code into a status and a body. A refusal made here never
//! reached `control`: it wrote nothing and emits no audit event. Callers: the rest of `admin/http`.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::admin::auth::AuthFailure;
use crate::fence::code::{ControlCode, Detail};

/// A JSON answer. Nothing of the admin API may be kept by a cache.
pub(super) fn json_answer(status: u16, body: &Value) -> Response<Body> {
    let text = body.to_string();
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// A plain text answer.
pub(super) fn text_answer(status: u16, kind: &'static str, text: String) -> Response<Body> {
    let mut answer = json_answer(status, &Value::Null);
    *answer.body_mut() = Body::from(text);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// An error that carries no fence code: authentication, names that don't exist, a store that can't
/// be read.
pub(super) fn plain(status: u16, message: &str) -> Response<Body> {
    json_answer(status, &json!({ "error": message }))
}

/// 401, whatever was wrong with the key.
pub(super) fn unauthorised(failure: AuthFailure) -> Response<Body> {
    let mut answer = plain(401, &failure.to_string());
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

/// A precondition that doesn't hold, found before the command reached `control`.
pub(super) fn precondition(detail: Detail, message: &str) -> Response<Body> {
    coded(ControlCode::PreconditionFailed, Some(detail), message)
}

/// A refusal with a code of the contract, in the shape of a command's answer.
pub(super) fn coded(code: ControlCode, detail: Option<Detail>, message: &str) -> Response<Body> {
    let mut body = json!({
        "outcome": code.name(),
        "replayed": false,
        "fence": null,
        "drain": null,
        "error": message,
    });
    if let Some(detail) = detail {
        body["detail"] = json!(detail.name());
    }
    json_answer(code.http_status(), &body)
}
