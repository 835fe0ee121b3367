//! Records of a table: comma- or tab-separated values with a head.
//!
//! A record may span lines if a cell is quoted. A quote opens a cell only at its beginning; elsewhere it is text. The head names the columns: those of a job (`prompt`, `id`,
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

/// Where a record is, read from its beginning. The rules are those of the crate that splits it into cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// At the beginning of a cell.
    #[default]
    Start,
    /// In a cell that is not quoted, or behind the end of one that is.
    Bare,
    /// In a quoted cell: it goes on in the next line.
    Quoted,
    /// Behind a quote in a quoted cell, which is its end or the first of two.
    Quote,
}

impl Place {
    /// The place behind a further part.
    pub(super) fn behind(self, text: &str, delimiter: u8) -> Self {
        text.bytes().fold(self, |place, byte| match (place, byte) {
            (Self::Quoted, b'"') => Self::Quote,
            (Self::Quoted, _) | (Self::Start | Self::Quote, b'"') => Self::Quoted,
            (_, b'\r' | b'\n') => Self::Start,
            (_, byte) if byte == delimiter => Self::Start,
            _ => Self::Bare,
        })
    }
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

fn cells(text: &str, delimiter: u8) -> Result<Vec<String>, LineError> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .delimiter(delimiter)
        .from_reader(text.as_bytes());
    let mut records = reader.records();
    let record = records.next().transpose();
    let record = record.map_err(|error| LineError::BadTable(error.to_string()))?;
    if records.next().is_some() {
        let error = "a carriage return ends the record: end lines with a line feed, and quote cells that span lines";
        return Err(LineError::BadTable(error.to_owned()));
    }
    Ok(record.unwrap_or_default().iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of a table as lines are joined to them.
    fn records(text: &str, delimiter: u8) -> Vec<Vec<String>> {
        let (mut records, mut record, mut place) = (Vec::new(), String::new(), Place::Start);
        for line in text.split_inclusive('\n') {
            record.push_str(line);
            place = place.behind(line, delimiter);
            if place != Place::Quoted {
                records.push(std::mem::take(&mut record));
                place = Place::Start;
            }
        }
        records.push(record);
        let cells = records.iter().map(|record| cells(record, delimiter).unwrap());
        cells.filter(|cells| !cells.is_empty()).collect()
    }

    proptest::proptest! {
        #[test]
        fn lines_are_joined_to_the_records_that_the_crate_reads(text in "[a,;\"\n]{0,40}", semicolon: bool) {
            let delimiter = if semicolon { b';' } else { b',' };
            let mut reader = csv::ReaderBuilder::new();
            let reader = reader.has_headers(false).flexible(true).delimiter(delimiter);
            let read = reader.from_reader(text.as_bytes()).into_records();
            let read: Vec<Vec<String>> =
                read.map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect();
            assert_eq!(records(&text, delimiter), read, "{text:?}");
        }
    }
}
