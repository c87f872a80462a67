//! What the data disk of a guest with PostgreSQL has on it, as both sides know it.
//!
//! Idea: the host makes the server's files and a cluster with the table of accounts of pgbench, as large as it can be
//! asked to be; a workload asks for the first rows of it, as many as its size comes to. They lie together, so
//! that what is beyond them stays on the disk, and one disk serves for every size.
//! Source: `src/bin/pgbench/pgbench.c` of PostgreSQL 15 (`-i`, and `-S` for the question).

use ballast_model::Bytes;

use crate::workload::POSTGRESQL_SIZE_MAX;

/// The server, a link into its installation.
pub const SERVER: &str = "postgres";
/// The loader that starts it: a guest has none where programs look for it.
pub const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
/// The libraries of the server.
pub const LIBRARIES: &str = "lib/x86_64-linux-gnu";
/// The cluster. Its owner is whom the server runs as.
pub const CLUSTER: &str = "cluster";
/// The user of the cluster, whose database of the same name has the table.
pub const USER: &str = "postgres";
/// The table; its columns are `aid`, the key, `bid`, `abalance` and `filler`.
pub const TABLE: &str = "pgbench_accounts";
/// The index of its key.
pub const INDEX: &str = "pgbench_accounts_pkey";

/// Bytes that a row takes: 61 of them fill a page of 8 KiB of the table, and 367 one of its index.
const ROW_BYTES: u64 = 157;
/// Rows of the table.
pub const ROWS: u64 = rows(POSTGRESQL_SIZE_MAX);

/// Rows whose part of table and index comes to `size`; at least one.
pub const fn rows(size: Bytes) -> u64 {
    let rows = size.get() / ROW_BYTES;
    if rows == 0 { 1 } else { rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scale of pgbench is 100,000 rows and some 15 MiB.
    #[test]
    fn as_many_rows_as_the_size_comes_to() {
        assert_eq!(rows(Bytes::mib(15)), 100_182);
        assert_eq!(rows(Bytes::new(1)), 1);
        assert_eq!(rows(POSTGRESQL_SIZE_MAX), 2_137_224);
    }
}
