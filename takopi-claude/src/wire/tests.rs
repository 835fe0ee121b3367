use super::*;

fn parse(line: &str) -> Message {
    Message::parse(line).unwrap()
}

#[test]
fn a_result_is_read_wherever_its_type_stands() {
    let line = r#"{"result":"x","subtype":"success","is_error":false,"type":"result"}"#;
    let Message::Result(result) = parse(line) else { panic!("no result") };
    assert!(result.is_ok());
    assert_eq!(result.text.as_deref(), Some("x"));
}
