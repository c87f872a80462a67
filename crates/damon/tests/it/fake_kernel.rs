//! The kernel's files of DAMON and tracefs, without a kernel behind them.
//!
//! Limits: nothing appears or changes by itself: a kdamond's files are there from the start, and so
//! is the instance of tracefs, which therefore is not removed.

use std::fs;
use std::path::Path;

use ballast_damon::DamonPaths;

/// Regions of each of the two targets that there are files for.
const REGIONS: usize = 8;

pub(crate) struct FakeKernel(tempfile::TempDir);

impl FakeKernel {
    pub(crate) fn new() -> FakeKernel {
        let kernel = FakeKernel(tempfile::tempdir().unwrap());
        let context = "0/contexts/0";
        for (path, text) in [
            ("nr_kdamonds", "0"),
            ("0/state", "off"),
            ("0/pid", "-1"),
            ("0/contexts/nr_contexts", "0"),
        ] {
            kernel.set(path, text);
        }
        for (path, text) in [
            ("avail_operations", "vaddr\nfvaddr\npaddr\n"),
            ("operations", "vaddr"),
            ("monitoring_attrs/intervals/sample_us", "5000"),
            ("monitoring_attrs/intervals/aggr_us", "100000"),
            ("monitoring_attrs/intervals/update_us", "1000000"),
            ("monitoring_attrs/nr_regions/min", "10"),
            ("monitoring_attrs/nr_regions/max", "1000"),
            ("targets/nr_targets", "0"),
        ] {
            kernel.set(&format!("{context}/{path}"), text);
        }
        for target in 0..2 {
            let target = format!("{context}/targets/{target}");
            kernel.set(&format!("{target}/pid_target"), "0");
            kernel.set(&format!("{target}/regions/nr_regions"), "0");
            for region in 0..REGIONS {
                kernel.set(&format!("{target}/regions/{region}/start"), "0");
                kernel.set(&format!("{target}/regions/{region}/end"), "0");
            }
        }
        let tracing = "sys/kernel/tracing";
        kernel.put(&format!("{tracing}/events/damon/damon_aggregated/id"), "734");
        for (path, text) in [
            ("tracing_on", "1"),
            ("buffer_size_kb", "1410"),
            ("trace", "# old"),
            ("trace_pipe", ""),
            ("events/damon/damon_aggregated/enable", "0"),
        ] {
            kernel.put(&format!("{tracing}/instances/ballast-damon/{path}"), text);
        }
        kernel.put("proc/1/stat", "1 (init) S 0 1 1");
        kernel
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn paths(&self) -> DamonPaths {
        DamonPaths::under(self.root())
    }

    /// Writes any file, with its folders.
    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    /// Writes a file of the kdamonds.
    pub(crate) fn set(&self, path: &str, text: &str) {
        self.put(&format!("sys/kernel/mm/damon/admin/kdamonds/{path}"), text);
    }

    /// Reads a file of the kdamonds.
    pub(crate) fn get(&self, path: &str) -> String {
        self.text(&format!("sys/kernel/mm/damon/admin/kdamonds/{path}"))
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_dir_all(self.root().join(path)).unwrap();
    }
}
