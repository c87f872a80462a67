//! `docs/tour.md`, line by line, as typed by somebody who has just installed the packages.
//!
//! Idea: the page itself is the test. A fenced block `console` has commands, which begin with `#`
//! and a space, and below each command its output. `…` stands for what differs between hosts:
//! within a line for a part of it, alone for any number of lines. Runs of spaces count as one.
//! Commands that only look are repeated until they print the output, as a reader would do; all
//! others run once, and have to succeed.
//! The tests run on this machine's files with packages on top of them, as in `packages.rs`, so
//! dpkg, apt and systemd are Debian's own. Guests run under KVM if a guest of the lab does; else
//! KVM is hidden from QEMU. Limits: as `packages.rs`; curl stands in for a browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::terminal::Terminal;
use crate::packages::{FOLDER, PATH, package};
use crate::support::Lab;
use crate::support::systemd;
use ballast_lab_guest::protocol::MODULE_LIST_PATH;
use ballast_lab_host::{Cache, GuestSpec, Kernel, KernelChoice, initramfs};
use ballast_model::Bytes;

const TOUR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tour.md");
/// The folder with the kernel and the initial file system of the page's guests.
const GUESTS: &str = "/var/lib/guests";
/// Commands that only look begin with one of these.
const LOOKS: [&str; 6] = [
    "ballast advise",
    "ballast doctor",
    "ballast explain",
    "ballast replay",
    "ballast status",
    "curl ",
];
/// Longest wait for an output: guests boot meanwhile, and the machine may be busy.
const LOOKING_MAX: Duration = Duration::from_secs(120);
/// The command that needs a terminal.
const TOP: &str = "ballast top";
/// Stands for any text.
const ANYTHING: &str = "…";
/// A guest's first process: it loads the drivers, as a distribution does, and then idles.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
while read -r module; do /bin/busybox insmod \"$module\"; done <MODULES
exec /bin/busybox sleep 1000000
";

/// A command of the page.
struct Step<'a> {
    /// Number of its line, from 1.
    line: usize,
    command: String,
    expected: Vec<&'a str>,
}

#[test]
fn every_line_of_the_tour_does_what_it_says() {
    if package("ballast_", ".deb").is_none() {
        return;
    }
    if !systemd::is_inside() {
        return systemd::run_again_to_install("tour::every_line_of_the_tour_does_what_it_says");
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(terminal) = Terminal::open(folder.path().join("tmux.sock"), &format!("PATH={PATH}"))
    else {
        return;
    };
    hide_kvm_unless_it_works();
    prepare_guests();
    for step in steps(&fs::read_to_string(TOUR).unwrap()) {
        println!("tour.md:{}: # {}", step.line, step.command);
        if step.command == TOP {
            watch(&terminal, &step);
        } else if LOOKS.iter().any(|look| step.command.starts_with(look)) {
            look(&step);
        } else {
            let (is_success, said) = run(&step.command);
            assert!(is_success && is_as(&step.expected, &said), "{}", step.unlike(&said));
        }
    }
}

#[test]
fn outputs_are_compared_but_for_what_differs() {
    let expected = ["a  1 …", "…", "end"];
    for (said, is_same) in [
        ("a 1 MiB\nend\n", true),
        ("a   1 KiB \nmore\nend", true),
        ("a 2 MiB\nend", false),
        ("a 1 MiB\nend\nmore", false),
        ("end", false),
    ] {
        assert_eq!(is_as(&expected, said), is_same, "{said}");
    }
    let text = "```console\n# one \\\n    two\nsaid\n# three\n```\n# no command\n";
    let read: Vec<_> = steps(text).into_iter().map(|it| (it.line, it.command)).collect();
    assert_eq!(read, [(2, "one two".to_owned()), (5, "three".to_owned())]);
}

impl Step<'_> {
    fn unlike(&self, said: &str) -> String {
        let expected = self.expected.join("\n");
        let Step { line, command, .. } = self;
        format!("tour.md:{line}: {command}\nprints\n{said}\nand not\n{expected}")
    }
}

/// The commands in the page's blocks, in order.
fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let (mut is_console, mut goes_on) = (false, false);
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_console = line == "```console";
            continue;
        }
        if !is_console {
            continue;
        }
        let part = line.strip_suffix('\\').unwrap_or(line);
        match (line.strip_prefix("# "), steps.last_mut()) {
            (_, Some(step)) if goes_on => step.command.push_str(part.trim_start()),
            (Some(_), _) => steps.push(Step {
                line: number + 1,
                command: part["# ".len()..].to_owned(),
                expected: Vec::new(),
            }),
            (None, Some(step)) => step.expected.push(line),
            (None, None) => panic!("tour.md:{}: no command is above {line}", number + 1),
        }
        goes_on = line.ends_with('\\');
    }
    steps
}

