//! What of a run's request goes to codex: as settings of a thread, and of a turn.

use std::path::Path;

use serde_json::Value;
use takopi_core::RunRequest;
use takopi_core::model::Reason;
use takopi_core::runner::RunError;

use super::thread::ThreadOptions;
use super::turn::TurnOptions;

/// What a request may set for a session, and what then holds for its later turns too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SessionSettings {
    model: Option<String>,
    effort: Option<String>,
    sandbox: Option<String>,
}

impl SessionSettings {
    pub(super) fn of(request: &RunRequest) -> Self {
        Self {
            model: request.settings.model.clone(),
            effort: request.settings.effort.clone(),
            sandbox: request.settings.sandbox.clone(),
        }
    }

    /// Whether a session with these settings serves a request for `wanted`: what was set must be set
    /// again, because nothing takes it back but loading the session anew.
    pub(super) fn serve(&self, wanted: &Self) -> bool {
        let fits =
            |set: &Option<String>, wanted: &Option<String>| set.is_none() || wanted.is_some();
        fits(&self.model, &wanted.model)
            && fits(&self.effort, &wanted.effort)
            && fits(&self.sandbox, &wanted.sandbox)
    }
}

/// The settings of the thread.
pub(super) fn thread_options(
    request: &RunRequest,
    directory: &Path,
    dynamic_tools: Vec<Value>,
) -> ThreadOptions {
    ThreadOptions {
        cwd: Some(directory.to_owned()),
        model: request.settings.model.clone(),
        sandbox: request.settings.sandbox.clone(),
        ephemeral: request.settings.is_ephemeral(),
        dynamic_tools,
        ..ThreadOptions::default()
    }
}

/// The settings of the turn, without its directory.
pub(super) async fn turn_options(request: &RunRequest) -> Result<TurnOptions, RunError> {
    let output_schema = match &request.settings.output_schema {
        Some(file) => Some(read_schema(file).await?),
        None => None,
    };
    Ok(TurnOptions {
        model: request.settings.model.clone(),
        effort: request.settings.effort.clone(),
        images: request.settings.images.clone(),
        output_schema,
        sandbox_policy: request.settings.sandbox.as_deref().and_then(sandbox_policy),
        ..TurnOptions::default()
    })
}

/// A sandbox mode in the form in which a turn takes it.
fn sandbox_policy(mode: &str) -> Option<Value> {
    let kind = match mode {
        "read-only" => "readOnly",
        "workspace-write" => "workspaceWrite",
        "danger-full-access" => "dangerFullAccess",
        _ => return None,
    };
    Some(serde_json::json!({ "type": kind }))
}

async fn read_schema(file: &Path) -> Result<Value, RunError> {
    let text = tokio::fs::read(file).await.map_err(|error| error.to_string());
    let schema =
        text.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    schema.map_err(|error| {
        let error = format!("the output schema {} cannot be used: {error}", file.display());
        RunError::new(Reason::SpawnFailed, error)
    })
}
