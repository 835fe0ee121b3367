//! Who is let in, without a browser.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::server::Server;
use crate::real::lab::Lab;

/// Sends a request as it is written, less what is always needed; returns status and answer.
fn http(server: &Server, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.host()).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    for header in headers {
        write!(head, "{header}\r\n").unwrap();
    }
    write!(head, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{answer:?}")), answer)
}

const JSON: &str = "Content-Type: application/json";
const SAY: &str = r#"{"chat":null,"text":"hello"}"#;

#[tokio::test]
async fn only_requests_of_its_own_page_are_accepted() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(&lab, &["--engine", "demo"]).await;
    let own = format!("Host: {}", server.host());
    let own_page = format!("Origin: http://{}", server.host());
    let status =
        |method, path, headers: &[&str], body| http(&server, method, path, headers, body).0;

    assert_eq!(status("GET", "/", &[&own], ""), 200);
    assert_eq!(status("GET", "/", &["Host: evil.example"], ""), 421);
    assert_eq!(status("GET", "/", &[], ""), 421);
    assert_eq!(status("POST", "/send", &[&own, &own_page, JSON], SAY), 200);
    assert_eq!(status("POST", "/send", &["Host: evil.example", JSON], SAY), 421);
    for origin in ["Origin: http://evil.example", "Origin: null", "Origin: http://localhost:1"] {
        assert_eq!(status("POST", "/send", &[&own, origin, JSON], SAY), 403, "{origin}");
        assert_eq!(status("GET", "/events", &[&own, origin], ""), 403, "{origin}");
    }
    // What a form of another page could send.
    assert_eq!(status("POST", "/send", &[&own, "Content-Type: text/plain"], SAY), 415);
    server.stop().await;
}

#[tokio::test]
async fn a_token_that_is_set_is_required() {
    const TOKEN: &str = "correct-horse-battery";
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(&lab, &["--engine", "demo", "--token", TOKEN]).await;
    assert!(server.address.ends_with("/?token=correct-horse-battery"), "{}", server.address);
    let host = format!("Host: {}", server.host());
    for path in ["/", "/events", "/sessions", "/?token=wrong-horse-battery", "/nowhere"] {
        assert_eq!(http(&server, "GET", path, &[&host], "").0, 401, "{path}");
    }
    assert_eq!(http(&server, "POST", "/send", &[&host, JSON], SAY).0, 401);
    let bearer = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(http(&server, "POST", "/send", &[&host, &bearer, JSON], SAY).0, 200);

    let (status, answer) = http(&server, "GET", &format!("/?token={TOKEN}"), &[&host], "");
    assert_eq!(status, 303);
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let (status, page) = http(&server, "GET", "/", &[&host, &cookie], "");
    assert_eq!(status, 200);
    assert!(!page.contains(TOKEN));
    // Who opens the printed address again has the cookie already.
    let (status, answer) = http(&server, "GET", &format!("/?token={TOKEN}"), &[&host, &cookie], "");
    assert!(status == 303 && answer.contains("\r\nlocation: /\r\n"), "{answer}");
    let named = format!("/send?token={TOKEN}");
    assert_eq!(http(&server, "POST", &named, &[&host, &cookie, JSON], SAY).0, 200);
    server.stop().await;
}

