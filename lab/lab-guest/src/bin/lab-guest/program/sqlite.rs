//! sqlite3, asked for rows at random.
//!
//! Idea: a table in memory, and questions for a few hundred random rows each, one after the other through
//! its standard input; it writes an answer out before it reads on.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

use ballast_model::Bytes;

use super::Running;
use super::beside::Beside;

/// What a row's value has.
const VALUE_BYTES: u64 = 1500;
/// What a row takes with it: two fit in a page of 4 KiB.
const ROW_BYTES: u64 = 2048;
/// Rows in one question.
const ROWS_EACH: u64 = 200;
/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 4096;

pub(super) struct Sqlite {
    program: Beside,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    question: String,
    rows: u64,
}

impl Sqlite {
    /// With a table of `size`.
    pub(super) fn start(size: Bytes) -> Result<Sqlite, String> {
        let rows = (size.get() / ROW_BYTES).max(1);
        let mut program = Beside::start("sqlite3", &[":memory:"], |command| {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        })?;
        let pipes = (program.process().stdin.take(), program.process().stdout.take());
        let (Some(to), Some(from)) = pipes else {
            return Err("sqlite3 without its pipes".to_owned());
        };
        let question = format!(
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i < {ROWS_EACH}) \
             SELECT sum((SELECT length(hex(b)) FROM t WHERE id = 1 + abs(random()) % {rows} + 0*c.i)) \
             FROM c;\n"
        );
        let mut sqlite = Sqlite { program, to, from: BufReader::new(from), question, rows: 0 };
        let table = format!(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB); \
             WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i < {rows}) \
             INSERT INTO t SELECT i, randomblob({VALUE_BYTES}) FROM c; SELECT count(*) FROM t;\n"
        );
        let filled = sqlite.answer(&table)?;
        if filled == rows {
            Ok(sqlite)
        } else {
            Err(format!("sqlite3 has {filled} of {rows} rows"))
        }
    }

    fn answer(&mut self, question: &str) -> Result<u64, String> {
        let lost = |error: std::io::Error| format!("sqlite3: {error}");
        self.to.write_all(question.as_bytes()).and_then(|()| self.to.flush()).map_err(lost)?;
        let mut line = String::new();
        self.from.by_ref().take(ANSWER_BYTES_MAX).read_line(&mut line).map_err(lost)?;
        if line.is_empty() {
            self.program.check()?;
        }
        line.trim().parse().map_err(|_| format!("sqlite3 answers `{}`", line.trim()))
    }
}

impl Running for Sqlite {
    fn work(&mut self) -> Result<u64, String> {
        let question = self.question.clone();
        // Hexadecimal digits of all values.
        let digits = self.answer(&question)?;
        if digits != 2 * VALUE_BYTES * ROWS_EACH {
            return Err(format!("sqlite3 has read {digits} digits of {ROWS_EACH} rows"));
        }
        self.rows += ROWS_EACH;
        Ok(self.rows)
    }
}
