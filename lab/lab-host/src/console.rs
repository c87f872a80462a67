//! Output of a guest's console log, with following.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

use crate::LabError;
use crate::run_folder::{GuestRecord, GuestState};

/// Time between two reads of a followed log.
const POLL: Duration = Duration::from_millis(200);
/// Most bytes copied at once.
const CHUNK_MAX: u64 = 1 << 20;

/// Writes a guest's console log to `out`; with `follow`, continues until the guest has exited.
///
/// # Errors
/// When the log cannot be read. A closed `out` is no error.
pub fn write_console(
    guest: &GuestRecord,
    follow: bool,
    out: &mut impl Write,
) -> Result<(), LabError> {
    let mut log = File::open(&guest.console).map_err(LabError::io("open", &guest.console))?;
    loop {
        // Checked before the log is read, so that the last output of a dying guest is not lost.
        let is_last_read = !follow || guest.state() == GuestState::Exited;
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
            if is_last_read {
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
    fn log_of_a_dead_guest_is_written_completely() {
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
            has_booted_elsewhere: false,
        };
        for follow in [false, true] {
            let mut out = Vec::new();
            write_console(&guest, follow, &mut out).unwrap();
            assert_eq!(out, b"first\nlast\n");
        }
    }
}
