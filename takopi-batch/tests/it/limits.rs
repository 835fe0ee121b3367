//! Limits of the account, of the service, and of time.

use std::time::Duration;

use jiff::Timestamp;
use takopi_batch::{Halt, OnLimit};
use takopi_core::{RateLimitWindow, RateLimits, Reason};
use tokio_util::sync::CancellationToken;

use crate::lab::{Lab, Play, jobs};

/// Limits of which so much is used, in percent.
fn window(used: f64, resets: Timestamp) -> RateLimits {
    RateLimits::new(vec![RateLimitWindow::new("primary", used).resets_at(resets.as_second())])
}

#[tokio::test(start_paused = true)]
async fn a_usage_limit_pauses_the_queue_until_it_ends_and_loses_nothing() {
    let lab = Lab::new();
    let hour = Duration::from_hours(1);
    let resets = Timestamp::now().checked_add(hour).unwrap();
    let limit = Play::Limited(window(100.0, resets), Reason::UsageLimit, "limit reached");
    for prompt in ["one", "two"] {
        lab.runner.when(prompt, [limit.clone(), Play::Say("fine")]);
    }
    // Retries are for other things: none is used up.
    let batch = lab.batch().jobs(2).retries(0);
    let ran = lab.run(batch, "one\ntwo\nthree\nfour\n").await;
    assert_eq!(lab.outline(), ["1 ok 2", "2 ok 2", "3 ok 1", "4 ok 1"]);
    let calls = lab.runner.calls();
    let pause = calls[2].at - calls[1].at;
    assert!(pause.abs_diff(hour) < Duration::from_mins(1));
    let paused = ran.told("batch_paused");
    assert_eq!((paused.len(), &paused[0]["known"]), (1, &true.into()), "{paused:?}");
    assert_eq!(ran.told("batch_resumed").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_reported_time_it_is_tried_now_and_then_whatever_the_text_is() {
    let lab = Lab::new();
    let limit = Play::Fail(Reason::UsageLimit, "Try again in 2 hours 5 minutes.");
    lab.runner.when("one", [limit.clone(), limit.clone(), limit, Play::Say("fine")]);
    let ran = lab.run(lab.batch(), "one\ntwo\n").await;
    let minutes: Vec<u64> = lab
        .runner
        .calls()
        .iter()
        .filter(|call| call.prompt == "one")
        .collect::<Vec<_>>()
        .windows(2)
        .map(|pair| (pair[1].at - pair[0].at).as_secs() / 60)
        .collect();
    assert_eq!(minutes, [1, 2, 4]);
    assert!(ran.told("batch_paused").iter().all(|paused| paused["known"] == false));
}

#[tokio::test(start_paused = true)]
async fn a_runs_own_report_counts_before_those_of_others() {
    let in_hours = |hours| Timestamp::now().checked_add(Duration::from_hours(hours)).unwrap();
    let limited = |limits| Play::Limited(limits, Reason::UsageLimit, "later");
    let other = |used| Play::Limited(window(used, in_hours(5)), Reason::EngineFailed, "no");
    let unknown = Play::Fail(Reason::UsageLimit, "later");
    for (others, own, hours) in [
        (vec![other(100.0)], limited(window(100.0, in_hours(9))), 9),
        (vec![other(100.0)], limited(RateLimits::until(in_hours(2).as_second())), 2),
        // Its own figures name no end: that of the others is the best there is.
        (vec![other(100.0)], limited(window(40.0, in_hours(9))), 5),
        (vec![other(100.0)], unknown.clone(), 5),
        // What was used up is not any more.
        (vec![other(100.0), other(40.0)], unknown.clone(), 0),
        (vec![], unknown, 0),
    ] {
        let lab = Lab::new();
        let count = others.len();
        let mut input = String::new();
        for (n, play) in others.into_iter().enumerate() {
            let prompt = format!("other {n}");
            lab.runner.when(&prompt, [play]);
            input.push_str(&prompt);
            input.push('\n');
        }
        lab.runner.when("one", [own, Play::Say("fine")]);
        lab.run(lab.batch().jobs(1), &(input + "one\n")).await;
        let calls = lab.runner.calls();
        let waited = (calls[count + 1].at - calls[count].at).as_secs();
        assert_eq!((waited + 60) / 3600, hours, "after {count} others");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_beyond_all_clocks_never_come() {
    let lab = Lab::new();
    let stop = CancellationToken::new();
    stop.cancel();
    let batch = lab.batch().stop(stop).grace(Duration::MAX).total_timeout(Some(Duration::MAX));
    let ran = lab.run(batch, "one\n").await;
    assert_eq!(ran.outcome().halt, Some(Halt::Interrupted));
}

#[tokio::test(start_paused = true)]
async fn to_stop_at_a_limit_leaves_the_rest_for_the_next_time() {
    let lab = Lab::new();
    lab.runner.when("two", [Play::Fail(Reason::UsageLimit, "limit"), Play::Say("fine")]);
    let batch = lab.batch().jobs(1).on_limit(OnLimit::Stop);
    let ran = lab.run(batch.clone(), "one\ntwo\nthree\n").await;
    assert_eq!(lab.outline(), ["1 ok 1"]);
    assert_eq!(ran.outcome().halt, Some(Halt::Limit { until: None, error: "limit".to_owned() }));
    lab.run(batch, "one\ntwo\nthree\n").await;
    assert_eq!(lab.outline(), ["1 ok 1", "2 ok 2", "3 ok 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_slows_the_queue_down() {
    let lab = Lab::new();
    let prompts: Vec<String> = (0..40).map(|n| format!("p{n}")).collect();
    let input = prompts.join("\n");
    for (n, prompt) in prompts.iter().enumerate() {
        let take = Play::Take(Duration::from_secs(1));
        let plays = match n {
            0..8 => vec![Play::Fail(Reason::RateLimit, "slow down"), take],
            _ => vec![take],
        };
        lab.runner.when(prompt, plays);
    }
    let ran = lab.run(lab.batch().jobs(8), &input).await;
    assert_eq!(ran.outcome().report.ok, 40);
    let slowed = ran.told("batch_slowed");
    assert_eq!(slowed[0]["jobs"], 4, "{slowed:?}");
    // From the first strain on, four at a time, until it went well for a while.
    let calls = lab.runner.calls();
    let next = calls.iter().skip(8).filter(|call| call.at == calls[8].at).count();
    assert_eq!(next, 4);
}

#[tokio::test(start_paused = true)]
async fn the_total_limit_cuts_short_what_runs_and_leaves_it_for_the_next_time() {
    let lab = Lab::new();
    lab.runner.when("long", [Play::Hang, Play::Say("fine")]);
    let batch = lab.batch().jobs(1).total_timeout(Some(Duration::from_mins(10)));
    let ran =
        lab.run(batch, &jobs(&[("a", "short", ""), ("b", "long", "s"), ("c", "x", "")])).await;
    assert_eq!(ran.outcome().halt, Some(Halt::TimedOut));
    assert_eq!((lab.outline(), ran.outcome().left), (vec!["a ok 1".to_owned()], 2));
    lab.run(lab.batch(), &jobs(&[("a", "short", ""), ("b", "long", "s"), ("c", "x", "")])).await;
    assert_eq!(lab.outline(), ["a ok 1", "b ok 2", "c ok 1"]);
    let long: Vec<_> = lab.runner.calls().into_iter().filter(|it| it.prompt == "long").collect();
    assert_eq!(long[1].resume.as_deref(), Some("demo-2"), "in the conversation it had opened");
}

#[tokio::test(start_paused = true)]
async fn a_job_has_a_limit_of_its_own() {
    let lab = Lab::new();
    let input = "{\"prompt\":\"a\",\"timeout\":\"5m\",\"idle_timeout\":30}\n";
    let job = takopi_batch::Input::new(input.as_bytes()).next().unwrap().unwrap();
    assert_eq!(job.settings.wall_timeout, Some(Duration::from_mins(5)));
    lab.runner.when("a", [Play::Fail(Reason::TimeoutWall, "took too long")]);
    lab.run(lab.batch(), input).await;
    assert_eq!(lab.outline(), ["1 timeout_wall 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_finishes_what_ends_within_the_grace() {
    let lab = Lab::new();
    lab.runner.when("quick", [Play::Take(Duration::from_secs(10))]);
    lab.runner.when("slow", [Play::Take(Duration::from_mins(10))]);
    let stop = CancellationToken::new();
    let batch = lab.batch().jobs(2).stop(stop.clone()).grace(Duration::from_secs(30));
    let cancel = async {
        lab.runner.begun(2).await;
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(lab.run(batch, "quick\nslow\nnever\n"), cancel);
    assert_eq!(lab.outline(), ["1 ok 1"]);
    assert_eq!(ran.outcome().halt, Some(Halt::Interrupted));
    assert_eq!(ran.outcome().left, 2);
    assert_eq!(ran.told("job_returned")[0]["job"], "2");
}
