//! The status page: one file, in the program.
//!
//! Purpose: `/` shows namespaces, states, drains, receipts and refusals to whoever has the key. The
//! file itself is open and holds nothing; its script asks for the key, keeps it in the tab's
//! session storage, and reads `/v1/events` and the fence routes with it. It commands nothing.
//!
//! What it shows comes from outside (names, statements): the script sets text and never HTML, and
//! the header's policy lets nothing run or load that isn't in the file, and no HTML be made from
//! text (`require-trusted-types-for`). Called by `routes.rs`.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::refusal::text_answer;

const PAGE: &str = include_str!("page/status.html");

/// What stands between two marks; empty where they aren't there.
fn between(text: &'static str, from: &str, to: &str) -> &'static str {
    let rest = text.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or("", |(inner, _)| inner)
}

/// The page's own script and style, by their digests, and nothing else.
fn policy() -> String {
    let digest = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        digest(between(PAGE, "<script>", "</script>")),
        digest(between(PAGE, "<style>", "</style>")),
    )
}

/// `GET /`.
pub(super) async fn page() -> Response<Body> {
    static POLICY: LazyLock<Option<HeaderValue>> =
        LazyLock::new(|| HeaderValue::from_str(&policy()).ok());
    let mut answer = text_answer(200, "text/html; charset=utf-8", PAGE.to_owned());
    let headers = answer.headers_mut();
    // Base64 is visible ASCII, so there always is one; without it nothing would be allowed.
    let closed = HeaderValue::from_static("default-src 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone().unwrap_or(closed));
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::state::FenceState;

    #[test]
    fn the_policy_names_the_files_own_script_and_style() {
        let policy = policy();
        let empty = STANDARD.encode(Sha256::digest(b""));
        assert!(!policy.contains(&empty) && policy.matches("sha256-").count() == 2, "{policy}");
        assert_eq!((PAGE.matches("<script").count(), PAGE.matches("<style").count()), (1, 1));
    }

    /// Nothing from elsewhere, nothing that would make HTML of a text, and every state is drawn.
    #[test]
    fn the_file_is_by_itself_and_makes_no_html() {
        for banned in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "createContextualFragment",
            "eval(",
            "Function(",
            "style=\"",
            "onclick=",
            "onerror=",
            "src=",
            "@import",
            "url(",
        ] {
            assert!(!PAGE.contains(banned), "{banned}");
        }
        let links = PAGE.matches("http").count();
        assert_eq!(links, PAGE.matches("http://www.w3.org/2000/svg").count(), "links elsewhere");
        for state in FenceState::ALL {
            assert!(PAGE.contains(&format!("data-state=\"{}\"", state.name())), "{}", state.name());
        }
    }
}
