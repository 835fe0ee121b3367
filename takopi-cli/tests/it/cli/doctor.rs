//! `takopi doctor`: its findings, its hints, and its repairs.

use std::os::unix::fs::PermissionsExt as _;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::lab::{Lab, Ran, Running, codex};

fn doctor(lab: &Lab, program: &str, args: &[&str]) -> Ran {
    lab.run(&[&["doctor", "--engine", "codex", "--codex-bin", program], args].concat())
}

#[test]
fn a_good_installation_has_no_problems() {
    let lab = Lab::new();
    let program = codex("good");
    let ran = doctor(&lab, &program, &[]);
    let shown = ran.stdout.replace(&program, "CODEX");
    let shown = shown.replace(lab.path("").to_str().unwrap(), "LAB/");
    let shown: Vec<&str> = shown.lines().filter(|line| !line.contains("files ")).collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    ✓ config   none (LAB/home/.config/takopi/config.toml)
    ✓ codex    CODEX
    ✓ version  0.166.0
    ✓ login    Logged in using ChatGPT
    ✓ state    LAB/state (not created yet)
    ✓ locks    work
    ✓ strays   none
    ");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn every_problem_has_a_hint() {
    let lab = Lab::new();
    lab.write("home/.config/takopi/config.toml", "engine = 'abacus'\n");
    let ran = doctor(&lab, &codex("old"), &["--json"]);
    assert_eq!(ran.code, Some(1));
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["ok"], false);
    let problems: Vec<(&str, &str)> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["state"] == "problem")
        .map(|it| (it["check"].as_str().unwrap(), it["hint"].as_str().unwrap()))
        .collect();
    assert_eq!(
        problems,
        [
            ("config", "correct the file, or move it away"),
            ("version", "update it with `npm install -g @openai/codex@latest`"),
            ("login", "log in with `codex login`"),
        ]
    );
    let config = found["findings"][0]["what"].as_str().unwrap();
    assert!(
        config
            .contains("config.toml:1: unknown engine `abacus`; known engines: codex, claude, pi, opencode, gemini, qwen, codex-acp, claude-acp, demo"),
        "{config}"
    );
}

#[test]
fn a_missing_codex_is_reported_with_installation_advice() {
    let ran = doctor(&Lab::new(), "/no/such/codex", &[]);
    assert_eq!(ran.code, Some(1));
    let expected = "✗ codex    /no/such/codex was not found\n           \
                    → install it with `npm install -g @openai/codex`, or name it with --codex-bin PATH\n";
    assert!(ran.stdout.contains(expected), "{}", ran.stdout);
}

#[test]
fn a_program_that_cannot_be_codex_is_not_asked_for_its_login() {
    let lab = Lab::new();
    let ran = doctor(&lab, "/bin/true", &[]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("✗ version  /bin/true printed no version"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("login"), "{}", ran.stdout);
    let ran = doctor(&lab, "/usr", &[]);
    assert!(ran.stdout.contains("✗ codex    /usr is a directory\n"), "{}", ran.stdout);
}

#[test]
fn a_missing_codex_home_and_a_broken_configuration_of_codex_are_named() {
    let lab = Lab::new();
    let mut command = lab.takopi(&["doctor", "--engine", "codex", "--codex-bin", &codex("good")]);
    let ran = super::lab::ran(command.env("CODEX_HOME", "/no/such"));
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("✗ home     CODEX_HOME=/no/such is not a directory\n"));
    let file = lab.write("codex/config.toml", "model = 'm'\nprofile =\n");
    let ran = doctor(&lab, &codex("good"), &[]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains(&format!("✗ home     {}:2: ", file.display())), "{}", ran.stdout);
}

#[test]
fn another_model_provider_needs_no_login() {
    let lab = Lab::new();
    lab.write("codex/config.toml", "model_provider = \"mine\"\n");
    let ran = doctor(&lab, &codex("old"), &[]);
    let expected = "! login    Not logged in; the model provider is \"mine\"\n";
    assert!(ran.stdout.contains(expected), "{}", ran.stdout);
}

#[test]
fn fix_removes_the_access_of_others_to_the_state_directory() {
    let lab = Lab::new();
    std::fs::create_dir(lab.path("state")).unwrap();
    for (mode, code, said) in
        [(0o755, 0, "is readable by others"), (0o777, 1, "is writable by others")]
    {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(lab.path("state"), mode).unwrap();
        let ran = doctor(&lab, &codex("good"), &[]);
        assert_eq!(ran.code, Some(code), "{}", ran.stdout);
        assert!(ran.stdout.contains(said), "{}", ran.stdout);
    }
    assert_eq!(doctor(&lab, &codex("good"), &["--fix"]).code, Some(0));
    assert_eq!(std::fs::metadata(lab.path("state")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
#[cfg(target_os = "linux")]
fn processes_of_a_killed_takopi_are_found_and_stopped() {
    let lab = Lab::new();
    let program = codex("stubborn");
    let args = ["run", "--transport", "exec", "--codex-bin", &program, "hello"];
    let mut running = Running::start(lab.takopi(&args));
    running.wait_for("▸ sleep");
    assert_eq!(doctor(&lab, &codex("good"), &[]).code, Some(0), "it belongs to a live takopi");
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    let ran = doctor(&lab, &codex("good"), &[]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("✗ strays ") && ran.stdout.contains("stubborn"), "{}", ran.stdout);
    let fixed = doctor(&lab, &codex("good"), &["--fix"]);
    assert_eq!(fixed.code, Some(0), "{}", fixed.stdout);
    assert!(fixed.stdout.contains("✓ strays   stopped: "), "{}", fixed.stdout);
    assert!(doctor(&lab, &codex("good"), &[]).stdout.contains("✓ strays   none"));
}
