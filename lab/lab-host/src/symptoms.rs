//! What can be seen of a guest that makes no progress.
//!
//! Idea: a guest stands still because its processor does not run, because a request to a disk was
//! lost, or because a program in it waits for something else. These causes show in different
//! places: the states of the hypervisor's threads, the hypervisor's monitor, the processor's
//! registers, and the guest's own kernel, which is asked to print its blocked tasks on the console.
//! Two observations a second apart show what still moves.
//!
//! Cost: a second, and if the guest does not answer up to [`GUEST_COMMAND_PATIENCE`] and the
//! channel's grace more. Limits: a Xen domain has no monitor. What cannot be read is reported as
//! such and is no error.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// Time between the two observations.
const OBSERVATION_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for one answer of the monitor.
const MONITOR_PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer of the monitor, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Longest excerpt of an answer, in bytes.
const SHOWN_BYTES_MAX: usize = 2000;
/// The greatest number of answers and events read while waiting for one answer.
const LINES_MAX: usize = 64;
/// Most threads of a hypervisor that are shown.
const THREADS_MAX: usize = 64;
/// How long the guest may take to describe itself.
const GUEST_COMMAND_PATIENCE: Duration = Duration::from_secs(10);
/// Prints processes that neither sleep nor idle, the number of requests in flight to each disk,
/// and, on the console, blocked tasks with their stacks.
const GUEST_COMMAND: &str = "cat /proc/[0-9]*/stat | cut -c1-60 | grep -v ') [SI] '; \
                      grep . /sys/block/*/inflight; cat /proc/pressure/memory /proc/pressure/io; \
                      echo w >/proc/sysrq-trigger; sleep 1";
/// Unit of the kernel's processor times (`USER_HZ`), in milliseconds.
const TICK_MS: u64 = 10;

/// All symptoms except the console, as text of several lines. `process` is the hypervisor's process
/// id, `monitor` its QMP socket if it has one, and `run_in_guest` runs a shell line in the guest.
pub(crate) fn describe(
    process: i32,
    monitor: Option<&Path>,
    run_in_guest: impl FnOnce(&str, Duration) -> String,
) -> String {
    let before = observe(process, monitor);
    std::thread::sleep(OBSERVATION_INTERVAL);
    let after = observe(process, monitor);
    let mut text = String::from("threads of its hypervisor, with the time they ran in a second:\n");
    for thread in &after.threads {
        let earlier = before.threads.iter().find(|it| it.id == thread.id);
        let ran = earlier.map(|it| thread.ran_ticks.saturating_sub(it.ran_ticks) * TICK_MS);
        let ran = ran.map_or("new".to_owned(), |ms| format!("{ms} ms"));
        let _ = writeln!(text, "  {} {} {ran} {}", thread.name, thread.state, thread.wait_channel);
    }
    for (name, answer) in &after.answers {
        let earlier = before.answers.iter().find(|(other, _)| other == name);
        let moved = match earlier {
            Some((_, earlier)) if earlier == answer => "unchanged for a second",
            _ => "changed within a second",
        };
        let _ = writeln!(text, "{name} ({moved}): {}", shown(answer));
    }
    let inside = run_in_guest(GUEST_COMMAND, GUEST_COMMAND_PATIENCE);
    let _ = writeln!(text, "inside, all that does not sleep:\n{}", shown(inside.trim_end()));
    text
}

struct Observation {
    threads: Vec<Thread>,
    /// Commands to the monitor and their answers.
    answers: Vec<(String, String)>,
}

/// A thread of the hypervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    id: u32,
    name: String,
    state: char,
    /// Processor time, in ticks.
    ran_ticks: u64,
    wait_channel: String,
}

fn observe(process: i32, socket: Option<&Path>) -> Observation {
    Observation {
        threads: threads(Path::new(&format!("/proc/{process}/task"))),
        answers: socket.map(monitor).unwrap_or_default(),
    }
}

