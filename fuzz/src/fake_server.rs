//! A server that sends the input, whatever it is asked.
//!
//! Cost: no system calls: it is not a socket.

use std::io::{self, Cursor, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A stream that reads from the input; what is written to it is only counted.
pub struct FakeServer {
    says: Cursor<Vec<u8>>,
    heard: Arc<AtomicUsize>,
}

impl FakeServer {
    /// A server that sends `text`, and the number of bytes that it has received.
    pub fn new(text: &[u8]) -> (FakeServer, Arc<AtomicUsize>) {
        let heard = Arc::new(AtomicUsize::new(0));
        (FakeServer { says: Cursor::new(text.to_vec()), heard: Arc::clone(&heard) }, heard)
    }
}

impl Read for FakeServer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Small pieces, so that lines are divided.
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
