//! The contract: what every [`Runner`] must hold, whatever its engine.
//!
//! An author describes the engine as a [`Subject`] and has all checks run as tests:
//!
//! ```text
//! struct MyEngine { … }
//! impl Subject for MyEngine { … }
//!
//! takopi_tests::contract_tests!(|| Some(MyEngine::new()));
//! ```
//!
//! Each check gets a subject of its own. What is checked is what consumers rely on and takopi-core
//! gives to every engine that is written on it; an engine that fails a check has gone around it, or
//! keeps something between runs that it should not.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, join};
use takopi_core::RunRequest;
use takopi_core::{EventStream, ResumeToken, Runner, TakopiEvent};
use tokio_util::sync::CancellationToken;

use crate::model::{PATIENCE, within};
use crate::runs::{Seen, finish, is_started, run, until};

/// How often it is looked whether processes are gone that end by themselves.
const LOOK: Duration = Duration::from_millis(10);

/// What a prompt must make the engine do. The text is a keyword, another one in every prompt of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt<'a> {
    /// Answers with a text that contains the keyword.
    Answers(&'a str),
    /// Does at least ten things and then answers.
    Works(&'a str),
    /// Confirms the session, then waits until [`Subject::open`] with this keyword, then answers with it.
    Waits(&'a str),
    /// Confirms the session, then does nothing until it is cancelled.
    Hangs(&'a str),
    /// Ends as failed.
    Fails(&'a str),
}

/// An engine, prepared for the contract.
pub trait Subject: Send + Sync {
    /// A fresh runner. All runners of one subject reach the same sessions.
    fn runner(&self) -> Arc<dyn Runner>;

    /// A request that makes the engine do this.
    fn request(&self, prompt: Prompt<'_>) -> RunRequest;

    /// Resolves when the engine has come to where a [`Prompt::Waits`] waits or a [`Prompt::Hangs`] hangs.
    fn reached(&self, word: &str) -> BoxFuture<'static, ()>;

    /// Lets a [`Prompt::Waits`] go on.
    fn open(&self, word: &str);

    /// The processes of the engine that live.
    fn processes(&self) -> Vec<String>;

    /// The keywords of the conversation that the engine had when it dealt with this one, if the subject
    /// can know them.
    fn remembered(&self, word: &str) -> Option<Vec<String>> {
        let _ = word;
        None
    }
}

/// Makes a test of every check. Takes a function that returns `Option<impl Subject>`; `None` skips the test.
#[macro_export]
macro_rules! contract_tests {
    ($subject:expr) => {
        $crate::contract_tests!(@each $subject;
            a_run_confirms_its_session_once_and_ends_once,
            a_failing_run_has_a_reason,
            resume_lines_can_be_read_back,
            resume_goes_on_with_the_same_session,
            an_invalid_token_is_refused_and_nothing_starts,
            cancel_ends_the_run_as_interrupted_and_the_session_goes_on,
            a_run_cancelled_before_it_began_begins_nothing,
            a_dropped_run_leaves_no_process_and_a_free_session,
            dropping_a_stream_behind_its_end_does_nothing,
            two_runs_on_one_session_take_turns,
            a_session_in_use_is_busy_for_a_run_that_does_not_wait,
            waiting_runs_start_in_the_order_they_came,
            runs_on_different_sessions_go_on_at_once,
            a_slow_consumer_gets_everything_in_order,
            a_limit_ends_a_run_and_is_named,
            shutdown_leaves_nothing,
        );
    };
    (@each $subject:expr; $($check:ident,)*) => {
        $(
            #[tokio::test]
            async fn $check() {
                let subject = $subject;
                if let Some(subject) = subject() {
                    $crate::contract::$check(&subject).await;
                }
            }
        )*
    };
}

async fn do_run(subject: &impl Subject, runner: &Arc<dyn Runner>, prompt: Prompt<'_>) -> Seen {
    run(&**runner, subject.request(prompt)).await
}

async fn resume(
    subject: &impl Subject,
    runner: &Arc<dyn Runner>,
    session: &ResumeToken,
    prompt: Prompt<'_>,
) -> Seen {
    run(&**runner, subject.request(prompt).resume(session.clone())).await
}

fn named(events: &[TakopiEvent]) -> ResumeToken {
    let session = events.iter().find_map(|event| match event {
        TakopiEvent::Started(started) => Some(started.resume.clone()),
        _ => None,
    });
    session.unwrap_or_else(|| panic!("not started: {events:#?}"))
}

/// Reads until the session is confirmed and the engine waits or hangs.
async fn under_way(
    subject: &impl Subject,
    stream: &mut EventStream,
    word: &str,
) -> Vec<TakopiEvent> {
    let mut events = until(stream, "Started", is_started).await;
    let reached = subject.reached(word);
    tokio::pin!(reached);
    let read = async {
        loop {
            tokio::select! {
                biased;
                () = &mut reached => return,
                Some(event) = stream.next() => events.push(event),
                else => panic!("the stream ended before it waited: {events:#?}"),
            }
        }
    };
    within(PATIENCE, "the engine to wait", read).await;
    events
}

/// `Started` exactly once, `Completed` exactly once and last, both of the same session.
pub async fn a_run_confirms_its_session_once_and_ends_once(subject: &impl Subject) {
    let runner = subject.runner();
    let seen = do_run(subject, &runner, Prompt::Answers("hello")).await;
    assert!(seen.ok().answer.contains("hello"), "{:#?}", seen.events);
    assert_eq!(seen.ok().resume, Some(seen.session()));
    assert_eq!(seen.started().engine, runner.engine());
    assert_eq!(seen.session().engine, runner.engine());
    runner.shutdown().await;
}

/// Not ok comes with a reason for machines and an error for people.
pub async fn a_failing_run_has_a_reason(subject: &impl Subject) {
    let runner = subject.runner();
    let seen = do_run(subject, &runner, Prompt::Fails("broken")).await;
    let end = seen.completed();
    assert!(!end.ok && end.reason.is_some(), "{end:?}");
    assert!(end.error.as_ref().is_some_and(|error| !error.trim().is_empty()), "{end:?}");
    runner.shutdown().await;
}

/// A formatted token is found again, alone on its line, and the last one counts.
pub async fn resume_lines_can_be_read_back(subject: &impl Subject) {
    let runner = subject.runner();
    let one = do_run(subject, &runner, Prompt::Answers("one")).await.session();
    let two = do_run(subject, &runner, Prompt::Answers("two")).await.session();
    assert_ne!(one, two, "runs without a token begin sessions of their own");
    let (first, last) = (runner.format_resume(&one), runner.format_resume(&two));
    assert!(runner.is_resume_line(&first) && !first.contains('\n'));
    let bare = first.trim_matches('`');
    assert!(runner.is_resume_line(bare), "backticks are optional");
    assert_eq!(runner.extract_resume(&first), Some(one));
    assert_eq!(runner.extract_resume(&format!("text\n{first}\nmore\n  {last}\nend")), Some(two));
    for no_line in ["", "hello", &format!("run {bare} please"), &format!("{bare} --flag")] {
        assert!(!runner.is_resume_line(no_line), "{no_line}");
        assert_eq!(runner.extract_resume(no_line), None, "{no_line}");
    }
    runner.shutdown().await;
}

/// The same session, with its history, also from another runner.
pub async fn resume_goes_on_with_the_same_session(subject: &impl Subject) {
    let runner = subject.runner();
    let session = do_run(subject, &runner, Prompt::Answers("first")).await.session();
    let line = runner.format_resume(&session);
    let found = runner.extract_resume(&line).expect("its own line");
    let second = resume(subject, &runner, &found, Prompt::Answers("second")).await;
    assert_eq!(second.ok().resume, Some(session.clone()));
    assert_eq!(second.session(), session);
    let other = subject.runner();
    let third = resume(subject, &other, &session, Prompt::Answers("third")).await;
    assert_eq!(third.ok().resume, Some(session));
    if let Some(words) = subject.remembered("third") {
        assert_eq!(words, ["first", "second", "third"]);
    }
    // Together: runners of one host wait for all that lives on it.
    join(runner.shutdown(), other.shutdown()).await;
}

/// One `Completed` that carries the token as it was asked for, and nothing else.
pub async fn an_invalid_token_is_refused_and_nothing_starts(subject: &impl Subject) {
    let runner = subject.runner();
    let own = do_run(subject, &runner, Prompt::Answers("hello")).await.session();
    runner.shutdown().await;
    // Shells in which codex looks at the user's settings may outlive it on a busy machine.
    while !subject.processes().is_empty() {
        tokio::time::sleep(LOOK).await;
    }
    let runner = subject.runner();
    for token in [
        ResumeToken::new("another-engine", own.value.clone()),
        ResumeToken::new(runner.engine(), "--last"),
        ResumeToken::new(runner.engine(), "--dangerously-skip-everything"),
        ResumeToken::new(runner.engine(), ""),
        ResumeToken::new(runner.engine(), "two words"),
    ] {
        let seen = resume(subject, &runner, &token, Prompt::Answers("never")).await;
        assert_eq!(seen.events.len(), 1, "{token:?}: {:#?}", seen.events);
        assert!(!seen.completed().ok && seen.completed().error.is_some());
        assert_eq!(seen.completed().resume, Some(token));
        assert_eq!(subject.processes(), Vec::<String>::new());
    }
    if let Some(words) = subject.remembered("never") {
        assert_eq!(words, Vec::<String>::new(), "the prompt went nowhere");
    }
    runner.shutdown().await;
}

/// The stream still ends with `Completed`, behind which nothing runs.
pub async fn cancel_ends_the_run_as_interrupted_and_the_session_goes_on(subject: &impl Subject) {
    let runner = subject.runner();
    let cancel = CancellationToken::new();
    let request = subject.request(Prompt::Hangs("hang")).cancel(cancel.clone());
    let mut stream = runner.run(request);
    let seen = under_way(subject, &mut stream, "hang").await;
    cancel.cancel();
    let seen = finish(stream, seen).await;
    assert_eq!(seen.failed("interrupted").resume, Some(seen.session()));
    assert_eq!(
        subject.processes(),
        Vec::<String>::new(),
        "at the end of a run, none of its processes is left"
    );
    let again = resume(subject, &runner, &seen.session(), Prompt::Answers("again")).await;
    assert_eq!(again.ok().resume, Some(seen.session()));
    runner.shutdown().await;
}

/// A run that is not wanted any more is not even started.
pub async fn a_run_cancelled_before_it_began_begins_nothing(subject: &impl Subject) {
    let runner = subject.runner();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let request = subject.request(Prompt::Answers("never")).cancel(cancel);
    let seen = run(&*runner, request).await;
    seen.failed("interrupted");
    assert_eq!(seen.events.len(), 1, "{:#?}", seen.events);
    if let Some(words) = subject.remembered("never") {
        assert_eq!(words, Vec::<String>::new(), "the prompt went nowhere");
    }
    runner.shutdown().await;
}

/// Dropping cancels; the next run on the session waits for the end of it and then goes on.
pub async fn a_dropped_run_leaves_no_process_and_a_free_session(subject: &impl Subject) {
    let runner = subject.runner();
    let mut stream = runner.run(subject.request(Prompt::Hangs("hang")));
    let session = named(&under_way(subject, &mut stream, "hang").await);
    drop(stream);
    let again = resume(subject, &runner, &session, Prompt::Answers("again")).await;
    assert!(again.ok().answer.contains("again"));
    runner.shutdown().await;
    assert_eq!(subject.processes(), Vec::<String>::new());
}

/// The run has ended: nothing is cancelled any more.
pub async fn dropping_a_stream_behind_its_end_does_nothing(subject: &impl Subject) {
    let runner = subject.runner();
    let mut stream = runner.run(subject.request(Prompt::Answers("one")));
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        let last = matches!(event, TakopiEvent::Completed(_));
        events.push(event);
        if last {
            break;
        }
    }
    drop(stream);
    let session = named(&events);
    let again = resume(subject, &runner, &session, Prompt::Answers("two")).await;
    assert_eq!(again.ok().resume, Some(session));
    runner.shutdown().await;
}

/// Of two runs on one session, from two runners, the second begins when the first is over.
pub async fn two_runs_on_one_session_take_turns(subject: &impl Subject) {
    let (one, other) = (subject.runner(), subject.runner());
    let session = do_run(subject, &one, Prompt::Answers("begin")).await.session();
    let request = subject.request(Prompt::Waits("first")).resume(session.clone());
    let mut first = one.run(request);
    let seen = until(&mut first, "Started", is_started).await;
    let request = subject.request(Prompt::Answers("second")).resume(session.clone());
    let mut second = other.run(request);
    let waiting = until(
        &mut second,
        "the note about waiting",
        |event| matches!(event, TakopiEvent::Action(event) if event.action.id == takopi_core::runner::WAIT_ACTION),
    )
    .await;
    assert!(!waiting.iter().any(is_started), "{waiting:#?}");
    subject.open("first");
    let (first, second) = join(finish(first, seen), finish(second, waiting)).await;
    assert!(first.ok().answer.contains("first"), "{:#?}", first.events);
    assert!(second.ok().answer.contains("second"), "{:#?}", second.events);
    if let Some(words) = subject.remembered("second") {
        assert_eq!(words, ["begin", "first", "second"], "two turns, none lost");
    }
    join(one.shutdown(), other.shutdown()).await;
}

/// `wait` bounds the wait; zero fails at once.
pub async fn a_session_in_use_is_busy_for_a_run_that_does_not_wait(subject: &impl Subject) {
    let runner = subject.runner();
    let mut first = runner.run(subject.request(Prompt::Waits("first")));
    let seen = until(&mut first, "Started", is_started).await;
    let session = named(&seen);
    for wait in [Duration::ZERO, Duration::from_millis(50)] {
        let request = subject.request(Prompt::Answers("never")).resume(session.clone()).wait(wait);
        let busy = run(&*runner, request).await;
        assert_eq!(busy.failed("session_busy").resume, Some(session.clone()));
        assert!(!busy.events.iter().any(is_started));
    }
    subject.open("first");
    assert_eq!(finish(first, seen).await.ok().resume, Some(session));
    runner.shutdown().await;
}

/// First come, first served; one that leaves the line leaves no trace.
pub async fn waiting_runs_start_in_the_order_they_came(subject: &impl Subject) {
    let runner = subject.runner();
    let mut first = runner.run(subject.request(Prompt::Waits("first")));
    let seen = until(&mut first, "Started", is_started).await;
    let session = named(&seen);
    let queue = |word| {
        let request = subject.request(Prompt::Answers(word)).resume(session.clone());
        runner.run(request)
    };
    let (second, dropped, third) = (queue("second"), queue("dropped"), queue("third"));
    drop(dropped);
    subject.open("first");
    finish(first, seen).await.ok();
    let (second, third) = join(finish(second, Vec::new()), finish(third, Vec::new())).await;
    second.ok();
    third.ok();
    if let Some(words) = subject.remembered("third") {
        assert_eq!(words, ["first", "second", "third"]);
    }
    runner.shutdown().await;
}

/// One session never waits for another, on one runner.
pub async fn runs_on_different_sessions_go_on_at_once(subject: &impl Subject) {
    let runner = subject.runner();
    let words = ["red", "green", "blue", "black"];
    let mut streams = Vec::new();
    for word in words {
        let mut stream = runner.run(subject.request(Prompt::Waits(word)));
        // All are under way before any may go on.
        let seen = under_way(subject, &mut stream, word).await;
        streams.push((word, stream, seen));
    }
    for word in words.into_iter().rev() {
        subject.open(word);
    }
    for (word, stream, seen) in streams {
        let seen = finish(stream, seen).await;
        assert!(seen.ok().answer.contains(word), "{word}: {:#?}", seen.events);
    }
    runner.shutdown().await;
}

/// Read slowly or fast, a run has the same events; only streamed progress may be merged.
pub async fn a_slow_consumer_gets_everything_in_order(subject: &impl Subject) {
    let runner = subject.runner();
    let fast = do_run(subject, &runner, Prompt::Works("work")).await;
    let mut stream = runner.run(subject.request(Prompt::Works("work")));
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
    let slow = finish(stream, events).await;
    assert!(fast.steady_outline().len() > 10, "{:#?}", fast.events);
    assert_eq!(slow.steady_outline(), fast.steady_outline());
    runner.shutdown().await;
}

/// The error names the limit and its value, and nothing is left.
pub async fn a_limit_ends_a_run_and_is_named(subject: &impl Subject) {
    let runner = subject.runner();
    // On a session that is known: the limit may be over before the engine has confirmed it.
    let session = do_run(subject, &runner, Prompt::Answers("one")).await.session();
    let limit = Duration::from_secs(2);
    let request = subject.request(Prompt::Hangs("hang")).resume(session.clone());
    let seen = run(&*runner, request.wall_timeout(limit)).await;
    let error = seen.failed("timeout_wall").error.clone().unwrap_or_default();
    assert!(error.contains('2'), "{error}");
    assert_eq!(
        subject.processes(),
        Vec::<String>::new(),
        "at the end of a run, none of its processes is left"
    );
    let again = resume(subject, &runner, &session, Prompt::Answers("again")).await;
    again.ok();
    runner.shutdown().await;
}

/// Behind `shutdown` nothing of the runner lives, whatever it kept warm or was dropped on.
pub async fn shutdown_leaves_nothing(subject: &impl Subject) {
    let runner = subject.runner();
    do_run(subject, &runner, Prompt::Answers("one")).await.ok();
    let mut stream = runner.run(subject.request(Prompt::Hangs("hang")));
    under_way(subject, &mut stream, "hang").await;
    drop(stream);
    runner.shutdown().await;
    assert_eq!(subject.processes(), Vec::<String>::new());
    runner.shutdown().await;
}