fn threads(folder: &Path) -> Vec<Thread> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut threads: Vec<Thread> = entries
        .flatten()
        .filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let wait_channel = fs::read_to_string(entry.path().join("wchan")).unwrap_or_default();
            thread(entry.file_name().to_str()?.parse().ok()?, &stat, wait_channel)
        })
        .take(THREADS_MAX)
        .collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

/// A thread from its `stat` line in `/proc`; its name may contain spaces and brackets.
fn thread(id: u32, stat: &str, wait_channel: String) -> Option<Thread> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Thread {
        id,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        ran_ticks: ticks(11)?.saturating_add(ticks(12)?),
        wait_channel,
    })
}

/// The monitor's description of the machine, its disks and its processor.
fn monitor(socket: &Path) -> Vec<(String, String)> {
    let registers = json!({ "command-line": "info registers" });
    let commands = [
        ("query-status", json!({})),
        ("query-blockstats", json!({})),
        ("query-block", json!({})),
        ("human-monitor-command", registers),
    ];
    match talk(socket, &commands) {
        Ok(answers) => answers,
        Err(error) => vec![("its monitor".to_owned(), error.to_string())],
    }
}

fn talk(socket: &Path, commands: &[(&str, Value)]) -> std::io::Result<Vec<(String, String)>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(MONITOR_PATIENCE))?;
    stream.set_write_timeout(Some(MONITOR_PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?.take(ANSWER_BYTES_MAX));
    reader.read_line(&mut String::new())?;
    let mut answers = Vec::new();
    let hello = ("qmp_capabilities", json!({}));
    for (name, arguments) in std::iter::once(&hello).chain(commands) {
        let mut line = json!({ "execute": name, "arguments": arguments }).to_string();
        line.push('\n');
        stream.write_all(line.as_bytes())?;
        let answer = answer(&mut reader)?;
        if *name != hello.0 {
            answers.push(((*name).to_owned(), answer));
        }
    }
    Ok(answers)
}

/// The next answer; events are skipped.
fn answer(reader: &mut impl BufRead) -> std::io::Result<String> {
    for _ in 0..LINES_MAX {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Ok(value) = serde_json::from_str::<Value>(&line) else { break };
        match (value.get("return"), value.get("error")) {
            (Some(Value::String(text)), _) => return Ok(text.clone()),
            (Some(other), _) | (None, Some(other)) => return Ok(other.to_string()),
            (None, None) => {}
        }
    }
    Err(std::io::Error::other("no answer of the monitor"))
}

/// The beginning of `text`.
fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_line_is_read_whatever_its_name() {
        let stat = "12 (CPU 0/TCG) x) R 1 12 12 0 -1 4 5 6 7 8 300 45 0 0 20 0 4 0 99";
        let found = thread(12, stat, "0".to_owned()).unwrap();
        assert_eq!((found.name.as_str(), found.state, found.ran_ticks), ("CPU 0/TCG) x", 'R', 345));
        for stat in ["", "12 (a", "12 (a) R 1 2", "12 (a) R 1 2 3 4 5 6 7 8 9 10 x y"] {
            assert_eq!(thread(12, stat, String::new()), None, "{stat}");
        }
    }

    #[test]
    fn this_programs_own_threads_are_seen() {
        let own = threads(Path::new("/proc/self/task"));
        assert!(own.iter().any(|thread| thread.id == std::process::id()));
    }

    #[test]
    fn events_before_an_answer_are_passed_over() {
        let lines = "{\"event\": \"RESUME\"}\n{\"return\": {\"running\": true}}\n";
        assert_eq!(answer(&mut lines.as_bytes()).unwrap(), "{\"running\":true}");
        assert_eq!(answer(&mut &b"{\"return\": \"RIP=1\"}\n"[..]).unwrap(), "RIP=1");
        assert!(answer(&mut &b"rubbish\n"[..]).is_err());
        assert!(answer(&mut &b""[..]).is_err());
    }

    #[test]
    fn a_monitor_that_is_not_there_is_said() {
        let answers = monitor(Path::new("/nonexistent/qmp.sock"));
        assert_eq!(answers.len(), 1);
        assert!(answers[0].1.contains("No such file"), "{answers:?}");
    }
}
