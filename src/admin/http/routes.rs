//! Paths, who may use them, and the answers that need no fence.
//!
//! Purpose: the route table. Each route is counted under its template and guarded before its
//! handler sees anything; a path that isn't a route is answered 404 behind the same guard, so that
//! nobody without the key learns which paths exist.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, header};
use axum::middleware::{Next, from_fn};
use axum::routing::{MethodRouter, get, post};
use serde_json::json;

use super::AdminApi;
use super::fences;
use super::refusal::{json_answer, plain, text_answer, unauthorised};
use crate::admin::view;

/// Who may use a route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Anybody who reaches the listener.
    Open,
    /// Whoever has the key.
    Key,
    /// Whoever has the key, unless metrics are open.
    Metrics,
}

const FENCE: &str = "/v1/namespaces/{engine}/{database}/fence";
const ACQUIRE: &str = "/v1/namespaces/{engine}/{database}/fence/source/acquire-write-fence";
const RELEASE: &str = "/v1/namespaces/{engine}/{database}/fence/source/release-write-fence";

const ADOPT: &str = "/v1/namespaces/{engine}/{database}/fence/adopt";

const SET_READ: &str = "/v1/namespaces/{engine}/{database}/fence/source/set-read-fence";
const CLEAR_READ: &str = "/v1/namespaces/{engine}/{database}/fence/source/clear-read-fence";

/// Commands of the contract that this version doesn't do yet.
const LATER: [&str; 7] = [
    "/v1/namespaces/{engine}/{database}/fence/target/create-quarantined",
    "/v1/namespaces/{engine}/{database}/fence/target/seal-import",
    "/v1/namespaces/{engine}/{database}/fence/target/validation-receipt",
    "/v1/namespaces/{engine}/{database}/fence/target/publish-readable",
    "/v1/namespaces/{engine}/{database}/fence/target/enable-writes",
    "/v1/namespaces/{engine}/{database}/fence/target/abort",
    "/v1/namespaces/{engine}/{database}/fence/target/validation-query",
];

/// The whole API.
pub fn router(api: &Arc<AdminApi>) -> Router {
    let guard = |template, access, methods| guarded(api, template, access, methods);
    let mut router = Router::new();
    for (template, access, methods) in [
        ("/healthz", Access::Open, get(healthz)),
        ("/readyz", Access::Open, get(readyz)),
        ("/metrics", Access::Metrics, get(metrics)),
        ("/v1/fence/capabilities", Access::Open, get(capabilities)),
        ("/v1/namespaces", Access::Key, get(namespaces)),
        ("/v1/sessions", Access::Key, get(sessions)),
        ("/v1/reload", Access::Key, post(reload)),
        (FENCE, Access::Key, get(fences::inspect)),
        (ACQUIRE, Access::Key, post(fences::acquire)),
        (RELEASE, Access::Key, post(fences::release)),
        (SET_READ, Access::Key, post(fences::set_read)),
        (CLEAR_READ, Access::Key, post(fences::clear_read)),
        (ADOPT, Access::Key, post(fences::adopt)),
    ] {
        router = router.route(template, guard(template, access, methods));
    }
    for template in LATER {
        router = router.route(template, guard(template, Access::Key, post(fences::later)));
    }
    let lost = Arc::clone(api);
    router.with_state(Arc::clone(api)).fallback(move |request: Request| {
        let api = Arc::clone(&lost);
        async move {
            let answer = allowed(&api, Access::Key, &request)
                .err()
                .unwrap_or_else(|| plain(404, "there is no such route; see the API's description"));
            counted(&api, "other", answer)
        }
    })
}

/// Checks who asks and counts what is answered.
fn guarded(
    api: &Arc<AdminApi>,
    template: &'static str,
    access: Access,
    methods: MethodRouter<Arc<AdminApi>>,
) -> MethodRouter<Arc<AdminApi>> {
    let api = Arc::clone(api);
    methods.layer(from_fn(move |request: Request, next: Next| {
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
        Ok(()) => text_answer(200, "text/plain; charset=utf-8", "ready\n".to_owned()),
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
