//! sqlite3, queried for random rows.
//!
//! Idea: a table in memory, and queries for a few hundred random rows each, one after the other
//! over its standard input. It writes each result before it reads the next query.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

use ballast_model::Bytes;

use super::running::RunningProgram;
use super::subprocess::Subprocess;

/// Size of a row's value.
const VALUE_BYTES: u64 = 1500;
/// Memory per row: two rows fit in a page of 4 KiB.
const ROW_BYTES: u64 = 2048;
/// Rows per query.
const ROWS_EACH: u64 = 200;
/// Longest result.
const RESULT_BYTES_MAX: u64 = 4096;

pub(super) struct Sqlite {
    program: Subprocess,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    query: String,
    rows: u64,
}

impl Sqlite {
    /// Starts it with a table of `size`.
    pub(super) fn start(size: Bytes) -> Result<Sqlite, String> {
        let rows = (size.get() / ROW_BYTES).max(1);
        let mut program = Subprocess::start("sqlite3", &[":memory:"], |command| {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        })?;
        let pipes = (program.process().stdin.take(), program.process().stdout.take());
        let (Some(to), Some(from)) = pipes else {
            return Err("sqlite3 has no pipes".to_owned());
        };
        let query = format!(
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i < {ROWS_EACH}) \
             SELECT sum((SELECT length(hex(b)) FROM t WHERE id = 1 + abs(random()) % {rows} + 0*c.i)) \
             FROM c;\n"
        );
        let mut sqlite = Sqlite { program, to, from: BufReader::new(from), query, rows: 0 };
        let table = format!(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB); \
             WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i < {rows}) \
             INSERT INTO t SELECT i, randomblob({VALUE_BYTES}) FROM c; SELECT count(*) FROM t;\n"
        );
        let filled = sqlite.run(&table)?;
        if filled == rows {
            Ok(sqlite)
        } else {
            Err(format!("sqlite3 has {filled} of {rows} rows"))
        }
    }

    fn run(&mut self, query: &str) -> Result<u64, String> {
        let io_error = |error: std::io::Error| format!("sqlite3: {error}");
        self.to.write_all(query.as_bytes()).and_then(|()| self.to.flush()).map_err(io_error)?;
        let mut line = String::new();
        self.from.by_ref().take(RESULT_BYTES_MAX).read_line(&mut line).map_err(io_error)?;
        if line.is_empty() {
            self.program.check()?;
        }
        line.trim().parse().map_err(|_| format!("sqlite3 replied `{}`", line.trim()))
    }
}

impl RunningProgram for Sqlite {
    fn work(&mut self) -> Result<u64, String> {
        let query = self.query.clone();
        // The result is the number of hexadecimal digits of all values.
        let digits = self.run(&query)?;
        if digits != 2 * VALUE_BYTES * ROWS_EACH {
            return Err(format!("sqlite3 read {digits} digits of {ROWS_EACH} rows"));
        }
        self.rows += ROWS_EACH;
        Ok(self.rows)
    }
}
