//! The page: one document with its own style and script, and the form for the access token.
//!
//! Its policy allows its own script and requests to this server, and nothing else.

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse as _, Response};
use uuid::Uuid;

const PAGE: &str = include_str!("page/page.html");
const TOKEN: &str = include_str!("page/token.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [&str; 6] = [
    include_str!("page/dom.js"),
    include_str!("page/messages.js"),
    include_str!("page/list.js"),
    include_str!("page/compose.js"),
    include_str!("page/attention.js"),
    include_str!("page/main.js"),
];

/// The chat.
pub(super) async fn page() -> Response {
    document(PAGE, &SCRIPTS.concat())
}

/// The fleet.
#[cfg(feature = "fleet")]
pub(super) async fn fleet() -> Response {
    document(include_str!("page/fleet.html"), include_str!("page/fleet.js"))
}

fn document(page: &str, script: &str) -> Response {
    let nonce = Uuid::new_v4().simple().to_string();
    let page =
        page.replace("NONCE", &nonce).replace("/* STYLE */", STYLE).replace("/* SCRIPT */", script);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    // The address of a conversation is nobody else's concern.
    (headers(&policy, "no-referrer"), Html(page)).into_response()
}

/// The form that asks for the access token.
pub(super) fn token_form(is_wrong: bool) -> Response {
    let nonce = Uuid::new_v4().simple().to_string();
    let message = if is_wrong { "This is not the token. " } else { "" };
    let page =
        TOKEN.replace("NONCE", &nonce).replace("/* STYLE */", STYLE).replace("MESSAGE", message);
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    );
    // With `no-referrer` the browser would send the form without its origin.
    (StatusCode::UNAUTHORIZED, headers(&policy, "same-origin"), Html(page)).into_response()
}

fn headers(policy: &str, referrer: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("referrer-policy"), HeaderValue::from_static(referrer));
    headers
}
