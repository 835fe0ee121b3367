//! The sessions that the real codex stores.

use takopi_tests::model::Answer;

use super::lab::{Lab, TRANSPORTS};

#[tokio::test]
async fn sessions_are_listed_and_shown() {
    for transport in TRANSPORTS {
        let Some(lab) = Lab::new() else { return };
        lab.model.otherwise([
            Answer::new().exec("echo hi; exit 3"),
            Answer::new().exec("seq 3"),
            Answer::text("It says **hi**."),
        ]);
        let ran = lab.run(&["run", "--transport", transport, "say hi"]).await;
        let id = ran.resume_line().rsplit(' ').next().unwrap();

        let listed = lab.run(&["sessions", "--cd", "."]).await;
        let fields: Vec<&str> = listed.stdout.trim_end().split('\t').collect();
        let expected = (Some(0), id, "codex", "say hi");
        assert_eq!((listed.code, fields[0], fields[1], fields[4]), expected, "{listed:?}");

        let shown = lab.run(&["sessions", "show", "--steps", id]).await;
        let commands =
            "$ echo hi; exit 3 (exit 3)\n  │ hi\n\n$ seq 3\n  │ … 1 more line\n  │ 2\n  │ 3\n";
        assert_eq!(shown.stdout, format!("> say hi\n\n{commands}\nIt says **hi**.\n\n"));
    }
}

#[tokio::test]
async fn doctor_accepts_the_real_codex() {
    let Some(lab) = Lab::new() else { return };
    let ran = lab.run(&["doctor"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    let version = format!("✓ version  {}\n", lab.codex.version);
    assert!(ran.stdout.contains(&version), "{}", ran.stdout);
    let login = "! login    Not logged in; the model provider is \"mock\"\n";
    assert!(ran.stdout.contains(login), "{}", ran.stdout);
}
