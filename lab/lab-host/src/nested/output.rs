//! What a command in an outer machine writes, handed on while it runs.
//!
//! Idea: each output is a virtio-serial port behind a socket, which takes no more than is read.
//! QEMU has put all of it into the socket before the guest hears that it is written, so once the
//! command has ended, an empty socket means that nothing is left.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long an empty socket is waited on before the command is asked about.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// Most bytes handed on at once.
const CHUNK: usize = 64 << 10;

/// Copies from `socket` to `out` until `is_over` and the socket is empty. A closed `out` is no
/// error: the command goes on.
pub(super) fn forward(mut socket: &UnixStream, out: &mut dyn Write, is_over: &AtomicBool) {
    let _ = socket.set_read_timeout(Some(POLL));
    let mut chunk = vec![0; CHUNK];
    loop {
        // Asked first: what was written before the end is there by now.
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
