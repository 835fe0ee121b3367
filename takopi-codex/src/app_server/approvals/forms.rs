//! What an MCP server wants filled in, and what the agent asks the user.
//!
//! Read strictly: a shape that is not known here is not read at all.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use takopi_core::runner::{FormField, QuestionOption, UserQuestion};

/// The schema of a form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Schema {
    #[serde(rename = "$schema")]
    _version: Option<String>,
    #[serde(rename = "type")]
    _type: ObjectType,
    #[serde(default)]
    properties: BTreeMap<String, Property>,
    required: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ObjectType {
    Object,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Property {
    #[serde(rename = "type")]
    value: String,
    title: Option<String>,
    description: Option<String>,
    #[serde(rename = "enum")]
    values: Option<Vec<String>>,
    #[serde(rename = "enumNames")]
    _names: Option<Vec<String>>,
    one_of: Option<Vec<Choice>>,
    items: Option<Items>,
    // These limit what may be filled in.
    #[serde(rename = "default")]
    _default: Option<Value>,
    #[serde(rename = "format")]
    _format: Option<String>,
    #[serde(rename = "minLength")]
    _min_length: Option<u64>,
    #[serde(rename = "maxLength")]
    _max_length: Option<u64>,
    #[serde(rename = "minItems")]
    _min_items: Option<u64>,
    #[serde(rename = "maxItems")]
    _max_items: Option<u64>,
    #[serde(rename = "minimum")]
    _minimum: Option<f64>,
    #[serde(rename = "maximum")]
    _maximum: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    #[serde(rename = "const")]
    value: String,
    #[serde(rename = "title")]
    _title: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Items {
    #[serde(rename = "type")]
    _type: Option<String>,
    #[serde(rename = "enum")]
    values: Option<Vec<String>>,
    any_of: Option<Vec<Choice>>,
}

impl Schema {
    pub(super) fn is_empty(&self) -> bool {
        self.properties.is_empty()
    }

    pub(super) fn into_fields(self) -> Vec<FormField> {
        let required = self.required.unwrap_or_default();
        let field = |(name, property): (String, Property)| {
            let label = [property.title, property.description];
            let label: Vec<String> = label.into_iter().flatten().collect();
            let (of_items, any_of) =
                property.items.map_or((None, None), |items| (items.values, items.any_of));
            let plain = property.values.into_iter().chain(of_items).flatten();
            let titled = property.one_of.into_iter().chain(any_of).flatten();
            let options = plain.chain(titled.map(|choice| choice.value)).collect();
            FormField::default()
                .required(required.contains(&name))
                .name(name)
                .label((!label.is_empty()).then(|| label.join(": ")))
                .value(property.value)
                .options(options)
        };
        self.properties.into_iter().map(field).collect()
    }
}

/// A question of the agent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Asks {
    id: String,
    header: Option<String>,
    question: String,
    options: Option<Vec<Suggestion>>,
    #[serde(rename = "isOther")]
    _is_other: Option<bool>,
    is_secret: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Suggestion {
    label: String,
    description: Option<String>,
}

impl From<Asks> for UserQuestion {
    fn from(asks: Asks) -> Self {
        let options = asks.options.into_iter().flatten().map(|option| {
            let description = option.description.filter(|text| !text.is_empty());
            QuestionOption::default().label(option.label).description(description)
        });
        Self::default()
            .id(asks.id)
            .header(asks.header.filter(|text| !text.is_empty()))
            .question(asks.question)
            .options(options.collect())
            .secret(asks.is_secret == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_is_read_field_by_field() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "title": "Name", "description": "of the branch" },
                "level": { "type": "string", "enum": ["low", "high"] },
                "tags": { "type": "array", "items": { "type": "string", "enum": ["a", "b"] } },
            },
            "required": ["name"],
        });
        let fields = Schema::deserialize(&schema).unwrap().into_fields();
        let [level, name, tags] = fields.as_slice() else { panic!("{fields:?}") };
        assert_eq!(level.options, ["low", "high"]);
        assert_eq!((name.label.as_deref(), name.required), (Some("Name: of the branch"), true));
        assert_eq!((tags.value.as_str(), tags.required), ("array", false));
        assert_eq!(tags.options, ["a", "b"]);
    }

    #[test]
    fn a_schema_that_is_not_known_is_not_read() {
        for odd in [
            json!({ "type": "array" }),
            json!({ "properties": {} }),
            json!({ "type": "object", "properties": {}, "allOf": [] }),
            json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": "x" } } }),
            json!({ "type": "object", "properties": { "a": { "$ref": "#/x" } } }),
        ] {
            assert!(Schema::deserialize(&odd).is_err(), "{odd}");
        }
    }
}
