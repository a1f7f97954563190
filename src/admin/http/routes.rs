//! Paths, who may use them, and the answers that need no fence.
//!
//! Purpose: the one route table ([`ROUTES`]): the router is built from it, and so is the API's
//! description (`openapi.rs`), so neither can know a route that the other doesn't. Each route is
//! counted under its template and guarded before its handler sees anything; a path that isn't a
//! route is answered 404 behind the same guard, so that nobody without the key learns which paths
//! exist.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, header};
use axum::middleware::{Next, from_fn};
use axum::routing::{MethodRouter, get, post};
use serde_json::json;

use super::AdminApi;
use super::fences::{self, Wanted};
use super::refusal::{json_answer, plain, text_answer, unauthorised};
use super::{events, openapi, page, targets};
use crate::admin::view;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Anybody who reaches the listener.
    Open,
    /// Whoever has the key.
    Key,
    /// Whoever has the key, unless metrics are open.
    Metrics,
}

/// What a route is for; each has a handler, and a description in `openapi.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Page,
    Health,
    Ready,
    Metrics,
    Capabilities,
    Namespaces,
    Sessions,
    Events,
    Document,
    Reload,
    Inspect,
    Command(Wanted),
    /// A capability of a target.
    Capability,
    /// A question to a target that is being validated.
    ValidationQuery,
}

/// One route.
pub(super) struct Route {
    pub(super) template: &'static str,
    pub(super) access: Access,
    pub(super) purpose: Purpose,
}

const fn route(template: &'static str, access: Access, purpose: Purpose) -> Route {
    Route { template, access, purpose }
}

const fn command(template: &'static str, wanted: Wanted) -> Route {
    route(template, Access::Key, Purpose::Command(wanted))
}

/// Every route there is. Each answers one method, [`Purpose::method`].
pub(super) const ROUTES: &[Route] = &[
    route("/", Access::Open, Purpose::Page),
    route("/healthz", Access::Open, Purpose::Health),
    route("/readyz", Access::Open, Purpose::Ready),
    route("/metrics", Access::Metrics, Purpose::Metrics),
    route("/v1/fence/capabilities", Access::Open, Purpose::Capabilities),
    route("/v1/namespaces", Access::Key, Purpose::Namespaces),
    route("/v1/sessions", Access::Key, Purpose::Sessions),
    route("/v1/events", Access::Key, Purpose::Events),
    route("/v1/openapi.json", Access::Key, Purpose::Document),
    route("/v1/reload", Access::Key, Purpose::Reload),
    route("/v1/namespaces/{engine}/{database}/fence", Access::Key, Purpose::Inspect),
    command("/v1/namespaces/{engine}/{database}/fence/source/acquire-write-fence", Wanted::Acquire),
    command("/v1/namespaces/{engine}/{database}/fence/source/release-write-fence", Wanted::Release),
    command("/v1/namespaces/{engine}/{database}/fence/adopt", Wanted::Adopt),
    command("/v1/namespaces/{engine}/{database}/fence/source/set-read-fence", Wanted::SetRead),
    command("/v1/namespaces/{engine}/{database}/fence/source/clear-read-fence", Wanted::ClearRead),
    command("/v1/namespaces/{engine}/{database}/fence/target/create-quarantined", Wanted::Create),
    route(
        "/v1/namespaces/{engine}/{database}/fence/target/import-capability",
        Access::Key,
        Purpose::Capability,
    ),
    command("/v1/namespaces/{engine}/{database}/fence/target/seal-import", Wanted::Seal),
    command("/v1/namespaces/{engine}/{database}/fence/target/validation-receipt", Wanted::Validate),
    command("/v1/namespaces/{engine}/{database}/fence/target/publish-readable", Wanted::Publish),
    command("/v1/namespaces/{engine}/{database}/fence/target/enable-writes", Wanted::Enable),
    command("/v1/namespaces/{engine}/{database}/fence/target/abort", Wanted::Abort),
    route(
        "/v1/namespaces/{engine}/{database}/fence/target/validation-query",
        Access::Key,
        Purpose::ValidationQuery,
    ),
];

/// How a route is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
}

impl Purpose {
    /// The one method of its routes (GET brings HEAD with it).
    pub(super) const fn method(self) -> Method {
        match self {
            Self::Page
            | Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::Capabilities
            | Self::Namespaces
            | Self::Sessions
            | Self::Events
            | Self::Document
            | Self::Inspect => Method::Get,
            Self::Reload | Self::Command(_) | Self::Capability | Self::ValidationQuery => {
                Method::Post
            }
        }
    }

