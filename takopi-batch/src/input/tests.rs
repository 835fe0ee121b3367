//! What lines become.

use std::time::Duration;

use super::*;

fn read(text: &[u8]) -> Vec<Result<BatchJob, InputError>> {
    Input::new(text).collect()
}

fn jobs(text: &str) -> Vec<BatchJob> {
    read(text.as_bytes()).into_iter().collect::<Result<_, _>>().unwrap()
}

fn error(text: &[u8]) -> String {
    let errors: Vec<String> =
        read(text).into_iter().filter_map(|read| Some(read.err()?.to_string())).collect();
    errors.join("\n")
}

#[test]
fn text_is_one_prompt_a_line_named_by_its_number() {
    let jobs = jobs("\u{feff}first\r\n\n  \n  second {\"a\":1}\nthird");
    let read: Vec<_> = jobs.iter().map(|job| (job.id.as_str(), job.prompt.as_str())).collect();
    assert_eq!(read, [("1", "first"), ("4", "  second {\"a\":1}"), ("5", "third")]);
}

#[test]
fn json_lines_have_every_option_of_a_run() {
    let line = r#"{"id":7,"prompt":"p","resume":{"engine":"codex","value":"v"},"cwd":"/w","model":"m",
        "effort":"e","sandbox":"s","images":["a","b"],"output_schema":"o","settings":{"x":true,"y":"z"},
        "wait":0,"idle_timeout":"5m","timeout":1.5}"#
        .replace('\n', " ");
    let job = &jobs(&line)[0];
    assert_eq!((job.id.as_str(), job.resume.as_deref()), ("7", Some("v")));
    let settings = &job.settings;
    assert_eq!(settings.options, [("x".into(), "true".into()), ("y".into(), "z".into())]);
    assert_eq!(settings.images.len(), 2);
    assert_eq!(settings.wait, Some(Duration::ZERO));
    assert_eq!(settings.idle_timeout, Some(Duration::from_mins(5)));
    assert_eq!(settings.wall_timeout, Some(Duration::from_millis(1500)));
}

#[test]
fn every_invalid_line_is_reported_with_its_number() {
    let text = b"{\"prompt\":\"a\"}\n{\"promt\":\"b\"}\n\n{\"prompt\":\nnot json\n\
        {\"prompt\":\" \"}\n{\"prompt\":\"c\",\"session\":\"s\",\"resume\":\"r\"}\n\
        {\"prompt\":\"d\",\"id\":[]}\n{\"prompt\":\"e\",\"wait\":\"soon\"}\n\
        {\"prompt\":\"\xff\"}\n{\"prompt\":\"f\",\"id\":\"\"}\n[1]\n{\"prompt\":\"g\",\"wait\":-1}";
    let told = error(text);
    let settings: Vec<String> =
        takopi_core::RunSettings::NAMES.iter().map(|name| format!("`{name}`")).collect();
    let (first, told) = told.split_once('\n').unwrap();
    let known = format!(
        "`id`, `prompt`, `resume`, `session`, `project`, `branch`, {}",
        settings.join(", ")
    );
    assert_eq!(first, format!("line 2: unknown field `promt`, expected one of {known}"));
    let expected = "line 4: EOF while parsing a value (column 10)\n\
        line 5: not a JSON object (line 1 is one, so all must be)\n\
        line 6: the prompt is empty\n\
        line 7: `session` and `resume` exclude each other: takopi finds the token of a named session itself\n\
        line 8: `id` must be a string or an integer (column 22)\n\
        line 9: `wait`: expected a length of time such as 90s, 5m or 1h30m\n\
        line 10: not UTF-8\n\
        line 11: the id is empty\n\
        line 12: not a JSON object (line 1 is one, so all must be)\n\
        line 13: `wait`: expected a length of time such as 90s, 5m or 1h30m";
    assert_eq!(told, expected);
}

#[test]
fn a_line_beyond_the_limit_is_skipped_and_the_next_is_read() {
    let mut text = vec![b'x'; LINE_LIMIT + 1];
    text.extend(b"\nnext\n");
    let read = read(&text);
    assert_eq!(read[0].as_ref().unwrap_err().to_string(), "line 1: longer than 16 MiB");
    assert_eq!(read[1].as_ref().unwrap().prompt, "next");
    let ten = "y".repeat(10 << 20);
    assert_eq!(jobs(&ten)[0].prompt.len(), 10 << 20);
}

#[test]
fn the_format_can_be_set() {
    let mut input = Input::new(&b"{\"a\":1}\n"[..]).format(Some(Format::Text));
    assert_eq!(input.next().unwrap().unwrap().prompt, "{\"a\":1}");
    let mut input = Input::new(&b"hello\n"[..]).format(Some(Format::JsonLines));
    assert!(input.next().unwrap().is_err());
}

#[test]
fn an_input_that_breaks_ends_with_an_error() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let read: Vec<_> = Input::new(Broken).collect();
    assert_eq!(read.len(), 1);
    assert_eq!(
        read[0].as_ref().unwrap_err().to_string(),
        "line 1: cannot be read: the disk is gone"
    );
}

proptest::proptest! {
    #[test]
    fn no_input_makes_it_panic_and_lines_are_counted(text: Vec<u8>) {
        let lines = text.split(|byte| *byte == b'\n').count() as u64;
        for read in read(&text) {
            let line = match read { Ok(job) => job.line, Err(error) => error.line };
            assert!((1..=lines).contains(&line));
        }
    }
}

#[test]
fn an_error_about_the_format_names_the_line_that_decided_it() {
    let told = error(b"\n\n{\"prompt\":\"a\"}\nplain\n");
    assert_eq!(told, "line 4: not a JSON object (line 3 is one, so all must be)");
    let first = Input::new(&b"plain\n"[..]).format(Some(Format::JsonLines)).next();
    assert_eq!(first.unwrap().unwrap_err().to_string(), "line 1: not a JSON object");
}

