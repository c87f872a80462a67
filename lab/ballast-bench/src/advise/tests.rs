//! Short runs, and the form of the JSON.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

#[test]
fn a_quick_run_has_every_host_under_every_policy() {
    let line = Line::parse_from(["advise", "--quick"]);
    let held = compare(&line.args, &|_| ()).unwrap();
    eprintln!("{}", held.render(None));
}
