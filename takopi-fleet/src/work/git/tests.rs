//! Calls of git, and what is a place.

use super::*;

fn need(place: &str) -> Option<String> {
    GitPlace::parse(place)?.need()
}

#[test]
fn git_is_told_its_repository_and_no_secrets() {
    let tree = WorkTree { git_dir: "m/worktrees/s".into(), path: Path::new("t") };
    let command = command(Path::new("m"), Some(&tree), ["x"], None);
    let args: Vec<_> = command.as_std().get_args().collect();
    assert_eq!(args[..4], ["--git-dir", "m/worktrees/s", "--work-tree", "t"]);
    let common = command.as_std().get_envs().find(|(name, _)| *name == "GIT_COMMON_DIR");
    assert_eq!(common.and_then(|(_, value)| value), Some(OsStr::new("m")));
    for name in SECRET_VARIABLES {
        let set = command.as_std().get_envs().find(|(found, _)| *found == name);
        assert!(set.is_some_and(|(_, value)| value.is_none()), "{name}");
    }
}

#[tokio::test]
async fn a_mirror_is_made_as_every_git_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut init = command(dir.path(), None, INIT, None);
    // As somebody may have configured it for all repositories of a machine.
    init.env("GIT_CONFIG_COUNT", "1");
    init.env("GIT_CONFIG_KEY_0", "init.defaultRefFormat").env("GIT_CONFIG_VALUE_0", "reftable");
    assert!(init.output().await.unwrap().status.success());
    let config = std::fs::read_to_string(dir.path().join("config")).unwrap();
    assert!(!config.contains("reftable"), "{config}");
}

#[test]
fn a_machine_that_is_out_of_space_is_told_from_a_repository_that_cannot_be_read() {
    let full = "fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output\n";
    assert!(matches!(GitError::of(full), GitError::OutOf(line) if line.contains("No space")));
    for text in ["fatal: no such repository\n\n", "remote: No space left on device\nfatal: x", ""] {
        assert!(matches!(GitError::of(text), GitError::Refused(_)), "{text}");
    }
}

#[test]
fn a_place_needs_its_host_and_owner() {
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(need("git:https://GitHub.com/acme/app@main"), some("git:github.com/acme"));
    assert_eq!(need("git:https://x@h:8443/acme/sub/app.git@v1"), some("git:h:8443/acme"));
    assert_eq!(need("git:ssh://git@host/acme/app@a/b"), some("git:host/acme"));
    assert_eq!(need("git:git@host:acme/app@main"), some("git:host/acme"));
    assert_eq!(need("git:git@host:/acme/app/@main"), some("git:host/acme"));
    assert_eq!(need("git:https://[::1]:8443/acme/app/@main"), some("git:[::1]:8443/acme"));
    assert_eq!(need("git:file:///srv/app.git@main"), some("git:file"));
    assert_eq!(need_of("app"), "place:app");
}

#[test]
fn what_is_no_repository_of_a_host_is_no_place() {
    for place in [
        "git:https://host/acme/app",
        "git:https://host/app@main",
        "git:ext::sh -c id@host:a/b@main",
        "git:ext::sh@host:a/b@main",
        "git:--upload-pack=x@h:a/b@main",
        "git:https://host/acme/app@--output=x",
        "git:/srv/app@main",
        "git:http://host/acme/app@main",
        "git:https://host/acme/../other/private@main",
        "git:https://host/acme/./app@main",
        "git:https://host/acme//app@main",
        "git:https://host//acme/app@main",
        "git:https://host/acme/x/..@main",
        "git:https://host/acme/%2e%2e/other/private@main",
        "git:https://evil.example#@host/acme/app@main",
        "git:https://evil.example?@host/acme/app@main",
        "git:https://evil.example\\@host/acme/app@main",
        "git:https://a@evil.example@host/acme/app@main",
        "git:ssh://git@host/acme/../other/private@main",
        "git:git@host:acme/../other/private@main",
        "git:[git@host:acme/x]:other/private@main",
        "app",
    ] {
        assert_eq!(GitPlace::parse(place), None, "{place}");
    }
}
