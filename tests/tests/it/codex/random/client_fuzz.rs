//! The whole app-server client under fuzz: whatever lines a server sends, a run ends exactly once.
//! See `takopi_tests::fuzz` for how to run it longer and how to try an input again.
use std::sync::Mutex;
use std::time::Duration;

use futures::{StreamExt, stream};
use takopi_codex::app_server::PoolLimits;
use takopi_core::{Runner, TakopiEvent};
use takopi_tests::codex::recorded;
use takopi_tests::codex::relay::{Lane, Plan};
use takopi_tests::fuzz::Inputs;

/// Runs at once.
const AT_ONCE: usize = 8;

/// What ends a turn.
const END: &str = r#"{"method":"turn/completed","params":{"threadId":"$THREAD","turn":{"id":"$TURN","items":[],"status":"completed","error":null}}}"#;

/// The lines of an input: what opens the thread, and behind a blank line what the turn sends. The
/// end of the turn is added, so that a run that understood nothing ends too.
fn plan(input: &[u8]) -> Plan {
    let lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let blank = lines.iter().position(Vec::is_empty).unwrap_or_default();
    let (opening, turn) = lines.split_at(blank);
    Plan::new(opening.to_vec(), [turn, &[END.as_bytes().to_vec()]].concat())
}

fn check(events: &[TakopiEvent]) -> Result<(), String> {
    let is_end = |event: &&TakopiEvent| matches!(event, TakopiEvent::Completed(_));
    let ends = events.iter().filter(is_end).count();
    let last = events.last().is_some_and(|event| is_end(&event));
    if ends == 1 && last { Ok(()) } else { Err(format!("{ends} ends: {events:#?}")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_client() {
    let seeds = recorded::turns().into_iter().map(|recorded| {
        let lines = [recorded.opening, vec![String::new()], recorded.turn].concat();
        lines.join("\n").into_bytes()
    });
    let inputs = Mutex::new(Inputs::new("client", seeds));
    let lane = Lane::new(PoolLimits::new(AT_ONCE, 200, 4));
    let limits = Some((Duration::from_millis(200), Duration::from_secs(1)));
    let next = || inputs.lock().unwrap().next();
    let runs = stream::iter(std::iter::from_fn(next).enumerate());
    let (lane, all) = (&lane, &inputs);
    runs.for_each_concurrent(AT_ONCE, |(n, input)| async move {
        let model = format!("input-{n}");
        lane.relay.plan(&model, plan(&input));
        let ended = lane.run(&model, limits).await.and_then(|events| check(&events));
        if let Err(fault) = ended {
            all.lock().unwrap().save(&input);
            panic!("{fault}");
        }
    })
    .await;
    lane.runner.shutdown().await;
    lane.home.assert_no_processes().await;
    inputs.lock().unwrap().report();
}
