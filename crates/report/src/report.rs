//! A report: rows of one type, with columns declared once for tables, pages, Markdown and CSV.
//!
//! Idea: a column is a name, an alignment and a function from row to cell. JSON uses the rows' own
//! `Serialize`.

use std::borrow::Borrow;
use std::fmt::Display;
use std::io::{self, Write};

use comfy_table::CellAlignment;

use crate::csv::quoted;
use crate::format;

struct ReportColumn<'a, Row: ?Sized> {
    name: String,
    alignment: CellAlignment,
    /// Columns of the highest rank are left out first if there is no room; 0: never left out.
    rank: u8,
    cell: Box<dyn Fn(&Row) -> String + 'a>,
}

/// Other columns are left out before a column of text is wrapped to less than this width.
const WRAPPED_MIN: usize = 20;

/// The columns of a report about rows of type `Row`.
pub struct Report<'a, Row: ?Sized> {
    columns: Vec<ReportColumn<'a, Row>>,
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
        self.column(name, CellAlignment::Left, Box::new(move |row: &Row| cell(row).to_string()))
    }

    /// Adds a column of figures, aligned to the right.
    #[must_use]
    pub fn figure<D: Display>(self, name: &str, cell: impl Fn(&Row) -> D + 'a) -> Self {
        self.column(name, CellAlignment::Right, Box::new(move |row: &Row| cell(row).to_string()))
    }

    fn column(
        mut self,
        name: &str,
        alignment: CellAlignment,
        cell: Box<dyn Fn(&Row) -> String + 'a>,
    ) -> Self {
        self.columns.push(ReportColumn { name: name.to_owned(), alignment, rank: 0, cell });
        self
    }

    /// Sets the rank of the column added last. [`Report::fitted`] leaves out columns of higher
    /// ranks first, and never those of rank 0.
    #[must_use]
    pub fn lesser(mut self, rank: u8) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.rank = rank;
        }
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
        let is_figure = |column: &ReportColumn<'a, Row>| column.alignment == CellAlignment::Right;
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
        let rows = rows.into_iter().map(|row| self.cells(row.borrow())).collect();
        format::table(&columns, rows, width)
    }

    /// The table of `rows` for a terminal of `width` columns, without the columns that do not fit,
    /// those of the highest ranks first; and the names of the columns left out.
    pub fn fitted<R: Borrow<Row>>(
        &self,
        rows: impl IntoIterator<Item = R>,
        width: Option<u16>,
    ) -> (String, Vec<&str>) {
        let cells: Vec<Vec<String>> =
            rows.into_iter().map(|row| self.cells(row.borrow())).collect();
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let least: Vec<usize> =
            shown.iter().map(|&place| self.least_width(place, &cells)).collect();
        // Two columns between neighbours, and a margin of one behind the last.
        let room = width.map_or(usize::MAX, |width| usize::from(width) + 1);
        while shown.iter().map(|&place| least[place] + 2).sum::<usize>() > room {
            let places = shown.iter().copied().enumerate();
            let least_important = places.max_by_key(|&(_, place)| self.columns[place].rank);
            let Some((at, place)) = least_important else { break };
            if self.columns[place].rank == 0 {
                break;
            }
            shown.remove(at);
        }
        let columns: Vec<_> = shown
            .iter()
            .map(|&place| (self.columns[place].name.as_str(), self.columns[place].alignment))
            .collect();
        let rows = cells.iter().map(|row| shown.iter().map(|&at| row[at].clone()).collect());
        let left_out = (0..self.columns.len()).filter(|place| !shown.contains(place));
        let left_out = left_out.map(|place| self.columns[place].name.as_str()).collect();
        (format::table(&columns, rows.collect(), width), left_out)
    }

    /// The least width of a column: text can be wrapped, figures cannot.
    fn least_width(&self, place: usize, cells: &[Vec<String>]) -> usize {
        let column = &self.columns[place];
        let widest = cells.iter().map(|row| row[place].chars().count()).max().unwrap_or(0);
        match column.alignment {
            CellAlignment::Left => widest.min(WRAPPED_MIN).max(column.name.chars().count()),
            _ => widest.max(column.name.chars().count()),
        }
    }

    /// The table of `rows` in Markdown.
    pub fn markdown<R: Borrow<Row>>(&self, rows: impl IntoIterator<Item = R>) -> String {
        let line = |cells: &mut dyn Iterator<Item = String>| {
            let cells: Vec<String> = cells.map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut out = line(&mut self.heads().map(|(name, _)| name.to_owned()));
        let rules = self.heads().map(|(_, is_figure)| if is_figure { "--:" } else { "---" });
        out.push_str(&line(&mut rules.map(str::to_owned)));
        for row in rows {
            out.push_str(&line(&mut self.cells(row.borrow()).into_iter()));
        }
        out
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
        let markdown = report.markdown([("a|b", 7)]);
        assert_eq!(markdown, "| name | size |\n| --- | --: |\n| a\\|b | 7 |\n");
        let table = report.in_capitals().table(rows, None);
        assert_eq!(table, "NAME  SIZE\na,b      7\nc      100\n");
    }

    #[test]
    fn lesser_columns_are_left_out_where_width_is_short() {
        let report = Report::<u64>::new().text("NAME", |it| format!("guest-{it}"));
        let report = report.figure("SIZE", |it| it * 1000).lesser(1).figure("AGE", |it| *it);
        let report = report.lesser(3).figure("SHARES", |it| *it).lesser(2);
        let fitted = |width| report.fitted([7], width);
        let (whole, nothing) = fitted(None);
        assert_eq!(whole, "NAME     SIZE  AGE  SHARES\nguest-7  7000    7       7\n");
        assert!(nothing.is_empty());
        assert_eq!(fitted(Some(27)).0, whole);
        let (table, left_out) = fitted(Some(25));
        assert_eq!(table, "NAME     SIZE  SHARES\nguest-7  7000       7\n");
        assert_eq!(left_out, ["AGE"]);
        assert_eq!(fitted(Some(14)).1, ["AGE", "SHARES"]);
        // Columns that have to stay are wrapped.
        assert_eq!(fitted(Some(3)).1, ["SIZE", "AGE", "SHARES"]);
    }
}
