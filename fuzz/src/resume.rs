//! Resume lines of every engine: any text whatsoever.

use std::sync::LazyLock;

use takopi_acp::Agent;
use takopi_core::runner::ResumeCodec;

/// A token that is found in a text is formatted into a line that names it again.
pub(crate) fn resume(input: &[u8]) {
    static CODECS: LazyLock<Vec<ResumeCodec>> = LazyLock::new(|| {
        let agents = Agent::presets().filter_map(Agent::preset).map(|agent| agent.resume_codec());
        let others = [
            takopi_codex::resume_codec(),
            takopi_claude::resume_codec(),
            takopi_pi::resume_codec(),
        ];
        others.into_iter().chain(agents).collect()
    });
    let text = String::from_utf8_lossy(input);
    for codec in CODECS.iter() {
        round_trip(codec, &text);
    }
}

fn round_trip(codec: &ResumeCodec, text: &str) {
    for line in text.lines() {
        assert_eq!(codec.is_line(line), codec.extract(line).is_some(), "{line:?}");
    }
    if let Some(token) = codec.extract(text) {
        let line = codec.format(&token);
        assert!(codec.is_line(&line), "{line}");
        assert_eq!(codec.token(&token.value), Some(token.clone()), "its form is canonical");
        assert_eq!(codec.extract(&format!("{text}\n{line}\n")), Some(token));
    }
}
