//! What an agent can do, and what a session offers.

use serde_json::value::RawValue;
use takopi_core::jsonl::Object;

/// The response to `initialize`.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentInfo {
    pub(crate) protocol: Option<i64>,
    pub(crate) loads: bool,
    pub(crate) resumes: bool,
    pub(crate) closes: bool,
    pub(crate) lists: bool,
    pub(crate) images: bool,
    pub(crate) steers: bool,
}

impl AgentInfo {
    pub(crate) fn read(result: &RawValue) -> Self {
        let result = Object::of(result);
        let capabilities = result.object("agentCapabilities");
        let session = capabilities.object("sessionCapabilities");
        Self {
            protocol: result.int("protocolVersion"),
            loads: capabilities.flag("loadSession") == Some(true),
            resumes: session.has("resume"),
            closes: session.has("close"),
            lists: session.has("list"),
            images: capabilities.object("promptCapabilities").flag("image") == Some(true),
            steers: result.object("_meta").object("steering").flag("supported") == Some(true),
        }
    }
}

/// The response to `session/list`: ids and directories.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionPage {
    pub(crate) sessions: Vec<(String, String)>,
    /// Where the next page begins.
    pub(crate) next: Option<String>,
}

impl SessionPage {
    pub(crate) fn read(result: &RawValue) -> Self {
        let result = Object::of(result);
        let sessions = result.list("sessions").into_iter().map(Object::of);
        let sessions = sessions.filter_map(|it| Some((it.text("sessionId")?, it.text("cwd")?)));
        Self { sessions: sessions.collect(), next: result.text("nextCursor") }
    }
}

/// The response to `session/new`, `session/resume` or `session/load`.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionReply {
    pub(crate) id: Option<String>,
    pub(crate) options: Vec<ConfigOption>,
    /// The ids of modes and of models, for agents without options for them.
    pub(crate) modes: Option<Vec<String>>,
    pub(crate) models: Option<Vec<String>>,
    /// The mode that is set now.
    pub(crate) mode: Option<String>,
}

/// A setting of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigOption {
    pub(crate) id: String,
    pub(crate) category: Option<String>,
    pub(crate) current: Option<String>,
    pub(crate) values: Vec<String>,
}

impl SessionReply {
    pub(crate) fn read(result: &RawValue) -> Self {
        let result = Object::of(result);
        let (modes, models) = (result.object("modes"), result.object("models"));
        let ids = |of: &Object<'_>, list: &str, id: &str| -> Vec<String> {
            of.list(list).into_iter().filter_map(|raw| Object::of(raw).text(id)).collect()
        };
        Self {
            id: result.text("sessionId"),
            options: result.list("configOptions").into_iter().filter_map(option).collect(),
            modes: result.has("modes").then(|| ids(&modes, "availableModes", "id")),
            models: result.has("models").then(|| ids(&models, "availableModels", "modelId")),
            mode: modes.text("currentModeId").or_else(|| mode(&result)),
        }
    }

    /// The option of this category.
    pub(crate) fn category(&self, category: &str) -> Option<&ConfigOption> {
        self.options.iter().find(|option| option.category.as_deref() == Some(category))
    }
}

/// The mode among the options of a session.
pub(super) fn mode(of: &Object<'_>) -> Option<String> {
    let options = of.list("configOptions").into_iter().filter_map(option);
    let mut modes = options.filter(|option| option.category.as_deref() == Some("mode"));
    modes.next()?.current
}

fn option(raw: &RawValue) -> Option<ConfigOption> {
    let option = Object::of(raw);
    let mut values = Vec::new();
    for choice in option.list("options") {
        let choice = Object::of(choice);
        values.extend(choice.text("value"));
        // Choices may be grouped.
        let group = choice.list("options").into_iter();
        values.extend(group.filter_map(|choice| Object::of(choice).text("value")));
    }
    Some(ConfigOption {
        id: option.text("id")?,
        category: option.text("category"),
        current: option.text("currentValue"),
        values,
    })
}
