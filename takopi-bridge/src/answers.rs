//! Answers of people to the questions of an agent: a text in, an answer for each question out.
//!
//! - One question is answered by all of the text, several by a line each, or by parts that are separated
//!   by `;`. A question without a part stays unanswered; what is too much belongs to the last one.
//! - A number stands for the option at this place, unless an option is called so. Where several may be chosen,
//!   they are separated by commas.

use serde_json::Value;
use takopi_core::runner::{Question, Reply, UserQuestion};
use takopi_core::{ApprovalRequest, Decision};

/// The questions of a request that is answered with a text; none if it is of another kind.
pub fn questions(request: &ApprovalRequest) -> &[UserQuestion] {
    match &request.question {
        Question::Questions(questions) => questions,
        _ => &[],
    }
}

/// The reply that answers these questions with a text; `None` if nothing is answered.
///
/// ```
/// use takopi_bridge::answers::reply;
/// use takopi_core::runner::{QuestionOption, UserQuestion};
///
/// let options = ["Red", "Blue"].map(|it| QuestionOption::default().label(it.to_owned()));
/// let question = UserQuestion::default().id("color".to_owned()).options(options.to_vec());
/// assert_eq!(reply(&[question], "2").unwrap().content["color"], "Blue");
/// ```
pub fn reply(questions: &[UserQuestion], text: &str) -> Option<Reply> {
    let parts = parts(text, questions.len());
    let answers = questions.iter().zip(&parts).filter(|(_, part)| !part.is_empty());
    let mut answered = None;
    for (question, part) in answers {
        let reply = answered.unwrap_or_else(|| Reply::from(Decision::Accept));
        answered = Some(reply.with(question.id.as_str(), answer(question, part)));
    }
    answered
}

/// Whether a word is the name of an option of these questions: then it is an answer, even if it is a single letter
/// that is a key elsewhere.
///
/// ```
/// use takopi_bridge::answers::names_option;
/// use takopi_core::runner::{QuestionOption, UserQuestion};
///
/// let options = ["A", "B", "C"].map(|it| QuestionOption::default().label(it.to_owned()));
/// let questions = [UserQuestion::default().options(options.to_vec())];
/// assert!(names_option(&questions, "c") && !names_option(&questions, "n"));
/// ```
pub fn names_option(questions: &[UserQuestion], word: &str) -> bool {
    let mut options = questions.iter().flat_map(|question| &question.options);
    options.any(|option| option.label.eq_ignore_ascii_case(word))
}

/// The parts of a text for so many questions.
fn parts(text: &str, questions: usize) -> Vec<String> {
    let text = text.trim();
    if questions < 2 {
        return vec![text.to_owned()];
    }
    let separator = if text.contains('\n') { '\n' } else { ';' };
    let lines = text.splitn(questions, separator).map(|part| part.trim().to_owned());
    lines.collect()
}

fn answer(question: &UserQuestion, text: &str) -> Value {
    if question.multi {
        let chosen: Vec<Value> =
            text.split(',').map(|part| option(question, part.trim()).into()).collect();
        return if chosen.len() > 1 { chosen.into() } else { option(question, text).into() };
    }
    option(question, text).into()
}

/// The option that is meant, or the text itself.
fn option(question: &UserQuestion, text: &str) -> String {
    let options = &question.options;
    let called = options.iter().find(|option| option.label.eq_ignore_ascii_case(text));
    let at = || options.get(text.parse::<usize>().ok()?.checked_sub(1)?);
    called.or_else(at).map_or_else(|| text.to_owned(), |option| option.label.clone())
}

/// How to answer questions, after what to do for it (`reply to this message`).
pub(crate) fn hint(questions: &[UserQuestion], how: &str) -> Option<String> {
    Some(match questions {
        [] => return None,
        [question] if question.options.is_empty() => format!("{how} with the answer"),
        [question] => {
            let options: Vec<&str> = question.options.iter().map(|it| it.label.as_str()).collect();
            let several = if question.multi { " (several with commas)" } else { "" };
            format!("{how}: {}, or your own text{several}", options.join(", "))
        }
        questions => {
            format!("{how}: {} answers, a line each or separated by `;`", questions.len())
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use takopi_core::runner::QuestionOption;

    use super::*;

    fn question(id: &str, options: &[&str]) -> UserQuestion {
        let options = options.iter().map(|it| QuestionOption::default().label((*it).to_owned()));
        UserQuestion::default().id(id.to_owned()).options(options.collect())
    }

    fn content(questions: &[UserQuestion], text: &str) -> Value {
        reply(questions, text).map(|reply| reply.content).into_iter().collect::<Vec<_>>().into()
    }

    #[test]
    fn an_option_is_named_numbered_or_replaced_by_a_text() {
        let asked = [question("q", &["Red", "Blue", "8"])];
        for (text, chosen) in
            [("Blue", "Blue"), ("blue", "Blue"), (" 1 ", "Red"), ("8", "8"), ("0", "0"), ("7", "7")]
        {
            assert_eq!(content(&asked, text), json!([{ "q": chosen }]), "{text}");
        }
        assert_eq!(
            content(&asked, "red; and more\ngreen"),
            json!([{ "q": "red; and more\ngreen" }])
        );
        assert_eq!(content(&asked, "  "), json!([]));
    }

    #[test]
    fn several_options_are_separated_by_commas_where_several_may_be_chosen() {
        let asked = [question("q", &["Red", "Blue"]).multi(true)];
        assert_eq!(content(&asked, "1, 2"), json!([{ "q": ["Red", "Blue"] }]));
        assert_eq!(content(&asked, "2"), json!([{ "q": "Blue" }]));
    }

    #[test]
    fn each_question_has_a_line_or_a_part() {
        let asked = [question("a", &["Red", "Blue"]), question("b", &["Big", "Small"])];
        for text in ["1; 2", "red\nsmall", "1\n2\n", "1;Small"] {
            assert_eq!(content(&asked, text), json!([{ "a": "Red", "b": "Small" }]), "{text}");
        }
        assert_eq!(content(&asked, "1; x; y"), json!([{ "a": "Red", "b": "x; y" }]));
        assert_eq!(content(&asked, "2"), json!([{ "a": "Blue" }]), "the rest is left open");
    }
}
