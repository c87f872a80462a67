//! The accuracy of working sets, against every page that real guests touch.
//!
//! Idea: emulated guests are booted one after the other, with the emulator's record of their loads
//! and stores and with the tracker. The daemon's way and the ways that it is compared with watch
//! the same guest in turns, and each is compared with the record of its own time. The cost is shown
//! beside the error.
//!
//! Cost: a quarter of an hour; `--quick` takes three minutes. Source: MEB §5.2.1.
//! Limits: the record has loads and stores; the tracker also sees instruction fetches and devices,
//! some MiB. The cost of a trap is that under emulation on this machine.

pub(super) mod compare;
pub(super) mod report;
pub(super) mod session;
pub(super) mod subject;
pub(super) mod way;

use anyhow::bail;
use ballast_lab_host::GuestSpec;
use ballast_model::Bytes;
use clap::ValueEnum;

use self::compare::{Estimate, align, compare};
use self::report::{Effort, Failed, Figures, GuestFindings, means};
use self::session::Session;
use self::subject::Subject;
use self::way::Way;
use crate::machine;
use crate::scaffold::{Say, WithGoals, name_of};
use crate::timing::mean;
use ballast_daemon::track::FollowSettings;

/// Memory of each guest: the largest workload, the kernel, and some spare room.
const MEMORY: Bytes = Bytes::mib(512);
/// Intervals of each way in a short run.
const QUICK: u32 = 10;

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
// Each table has such a type, and clap names the group of arguments after the type.
#[group(skip)]
pub(super) struct Choice {
    /// For the table `guests`: a guest to track; repeatable [default: all]
    #[arg(long = "guest", value_name = "NAME", value_enum)]
    guests: Vec<Subject>,
}

impl Choice {
    /// Whether the user asked for less than everything.
    pub(super) fn is_narrowed(&self) -> bool {
        !self.guests.is_empty()
    }

    fn guests(&self, is_quick: bool) -> Vec<Subject> {
        let all = match is_quick {
            true => &Subject::QUICK[..],
            false => Subject::value_variants(),
        };
        match self.is_narrowed() {
            true => self.guests.clone(),
            false => all.to_vec(),
        }
    }
}

/// Measures; progress goes to `say`.
///
/// # Errors
/// Something that guests need is missing or not permitted.
pub(super) fn measure(
    choice: &Choice,
    is_quick: bool,
    say: Say<'_>,
) -> anyhow::Result<WithGoals<GuestFindings>> {
    let daemon = session::daemon()?;
    let (mut figures, mut failed) = (Vec::new(), Vec::new());
    for guest in choice.guests(is_quick) {
        say(&format!("{}: booting", name_of(guest)));
        match one(guest, is_quick, &daemon, say) {
            Ok(found) => figures.extend(found),
            // A quarter of an hour of results is not discarded because this machine had too little
            // processor time for one guest.
            Err(error) => {
                say(&format!("{}: {error:#}", name_of(guest)));
                failed.push(Failed { guest, why: format!("{error:#}") });
            }
        }
    }
    if let (true, Some(first)) = (figures.is_empty(), failed.first()) {
        bail!("guest {}: {}", name_of(first.guest), first.why);
    }
    let interval_s = daemon.interval.as_secs_f64();
    let (processor, means) = (machine::processor(), means(&figures));
    let found = GuestFindings { processor, is_quick, interval_s, figures, failed, means };
    Ok(WithGoals::new(found))
}

/// Measures one guest in every way.
fn one(
    subject: Subject,
    is_quick: bool,
    daemon: &FollowSettings,
    say: Say<'_>,
) -> anyhow::Result<Vec<Figures>> {
    let with = |spec: &mut GuestSpec| spec.with = subject.programs();
    let session = Session::start(MEMORY, daemon.interval, with, say)?;
    subject.start(session.guest()?)?;
    let intervals = if is_quick { QUICK } else { subject.intervals() };
    let mut figures = Vec::new();
    for way in Way::ALL {
        say(&format!("{}: {}", name_of(subject), way.name()));
        let (mut working_set, mut touched, mut costs) = (Vec::new(), Vec::new(), Vec::new());
        let (mut share, mut trap_us, mut latest) = (0.0, 0.0, None);
        let restarts = session.watch(way, daemon, intervals, |at_ns, row| {
            costs.push(row.cost_share());
            if let Some(seen) = &row.seen {
                latest = Some(seen.touched);
                share = seen.share;
                trap_us = seen.trap.as_secs_f64() * 1e6;
            }
            // At rest the estimate stays the same, or changes as the working set does.
            if let Some(moved) = row.moved {
                latest = latest.map(|touched| moved.applied_to(touched));
            }
            working_set.extend(row.known.map(|bytes| Estimate { at_ns, bytes }));
            touched.extend(latest.map(|bytes| Estimate { at_ns, bytes }));
            Ok(())
        })?;
        session.settle();
        let cost_cores = mean(costs.into_iter());
        let effort = Effort { cost_cores, share, trap_us, restarts };
        let truth = session.truth()?;
        let points = |estimates: &[Estimate]| align(estimates, &truth, daemon.interval);
        let touched = compare(&points(&touched));
        let found = Figures::new(subject, way, &points(&working_set), touched, effort);
        say(&format!("{}: {}: {}", name_of(subject), way.name(), found.line()));
        figures.push(found);
    }
    Ok(figures)
}
