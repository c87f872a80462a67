//! The host's memory, read once a tick.
//!
//! Cost: two files, about 20 µs together.

use std::path::Path;

use ballast_model::HostSample;

use crate::error::ReadError;
use crate::file::KernelFile;
use crate::meminfo::parse_meminfo;
use crate::pressure::read_open;

/// Reads the host's memory once per tick.
#[derive(Debug)]
pub struct HostReader {
    meminfo: KernelFile,
    pressure: KernelFile,
    buffer: Vec<u8>,
}

impl HostReader {
    /// A reader of the files in `proc` ([`PROC`](crate::PROC), or a test's folder). Opens no file
    /// yet.
    pub fn new(proc: &Path) -> Self {
        HostReader {
            meminfo: KernelFile::new(proc.join("meminfo")),
            pressure: KernelFile::new(proc.join("pressure/memory")),
            buffer: Vec::new(),
        }
    }

    /// The host's figures now, and at most one error per file. A figure that could not be read is
    /// `None`.
    pub fn sample(&mut self) -> (HostSample, Vec<ReadError>) {
        let mut sample = HostSample::default();
        let mut errors = Vec::new();
        let info = match self.meminfo.read(&mut self.buffer) {
            Ok(Some(text)) => parse_meminfo(self.meminfo.path(), text),
            Ok(None) => Err(ReadError::io(
                self.meminfo.path(),
                std::io::Error::from(std::io::ErrorKind::NotFound),
            )),
            Err(e) => Err(e),
        };
        match info {
            Ok(info) => {
                sample.memory_total = Some(info.total);
                sample.memory_available = info.available;
                sample.swap_total = info.swap_total;
                sample.swap_free = info.swap_free;
            }
            Err(e) => errors.push(e),
        }
        match read_open(&mut self.pressure, &mut self.buffer) {
            Ok(pressure) => sample.pressure = pressure,
            Err(e) => errors.push(e),
        }
        (sample, errors)
    }
}
