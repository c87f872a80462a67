//! Changes of maxmem in the background: fences around domains that do not release memory, and their
//! removal.
//!
//! Idea: `limit.rs` computes a maxmem; this file sets it by `xl mem-max`, in tasks of its own.
//! Limits: [`RUNS_MAX`] at a time; the others follow with the next sample.

use ballast_model::Bytes;

use super::XenHost;
use super::in_flight::LimitRun;
use crate::key::DomainId;
use crate::xl_program::XlProgram;

/// Most runs of `xl mem-max` at a time.
pub(super) const RUNS_MAX: usize = 4;

impl XenHost {
    /// Takes in the changes that have ended, and begins those that are due.
    pub(super) fn change_limits(&mut self) {
        while let Some(ended) = self.limit_runs.try_join_next() {
            match ended {
                Ok(run) => self.take_limit(run),
                // It is not known which one panicked: all of them are tried again.
                Err(_) => self.limiting.clear(),
            }
        }
        if self.xl_error.is_some() {
            return;
        }
        let mut due = Vec::new();
        for domain in self.domains.values().filter(|it| it.id != DomainId::DOM0) {
            let Some(holds) = domain.holds() else { continue };
            let target = domain.ordered().filter(|_| domain.is_stuck);
            let fence = target.and_then(|target| domain.maxmem.fence(holds, target));
            let open = || domain.maxmem.without_fence(holds, domain.ceiling());
            let wanted = match (fence, target) {
                (Some(fence), _) => Some((fence, true)),
                (None, None) => open().map(|to| (to, false)),
                (None, Some(_)) => domain.maxmem.at_least(holds).map(|to| (to, true)),
            };
            due.extend(wanted.map(|(to, is_fence)| (domain.id, to, is_fence)));
        }
        for (id, to, is_fence) in due {
            if self.limit_runs.len() >= RUNS_MAX {
                return;
            }
            if self.limiting.insert(id) {
                let xl = self.xl.clone();
                self.limit_runs.spawn(async move {
                    let result = set_maxmem(&xl, id, to).await;
                    LimitRun { id, to, is_fence, result }
                });
            }
        }
    }

    fn take_limit(&mut self, run: LimitRun) {
        let LimitRun { id, to, is_fence, result } = run;
        self.limiting.remove(&id);
        let Some(domain) = self.domains.get_mut(&id) else { return };
        let notice = match result {
            Ok(()) => {
                domain.maxmem.was_set(to, is_fence);
                match is_fence {
                    true => {
                        format!("domain {id} does not give: the hypervisor lets it hold {to:#}")
                    }
                    false => format!("domain {id}: the hypervisor lets it hold {to:#} again"),
                }
            }
            Err(why) => format!("domain {id}: its maxmem is not changed: {why}"),
        };
        self.say(notice);
    }
}

/// Sets a domain's maxmem to `to`, rounded up to whole KiB.
///
/// # Errors
/// `xl` fails; the text says why.
pub(super) async fn set_maxmem(xl: &XlProgram, id: DomainId, to: Bytes) -> Result<(), String> {
    let kib = to.get().div_ceil(1024);
    xl.run(&["mem-max", &id.to_string(), &format!("{kib}k")]).await.map(drop)
}
