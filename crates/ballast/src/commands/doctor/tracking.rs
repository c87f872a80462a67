//! `ballast doctor tracking`: which sources of working sets work here, without a daemon.

use ballast_daemon::track::{GuestDiagnosis, SourceFinding, TrackingDiagnosis};
use ballast_report::{Output, harmless_line};
use serde::Serialize;

/// Check which sources can track each guest that runs here, and why others cannot.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast doctor tracking
  ballast doctor tracking --json | jq '.guests[] | select(.best == null) | .guest'

It checks the host without the daemon and changes nothing. Run it as root: otherwise it does not see
hypervisors of other users. Exit status: 0 every guest has a source; 1 a guest has none.")]
pub(super) struct TrackingArgs {
    #[command(flatten)]
    output: Output,
}

/// Prints the diagnosis.
///
/// # Errors
/// A guest has no source; the output cannot be written.
pub(super) fn run(args: TrackingArgs) -> anyhow::Result<()> {
    let diagnosis = TrackingDiagnosis::of_host();
    let reply = TrackingReply {
        damon: &diagnosis.damon,
        mglru: &diagnosis.mglru,
        guests: diagnosis
            .guests
            .iter()
            .map(|it| GuestReply { best: it.best(), guest: it })
            .collect(),
    };
    args.output.print(&reply, |reply, _| render(reply))?;
    let without = reply.guests.iter().filter(|it| it.best.is_none()).count();
    anyhow::ensure!(without == 0, "{without} guests have no source of working sets");
    Ok(())
}

/// The diagnosis as JSON.
#[derive(Debug, Serialize)]
struct TrackingReply<'a> {
    damon: &'a SourceFinding,
    mglru: &'a SourceFinding,
    guests: Vec<GuestReply<'a>>,
}

#[derive(Debug, Serialize)]
struct GuestReply<'a> {
    #[serde(flatten)]
    guest: &'a GuestDiagnosis,
    /// The source that `source = "auto"` chooses; `None`: none works.
    best: Option<&'static str>,
}

fn render(reply: &TrackingReply<'_>) -> String {
    let mut text = finding("DAMON on this host", reply.damon);
    text.push_str(&finding("page generations on this host", reply.mglru));
    if reply.guests.is_empty() {
        text.push_str("\nno guest runs on this host\n");
    }
    for GuestReply { guest, best } in &reply.guests {
        let name = harmless_line(guest.guest.as_deref().unwrap_or("?"));
        let best = best.unwrap_or("nothing");
        text.push_str(&format!("\n{name} (process {}): tracked by {best}\n", guest.pid));
        text.push_str(&finding("  library", &guest.library));
        text.push_str(&finding("  damon", &guest.damon));
        text.push_str(&finding("  mglru", &guest.mglru));
        text.push_str(&finding("  referenced", &guest.referenced));
    }
    text
}

fn finding(source: &str, finding: &SourceFinding) -> String {
    let works = if finding.works { "works" } else { "does not work" };
    let mut text = format!("{source}: {works}: {}\n", harmless_line(&finding.note));
    if let Some(remedy) = &finding.remedy {
        let indent = source.len() - source.trim_start().len() + 2;
        text.push_str(&format!("{:indent$}to do: {remedy}\n", ""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn every_source_is_told_with_its_reason() {
        let fails = |note: &str, remedy: Option<&str>| SourceFinding {
            works: false,
            note: note.to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let works = SourceFinding { works: true, note: "page by page".to_owned(), remedy: None };
        let guest = GuestDiagnosis {
            guest: Some("web-1".to_owned()),
            pid: 4711,
            library: fails("not preloaded", Some("restart the guest")),
            damon: works.clone(),
            mglru: fails("turned off", None),
            referenced: fails("under KVM", None),
        };
        let reply = TrackingReply {
            damon: &works,
            mglru: &guest.mglru,
            guests: vec![GuestReply { best: guest.best(), guest: &guest }],
        };
        expect![[r#"
            DAMON on this host: works: page by page
            page generations on this host: does not work: turned off

            web-1 (process 4711): tracked by damon
              library: does not work: not preloaded
                to do: restart the guest
              damon: works: page by page
              mglru: does not work: turned off
              referenced: does not work: under KVM
        "#]]
        .assert_eq(&render(&reply));
        let json = serde_json::to_value(&reply).unwrap();
        assert_eq!(json["guests"][0]["best"], "damon");
        assert_eq!(json["guests"][0]["library"]["remedy"], "restart the guest");
    }
}
