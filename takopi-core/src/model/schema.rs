//! The JSON Schema of the stream.

use schemars::{Schema, schema_for};

use super::TakopiEvent;

/// The schema of one line of the stream.
///
/// `docs/events.schema.json` is this schema, pretty-printed; a test keeps it current.
pub fn stream_schema() -> Schema {
    schema_for!(TakopiEvent)
}