    fn handler(self) -> MethodRouter<Arc<AdminApi>> {
        match self {
            Self::Page => get(page::page),
            Self::Health => get(healthz),
            Self::Ready => get(readyz),
            Self::Metrics => get(metrics),
            Self::Capabilities => get(capabilities),
            Self::Namespaces => get(namespaces),
            Self::Sessions => get(sessions),
            Self::Events => get(events::events),
            Self::Document => get(document),
            Self::Reload => post(reload),
            Self::Inspect => get(fences::inspect),
            Self::Command(wanted) => post(move |state, names, headers, body| {
                fences::command(state, names, headers, body, wanted)
            }),
            Self::Capability => post(targets::capability),
            Self::ValidationQuery => post(targets::validation_query),
        }
    }
}

/// The whole API.
pub fn router(api: &Arc<AdminApi>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        router = router.route(route.template, guarded(api, route));
    }
    let lost = Arc::clone(api);
    router.with_state(Arc::clone(api)).fallback(move |request: Request| {
        let api = Arc::clone(&lost);
        async move {
            let answer = allowed(&api, Access::Key, &request)
                .err()
                .unwrap_or_else(|| plain(404, "there is no such route; see /v1/openapi.json"));
            counted(&api, "other", answer)
        }
    })
}

/// Checks who asks and counts what is answered.
fn guarded(api: &Arc<AdminApi>, route: &Route) -> MethodRouter<Arc<AdminApi>> {
    let (api, template, access) = (Arc::clone(api), route.template, route.access);
    route.purpose.handler().layer(from_fn(move |request: Request, next: Next| {
        let api = Arc::clone(&api);
        async move {
            let answer = match allowed(&api, access, &request) {
                Ok(()) => next.run(request).await,
                Err(refused) => refused,
            };
            counted(&api, template, answer)
        }
    }))
}
fn counted(api: &AdminApi, template: &'static str, answer: Response<Body>) -> Response<Body> {
    api.metrics.admin.request(template, answer.status().as_u16());
    answer
}

#[expect(clippy::result_large_err, reason = "the error is the answer itself, and is sent as it is")]
fn allowed(api: &AdminApi, access: Access, request: &Request) -> Result<(), Response<Body>> {
    let open = match access {
        Access::Open => true,
        Access::Metrics => api.open_metrics,
        Access::Key => false,
    };
    // Without a configured key nobody can have it: questions are answered, commands are refused
    // by their handlers.
    let Some(key) = api.key.as_ref().filter(|_| !open) else {
        return Ok(());
    };
    let given = request.headers().get(header::AUTHORIZATION);
    // A header that isn't text can't be the key.
    let given = given.map(|value| value.to_str().unwrap_or(""));
    key.authorise(given).map_err(unauthorised)
}

async fn healthz() -> Response<Body> {
    text_answer(200, "text/plain; charset=utf-8", "ok\n".to_owned())
}

async fn readyz(State(api): State<Arc<AdminApi>>) -> Response<Body> {
    match api.control.readiness() {
        Ok(()) => {
            let lines = std::iter::once("ready".to_owned()).chain(api.control.engine_words());
            let text: String = lines.map(|line| line + "\n").collect();
            text_answer(200, "text/plain; charset=utf-8", text)
        }
        Err(why) => text_answer(503, "text/plain; charset=utf-8", format!("{why}\n")),
    }
}

async fn metrics(State(api): State<Arc<AdminApi>>) -> Response<Body> {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    api.control.refresh_gauges();
    text_answer(200, OPENMETRICS, api.metrics.encode())
}

async fn capabilities(State(api): State<Arc<AdminApi>>) -> Response<Body> {
    json_answer(200, &view::capabilities(&api.control.capabilities()))
}

async fn namespaces(State(api): State<Arc<AdminApi>>) -> Response<Body> {
    json_answer(200, &view::namespaces(&api.control.namespaces(), api.shown))
}

async fn sessions(State(api): State<Arc<AdminApi>>) -> Response<Body> {
    let (lines, more) = api.control.sessions();
    json_answer(200, &view::sessions(&lines, more))
}

async fn document() -> Response<Body> {
    json_answer(200, &openapi::document())
}

async fn reload(State(api): State<Arc<AdminApi>>) -> Response<Body> {
    if let Some(refused) = fences::key_required(&api) {
        return refused;
    }
    match api.reload.reload().await {
        Ok(changed) => json_answer(200, &json!({ "reloaded": true, "changed": changed })),
        Err(errors) => json_answer(
            409,
            &json!({ "reloaded": false, "error": errors.join("; "), "errors": errors }),
        ),
    }
}
