//! Passes on the output of a command in an outer machine while the command runs.
//!
//! Idea: each output is a virtio-serial port behind a socket. QEMU puts everything into the socket
//! before the guest's write completes, so once the command has ended, an empty socket means that
//! nothing is left.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long to wait on an empty socket before checking whether the command has ended.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// The greatest number of bytes passed on at once.
const CHUNK: usize = 64 << 10;

/// Copies from `socket` to `out` until `is_over` is set and the socket is empty. A closed `out` is
/// no error: the command goes on.
pub(super) fn forward(mut socket: &UnixStream, out: &mut dyn Write, is_over: &AtomicBool) {
    let _ = socket.set_read_timeout(Some(POLL));
    let mut chunk = vec![0; CHUNK];
    loop {
        // Read before the socket: everything written before the end is in the socket by then.
        let was_over = is_over.load(Ordering::Acquire);
        match socket.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => {
                let _ = out.write_all(&chunk[..read]).and_then(|()| out.flush());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if was_over {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_written_before_the_end_arrives() {
        let (mut from, to) = UnixStream::pair().unwrap();
        let is_over = AtomicBool::new(false);
        let mut out = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..1000_u32 {
                    from.write_all(&number.to_le_bytes()).unwrap();
                }
                is_over.store(true, Ordering::Release);
            });
            forward(&to, &mut out, &is_over);
        });
        assert_eq!(out.len(), 4000);
    }
}
