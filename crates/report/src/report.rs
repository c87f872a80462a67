//! A report: rows of one type, with columns declared once for tables, pages and CSV.
//!
//! Idea: a column is a name, an alignment and a function from row to cell. JSON uses the rows' own
//! `Serialize`.

use std::borrow::Borrow;
use std::fmt::Display;
use std::io::{self, Write};

use comfy_table::CellAlignment;

use crate::csv::quoted;
use crate::format;

/// One column.
struct Column<'a, Row: ?Sized> {
    name: String,
    alignment: CellAlignment,
    cell: Box<dyn Fn(&Row) -> String + 'a>,
}

/// The columns of a report about rows of type `Row`.
pub struct Report<'a, Row: ?Sized> {
    columns: Vec<Column<'a, Row>>,
}

impl<Row: ?Sized> Default for Report<'_, Row> {
    fn default() -> Self {
        Self { columns: Vec::new() }
    }
}

impl<'a, Row: ?Sized> Report<'a, Row> {
    /// A report without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column of text, aligned to the left.
    #[must_use]
    pub fn text<D: Display>(self, name: &str, cell: impl Fn(&Row) -> D + 'a) -> Self {
        self.column(name, CellAlignment::Left, cell)
    }

    /// Adds a column of figures, aligned to the right.
    #[must_use]
    pub fn figure<D: Display>(self, name: &str, cell: impl Fn(&Row) -> D + 'a) -> Self {
        self.column(name, CellAlignment::Right, cell)
    }

    fn column<D: Display>(
        mut self,
        name: &str,
        alignment: CellAlignment,
        cell: impl Fn(&Row) -> D + 'a,
    ) -> Self {
        let cell = Box::new(move |row: &Row| cell(row).to_string());
        self.columns.push(Column { name: name.to_owned(), alignment, cell });
        self
    }

    /// Puts all column names in capitals, as in terminal tables.
    #[must_use]
    pub fn in_capitals(mut self) -> Self {
        self.columns.iter_mut().for_each(|column| column.name = column.name.to_uppercase());
        self
    }

    /// Each column's name, and whether it holds figures.
    pub fn heads(&self) -> impl Iterator<Item = (&str, bool)> {
        let is_figure = |column: &Column<'a, Row>| column.alignment == CellAlignment::Right;
        self.columns.iter().map(move |column| (column.name.as_str(), is_figure(column)))
    }

    /// The cells of `row`.
    pub fn cells(&self, row: &Row) -> Vec<String> {
        self.columns.iter().map(|column| (column.cell)(row)).collect()
    }

    /// The table of `rows` for a terminal, wrapped to `width` columns if given.
    pub fn table<R: Borrow<Row>>(
        &self,
        rows: impl IntoIterator<Item = R>,
        width: Option<u16>,
    ) -> String {
        let columns: Vec<_> =
            self.columns.iter().map(|column| (column.name.as_str(), column.alignment)).collect();
        format::table(&columns, rows.into_iter().map(|row| self.cells(row.borrow())), width)
    }

    /// Writes the header line of a CSV file.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_csv_head(&self, out: &mut dyn Write) -> io::Result<()> {
        csv_line(self.columns.iter().map(|column| column.name.as_str()), out)
    }

    /// Writes `rows` as lines of a CSV file.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_csv<R: Borrow<Row>>(
        &self,
        rows: impl IntoIterator<Item = R>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        rows.into_iter().try_for_each(|row| csv_line(self.cells(row.borrow()).iter(), out))
    }
}

fn csv_line(fields: impl Iterator<Item: AsRef<str>>, out: &mut dyn Write) -> io::Result<()> {
    let fields: Vec<String> = fields.map(|field| quoted(field.as_ref())).collect();
    writeln!(out, "{}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_declaration_of_columns_makes_table_and_csv() {
        let report = Report::<(&str, u64)>::new().text("name", |it| it.0.to_owned());
        let report = report.figure("size", |it| it.1);
        let rows = [("a,b", 7), ("c", 100)];
        let mut csv = Vec::new();
        report.write_csv_head(&mut csv).unwrap();
        report.write_csv(rows, &mut csv).unwrap();
        assert_eq!(String::from_utf8(csv).unwrap(), "name,size\n\"a,b\",7\nc,100\n");
        assert_eq!(report.heads().collect::<Vec<_>>(), [("name", false), ("size", true)]);
        let table = report.in_capitals().table(rows, None);
        assert_eq!(table, "NAME  SIZE\na,b      7\nc      100\n");
    }
}
