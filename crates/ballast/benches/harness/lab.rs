//! Common code of the benchmarks with real guests: guests of the lab with a monitor for the daemon.

use std::path::Path;
use std::process::ExitCode;

use ballast_lab_host::{GuestSpec, LabError, REAPER_COMMAND, Run, reaper_main};
use ballast_model::Bytes;

/// Starts guests in a folder, and measures them, briefly if the program was started with `--test`.
/// If a tool is missing, prints that and measures nothing.
pub fn measure_guests(
    start: impl FnOnce(&Path) -> Result<Run, LabError>,
    measure: impl AsyncFnOnce(&Run, &Path, bool),
) -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == REAPER_COMMAND) {
        return reaper_main(arguments);
    }
    let is_test = std::env::args().any(|argument| argument == "--test");
    let testbed = tempfile::tempdir().expect("a folder");
    match start(testbed.path()) {
        Ok(run) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(measure(&run, testbed.path(), is_test));
        }
        Err(why @ LabError::ToolMissing { .. }) => println!("SKIPPED: {why}"),
        Err(why) => panic!("{why}"),
    }
    ExitCode::SUCCESS
}

/// A guest with a QMP socket of its own in `folder`.
pub fn guest_with_monitor(name: &str, memory: Bytes, folder: &Path) -> GuestSpec {
    let socket = folder.join(format!("{name}.sock"));
    let monitor = format!("unix:{},server=on,wait=off", socket.display());
    let id = name.parse().expect("a name");
    GuestSpec { extra_args: vec!["-qmp".to_owned(), monitor], ..GuestSpec::new(id, memory) }
}
