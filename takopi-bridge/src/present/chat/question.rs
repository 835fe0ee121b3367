//! A question of an agent, as a message.

use takopi_core::ApprovalRequest;
use takopi_core::runner::ApprovalKind;

use super::{BLANK_LINE, Chat, inline};

/// How wide a command, a reason or an outcome may be; narrower where there is not room for it.
const WIDTHS: [usize; 4] = [1000, 300, 100, 30];

impl Chat {
    /// The message in which an agent asks for leave; with what became of it, once that is known.
    ///
    /// What is asked stays what it is: it opens no code and no line. Where there is not room for all
    /// of it, the longest texts are cut first.
    pub fn question(&self, request: &ApprovalRequest, outcome: Option<&str>) -> String {
        let fitting = WIDTHS.iter().map(|width| question(request, outcome, *width));
        let fitting = fitting.into_iter().find(|text| self.limit.fits(text));
        fitting.unwrap_or_else(|| {
            self.limit.cut(&inline::plain(&request.title, WIDTHS[0]), self.limit.most())
        })
    }
}

fn question(request: &ApprovalRequest, outcome: Option<&str>, width: usize) -> String {
    let what = match request.kind {
        ApprovalKind::Command => "wants to run a command",
        ApprovalKind::FileChange => "wants to change files",
        ApprovalKind::Permissions => "wants wider permissions",
        ApprovalKind::Elicitation => "passes on a question of a tool server",
        _ => "has a question",
    };
    let title = match request.kind {
        ApprovalKind::Command => inline::code(&request.title, width),
        _ => inline::plain(&request.title, width),
    };
    let mut lines = vec![format!("**{} {what}**", inline::plain(request.engine.as_str(), width))];
    lines.extend([title].into_iter().filter(|title| !title.is_empty()));
    lines.push(format!("in {}", inline::code(&request.cwd.display().to_string(), width)));
    if let Some(reason) = &request.reason {
        lines.push(format!("because: {}", inline::plain(reason, width)));
    }
    let mut text = lines.join(inline::LINE_END);
    if let Some(outcome) = outcome {
        text.push_str(BLANK_LINE);
        text.push_str(&inline::plain(outcome, width));
    }
    text
}

#[cfg(test)]
mod tests {
    use takopi_core::EngineId;

    use super::*;
    use crate::present::Limit;

    fn request(title: &str) -> ApprovalRequest {
        let codex = EngineId::from_static("codex");
        let mut request =
            ApprovalRequest::new(codex, ApprovalKind::Command, title, "/srv/project".into());
        request.reason = Some("it needs the *network*".to_owned());
        request
    }

    #[test]
    fn a_question_shows_what_is_asked_where_and_why() {
        let text = Chat::default().question(&request("echo `id`"), None);
        insta::assert_snapshot!(text, @r"
        **codex wants to run a command**  
        `` echo `id` ``  
        in `/srv/project`  
        because: it needs the \*network\*
        ");
    }

    #[test]
    fn what_became_of_a_question_stands_below_it() {
        let text = Chat::default().question(&request("ls"), Some("accepted by al_ice"));
        assert!(text.ends_with("\n\naccepted by al\\_ice"), "{text}");
    }

    #[test]
    fn a_question_is_never_over_the_limit() {
        for limit in [8, 40, 200, 1000] {
            let chat = Chat::new(Limit::Chars(limit));
            let text =
                chat.question(&request(&"long `words` ".repeat(500)), Some(&"a ".repeat(900)));
            assert!(text.chars().count() <= limit, "{limit}: {text}");
        }
    }
}
