//! All of a translation at once, for tests and fuzzing.

use takopi_core::model::{Completed, Reason, ResumeToken, Started, TakopiEvent};
use takopi_core::rpc::{ErrorBody, Incoming, ResponseError, read_line};

use super::{Translator, TurnSetup};
use crate::Agent;
use crate::wire::{Permission, PromptReply, SessionUpdate};

/// Translates the lines that an agent prints in one turn, with its answer in pieces if wanted. The first response is that
/// to the prompt. Lines that are no messages are skipped.
#[doc(hidden)]
pub fn translate_lines<'a>(
    agent: &Agent,
    lines: impl IntoIterator<Item = &'a [u8]>,
    deltas: bool,
) -> Vec<TakopiEvent> {
    let session = ResumeToken::new(agent.id().clone(), "recorded");
    let mut events: Vec<TakopiEvent> = vec![Started::new(session.clone()).into()];
    let mut translator = Translator::new(TurnSetup {
        agent: agent.clone(),
        directory: "/home/ada/project".into(),
        uses_ids: agent.quirks.message_ids,
        deltas,
    });
    for line in lines {
        read_line(line, |message| receive(&mut translator, message, &mut events));
        if translator.is_over() {
            break;
        }
    }
    let error = "the agent exited before the turn was over";
    let died = Completed::failure(agent.id().clone(), Reason::ProcessDied, error);
    let completed = translator.finish(died, &mut events).resume(Some(session));
    events.push(completed.into());
    events
}

fn receive(translator: &mut Translator, message: Incoming<'_>, events: &mut Vec<TakopiEvent>) {
    let Incoming { id, method, params, result, error, .. } = message;
    let null = serde_json::value::RawValue::NULL;
    // What lost its method is no response: it would not have the id of a request.
    let is_response = id.is_some() && params.is_none();
    let params = params.unwrap_or(null);
    match method.as_deref() {
        Some("session/update") => {
            if let Some(update) = SessionUpdate::read(params) {
                translator.update(&update.update, events);
            }
        }
        Some(crate::client::PERMISSION) => {
            if let Some(permission) = Permission::read(params) {
                translator.asked(&permission.call, false, events);
            }
        }
        Some(_) => {}
        None if !is_response => {}
        None => translator.ended(match error {
            Some(error) => Err(ResponseError::Refused(ErrorBody::read(error))),
            None => Ok(PromptReply::read(result.unwrap_or(null))),
        }),
    }
}
