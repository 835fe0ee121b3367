//! Which requests the server accepts.
//!
//! - The `Host` header must name this server: a page whose domain was made to resolve to it (DNS rebinding)
//!   sends that domain.
//! - Requests of pages of other origins are refused, even with the token. Such a page may link to the server,
//!   but not embed it: every response has headers against that.
//! - If there is a token, it must be in the `Authorization` header, in a cookie, or once in the address or in
//!   the form that a browser gets without it; both set the cookie. Tokens are compared in constant time.

use std::net::SocketAddr;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::time::timeout;

use super::listen::{LATE, REQUEST};
use super::page;

/// The most bytes of the form with the token.
const FORM: usize = 4096;

/// Headers of every response: no content sniffing, no use by other origins.
const ALWAYS: [(&str, &str); 2] =
    [("x-content-type-options", "nosniff"), ("cross-origin-resource-policy", "same-origin")];

/// The rules for requests.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    address: SocketAddr,
    token: Option<String>,
}

impl Guard {
    pub(super) fn new(address: SocketAddr, token: Option<String>) -> Self {
        Self { address, token }
    }

    /// Why a request is refused.
    fn refuses(&self, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(HOST).unwrap_or_default();
        if !self.is_own_name(host) {
            return Some((
                StatusCode::MISDIRECTED_REQUEST,
                "the Host header does not name this server",
            ));
        }
        let foreign = |origin: &str| {
            let own = origin.split_once("://").map(|(_, own)| own.eq_ignore_ascii_case(host));
            own != Some(true)
        };
        if headers.contains_key(ORIGIN) && text(ORIGIN).is_none_or(foreign) {
            return Some((StatusCode::FORBIDDEN, "requests of pages of other origins are refused"));
        }
        // A request without an origin may still come from another site. Following a link is harmless.
        let is = |name: &str, value| headers.get(name).is_some_and(|given| given == value);
        if is("sec-fetch-site", "cross-site") && !is("sec-fetch-mode", "navigate") {
            return Some((StatusCode::FORBIDDEN, "requests of pages of other sites are refused"));
        }
        let token = self.token.as_deref()?;
        let bearer = text(AUTHORIZATION).and_then(|value| value.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let bearer = bearer.map(|(_, given)| given);
        let mut cookies = text(COOKIE).into_iter().flat_map(|cookies| cookies.split(';'));
        let cookie = cookies.find_map(|it| it.trim().strip_prefix(&self.cookie()));
        if [bearer, cookie].into_iter().flatten().any(|given| same(given, token)) {
            return None;
        }
        Some((
            StatusCode::UNAUTHORIZED,
            "an access token is required: open the address that takopi printed",
        ))
    }

    /// Whether the `Host` header names this server. With a token any name is accepted: a server that other
    /// machines reach has names that it cannot know.
    fn is_own_name(&self, host: &str) -> bool {
        let port = self.address.port();
        let names = [self.address.to_string(), format!("localhost:{port}")];
        self.token.is_some() || names.iter().any(|name| host.eq_ignore_ascii_case(name))
    }

    /// The token's cookie up to its value. Cookies are shared by all ports of a machine.
    fn cookie(&self) -> String {
        format!("takopi-{}=", self.address.port())
    }

    /// The redirection for a request with the token in its address.
    fn redirect(&self, address: &Uri) -> Option<Response> {
        let token = self.token.as_deref()?;
        let mut given = address.query()?.split('&').filter_map(|it| it.strip_prefix("token="));
        given.any(|given| same(given, token)).then(|| self.welcome(token))
    }

    /// The response to the form with a token.
    async fn form(&self, request: Request) -> Response {
        let Some(token) = self.token.as_deref() else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let Ok(body) = timeout(REQUEST, to_bytes(request.into_body(), FORM)).await else {
            return LATE.into_response();
        };
        let body = body.unwrap_or_default();
        // Tokens consist of characters that forms do not escape.
        let given = std::str::from_utf8(&body).ok().and_then(|body| body.strip_prefix("token="));
        match given.map(str::trim) {
            Some(given) if same(given, token) => self.welcome(token),
            _ => page::token_form(true),
        }
    }

    /// Sets the cookie, and leads to the page. The token must not stay in the address, where it would be visible and
    /// stored.
    fn welcome(&self, token: &str) -> Response {
        let cookie = format!("{}{token}; Path=/; HttpOnly; SameSite=Strict", self.cookie());
        let headers = [(SET_COOKIE, cookie), (LOCATION, "/".to_owned())];
        (StatusCode::SEE_OTHER, headers).into_response()
    }
}

/// Passes a request on, or refuses it.
pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let refused = guard.refuses(request.headers());
    let redirect = guard.redirect(request.uri());
    let mut response = match (refused, redirect) {
        // The page of one who has the cookie already would keep the token in its address.
        (None, Some(redirect)) if request.method() == Method::GET => redirect,
        (None, _) => next.run(request).await,
        (Some((StatusCode::UNAUTHORIZED, _)), Some(redirect)) => redirect,
        (Some((StatusCode::UNAUTHORIZED, message)), None) => {
            let is_form = request.method() == Method::POST && request.uri().path() == "/token";
            let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            let is_page = request.method() == Method::GET
                && accept.is_some_and(|accept| accept.contains("text/html"));
            if is_form {
                guard.form(request).await
            } else if is_page {
                page::token_form(request.uri().query().is_some())
            } else {
                (StatusCode::UNAUTHORIZED, message).into_response()
            }
        }
        (Some(refused), _) => refused.into_response(),
    };
    for (name, value) in ALWAYS {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
        response.headers_mut().insert(name, value);
    }
    response
}

