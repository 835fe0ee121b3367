//! Records of a table: comma- or tab-separated values with a head.
//!
//! A record may span lines if a cell is quoted. The head names the columns: those of a job (`prompt`, `id`,
//! `session`, `resume`, the settings), and any other that the template of the prompt uses. An empty cell
//! sets nothing.

use serde_json::{Map, Value};

use super::LineError;

/// The columns of a table.
#[derive(Debug)]
pub(super) struct Head {
    delimiter: u8,
    columns: Vec<String>,
}

impl Head {
    pub(super) fn read(text: &str, delimiter: u8) -> Result<Self, LineError> {
        let columns: Vec<String> =
            cells(text, delimiter)?.into_iter().map(|name| name.trim().to_owned()).collect();
        for (n, name) in columns.iter().enumerate() {
            if name.is_empty() || columns[..n].contains(name) {
                let error = format!("the first line must name each column once: {name:?}");
                return Err(LineError::BadTable(error));
            }
        }
        Ok(Self { delimiter, columns })
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|name| name == column)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.columns
    }

    /// The cells of a record by column, without those that are empty.
    pub(super) fn record(&self, text: &str) -> Result<Map<String, Value>, LineError> {
        let cells = cells(text, self.delimiter)?;
        if cells.len() != self.columns.len() {
            let (found, named) = (cells.len(), self.columns.len());
            let error = format!("{found} cells, but the first line names {named} columns");
            return Err(LineError::BadTable(error));
        }
        let filled = self.columns.iter().cloned().zip(cells).filter(|(_, cell)| !cell.is_empty());
        Ok(filled.map(|(name, cell)| (name, cell.into())).collect())
    }
}

/// Whether a quoted cell goes on in the next line.
pub(super) fn is_open(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'"').count() % 2 == 1
}

fn cells(text: &str, delimiter: u8) -> Result<Vec<String>, LineError> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .delimiter(delimiter)
        .from_reader(text.as_bytes());
    let record = reader.records().next().transpose();
    let record = record.map_err(|error| LineError::BadTable(error.to_string()))?;
    Ok(record.unwrap_or_default().iter().map(str::to_owned).collect())
}