fn table(text: &str, format: Format, template: Option<&str>) -> Vec<Result<BatchJob, InputError>> {
    let template = template.map(|template| template.parse().unwrap());
    Input::new(text.as_bytes()).format(Some(format)).template(template).collect()
}

#[test]
fn a_table_has_columns_of_jobs_and_of_the_template() {
    let text = "id,prompt,cwd,timeout\na,\"one,\ntwo \"\"x\"\"\",/srv,5m\n\n,short,,\n";
    let jobs: Vec<_> = table(text, Format::Csv, None).into_iter().map(Result::unwrap).collect();
    assert_eq!((jobs[0].id.as_str(), jobs[0].line), ("a", 2));
    assert_eq!(jobs[0].prompt, "one,\ntwo \"x\"");
    assert_eq!(jobs[0].settings.cwd.as_deref(), Some(std::path::Path::new("/srv")));
    assert_eq!((jobs[1].id.as_str(), jobs[1].line, jobs[1].prompt.as_str()), ("5", 5, "short"));
    let text = "file\tmodel\na b.rs\tsmall\n";
    let jobs = table(text, Format::Tsv, Some("review {file} with {model}"));
    let job = jobs.into_iter().next().unwrap().unwrap();
    assert_eq!(job.prompt, "review a b.rs with small");
    assert_eq!(job.settings.model.as_deref(), Some("small"));
}

#[test]
fn a_quote_inside_a_cell_is_text_and_no_prompt_is_lost() {
    let text = "id,prompt\n1,use the 5\" screen\n2,second\n3,\"a \"\"third\"\"\"\r\n";
    let jobs: Vec<_> = table(text, Format::Csv, None).into_iter().map(Result::unwrap).collect();
    let read: Vec<_> = jobs.iter().map(|job| (job.id.as_str(), job.prompt.as_str())).collect();
    assert_eq!(read, [("1", "use the 5\" screen"), ("2", "second"), ("3", "a \"third\"")]);
}

#[test]
fn a_record_over_several_lines_has_its_own_id_or_the_number_of_its_first_line() {
    let text = "id,prompt\n3,\"a\nb\"\n,\"c\nd\"\n";
    let jobs: Vec<_> = table(text, Format::Csv, None).into_iter().map(Result::unwrap).collect();
    let read: Vec<_> = jobs.iter().map(|job| (job.id.as_str(), job.line)).collect();
    assert_eq!(read, [("3", 2), ("4", 4)]);
}

#[test]
fn a_line_that_is_no_single_record_is_an_error() {
    let errors = |text: &str| -> Vec<String> {
        let read = table(text, Format::Csv, None).into_iter();
        read.filter_map(|read| Some(read.err()?.to_string())).collect()
    };
    let returned = "a carriage return ends the record: end lines with a line feed, and quote cells that span lines";
    assert_eq!(errors("id,prompt\n1,a\rb\n2,c\n"), [format!("line 2: {returned}")]);
    assert_eq!(errors("id,prompt\r1,a\r2,b\r"), [format!("line 1: {returned}")]);
    assert_eq!(errors("id,prompt\r\n1,a\r\n2,\"b\r\nc\"\r\n"), Vec::<String>::new());
    let open = "line 3: a quote opens a cell that is not closed";
    assert_eq!(errors("id,prompt\n1,a\n2,\"b\n3,c\n"), [open]);
}

#[test]
fn what_is_wrong_with_a_table_is_named() {
    let error = |text: &str, template: Option<&str>| {
        let read = table(text, Format::Csv, template);
        read.into_iter().find_map(Result::err).unwrap().to_string()
    };
    let no_prompt =
        "line 2: there is no column `prompt`; --template makes a prompt of other columns";
    assert_eq!(error("file\na\n", None), no_prompt);
    assert_eq!(error("prompt,x\na\n", None), "line 2: 1 cells, but the first line names 2 columns");
    assert_eq!(
        error("file\na\n", Some("{fil}")),
        "line 2: the template has a column `fil`; there is `file`"
    );
    assert!(error("prompt,prompt\na,b\n", None).starts_with("line 1: the first line must name"));
    assert!(error("prompt,colour\na,b\n", None).contains("unknown field `colour`"));
}

#[test]
fn a_template_is_put_around_prompts_of_every_format() {
    let template = || Some("review {prompt} ({id})".parse().unwrap());
    let read = |text: &'static str| {
        let jobs: Result<Vec<_>, _> = Input::new(text.as_bytes()).template(template()).collect();
        jobs.unwrap().remove(0).prompt
    };
    assert_eq!(read("a.rs\n"), "review a.rs (1)");
    assert_eq!(read("{\"id\":\"x\",\"prompt\":\"a.rs\"}\n"), "review a.rs (x)");
}

#[test]
fn a_json_array_and_an_object_over_lines_are_refused_with_what_to_do() {
    for text in ["[\n  {\"prompt\":\"a\"}\n]\n", "[{\"prompt\":\"a\"}]\n", "[\"a\"]"] {
        let error = Input::new(text.as_bytes()).next().unwrap().unwrap_err().to_string();
        assert!(error.contains("a JSON array") && error.contains("jq -c '.[]'"), "{error}");
    }
    let error = Input::new(&b"{\n\"prompt\":\"a\"\n}\n"[..]).next().unwrap().unwrap_err();
    assert!(error.to_string().contains("must be on one line"), "{error}");
    assert!(Input::new(&b"[WIP] fix it\n"[..]).next().unwrap().is_ok(), "this is a text");
}
