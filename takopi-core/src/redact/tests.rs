//! What is found, and what is left alone.

use proptest::prelude::*;

use super::*;

/// Texts with a credential, the credential, and what stays.
const SECRETS: &[(&str, &str, &str)] = &[
    ("refused: Bearer sk-SECRET-123", "sk-SECRET-123", "refused: Bearer "),
    ("Authorization: Bearer abcdef", "abcdef", "Authorization: Bearer "),
    ("authorization: Basic dXNlcjpwYXNz, next", "dXNlcjpwYXNz", ", next"),
    (r#"{"Authorization":"Bearer abcdef"}"#, "abcdef", r#"{"Authorization":""#),
    ("key sk-proj-abcDEF123456_7-8 is wrong", "sk-proj-abcDEF123456_7-8", " is wrong"),
    ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", ""),
    ("github_pat_11ABCDEFG0123456789_abc", "github_pat_11ABCDEFG0123456789_abc", ""),
    ("slack xoxb-123456789012-abcdefGHIJ", "xoxb-123456789012-abcdefGHIJ", "slack "),
    ("aws AKIAIOSFODNN7EXAMPLE.", "AKIAIOSFODNN7EXAMPLE", "aws "),
    (
        "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N end",
        "dozjgNryP4J3jVmNHl0w5N",
        " end",
    ),
    ("OPENAI_API_KEY=abc codex exec", "abc", " codex exec"),
    (r#"{"api_key": "plain words", "model": "m"}"#, "plain words", r#""model": "m"}"#),
    (r#"{\"client_secret\":\"plain\",\"a\":1}"#, "plain", r#",\"a\":1}"#),
    ("{'password': 'it\\'s long'}", "it\\'s long", "{'password': '"),
    ("password: hunter2", "hunter2", "password: "),
    ("codex --api-key a1b2c3d4 run", "a1b2c3d4", " run"),
    ("GET /v1?access_token=xyz&page=2", "xyz", "&page=2"),
    ("postgres://app:hunter@db.lan/main", "hunter", "@db.lan/main"),
    (r"postgres:\/\/app:hunter@db.lan\/main", "hunter", r"@db.lan\/main"),
    ("https://x0token99@git.lan/a.git", "x0token99", "@git.lan/a.git"),
    ("Cookie: sid=abc; theme=dark\nHost: h", "sid=abc", "\nHost: h"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----\nafter",
        "MIIEabc",
        "\nafter",
    ),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn cut off", "b3Blbn", ""),
    (r"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n", "MIIE", r"\n"),
    (r"lost\nBearer a1b2c3d4e5\nmore", "a1b2c3d4e5", r"\nmore"),
    (r"said \u0022sk-SECRET-123\u0022", "sk-SECRET-123", r"\u0022[redacted]\u0022"),
    ("\x1b[31msk-SECRET-123\x1b[0m", "sk-SECRET-123", "\x1b[31m[redacted]\x1b[0m"),
    ("key \x1b[m\x1b[Ksk-SECRET-123\x1b[1A", "sk-SECRET-123", "[redacted]\x1b[1A"),
    (r"\u001b[1;31msk-SECRET-123\u001b[0m", "sk-SECRET-123", r"[redacted]\u001b[0m"),
    (r"\x1b[31msk-SECRET-123 \u{1b}[0mghp", "sk-SECRET-123", r" \u{1b}[0mghp"),
    (r"\033[31msk-SECRET-123 \e[0m", "sk-SECRET-123", r" \e[0m"),
    ("token\x1b[0m\x1b[2m=\x1b[0mabc end", "abc", " end"),
    ("\x1b[34m\"api_key\"\x1b[0m: \x1b[32m\"plain\"\x1b[0m", "plain", "\"\x1b[0m"),
    ("Bearer \x1b[33mabc123def", "abc123def", "Bearer \x1b[33m"),
    ("Authorization: Bearer \x1b[33mabcdef", "abcdef", "Authorization: Bearer "),
    ("\x1b[sk-SECRET-123", "sk-SECRET-123", "\x1b[[redacted]"),
];

/// Texts without a credential.
const PLAIN: &[&str] = &[
    "",
    "exit status 1 in /home/user/project/src/main.rs:12:5",
    "thread 01a1e21b-26e5-7eb0-9d27-459e98f10b74 already has an active writer",
    "resume token: 01a1e21b-26e5-7eb0-9d27-459e98f10b74",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 (HEAD -> main)",
    "Missing bearer or basic authentication in header",
    "failed to refresh token: 400 Bad Request",
    "unexpected token: expected `}`, found identifier",
    "your access token could not be refreshed because your refresh token was revoked",
    "input_tokens=1200 output_tokens=7 max_tokens: 4096",
    "token=null password=\"\" api_key: missing",
    "the password: it must be long",
    "https://docs.example.com/a@b?c=d#e and git@github.com:a/b.git",
    "http://127.0.0.1:8080/v1/responses",
    "sk-learn-contrib task-runner disk-usage-12345678",
    "tokenizer: bpe, secretary: Ms. Jones",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "error[E0308]: mismatched types — größer als 日本語 🐙",
    "eyJ is how a token begins. eyJhbGciOiJIUzI1NiJ9 alone is a header",
    "cookies are fine; basic auth too",
    "Password: /etc/takopi/secret.txt",
    "\x1b[1;31merror\x1b[0m\x1b[2m:\x1b[0m token\x1b[0m expected \x1b[",
    r"a \u0022 b \u C:\users \unit",
];

#[test]
fn credentials_are_removed_and_what_stands_around_them_stays() {
    for (text, secret, stays) in SECRETS {
        let clean = redact(text);
        assert!(!clean.contains(secret), "{text:?} became {clean:?}");
        assert!(clean.contains(REDACTED), "{text:?} became {clean:?}");
        assert!(clean.contains(stays), "{text:?} became {clean:?}");
        assert_eq!(redact(&clean), clean, "redacted again");
    }
}

#[test]
fn values_are_redacted_by_their_names_and_by_what_they_are() {
    let mut value = serde_json::json!({
        "password": "hunter2", "apiKey": "plain words", "Set-Cookie": "sid=abc", "token": null,
        "maxToken": 7, "tokens": ["Bearer sk-SECRET-123"], "inner": [{"client_secret": "a b"}],
        "secret": "none", "message": "all is well",
    });
    redact_value(&mut value);
    let expected = serde_json::json!({
        "password": REDACTED, "apiKey": REDACTED, "Set-Cookie": REDACTED, "token": null,
        "maxToken": 7, "tokens": ["Bearer [redacted]"], "inner": [{"client_secret": REDACTED}],
        "secret": "none", "message": "all is well",
    });
    assert_eq!(value, expected);
}

#[test]
fn ordinary_text_is_left_alone_and_not_copied() {
    for text in PLAIN {
        assert!(
            matches!(redact(text), Cow::Borrowed(same) if same == *text),
            "{text:?}: {}",
            redact(text)
        );
    }
}

#[test]
fn the_time_it_takes_grows_with_the_text_and_not_faster() {
    // A scan that reads on to the end at every word would hang here.
    let pieces = [
        "eyJ",
        "a:",
        "token: ",
        "\"token\": \"",
        "x://",
        "-----BEGIN ",
        "\\n",
        "key=",
        "Bearer ",
        "token:/",
        "cookie:[redacted]",
        "token=[redacted]",
        "\"token\":\"[redacted]",
        "token:' ",
        "\x1b[1;",
        "\\u001b[",
        "token\x1b[0m",
        "Bearer \x1b[0m",
    ];
    for piece in pieces {
        let text = piece.repeat(100_000 / piece.len());
        let _ = redact(&text);
    }
}

proptest! {
    #[test]
    fn any_text_can_be_redacted_and_a_second_time_changes_nothing(
        pieces in prop::collection::vec(
            prop_oneof![
                any::<String>(),
                "[ \\\\\"':=@./,;&\n\\[\\]-]{1,3}",
                "[a-zA-Z0-9]{1,12}",
                prop::sample::select(vec![
                    "Bearer ", "sk-", "token", "api_key", "://", "user:", "@", "eyJhbGciOiJIUzI1NiJ9.",
                    "-----BEGIN PRIVATE KEY-----", "PRIVATE KEY-----", "Authorization: ", "Cookie: ",
                    "[redacted]", "--password ", "AKIA", "null", "\x1b[31m", "\x1b[0m", "\x1b[", "\x1b",
                    "\\u001b[0m", "\\u0022", "\\e[1A",
                ]).prop_map(str::to_owned),
            ],
            0..24,
        )
    ) {
        let text = pieces.concat();
        let once = redact(&text).into_owned();
        prop_assert_eq!(redact(&once), once.as_str());
    }

    #[test]
    fn a_known_credential_is_found_wherever_it_stands(
        before in "([a-z]{1,8}[ ,;.\n])*", after in "([ ,;\n][a-z]{1,8})*", which in 0..SECRETS.len(),
        (colour, reset) in ("(\x1b\\[[0-9;]{0,6}[mK]){0,2}", "(\x1b\\[0?m)?"),
    ) {
        let (text, secret, _) = SECRETS[which];
        let clean = redact(&format!("{before}{colour}{text}{reset}{after}")).into_owned();
        prop_assert!(!clean.contains(secret) || before.contains(secret) || after.contains(secret), "{}", clean);
    }
}
