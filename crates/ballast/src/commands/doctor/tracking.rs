//! `ballast doctor tracking`: which sources of working sets work here, without a daemon.

use std::path::PathBuf;

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
hypervisors of other users. Exit status: 0 every guest has a source; 1 a guest has none, or waits
for one.")]
pub(super) struct TrackingArgs {
    /// The daemon's configuration (TOML), for whether referenced bits may be used [default:
    /// /etc/ballast/ballast.toml if it exists, else the built-in defaults]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Prints the diagnosis; `allows_bits`: referenced bits may be used.
///
/// # Errors
/// A guest has no source; the output cannot be written.
pub(super) fn run(args: TrackingArgs, allows_bits: bool) -> anyhow::Result<()> {
    let diagnosis = TrackingDiagnosis::of_host();
    let reply = TrackingReply {
        damon: &diagnosis.damon,
        mglru: &diagnosis.mglru,
        guests: diagnosis.guests.iter().map(|it| GuestReply::new(it, allows_bits)).collect(),
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
    /// The source that `source = "auto"` takes; `None`: none.
    best: Option<&'static str>,
    /// The source that it waits for instead; `None`: it takes one, or none can work.
    waits_for: Option<&'static str>,
}

impl<'a> GuestReply<'a> {
    /// `allows_bits`: referenced bits may be used.
    fn new(guest: &'a GuestDiagnosis, allows_bits: bool) -> GuestReply<'a> {
        GuestReply { guest, best: guest.best(allows_bits), waits_for: guest.awaited(allows_bits) }
    }
}

fn render(reply: &TrackingReply<'_>) -> String {
    let mut text = finding("DAMON on this host", reply.damon);
    text.push_str(&finding("page generations on this host", reply.mglru));
    if reply.guests.is_empty() {
        text.push_str("\nno guest runs on this host\n");
    }
    for GuestReply { guest, best, waits_for } in &reply.guests {
        let name = harmless_line(guest.guest.as_deref().unwrap_or("?"));
        let best = best.unwrap_or("nothing");
        let waits = waits_for.map_or(String::new(), |source| format!(", waits for {source}"));
        text.push_str(&format!("\n{name} (process {}): tracked by {best}{waits}\n", guest.pid));
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
            is_lasting: true,
            note: note.to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let works = SourceFinding {
            works: true,
            is_lasting: false,
            note: "page by page".to_owned(),
            remedy: None,
        };
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
            guests: vec![GuestReply::new(&guest, false)],
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
        assert_eq!(json["guests"][0]["waits_for"], serde_json::Value::Null);
        assert_eq!(json["guests"][0]["library"]["remedy"], "restart the guest");

        let taken = SourceFinding { is_lasting: false, ..fails("in use by somebody else", None) };
        let guest = GuestDiagnosis { damon: taken, mglru: works.clone(), ..guest.clone() };
        let reply = TrackingReply { guests: vec![GuestReply::new(&guest, false)], ..reply };
        let told = render(&reply);
        assert!(told.contains("tracked by nothing, waits for damon\n"), "{told}");
        let json = serde_json::to_value(&reply).unwrap();
        assert_eq!(json["guests"][0]["best"], serde_json::Value::Null);
        assert_eq!(json["guests"][0]["waits_for"], "damon");
    }
}
