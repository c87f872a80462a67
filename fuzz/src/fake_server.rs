//! A server that says what the input says, whatever it is asked.
//!
//! Cost: none of the system: it is no socket.

use std::io::{self, Cursor, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A stream from which the input can be read; what is written is counted.
pub struct FakeServer {
    says: Cursor<Vec<u8>>,
    heard: Arc<AtomicUsize>,
}

impl FakeServer {
    /// A server that says `text`, and the number of bytes that it has heard.
    pub fn new(text: &[u8]) -> (FakeServer, Arc<AtomicUsize>) {
        let heard = Arc::new(AtomicUsize::new(0));
        (FakeServer { says: Cursor::new(text.to_vec()), heard: Arc::clone(&heard) }, heard)
    }
}

impl Read for FakeServer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Small pieces, so that lines are torn.
        let count = buffer.len().min(13);
        self.says.read(&mut buffer[..count])
    }
}

impl Write for FakeServer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard.fetch_add(bytes.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