/// Whether two texts are equal, in a time that does not depend on where they differ.
fn same(given: &str, token: &str) -> bool {
    let differences = given.bytes().zip(token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == token.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn refused(token: Option<&str>, headers: &[(&str, &str)]) -> Option<u16> {
        let address = "127.0.0.1:8000".parse().unwrap();
        let guard = Guard::new(address, token.map(str::to_owned));
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(axum::http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        guard.refuses(&map).map(|(status, _)| status.as_u16())
    }

    #[test]
    fn only_its_own_host_names_are_accepted() {
        for host in ["127.0.0.1:8000", "localhost:8000", "LocalHost:8000"] {
            assert_eq!(refused(None, &[("host", host)]), None, "{host}");
        }
        for host in ["", "evil.example", "evil.example:8000", "localhost", "127.0.0.1:8001"] {
            assert_eq!(refused(None, &[("host", host)]), Some(421), "{host}");
        }
        assert_eq!(refused(None, &[]), Some(421));
    }

    #[test]
    fn pages_of_other_origins_are_refused_even_with_the_token() {
        let host = ("host", "localhost:8000");
        let bearer = ("authorization", "Bearer 0123456789abcdef");
        assert_eq!(refused(None, &[host, ("origin", "http://localhost:8000")]), None);
        for origin in ["null", "", "http://evil.example", "http://localhost:8001", "localhost:8000"]
        {
            assert_eq!(refused(None, &[host, ("origin", origin)]), Some(403), "{origin}");
            assert_eq!(refused(Some(TOKEN), &[host, bearer, ("origin", origin)]), Some(403));
        }
    }

    #[test]
    fn pages_of_other_sites_may_link_here_and_nothing_else() {
        let host = ("host", "localhost:8000");
        let (site, mode) = ("sec-fetch-site", "sec-fetch-mode");
        assert_eq!(refused(None, &[host, (site, "same-origin"), (mode, "cors")]), None);
        assert_eq!(refused(None, &[host, (site, "cross-site"), (mode, "navigate")]), None);
        assert_eq!(refused(None, &[host, (site, "cross-site"), (mode, "no-cors")]), Some(403));
        assert_eq!(refused(None, &[host, (site, "cross-site")]), Some(403));
    }

    #[test]
    fn a_token_that_is_set_is_required() {
        let host = ("host", "takopi.example:8000");
        for good in [
            ("authorization", "Bearer 0123456789abcdef"),
            ("authorization", "bearer 0123456789abcdef"),
            ("cookie", "takopi-8000=0123456789abcdef"),
            ("cookie", "other=1; takopi-8000=0123456789abcdef; more=2"),
        ] {
            assert_eq!(refused(Some(TOKEN), &[host, good]), None, "{good:?}");
        }
        for bad in [
            ("authorization", "Bearer 0123456789abcdeF"),
            ("authorization", "Bearer "),
            ("authorization", "0123456789abcdef"),
            ("cookie", "takopi-8001=0123456789abcdef"),
            ("cookie", "takopi-8000="),
            ("cookie", "takopi-8000=0123456789abcdef0"),
        ] {
            assert_eq!(refused(Some(TOKEN), &[host, bad]), Some(401), "{bad:?}");
        }
        assert_eq!(refused(Some(TOKEN), &[host]), Some(401));
    }

    #[test]
    fn the_token_in_the_address_becomes_a_cookie() {
        let guard = Guard::new("0.0.0.0:8000".parse().unwrap(), Some(TOKEN.to_owned()));
        let redirect = |address: &str| guard.redirect(&address.parse().unwrap());
        let response = redirect("/?token=0123456789abcdef").unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[LOCATION]),
            (303, &"/".parse().unwrap())
        );
        let cookie = response.headers()[SET_COOKIE].to_str().unwrap();
        assert_eq!(cookie, "takopi-8000=0123456789abcdef; Path=/; HttpOnly; SameSite=Strict");
        for address in ["/", "/?token=", "/?token=0123456789abcdee", "/?tok=0123456789abcdef"] {
            assert!(redirect(address).is_none(), "{address}");
        }
    }
}