#[tokio::test]
async fn invalid_requests_are_refused_and_the_server_continues() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(&lab, &["--engine", "demo"]).await;
    let host = format!("Host: {}", server.host());
    let status = |path, body: &str| http(&server, "POST", path, &[&host, JSON], body).0;
    assert_eq!(status("/send", "{"), 400);
    assert_eq!(status("/send", r#"{"text":7}"#), 422);
    assert_eq!(status("/send", r#"{"chat":null,"text":" \n"}"#), 400);
    assert_eq!(status("/send", r#"{"chat":"c99","text":"hello"}"#), 404);
    assert_eq!(status("/press", r#"{"chat":"c1","message":"2","press":"explode"}"#), 400);
    assert_eq!(status("/press", r#"{"chat":"c1","message":"2","press":"accept"}"#), 200);
    assert_eq!(status("/open", r#"{"session":"; rm -rf /"}"#), 400);
    let long = serde_json::json!({ "text": "x".repeat(2 << 20) }).to_string();
    let (refused, why) = http(&server, "POST", "/send", &[&host, JSON], &long);
    assert_eq!(refused, 413);
    assert!(
        why.ends_with(
            "the message is longer than 1 MiB; save it to a file and name the file instead"
        ),
        "{why}"
    );
    let nobody = r#"{"session":"01a1e21b-26e5-7eb0-9d27-459e98f10b74"}"#;
    assert_eq!(status("/open", nobody), 404);
    for (path, body) in [
        ("/rename", r#"{"chat":"c99","title":"x"}"#),
        ("/rename", r#"{"chat":"c99","title":" "}"#),
        ("/send", r#"{"text":"hello","choice":{"cwd":"/nowhere"}}"#),
        ("/send", r#"{"text":"hello","choice":{"engine":"robot"}}"#),
        ("/send", r#"{"text":"hello","choice":{"sandbox":"off"}}"#),
    ] {
        let refused = status(path, body);
        assert!((400..500).contains(&refused), "{path} {body}: {refused}");
    }
    assert_eq!(http(&server, "GET", "/send", &[&host], "").0, 405);
    assert_eq!(http(&server, "GET", "/../../etc/passwd", &[&host], "").0, 404);
    assert_eq!(status("/send", SAY), 200);
    server.stop().await;
}

#[tokio::test]
async fn the_page_may_run_its_own_script_only() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(&lab, &["--engine", "demo"]).await;
    let host = format!("Host: {}", server.host());
    let page = || http(&server, "GET", "/", &[&host], "").1;
    let policy = |page: &str| {
        let line = page.lines().find_map(|it| it.strip_prefix("content-security-policy: "));
        line.unwrap().to_owned()
    };
    let (one, other) = (page(), page());
    assert_ne!(policy(&one), policy(&other), "a nonce is used once");
    assert!(policy(&one).starts_with("default-src 'none'; script-src 'nonce-"), "{one}");
    assert!(!policy(&one).contains("unsafe"), "{one}");
    assert!(!one.contains("NONCE") && !one.contains("https://"), "nothing is fetched elsewhere");
    server.stop().await;
}

#[tokio::test]
async fn a_port_in_use_is_1_with_a_hint() {
    let Some(lab) = Lab::new() else { return };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = lab.run(&["serve", "--engine", "demo", "--listen", &address]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    let said = format!("error: cannot listen on {address}: Address already in use");
    assert!(ran.stderr.starts_with(&said), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("; choose another address with --listen\n"), "{}", ran.stderr);
}

#[tokio::test]
async fn the_address_that_is_printed_leads_to_the_server() {
    let Some(lab) = Lab::new() else { return };
    let demo = ["--engine", "demo", "--token", "correct-horse-battery"];
    for (listen, begins, others) in [
        ("localhost:0", "http://127.0.0.1:", 0),
        // It listens everywhere, and is called nowhere by this name.
        ("0.0.0.0:0", "http://localhost:", 1),
    ] {
        let server = Server::start_at(&lab, listen, &demo).await;
        assert!(server.address.starts_with(begins), "{}", server.address);
        let host = format!("Host: {}", server.host());
        assert_eq!(http(&server, "GET", "/?token=correct-horse-battery", &[&host], "").0, 303);
        let said = server.stop().await.stderr;
        assert_eq!(said.matches("instead of localhost").count(), others, "{said}");
    }
}

#[tokio::test]
async fn every_response_has_headers_against_other_origins() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(&lab, &["--engine", "demo"]).await;
    let host = format!("Host: {}", server.host());
    for (path, header, expected) in [
        ("/", "", 200),
        ("/sessions", "", 200),
        ("/nowhere", "", 404),
        ("/sessions", "Sec-Fetch-Site: cross-site\r\n", 403),
    ] {
        let (status, answer) = http(&server, "GET", path, &[&format!("{header}{host}")], "");
        assert_eq!(status, expected, "{path}");
        for said in ["x-content-type-options: nosniff", "cross-origin-resource-policy: same-origin"]
        {
            assert_eq!(answer.matches(said).count(), 1, "{path}: {answer}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn wrong_usage_is_2() {
    let Some(lab) = Lab::new() else { return };
    for args in [
        &["--token", "short"][..],
        &["--token", "with spaces and; more"],
        &["--listen", "nowhere"],
        &["--cd", "/nowhere"],
        &["--transport", "exec", "--approve", "ask"],
    ] {
        let args: Vec<&str> = ["serve"].iter().chain(args).copied().collect();
        let ran = lab.run(&args).await;
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("error: "), "{args:?}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn clients_that_stall_do_not_delay_the_end_of_the_server() {
    let Some(lab) = Lab::new() else { return };
    let slow = ["--engine", "demo", "--approve", "accept", "-c", "pace=1h"];
    let server = Server::start(&lab, &slow).await;
    let host = format!("Host: {}", server.host());
    let begun = |text: &str| {
        let mut stream = TcpStream::connect(server.host()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let half_a_head = begun("GET / HTTP/1.1\r\nHos");
    let head = format!("POST /send HTTP/1.1\r\n{host}\r\n{JSON}\r\nContent-Length: 99\r\n");
    let mut half_a_body = begun(&format!("{head}Expect: 100-continue\r\n\r\n{{"));
    // It is asked for the rest, so it is being listened to.
    half_a_body.read_exact(&mut [0; 12]).unwrap();
    let long = serde_json::json!({ "text": "x".repeat(900_000) }).to_string();
    for _ in 0..12 {
        assert_eq!(http(&server, "POST", "/send", &[&host, JSON], &long).0, 200);
    }
    // More than fits into the buffers of a client that does not read.
    let mut deaf = begun(&format!("GET /events HTTP/1.1\r\n{host}\r\n\r\n"));
    deaf.read_exact(&mut [0; 12]).unwrap();

    let ran = server.stop().await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("cancelled job ").count(), 12, "{}", ran.stderr);
    drop((half_a_head, half_a_body, deaf));
}

#[tokio::test]
async fn stopping_the_server_cancels_runs_and_leaves_no_process() {
    let Some(lab) = Lab::new() else { return };
    lab.model.otherwise(takopi_tests::model::Answer::new().exec("sleep 600"));
    let server = Server::start(&lab, &[]).await;
    let host = format!("Host: {}", server.host());
    let (status, _) = http(&server, "POST", "/send", &[&host, JSON], SAY);
    assert_eq!(status, 200);
    // A browser that watches does not keep it from ending.
    let mut watching = TcpStream::connect(server.host()).unwrap();
    write!(watching, "GET /events HTTP/1.1\r\n{host}\r\n\r\n").unwrap();
    let watching = tokio::task::spawn_blocking(move || {
        let mut seen = Vec::new();
        let mut bytes = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains("sleep 600") {
            let count = watching.read(&mut bytes).unwrap();
            assert!(count > 0, "the stream ended: {}", String::from_utf8_lossy(&seen));
            seen.extend(&bytes[..count]);
        }
        let seen = String::from_utf8(seen).unwrap();
        let first = seen.split("data: ").nth(1).unwrap().lines().next().unwrap();
        assert_eq!(serde_json::from_str::<Value>(first).unwrap()["type"], "snapshot");
        watching
    });
    let watching = watching.await.unwrap();
    let ran = server.stop().await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("note: "), "{}", ran.stderr);
    drop(watching);
    lab.home.assert_no_processes().await;
}
