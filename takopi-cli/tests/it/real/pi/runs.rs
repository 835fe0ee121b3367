//! Runs, approvals, failures, checks, and the sessions that the real pi stores.

use takopi_tests::model::chat::Answer;

use super::lab::{Lab, resume_line, session};

#[tokio::test]
async fn a_run_and_its_resumption_by_line_and_its_stored_session() {
    let Some(lab) = Lab::new() else { return };
    lab.model
        .when("say hi", [Answer::new().bash("echo hi; exit 3"), Answer::text("It says **hi**.")]);
    lab.model.when("once more", "hi again\n");
    let args = ["run", "--engine", "pi", "--permission-mode", "bypassPermissions", "say hi"];
    let first = lab.run(&args).await;
    assert_eq!((first.code, first.stdout.as_str()), (Some(0), "It says **hi**.\n"), "{first:?}");
    assert!(first.stderr.contains("✗ echo hi; exit 3 (exit 3)\n"), "{}", first.stderr);

    let line = format!("done\n`{}`", resume_line(&first));
    // The line names the engine.
    let again = ["run", "--resume", &line, "once more"];
    let again = lab.takopi(&again).env_remove("TAKOPI_ENGINE").output().await.unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap(), "hi again\n");

    let id = session(&first);
    let listed = lab.run(&["sessions", "--cd", "."]).await;
    let fields: Vec<&str> = listed.stdout.trim_end().split('\t').collect();
    assert_eq!((listed.code, fields[0], fields[1]), (Some(0), id, "pi"), "{listed:?}");
    assert!(fields.contains(&"say hi"), "{listed:?}");
    let shown = lab.run(&["sessions", "show", "--steps", &id[..13]]).await;
    assert_eq!(
        shown.stdout,
        "> say hi\n\n$ echo hi; exit 3 (exit 3)\n  │ hi\n\nIt says **hi**.\n\n> once more\n\nhi again\n\n"
    );
    lab.home.assert_no_processes().await;
}

#[tokio::test]
async fn approval_requests_are_declined_or_accepted_without_a_person() {
    for (approve, said, written) in
        [("deny", "declined: --approve deny", false), ("accept", "accepted", true)]
    {
        let Some(lab) = Lab::new() else { return };
        lab.model.otherwise([Answer::new().bash("touch new.txt"), Answer::text("done")]);
        let ran = lab.run(&["run", "--approve", approve, "add a file"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "done\n"), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert_eq!(lab.home.workspace().join("new.txt").exists(), written, "{approve}");
        lab.home.assert_no_processes().await;
    }
}

#[tokio::test]
async fn bad_input_is_refused_by_name_and_an_unknown_session_is_no_new_one() {
    let Some(lab) = Lab::new() else { return };
    for (args, said) in [
        (["--effort", "huge"], "pi has no effort `huge`"),
        (["--permission-mode", "plan"], "unknown permission mode `plan`; pi has default"),
        (["-c", "extension=x"], "pi has no option `extension`"),
    ] {
        let ran = lab.run(&[&["run"][..], &args, &["hi"]].concat()).await;
        assert!(ran.code != Some(0) && ran.stderr.contains(said), "{args:?}: {ran:?}");
    }
    let unknown = "01a1e443-1aa9-70f6-9a71-8421d061dced";
    let ran = lab.run(&["run", "--resume", unknown, "hi"]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("pi has no session"), "{ran:?}");
    assert!(lab.model.requests().is_empty() && lab.home.sessions().is_empty());
}

#[tokio::test]
async fn doctor_reports_program_version_and_models() {
    let Some(lab) = Lab::new() else { return };
    let ran = lab.run(&["doctor", "--engine", "pi", "--json"]).await;
    assert!(ran.stdout.contains(&lab.pi.version.to_string()), "{ran:?}");
    assert!(ran.stdout.contains("2 models can be used"), "{ran:?}");
}
