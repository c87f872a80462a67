//! Reads a journal, replays it, and makes an advice.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_model::PolicyName;
use ballast_policy::build;
use ballast_replay::{Advice, Advisor, RecordedInputs, Replay, ensure_replayable};
use ballast_store::{EntryContent, JournalError, Range, Reader};

use crate::recorded::RecordedSettings;

/// Which part of a journal to replay, and under which policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// How far back from the last tick; `None`: the whole journal.
    pub since: Option<Duration>,
    /// The policy; `None`: the one in force at the last tick.
    pub policy: Option<PolicyName>,
}

/// The advice of the journal at `path`. `progress` is called after every tick with how many rows of
/// the journal were read and how many there are.
///
/// # Errors
/// The journal cannot be read, is of another version, or has no two ticks of that time without a
/// gap between them; or the policy cannot be replayed at all, or not on this record.
pub fn advise(
    path: &Path,
    request: Request,
    progress: &mut dyn FnMut(u64, u64),
) -> anyhow::Result<Advice> {
    let reader = Reader::open(path)?;
    let policy = match request.policy {
        Some(policy) => policy,
        None => policy_in_force(&reader, path)?,
    };
    ensure_replayable(policy)?;
    let (last, last_ms) = reader.info()?.last.unwrap_or_default();
    let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    let from_wall_ms = request.since.map(|since| last_ms.saturating_sub(ms(since)));
    let mut first = None;
    let mut settings_in_force = RecordedSettings::default();
    let (mut replay, mut reserve) = (None::<Replay>, Default::default());
    let mut inputs = RecordedInputs::default();
    let mut advisor = Advisor::new().context("the histograms cannot be made")?;
    for entry in reader.ticks(Range { from_wall_ms, ..Range::default() }) {
        let entry = entry?;
        let EntryContent::Tick(tick) = &entry.content else { continue };
        if let Some(settings) = settings_in_force.at(&reader, entry.config, tick)? {
            reserve = settings.policy_settings.reserve;
            let built = build(policy, settings.policy_settings.clone());
            match &mut replay {
                Some(replay) => replay.reconfigure(settings, built),
                none => *none = Some(Replay::new(settings, built)),
            }
        }
        let Some(replay) = &mut replay else { continue };
        inputs.observe(&tick.plan);
        replay.carry(&tick.carried);
        replay.tick(&tick.snapshot, &tick.plan, &tick.limits);
        advisor.tick(entry.wall_ms, &tick.snapshot, &tick.plan, replay, reserve);
        let first = *first.get_or_insert(entry.id);
        progress(rows_between(first, entry.id), rows_between(first, last));
    }
    let refused = replay.map_or(0, |replay| replay.report().plans_refused);
    let Some(advice) = advisor.advice(policy, refused) else {
        bail!(
            "{} holds no two ticks of that time that belong together: begin earlier with --since, \
             or let the daemon observe for a while",
            path.display()
        );
    };
    inputs.ensure(policy)?;
    Ok(advice)
}

fn rows_between(first: i64, last: i64) -> u64 {
    last.saturating_sub(first).max(0).unsigned_abs() + 1
}

/// The policy of the last tick.
fn policy_in_force(reader: &Reader, path: &Path) -> anyhow::Result<PolicyName> {
    match reader.last_tick() {
        Ok(Some((_, tick))) => Ok(tick.plan.policy),
        Ok(None) => bail!("{} holds no tick yet: let the daemon observe", path.display()),
        Err(error @ JournalError::Damaged { .. }) => {
            Err(error).context("the last tick cannot be read: name the policy with --policy")
        }
        Err(error) => Err(error.into()),
    }
}
