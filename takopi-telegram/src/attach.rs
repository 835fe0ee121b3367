//! Files of people become part of their prompt: images go with it, other files into the project, voice notes
//! become text.

use std::time::Duration;

use crate::api::retried;
use crate::bot::Bot;
use crate::config::TOKEN_VARIABLE;
use crate::files;
use crate::prompt::Destination;
use crate::update::{Attachment, Kind};

/// How often a download is tried.
const ATTEMPTS: usize = 4;
/// How long a transcription may take.
const TRANSCRIPTION: Duration = Duration::from_mins(5);

impl Bot {
    /// Downloads a file into the project and names it in the prompt.
    pub(crate) async fn attach(
        &self,
        attachment: &Attachment,
        target: &mut Destination,
    ) -> Result<(), String> {
        if attachment.kind == Kind::Voice && self.config.transcribe.is_none() {
            return Err("voice notes are not set up here; please write".to_owned());
        }
        let limit = self.config.max_file;
        let bytes = retried(ATTEMPTS, || self.api.download(&attachment.id, limit)).await;
        let bytes = bytes.map_err(|error| format!("cannot get the file: {error}"))?;
        if let (Kind::Voice, Some(command)) = (attachment.kind, &self.config.transcribe) {
            let text = transcribe(command, bytes).await?;
            target.text = [target.text.trim(), text.as_str()].join("\n").trim().into();
            return Ok(());
        }
        let context = target.context.get_or_insert_default();
        let directory = context.settings.cwd.clone().unwrap_or_else(|| self.directory.clone());
        let (uploads, name) = (self.config.uploads.clone(), attachment.name.clone());
        let root = directory.clone();
        let stored = tokio::task::spawn_blocking(move || {
            // So that a worktree with files of people can be removed.
            if let Err(error) = takopi_projects::keep_out_of_status(&root, &uploads) {
                tracing::warn!(%error, "git will report the files of people");
            }
            files::store(&root, &uploads, &name, &bytes)
        });
        let path = stored.await.map_err(|it| it.to_string())?.map_err(|it| it.to_string())?;
        if attachment.kind == Kind::Image {
            context.settings.images.push(path);
            if target.text.trim().is_empty() {
                "see the image".clone_into(&mut target.text);
            }
            return Ok(());
        }
        let root = directory.canonicalize().unwrap_or(directory);
        let shown = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        target.text = format!("{}\n\nAttached file: {shown}", target.text).trim().into();
        Ok(())
    }
}

/// Runs the command of the configuration on a voice note. It is no shell command: words are separated by
/// spaces.
async fn transcribe(command: &str, bytes: Vec<u8>) -> Result<String, String> {
    let failed = |error: String| format!("the voice note could not be transcribed: {error}");
    let written = tokio::task::spawn_blocking(move || {
        let directory = tempfile::tempdir()?;
        std::fs::write(directory.path().join("voice.ogg"), bytes)?;
        Ok::<_, std::io::Error>(directory)
    });
    let directory = written.await.map_err(|error| failed(error.to_string()))?;
    let directory = directory.map_err(|error| failed(error.to_string()))?;
    let file = directory.path().join("voice.ogg").display().to_string();
    let words: Vec<String> =
        command.split_whitespace().map(|word| word.replace("{file}", &file)).collect();
    let Some((program, args)) = words.split_first() else {
        return Err(failed("the command is empty".to_owned()));
    };
    let mut process = tokio::process::Command::new(program);
    process.args(args).stdin(std::process::Stdio::null()).kill_on_drop(true);
    process.env_remove(TOKEN_VARIABLE);
    let output = tokio::time::timeout(TRANSCRIPTION, process.output()).await;
    let output = output.map_err(|_| failed("it took too long".to_owned()))?;
    let output = output.map_err(|error| failed(format!("{program}: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || text.is_empty() {
        return Err(failed(format!("{program}: {}", output.status)));
    }
    Ok(text)
}
