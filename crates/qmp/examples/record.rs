//! Records a conversation with a real hypervisor.
//!
//! `cargo run -p ballast-qmp --example record -- SOCKET STEP...` writes a transcript to standard
//! output, in the format that `tests/it/transcripts.rs` replays. A step is `sample`, `keep=MIB`,
//! `plug=MIB,TARGET_MIB`, `powerdown` or `wait=MS`. Connecting and probing come first.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ballast_model::{Action, Bytes, Generation, Timestamp};
use ballast_qmp::guest::GuestMonitor;

/// A step is over after this time without bytes.
const QUIET: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("expected SOCKET STEP...")?;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(QUIET))?;
    let mut guest = GuestMonitor::new(Duration::from_secs(10));
    let origin = Instant::now();
    let now = || Timestamp::ZERO + origin.elapsed();
    guest.connected(now(), None);
    exchange(&mut guest, &mut stream, &now)?;
    for step in arguments {
        println!("! {} {step}", now().as_millis());
        match step.split_once('=') {
            None if step == "sample" => {
                guest.begin_sample(now());
            }
            None if step == "powerdown" => {
                guest.begin_powerdown(now()).map_err(|outcome| outcome.to_string())?;
            }
            Some((verb @ ("keep" | "plug"), mib)) => {
                let (plug, target) = match mib.split_once(',') {
                    Some((plug, target)) if verb == "plug" => (Some(plug.parse()?), target),
                    _ => (None, mib),
                };
                let action = Action {
                    guest: "recorded".parse()?,
                    target: Bytes::mib(target.parse()?),
                    plug: plug.map(Bytes::mib),
                    generation: Generation(1),
                    deadline: now(),
                };
                guest.begin_action(&action, now()).map_err(|outcome| outcome.to_string())?;
            }
            Some(("wait", ms)) => std::thread::sleep(Duration::from_millis(ms.parse()?)),
            _ => {
                let expected = "expected sample, keep=, plug=, powerdown or wait=";
                return Err(format!("`{step}`: {expected}").into());
            }
        }
        exchange(&mut guest, &mut stream, &now)?;
    }
    Ok(())
}

/// Moves bytes until none have come for [`QUIET`].
fn exchange(
    guest: &mut GuestMonitor,
    stream: &mut UnixStream,
    now: &impl Fn() -> Timestamp,
) -> Result<(), Box<dyn std::error::Error>> {
    loop {
        let outgoing = guest.outgoing().to_vec();
        for line in std::str::from_utf8(&outgoing)?.lines() {
            println!("> {line}");
        }
        stream.write_all(&outgoing)?;
        guest.mark_written(outgoing.len());
        let mut bytes = [0; 1 << 16];
        match stream.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(0) => return Ok(()),
            Ok(count) => {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
                // Each read is a line; a message may span several.
                let text = std::str::from_utf8(&bytes[..count])?;
                println!("< {} {wall} {}", now().as_millis(), text.escape_debug());
                guest.receive(&bytes[..count], now(), wall).map_err(|why| why.to_string())?;
            }
        }
    }
}
