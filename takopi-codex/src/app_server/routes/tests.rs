use serde_json::json;
use serde_json::value::to_raw_value;

use super::*;
use crate::app_server::logs::logged;

fn notification(method: &str, params: &serde_json::Value) -> Notification {
    Notification::new(method.to_owned(), to_raw_value(params).unwrap())
}

fn deliver(routes: &Routes, method: &str, thread: &str, turn: &str) {
    let params = json!({ "threadId": thread, "turn": { "id": turn, "status": "completed" } });
    routes.deliver(routes.route_notification(notification(method, &params)));
}

fn received(inbox: &mut Inbox) -> Vec<String> {
    std::iter::from_fn(|| inbox.try_next())
        .map(|message| match message {
            TurnMessage::Notification(notification) => {
                format!("{} {}", notification.method, notification.turn().unwrap_or_default())
            }
            other => format!("{other:?}"),
        })
        .collect()
}

/// The reader routes the response and the next line before the caller of `turn/start` runs again.
#[test]
fn behind_the_response_that_names_a_turn_no_line_of_another_turn_is_accepted() {
    let routes = Routes::default();
    let mut inbox = routes.open_turn("thread").unwrap();
    let mut response = routes.register(1, Some("thread")).unwrap();
    routes.respond(1, Ok(to_raw_value(&json!({ "turn": { "id": "own" } })).unwrap()));
    deliver(&routes, "turn/started", "thread", "other");
    deliver(&routes, "turn/completed", "thread", "other");
    assert_eq!(received(&mut inbox), Vec::<String>::new());
    deliver(&routes, "turn/started", "thread", "own");
    deliver(&routes, "turn/completed", "thread", "own");
    assert_eq!(received(&mut inbox), ["turn/started own", "turn/completed own"]);
    assert!(response.try_recv().unwrap().is_ok());
}

#[test]
fn the_response_outranks_a_turn_that_was_reported_before_it() {
    let routes = Routes::default();
    let mut inbox = routes.open_turn("thread").unwrap();
    let _response = routes.register(1, Some("thread")).unwrap();
    deliver(&routes, "turn/started", "thread", "other");
    routes.respond(1, Ok(to_raw_value(&json!({ "turn": { "id": "own" } })).unwrap()));
    deliver(&routes, "turn/completed", "thread", "other");
    deliver(&routes, "turn/completed", "thread", "own");
    assert_eq!(received(&mut inbox), ["turn/started other", "turn/completed own"]);
}

/// codex adds a prompt to the turn that runs, and names that turn.
#[test]
fn a_turn_that_was_left_is_followed_again_when_the_response_names_it() {
    let routes = Routes::default();
    let left = routes.open_turn("thread").unwrap();
    deliver(&routes, "turn/started", "thread", "running");
    drop(left);
    routes.close_turn("thread");

    let mut inbox = routes.open_turn("thread").unwrap();
    let _response = routes.register(1, Some("thread")).unwrap();
    deliver(&routes, "item/completed", "thread", "running");
    assert_eq!(received(&mut inbox), Vec::<String>::new());
    routes.respond(1, Ok(to_raw_value(&json!({ "turn": { "id": "running" } })).unwrap()));
    deliver(&routes, "turn/completed", "thread", "running");
    assert_eq!(received(&mut inbox), ["turn/completed running"]);
}

#[test]
fn usage_of_ever_new_threads_does_not_grow_without_bound() {
    let routes = Routes::default();
    for thread in 0..2 * THREADS_KNOWN {
        let params = json!({ "threadId": thread.to_string(), "tokenUsage": {} });
        routes
            .deliver(routes.route_notification(notification("thread/tokenUsage/updated", &params)));
    }
    assert_eq!(routes.state().threads.len(), THREADS_KNOWN);
}

#[test]
fn messages_whose_address_cannot_be_read_are_logged_once() {
    let logged = logged(|| {
        let routes = Routes::default();
        for _ in 0..3 {
            let message = notification("item/completed", &json!({ "threadId": 7 }));
            routes.deliver(routes.route_notification(message));
        }
    });
    assert_eq!(logged.matches("names no thread or turn").count(), 1, "{logged}");
}
