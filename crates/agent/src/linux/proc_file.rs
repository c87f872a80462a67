//! A file under `/proc` that stays open and is read into the same buffer each time.
//!
//! Limits: at most [`TEXT_BYTES_MAX`]; an unreadable file reads as empty.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Longest text read: `/proc/zoneinfo` of a guest with 16 nodes.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// Initial size of the buffer; `/proc/vmstat` has about 6 KiB.
const TEXT_BYTES_FIRST: usize = 8 << 10;

/// The open file and its buffer.
pub(crate) struct ProcFile {
    file: Option<File>,
    text: Vec<u8>,
}

impl ProcFile {
    /// Opens `path`, if it exists.
    pub(crate) fn open(path: &Path) -> ProcFile {
        ProcFile { file: File::open(path).ok(), text: vec![0; TEXT_BYTES_FIRST] }
    }

    /// The file's current text.
    pub(crate) fn read(&mut self) -> &str {
        let mut len = 0;
        while let Some(file) = &self.file
            && let Ok(n @ 1..) = file.read_at(&mut self.text[len..], len as u64)
        {
            len += n;
            if len == self.text.len() && len < TEXT_BYTES_MAX {
                self.text.resize(2 * len, 0);
            }
        }
        // The kernel's text is ASCII; anything else ends it.
        let read = &self.text[..len];
        str::from_utf8(read).unwrap_or_else(|error| {
            str::from_utf8(&read[..error.valid_up_to()]).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_returns_the_whole_current_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let long = "line\n".repeat(10_000);
        std::fs::write(&path, &long).unwrap();
        let mut file = ProcFile::open(&path);
        assert_eq!(file.read(), long);
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(file.read(), "short\n");
        std::fs::write(&path, b"good\n\xFFbad").unwrap();
        assert_eq!(file.read(), "good\n");
        assert_eq!(ProcFile::open(Path::new("/nonexistent")).read(), "");
    }
}
