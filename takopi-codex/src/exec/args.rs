//! The arguments of `codex exec --json`.
//!
//! `codex <extra args> [--model M] [-c model_reasoning_effort=E] [-c KEY=VALUE …] exec --json
//! --skip-git-repo-check --color=never [--sandbox S] [--ephemeral] [--cd DIR] [--image=F …] [--output-schema F]
//! [resume <id>] -`. What `resume` does not know goes between `exec` and it. The prompt is never
//! here: `-` stands for stdin.

use std::ffi::OsString;
use std::path::Path;

use takopi_core::{ResumeToken, RunRequest};

/// Options of `codex exec` that takopi itself sets, or that would take its output away.
const EXEC_ONLY: &[&str] = &[
    "--json",
    "--skip-git-repo-check",
    "--color",
    "--output-schema",
    "--output-last-message",
    "-o",
];

/// The first of the extra arguments that belongs to `codex exec` itself, as it was written.
///
/// ```
/// use takopi_codex::exec::find_exec_only_flag;
///
/// assert_eq!(find_exec_only_flag(&["-c", "notify=[]"]), None);
/// assert_eq!(find_exec_only_flag(&["-c", "notify=[]", "--color=never"]), Some("--color=never"));
/// ```
pub fn find_exec_only_flag<S: AsRef<str>>(extra_args: &[S]) -> Option<&str> {
    extra_args.iter().map(AsRef::as_ref).find(|arg| {
        EXEC_ONLY.iter().any(|flag| {
            let value = arg.strip_prefix(flag);
            // `--flag value` and `--flag=value`, but `-o value`, `-o=value` and `-ovalue`.
            value.is_some_and(|value| {
                value.is_empty() || value.starts_with('=') || !flag.starts_with("--")
            })
        })
    })
}

/// The arguments of a run, whose prompt goes to stdin. The extra arguments come first.
pub(super) fn arguments<S: AsRef<str>>(
    extra_args: &[S],
    request: &RunRequest,
    resume: Option<&ResumeToken>,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = extra_args.iter().map(|arg| arg.as_ref().into()).collect();
    if let Some(model) = &request.settings.model {
        args.extend(["--model".into(), model.into()]);
    }
    if let Some(effort) = &request.settings.effort {
        args.extend(["-c".into(), format!("model_reasoning_effort={effort}").into()]);
    }
    for (key, value) in &request.settings.options {
        args.extend(["-c".into(), format!("{key}={value}").into()]);
    }
    args.extend(["exec", "--json", "--skip-git-repo-check", "--color=never"].map(Into::into));
    if let Some(sandbox) = &request.settings.sandbox {
        args.extend(["--sandbox".into(), sandbox.into()]);
    }
    if request.settings.is_ephemeral() {
        args.push("--ephemeral".into());
    }
    // Absolute, since codex runs in the request's directory and not in ours.
    if let Some(directory) = &request.settings.cwd {
        args.extend(["--cd".into(), absolute(directory)]);
    }
    for image in &request.settings.images {
        // `--image F -` would take the `-` for a second image.
        let mut arg = OsString::from("--image=");
        arg.push(absolute(image));
        args.push(arg);
    }
    if let Some(schema) = &request.settings.output_schema {
        args.extend(["--output-schema".into(), absolute(schema)]);
    }
    if let Some(session) = resume {
        args.extend(["resume".into(), OsString::from(&session.value)]);
    }
    args.push("-".into());
    args
}

fn absolute(path: &Path) -> OsString {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).into_os_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";

    fn line(extra: &[&str], request: &RunRequest, resume: Option<&ResumeToken>) -> String {
        let args = arguments(extra, request, resume);
        args.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_new_session_takes_the_prompt_from_stdin() {
        let request = RunRequest::new("the prompt");
        assert_eq!(
            line(&["-c", "notify=[]"], &request, None),
            "-c notify=[] exec --json --skip-git-repo-check --color=never -"
        );
    }

    #[test]
    fn a_session_that_is_not_stored_has_its_flag() {
        assert_eq!(
            line(&[], &RunRequest::new("the prompt").ephemeral(true), None),
            "exec --json --skip-git-repo-check --color=never --ephemeral -"
        );
    }

    #[test]
    fn a_session_is_resumed_by_its_id() {
        let request = RunRequest::new("the prompt");
        assert_eq!(
            line(&["-c", "notify=[]"], &request, Some(&ResumeToken::new("codex", SESSION))),
            format!(
                "-c notify=[] exec --json --skip-git-repo-check --color=never resume {SESSION} -"
            )
        );
    }

    #[test]
    fn what_is_asked_for_stands_where_codex_expects_it() {
        let request = RunRequest::new("the prompt")
            .model("gpt-5.5")
            .effort("high")
            .option("tools.web_search", "true")
            .option("x", "\"a b\"")
            .sandbox("workspace-write")
            .cwd("/srv/project")
            .image("/tmp/a.png")
            .image("/tmp/b.png")
            .output_schema("/tmp/schema.json");
        let args =
            arguments(&["--profile", "work"], &request, Some(&ResumeToken::new("codex", SESSION)));
        assert_eq!(
            args,
            [
                "--profile",
                "work",
                "--model",
                "gpt-5.5",
                "-c",
                "model_reasoning_effort=high",
                "-c",
                "tools.web_search=true",
                "-c",
                "x=\"a b\"",
                "exec",
                "--json",
                "--skip-git-repo-check",
                "--color=never",
                "--sandbox",
                "workspace-write",
                "--cd",
                "/srv/project",
                "--image=/tmp/a.png",
                "--image=/tmp/b.png",
                "--output-schema",
                "/tmp/schema.json",
                "resume",
                SESSION,
                "-",
            ]
        );
    }

    #[test]
    fn relative_paths_do_not_depend_on_where_codex_runs() {
        let here = std::env::current_dir().unwrap();
        let request = RunRequest::new("x").cwd("sub").image("a.png").output_schema("s.json");
        let args = arguments::<&str>(&[], &request, None);
        assert!(args.contains(&here.join("sub").into_os_string()));
        assert!(args.contains(&format!("--image={}", here.join("a.png").display()).into()));
        assert!(args.contains(&here.join("s.json").into_os_string()));
    }

    #[test]
    fn the_prompt_is_never_an_argument() {
        let request = RunRequest::new("--dangerously-bypass-approvals-and-sandbox");
        assert!(!line(&[], &request, None).contains("dangerously"));
    }

    #[test]
    fn exec_only_flags_are_found_in_both_spellings_and_named() {
        for args in [&[][..], &["-c", "notify=[]"], &["--model", "o3"], &["--jsonl"], &["--colors"]]
        {
            assert_eq!(find_exec_only_flag(args), None, "{args:?}");
        }
        for (args, flag) in [
            (&["--skip-git-repo-check"][..], "--skip-git-repo-check"),
            (&["--color=never"], "--color=never"),
            (&["--color", "never"], "--color"),
            (&["--output-schema", "s.json"], "--output-schema"),
            (&["--output-schema=s.json"], "--output-schema=s.json"),
            (&["--output-last-message=out.txt"], "--output-last-message=out.txt"),
            (&["-o", "out.txt"], "-o"),
            (&["-oout.txt"], "-oout.txt"),
            (&["-o=out.txt"], "-o=out.txt"),
            (&["-c", "notify=[]", "--json"], "--json"),
        ] {
            assert_eq!(find_exec_only_flag(args), Some(flag), "{args:?}");
        }
        let owned = vec!["--json".to_owned()];
        assert_eq!(find_exec_only_flag(&owned), Some("--json"));
    }
}
