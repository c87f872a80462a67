//! Operators' commands and new configurations.

use ballast_control::{Event, Settings};
use ballast_model::{GuestChange, GuestId, Note, Plan, PolicyName};
use ballast_store::Event as Recorded;
use tracing::{info, warn};

use super::{Engine, World};
use crate::view::{self, Command, Done};

/// Most guests with limits of their own, so that commands about guests that come and go cannot fill
/// the daemon's memory.
pub const NAMED_GUESTS_MAX: usize = 10_000;

impl Engine {
    /// Carries out an operator's command and records it.
    ///
    /// # Errors
    /// Why it is refused, as text for people; then nothing has changed.
    pub fn obey(&mut self, command: Command, world: &mut impl World) -> Result<Done, String> {
        let words = command.words();
        let answer = match command {
            Command::DryRun => return self.dry_run(),
            Command::Pause => {
                self.controller.handle_event(Event::Pause);
                Ok("paused: guests keep the targets they have".to_owned())
            }
            Command::Resume => {
                self.controller.handle_event(Event::Resume);
                Ok("resumed: plans are carried out again".to_owned())
            }
            Command::SetPolicy(name) => self.set_policy(name),
            Command::SetGuest(id, change) => self.set_guest(id, change),
        };
        info!("operator: {words}: {}", answer.as_ref().unwrap_or_else(|why| why));
        world.record_event(Recorded::Command {
            who: "api".to_owned(),
            command: words,
            answer: answer.clone(),
        });
        answer.map(|message| Done { message, plan: None })
    }

    /// Takes in a configuration that was read again: its settings and its text. `Err`, why it could
    /// not be read: the last good one stays in force.
    pub fn reload(&mut self, loaded: Result<(Settings, String), String>, world: &mut impl World) {
        match loaded {
            Ok((settings, toml)) => {
                info!("configuration reloaded: policy {}", settings.policy);
                self.controller.handle_event(Event::Reconfigure(Box::new(settings)));
                world.record_event(Recorded::ConfigLoaded { toml });
                self.reload_error = None;
            }
            Err(why) => {
                warn!("cannot reload the configuration; keeping the last good one: {why}");
                world.record_event(Recorded::ConfigRefused { why: why.clone() });
                self.reload_error = Some(why);
            }
        }
    }

    fn dry_run(&self) -> Result<Done, String> {
        let (snapshot, _) =
            self.latest.as_ref().ok_or("the daemon has not finished its first tick")?;
        let plan = self.controller.dry_run(snapshot);
        Ok(Done { message: "nothing was done".to_owned(), plan: Some(Plan::clone(&plan)) })
    }

    fn set_policy(&mut self, name: PolicyName) -> Result<String, String> {
        ballast_policy::check(name, &self.controller.settings().policy_settings)
            .map_err(|error| format!("{error} (see [policy.flexmemd] in the configuration)"))?;
        self.controller.handle_event(Event::SetPolicy(name));
        Ok(format!("policy {name} from the next tick on{}", self.missing()))
    }

    /// The inputs the policy in force lacks, as the end of a sentence.
    fn missing(&self) -> String {
        let Some((snapshot, _)) = &self.latest else { return String::new() };
        let plan = self.controller.dry_run(snapshot);
        let missing = plan.notes.iter().filter(|note| matches!(note, Note::MissingInput { .. }));
        missing.map(|note| format!("; {note}")).collect()
    }

    fn set_guest(&mut self, id: GuestId, change: GuestChange) -> Result<String, String> {
        let is_there =
            self.latest.as_ref().is_some_and(|(snapshot, _)| snapshot.guest(&id).is_some());
        let settings = self.controller.settings();
        let named = &settings.limits.named;
        if !named.contains_key(&id) {
            if !is_there {
                return Err(format!("no guest `{id}` here, running or configured"));
            }
            if named.len() >= NAMED_GUESTS_MAX {
                return Err(format!(
                    "{NAMED_GUESTS_MAX} guests have limits of their own already: reload the \
                     configuration to forget those that were set since"
                ));
            }
        }
        let limits = change.apply(settings.limits.of(&id));
        limits.validate().map_err(|e| format!("{id}: {e}"))?;
        let mut all = named.clone();
        all.insert(id.clone(), limits.clone());
        ballast_config::floors_fit(settings.guard.budget, &all)?;
        let message = view::limits_set(&id, &limits);
        self.controller.handle_event(Event::SetLimits(id, limits));
        Ok(message)
    }
}
