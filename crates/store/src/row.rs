//! A row of the table of entries, not decoded yet.

use rusqlite::Row;

/// The first format with differences; before it, every tick was written whole.
const FORMAT_OF_BASES: i64 = 3;

#[derive(Debug)]
pub(crate) struct RawRow {
    pub(crate) id: i64,
    pub(crate) session: i64,
    pub(crate) config: Option<i64>,
    pub(crate) kind: i64,
    pub(crate) format: i64,
    pub(crate) wall_ms: i64,
    pub(crate) mono_ms: i64,
    pub(crate) body: Vec<u8>,
    pub(crate) base: Option<i64>,
}

impl RawRow {
    /// The columns that [`RawRow::read`] expects, in a file whose tables have this format.
    pub(crate) fn columns(format: i64) -> String {
        let base = if format >= FORMAT_OF_BASES { "base" } else { "NULL" };
        format!("id, session, config, kind, format, wall_ms, mono_ms, body, {base}")
    }

    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<RawRow> {
        Ok(RawRow {
            id: row.get(0)?,
            session: row.get(1)?,
            config: row.get(2)?,
            kind: row.get(3)?,
            format: row.get(4)?,
            wall_ms: row.get(5)?,
            mono_ms: row.get(6)?,
            body: row.get(7)?,
            base: row.get(8)?,
        })
    }
}
