use clap::CommandFactory;

use super::*;

fn run(args: &[&str]) -> RunArgs {
    let all = ["takopi", "run"].iter().chain(args);
    match Cli::try_parse_from(all).unwrap().command {
        Command::Run(args) => *args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_definition_is_valid() {
    Cli::command().debug_assert();
}

#[test]
fn a_dash_is_part_of_the_prompt_and_options_may_follow_it() {
    let args = run(&["review", "this", "-", "--model", "m", "-c", "a.b=c=d"]);
    assert_eq!(args.prompt, ["review", "this", "-"]);
    assert_eq!(args.options.run.model.as_deref(), Some("m"));
    assert_eq!(args.options.run.settings, [("a.b".to_owned(), "c=d".to_owned())]);
}

#[test]
fn after_two_dashes_a_prompt_may_begin_with_a_dash() {
    assert_eq!(run(&["--", "--model", "-"]).prompt, ["--model", "-"]);
}

#[test]
fn the_table_of_an_engine_wins_over_the_keys_above_it() {
    let file = "model = 'general'\ntimeout = '2m'\n[codex]\nmodel = 'gpt'\n[claude]\n\
                model = 'opus'\npermission-mode = 'plan'\ntimeout = '9m'\n";
    let filled = |args: &[&str]| {
        let config = crate::config::parse(file, "c.toml".as_ref()).unwrap();
        run(args).filled(config).options.run
    };
    let model = |args: &[&str]| filled(args).settings().model;
    assert_eq!(model(&["x"]).as_deref(), Some("gpt"));
    assert_eq!(model(&["x", "--engine", "claude"]).as_deref(), Some("opus"));
    assert_eq!(model(&["x", "--engine", "claude", "-m", "haiku"]).as_deref(), Some("haiku"));
    assert_eq!(model(&["x", "--engine", "demo"]), None);
    let options = filled(&["x", "--model", "gpt-large", "--wait", "3", "-c", "a=b"]);
    let other = options.settings_of(engines::find("claude").unwrap());
    assert_eq!(other.model.as_deref(), Some("opus"), "the flag is for the chosen engine");
    assert_eq!(other.permission_mode.as_deref(), Some("plan"));
    assert_eq!(other.wall_timeout, Some(Duration::from_mins(9)));
    assert_eq!((other.wait, other.options), (Some(Duration::from_secs(3)), Vec::new()));
}

#[test]
fn a_session_of_another_engine_does_not_get_the_defaults_of_the_default_engine() {
    let config = crate::config::parse("model = 'gpt'\nwait = 5", "c.toml".as_ref()).unwrap();
    let mut options = run(&["x", "--effort", "low"]).filled(config).options.run;
    options.change_engine(&takopi_codex::CODEX);
    assert_eq!(options.settings().model.as_deref(), Some("gpt"));
    options.change_engine(&takopi_claude::CLAUDE);
    let settings = options.settings();
    assert_eq!((settings.model, settings.wait), (None, Some(Duration::from_secs(5))));
    assert_eq!(settings.effort.as_deref(), Some("low"));
}

#[test]
fn flags_win_over_the_configuration_file() {
    let file = "model = 'file'\neffort = 'file'\nwait = 5\ntimeout = '2m'";
    let config = crate::config::parse(file, "c.toml".as_ref()).unwrap();
    let given = ["x", "--model", "flag", "--effort", "", "--wait", "0"];
    let args = run(&given).filled(config).options.run;
    let settings = args.settings();
    assert_eq!(settings.model.as_deref(), Some("flag"));
    assert_eq!(settings.effort.as_deref(), Some("file"));
    assert_eq!(settings.wait, Some(Duration::ZERO));
    assert_eq!(settings.wall_timeout, Some(Duration::from_mins(2)));
}
