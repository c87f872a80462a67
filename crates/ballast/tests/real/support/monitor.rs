//! A QMP connection of a test to a guest's QEMU, beside the daemon's: for reboots and for plugged
//! memory.
//!
//! Limits: an answer has one line; events in between are ignored.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use ballast_model::Bytes;
use serde_json::{Value, json};

use crate::harness::PATIENCE;

/// The lab's virtio-mem device.
const DEVICE: &str = "/machine/peripheral/plug0";

/// A connection to a QMP socket that has no other client.
pub struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    pub fn connect(socket: &Path) -> Monitor {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut monitor = Monitor { lines: BufReader::new(stream) };
        let greeting = monitor.line();
        assert!(greeting["QMP"].is_object(), "{greeting}");
        monitor.run("qmp_capabilities", &json!({}));
        monitor
    }

    /// Runs a command and returns its result; panics if QEMU refuses.
    pub fn run(&mut self, command: &str, arguments: &Value) -> Value {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.lines.get_mut(), "{line}").unwrap();
        loop {
            let mut answer = self.line();
            assert!(answer["error"].is_null(), "{command}: {answer}");
            if answer.get("return").is_some() {
                return answer["return"].take();
            }
        }
    }

    /// The plugged memory, and the requested amount.
    pub fn plugged(&mut self) -> (Bytes, Bytes) {
        let mut property = |name| {
            let arguments = json!({ "path": DEVICE, "property": name });
            Bytes::new(self.run("qom-get", &arguments).as_u64().unwrap())
        };
        (property("size"), property("requested-size"))
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "QEMU has hung up");
        serde_json::from_str(&line).unwrap()
    }
}
