//! Every fuzz target for a bounded time: see `takopi_tests::fuzz`.

#![allow(clippy::panic, clippy::expect_used, reason = "tests: what fails here fails the test")]

use takopi_tests::codex::recorded as codex;
use takopi_tests::recorded::{self, Recording};
use takopi_tests::{dirs, fuzz};

fn target(name: &'static str, seeds: Vec<Vec<u8>>) {
    let target = takopi_fuzz::target(name);
    fuzz::run(name, seeds, target.unwrap_or_else(|| panic!("no target {name}")));
}

/// Recordings, one input each: short ones, so that many can be tried.
fn recordings() -> Vec<Vec<u8>> {
    codex::exec().into_iter().map(|exec| exec.lines.join("\n").into_bytes()).collect()
}

fn turns() -> Vec<Vec<u8>> {
    codex::turns().into_iter().map(|turn| turn.turn.join("\n").into_bytes()).collect()
}

/// Text in Markdown, from the docs, with a number in front.
fn markdown() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for name in ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/write-a-bridge.md"] {
        let text = std::fs::read_to_string(dirs::workspace().join(name)).unwrap_or_default();
        let paragraphs: Vec<&str> = text.split("\n\n").collect();
        for (n, part) in paragraphs.chunks(3).enumerate() {
            let part = part.join("\n\n");
            seeds
                .push([&[u8::try_from(n * 7 % 256).unwrap_or_default()], part.as_bytes()].concat());
        }
    }
    let odd = [
        "```rust\nlet x = 1;\n```\n\n- a\n  - b\n    ~~~\n    c\n    ~~~",
        "| a | b |\n|---|---|\n| `x` | 日本語 |\n\n> quoted\n> ```\n> code",
        "\x1b[31mred\x07 \u{202e}back\u{0} 👩‍👩‍👧‍👧 e\u{301}\u{301}",
        "<!-- x\n\n<pre>\n</pre>\n\n&amp; \\` *a **b** c*",
    ];
    seeds.extend(odd.iter().map(|text| [b"\x30", text.as_bytes()].concat()));
    seeds
}

#[test]
fn fuzz_framing() {
    let framed = |lines: Vec<u8>| [&[40, 7], lines.as_slice()].concat();
    target("framing", recordings().into_iter().map(framed).collect());
}

#[test]
fn fuzz_exec() {
    target("exec", recordings());
}

#[test]
fn fuzz_app_server() {
    target("app_server", turns());
}

/// Recordings of other agents, one input each.
fn shortened(recorded: &[Recording]) -> Vec<Vec<u8>> {
    let text = |lines: &[String]| lines.iter().map(|line| short(line)).collect::<Vec<_>>();
    recorded.iter().map(|it| text(&it.lines).join("\n").into_bytes()).collect()
}

/// A line without the long lists that nothing reads: inputs are cut at some length.
fn short(line: &str) -> String {
    let Ok(mut line) = serde_json::from_str::<serde_json::Value>(line) else {
        return line.to_owned();
    };
    if let Some(fields) = line.as_object_mut() {
        for name in ["tools", "slash_commands", "skills", "capabilities", "modelUsage", "response"]
        {
            fields.remove(name);
        }
    }
    line.to_string()
}

#[test]
fn fuzz_claude() {
    target("claude", shortened(&recorded::claude()));
}

#[test]
fn fuzz_pi() {
    target("pi", shortened(&recorded::pi()));
}

/// The number chooses the agent of the recording, as the order of the presets is.
#[test]
fn fuzz_acp() {
    let presets: Vec<&str> = takopi_acp::Agent::presets().collect();
    let seeds = recorded::acp().into_iter().flat_map(|(agent, recorded)| {
        let at = presets.iter().position(|preset| *preset == agent).unwrap_or_default();
        let number = u8::try_from(at).unwrap_or_default();
        shortened(&recorded).into_iter().map(move |lines| [&[number], lines.as_slice()].concat())
    });
    target("acp", seeds.collect());
}

#[test]
fn fuzz_resume() {
    let id = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";
    let lines = [
        format!("`codex resume {id}`"),
        format!("done\n\ncodex exec resume {id}\n"),
        format!("takopi run --resume {}", id.to_uppercase()),
        format!("`claude --resume {id}`"),
        format!("`pi --session {id}`\ntakopi run --engine pi --fleet --resume {id}"),
        format!("takopi run --engine gemini --resume {id}"),
        "`opencode --session ses_e1bbfb424ffezAOjnPk2pQdyCc`".to_owned(),
    ];
    target("resume", lines.into_iter().map(String::into_bytes).collect());
}

#[test]
fn fuzz_event() {
    let started = r#"{"type":"started","engine":"codex","resume":{"engine":"codex","value":"x"},"title":"Codex","meta":{"a":1}}"#;
    let action = r#"{"type":"action","engine":"codex","action":{"id":"i","kind":"command","title":"ls","detail":{"exit_code":0}},"phase":"completed","ok":true,"message":"m","level":"info"}"#;
    let completed = r#"{"type":"completed","engine":"codex","ok":false,"answer":"a","error":"e","reason":"auth","usage":{"input_tokens":1,"output_tokens":2,"scope":"turn"}}"#;
    target("event", [started, action, completed].map(|line| line.as_bytes().to_vec()).to_vec());
}

#[test]
fn fuzz_batch_input() {
    let jobs = r#"{"id":"a","prompt":"say hi","session":"s","images":["x.png"],"wait":"5m","settings":{"k":1}}
{"id":7,"prompt":"p","resume":{"engine":"codex","value":"v"},"timeout":1.5}
{"prompt":"bye","resume":"codex resume 01a1e21b-26e5-7eb0-9d27-459e98f10b74"}"#;
    target("batch_input", vec![jobs.as_bytes().to_vec(), b"say hi\n\nsay bye\r\n".to_vec()]);
}

#[test]
fn fuzz_journal() {
    let results = "{\"id\":\"a\",\"ok\":true,\"answer\":\"x\",\"attempts\":1}\n{\"id\":\"b\",\"ok\":false,\"answer\":\"\",\"error\":\"e\",\"attempts\":2}\n";
    let digest = "0123456789abcdef0123456789abcdef";
    let state = format!(
        "{{\"type\":\"sent\",\"job\":\"{digest}\",\"prompt\":\"{digest}\",\"attempt\":1}}\n{{\"type\":\"session\",\"name\":\"{digest}\",\"resume\":{{\"engine\":\"codex\",\"value\":\"v\"}},\"proven\":true}}\n{{\"type\":\"returned\",\"job\":\"{digest}\"}}\n"
    );
    let both = [results, &state].concat();
    let at = u8::try_from(results.len() * 256 / both.len() + 1).unwrap_or_default();
    target(
        "journal",
        vec![
            [&[0], results.as_bytes()].concat(),
            [&[at], both.as_bytes()].concat(),
            [&[at], &both.as_bytes()[..both.len() - 9]].concat(),
        ],
    );
}

#[test]
fn fuzz_split() {
    target("split", markdown());
}

#[test]
fn fuzz_terminal() {
    target("terminal", markdown());
}

#[test]
fn fuzz_chat() {
    target("chat", markdown());
}
