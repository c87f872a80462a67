//! A file under `/proc` that is read repeatedly.
//!
//! Idea: it stays open and is read into the same buffer each time: a guest must not need new memory
//! to report that it is short of memory.
//! Limits: at most [`TEXT_BYTES_MAX`]; a file that cannot be read is empty.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Most bytes read, four times the size of `/proc/vmstat`.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// An open file under `/proc`.
pub(crate) struct ProcFile {
    file: File,
    text: Box<[u8]>,
}

impl ProcFile {
    /// Opens it.
    pub(crate) fn open(path: &str) -> Result<ProcFile, String> {
        let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(ProcFile { file, text: vec![0; TEXT_BYTES_MAX].into() })
    }

    /// Its current text.
    pub(crate) fn read(&mut self) -> Cow<'_, str> {
        let mut len = 0;
        while let Ok(n @ 1..) = self.file.read_at(&mut self.text[len..], len as u64) {
            len += n;
        }
        String::from_utf8_lossy(&self.text[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_returns_current_text() {
        let mut stat = ProcFile::open("/proc/self/stat").unwrap();
        for _ in 0..2 {
            assert!(stat.read().starts_with(&std::process::id().to_string()));
        }
        assert!(ProcFile::open("/proc/nonexistent").is_err());
    }
}
