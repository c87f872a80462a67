//! Following a guest's console log.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

use crate::LabError;
use crate::run_folder::{GuestRecord, GuestState};

/// Time between two looks at a log that is followed.
const POLL: Duration = Duration::from_millis(200);
/// Most bytes handled at once.
const CHUNK_MAX: u64 = 1 << 20;

/// Writes a guest's console log to `out`; with `follow`, goes on until the guest is gone.
///
/// # Errors
/// When the log cannot be read. That nobody reads `out` any more is no error.
pub fn write_console(
    guest: &GuestRecord,
    follow: bool,
    out: &mut impl Write,
) -> Result<(), LabError> {
    let mut log = File::open(&guest.console).map_err(LabError::io("open", &guest.console))?;
    loop {
        // Looked at before the log: what a dying guest wrote last is still read.
        let over = !follow || guest.state() == GuestState::Exited;
        let mut bytes = Vec::new();
        (&mut log)
            .take(CHUNK_MAX)
            .read_to_end(&mut bytes)
            .map_err(LabError::io("read", &guest.console))?;
        match out.write_all(&bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(LabError::io("write", "standard output"))?,
        }
        if bytes.is_empty() {
            if over {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessId;
    use ballast_model::Bytes;

    #[test]
    fn the_log_of_a_dead_guest_is_written_whole_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let console = folder.path().join("a.log");
        std::fs::write(&console, "first\nlast\n").unwrap();
        let dead = ProcessId { pid: 1, start_ticks: u64::MAX };
        let guest = GuestRecord {
            id: "a".parse().unwrap(),
            process: dead,
            memory: Bytes::ZERO,
            qmp_socket: "/q".into(),
            console,
        };
        for follow in [false, true] {
            let mut out = Vec::new();
            write_console(&guest, follow, &mut out).unwrap();
            assert_eq!(out, b"first\nlast\n");
        }
    }
}
