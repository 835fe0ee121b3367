//! What a yes for the session allows from then on: exactly the like of what was asked.

use serde_json::{Map, Value, json};

/// The rule for a request, as narrow as it can be written; `None` if no such rule can be written.
pub(super) fn session_rule(tool: &str, input: &Map<String, Value>) -> Option<Value> {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    match tool {
        "Bash" => {
            // A star would stand for more than this command.
            let command = text("command").filter(|command| !command.contains(['*', '\n']))?;
            Some(json!({ "toolName": "Bash", "ruleContent": command }))
        }
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => {
            let path = text("file_path").or_else(|| text("notebook_path"))?;
            let is_plain = path.starts_with('/') && !path.contains(['*', '?', '[', ']', '{', '!']);
            // A second slash makes the path absolute.
            is_plain.then(|| json!({ "toolName": "Edit", "ruleContent": format!("/{path}") }))
        }
        "AskUserQuestion" | "ExitPlanMode" => None,
        _ if tool.starts_with("mcp__") => Some(json!({ "toolName": tool })),
        // A tool that has rules about its input would be allowed with any.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(tool: &str, input: &Value) -> Option<Value> {
        session_rule(tool, input.as_object().unwrap())
    }

    #[test]
    fn a_rule_allows_this_command_this_file_or_this_tool() {
        assert_eq!(
            rule("Bash", &json!({ "command": "touch a" })),
            Some(json!({ "toolName": "Bash", "ruleContent": "touch a" }))
        );
        assert_eq!(
            rule("Write", &json!({ "file_path": "/srv/a" })),
            Some(json!({ "toolName": "Edit", "ruleContent": "//srv/a" }))
        );
        let mcp = rule("mcp__lab__echo", &json!({ "text": "yo" }));
        assert_eq!(mcp, Some(json!({ "toolName": "mcp__lab__echo" })));
    }

    #[test]
    fn there_is_no_rule_where_it_would_allow_more() {
        for (tool, input) in [
            ("Bash", json!({ "command": "rm *" })),
            ("Bash", json!({ "command": "touch:*" })),
            ("Bash", json!({})),
            ("Write", json!({ "file_path": "/srv/*" })),
            ("Write", json!({ "file_path": "relative" })),
            ("WebFetch", json!({ "url": "https://example.org" })),
            ("ExitPlanMode", json!({})),
        ] {
            assert_eq!(rule(tool, &input), None, "{tool} {input}");
        }
    }
}
