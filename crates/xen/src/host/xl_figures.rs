//! The hypervisor's figures, from `xl list` and `xl info`.
//!
//! Idea: both run in a task of their own, one after the other. A sample waits for the task until
//! its deadline; late figures count in the next sample. `xl info` runs second, so that memory which
//! a domain took meanwhile does not count as free.
//! Cost: two processes each time. Limits: one run at a time.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::XenHost;
use super::in_flight::XlRun;
use crate::xl::{XlDomain, XlInfo, parse_xl_info, parse_xl_list};
use crate::xl_program::XlProgram;

/// How old the figures may get while nothing moves: with a tick a second, every other tick.
const REST: Duration = Duration::from_millis(1500);
/// Time between two attempts while `xl` fails.
const RETRY: Duration = Duration::from_secs(10);

impl XenHost {
    /// Begins a run of `xl`, if one is due and none is running.
    pub(super) fn begin_xl(&mut self) {
        let now = self.now();
        let rest = match self.xl_error {
            Some(_) => RETRY,
            None => REST,
        };
        let is_due = self.xl_run_at.is_none_or(|at| now.saturating_since(at) >= rest);
        let is_moving = self.xl_error.is_none() && self.domains.values().any(|it| it.is_moving());
        let is_new =
            self.xl_error.is_none() && self.domains.values().any(|it| it.holds().is_none());
        if self.run.is_some() || !(is_due || is_moving || is_new) {
            return;
        }
        let xl = self.xl.clone();
        self.run = Some(XlRun { begun: now, task: tokio::spawn(run_xl(xl)) });
    }

    /// Waits for the run until `until`, and takes in what it found.
    pub(super) async fn await_xl(&mut self, until: Instant) {
        let Some(run) = &mut self.run else { return };
        let Ok(ended) = timeout_at(until, &mut run.task).await else { return };
        let begun = run.begun;
        self.run = None;
        self.xl_run_at = Some(begun);
        let found = ended.unwrap_or_else(|error| Err(format!("the run of xl ended: {error}")));
        match found {
            Ok((domains, info)) => {
                if self.xl_error.take().is_some() {
                    self.say("xl works again".to_owned());
                }
                self.info = Some(info);
                for xl in domains {
                    if let Some(domain) = self.domains.get_mut(&crate::key::DomainId(xl.id)) {
                        domain.observe(xl, begun);
                    }
                }
            }
            Err(why) => {
                self.info = None;
                if self.xl_error.is_none() {
                    self.say(format!(
                        "{why}: what domains hold and what the host has free is not known, and \
                         nothing grows beyond what it had; shrinking goes on"
                    ));
                }
                self.xl_error = Some(why);
            }
        }
    }
}

async fn run_xl(xl: XlProgram) -> Result<(Vec<XlDomain>, XlInfo), String> {
    let list = xl.run(&["list"]).await?;
    let info = xl.run(&["info"]).await?;
    let domains = parse_xl_list(&list).map_err(|error| error.to_string())?;
    Ok((domains, parse_xl_info(&info).map_err(|error| error.to_string())?))
}