/// Whether the output `said` matches `expected`.
fn is_as(expected: &[&str], said: &str) -> bool {
    let said: Vec<&str> = said.trim_end().lines().collect();
    are_like(expected, &said)
}

fn are_like(expected: &[&str], said: &[&str]) -> bool {
    match (expected.split_first(), said.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((first, rest)), _) if first.trim() == ANYTHING => {
            (0..=said.len()).any(|skipped| are_like(rest, &said[skipped..]))
        }
        (Some((first, rest)), Some((line, others))) => {
            is_like(first, line) && are_like(rest, others)
        }
        (Some(_), None) => false,
    }
}

/// Whether a line matches the expected line.
fn is_like(expected: &str, line: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, line) = (words(expected), words(line));
    let (mut pieces, mut left) = (expected.split(ANYTHING), line.as_str());
    let Some(rest) = pieces.next().and_then(|first| left.strip_prefix(first)) else { return false };
    left = rest;
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return left.is_empty() };
    for piece in pieces {
        let Some(at) = left.find(piece) else { return false };
        left = &left[at + piece.len()..];
    }
    left.ends_with(last)
}

/// Runs a command: whether it succeeds, and its output.
fn run(command: &str) -> (bool, String) {
    let packages = std::env::var_os(FOLDER).unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("{{ {command}\n}} 2>&1")]).current_dir(packages);
    shell.env("PATH", PATH).env("DEBIAN_FRONTEND", "noninteractive");
    // Output goes to a file, because a guest that outlives its command would keep a pipe open.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("output");
    shell.stdin(Stdio::null()).stdout(fs::File::create(&path).unwrap());
    let status = shell.status().unwrap();
    let said = fs::read_to_string(path).unwrap();
    println!("{said}");
    (status.success(), said)
}

/// Repeats a command until its output is as expected.
fn look(step: &Step<'_>) {
    see(step, || run(&step.command));
}

/// The same in a terminal, for a command that a key ends.
fn watch(terminal: &Terminal, step: &Step<'_>) {
    terminal.press(&[&step.command, "Enter"]);
    see(step, || (true, terminal.screen()));
    terminal.press(&["q"]);
    terminal.shows(&["ready:"]);
}

/// Waits until `look` succeeds and its output is as expected.
fn see(step: &Step<'_>, look: impl Fn() -> (bool, String)) {
    let begun = Instant::now();
    loop {
        let (is_success, said) = look();
        if is_success && is_as(&step.expected, &said) {
            return;
        }
        assert!(begun.elapsed() < LOOKING_MAX, "{}", step.unlike(&said));
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Hides `/dev/kvm` if it does not work: QEMU would try to use it.
fn hide_kvm_unless_it_works() {
    let guest = GuestSpec::new("trial".parse().unwrap(), Bytes::mib(128));
    if Path::new("/dev/kvm").exists() && !Lab::boot(vec![guest]).is_kvm() {
        // Only for this test's processes.
        let line = "mount --bind /dev/null /dev/kvm";
        assert!(Command::new("sh").args(["-c", line]).status().unwrap().success());
    }
}

/// Puts a kernel of Debian there, and the initial file system.
fn prepare_guests() {
    let (cache, say) = (Cache::open().unwrap(), |line: &str| eprintln!("{line}"));
    let kernel = Kernel::fetch(&cache, &KernelChoice::Default, &say).unwrap();
    let archive = initramfs(&cache, &kernel, &Default::default(), false, &[], &say).unwrap();
    fs::create_dir_all(GUESTS).unwrap();
    let at = |name: &str| PathBuf::from(GUESTS).join(name);
    fs::copy(&kernel.image, at("vmlinuz")).unwrap();
    // The kernel unpacks a second archive over the first.
    fs::write(at("init"), INIT.replace("MODULES", MODULE_LIST_PATH)).unwrap();
    let line = format!(
        "cd {GUESTS} && chmod 755 init && cp {} initrd.img && truncate -s %4 initrd.img && \
         echo init | busybox cpio -o -H newc >>initrd.img && rm init",
        archive.display()
    );
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
}
