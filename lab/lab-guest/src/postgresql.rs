//! The contents of the data disk of a guest with PostgreSQL.
//!
//! Idea: the host puts the server's files on it and a cluster with pgbench's accounts table at its
//! largest size; a workload queries only the first rows, as many as its size holds. These rows are
//! contiguous, so the rest of the table stays on the disk, and one disk serves every size.
//! Source: `src/bin/pgbench/pgbench.c` of PostgreSQL 15 (`-i` for the table, `-S` for the query).

use ballast_model::Bytes;

use crate::workload::POSTGRESQL_SIZE_MAX;

/// The server executable, a link into its installation.
pub const SERVER: &str = "postgres";
/// The dynamic loader that starts the server: the guest has none at the usual path.
pub const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
/// The server's shared libraries.
pub const LIBRARIES: &str = "lib/x86_64-linux-gnu";
/// The cluster's directory; the server runs as its owner.
pub const CLUSTER: &str = "cluster";
/// The cluster's user; the database of the same name contains the table.
pub const USER: &str = "postgres";
/// The table; its columns are `aid`, the key, `bid`, `abalance` and `filler`.
pub const TABLE: &str = "pgbench_accounts";
/// The index of the table's key.
pub const INDEX: &str = "pgbench_accounts_pkey";

/// Bytes per row: 61 of them fill a page of 8 KiB of the table, and 367 one of its index.
const ROW_BYTES: u64 = 157;
/// Number of rows of the table.
pub const ROWS: u64 = rows(POSTGRESQL_SIZE_MAX);

/// Number of rows whose part of the table and index is `size`; at least one.
pub const fn rows(size: Bytes) -> u64 {
    let rows = size.get() / ROW_BYTES;
    if rows == 0 { 1 } else { rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One unit of pgbench's scale is 100,000 rows and some 15 MiB.
    #[test]
    fn number_of_rows_follows_the_size() {
        assert_eq!(rows(Bytes::mib(15)), 100_182);
        assert_eq!(rows(Bytes::new(1)), 1);
        assert_eq!(rows(POSTGRESQL_SIZE_MAX), 2_671_531);
    }
}
