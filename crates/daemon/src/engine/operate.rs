//! Operators' commands, dry runs and new configurations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ballast_api::CarriedView;
use ballast_control::{Event, Settings};
use ballast_model::{
    Bytes, CarriedGuest, GuestChange, GuestId, GuestLimits, HoldReason, Mode, Note, Plan,
    PolicyName, Reservation, Timestamp,
};
use ballast_store::Event as Recorded;
use tracing::{info, warn};

use super::limits::LimitBook;
use super::{Engine, World};
use crate::view::{self, Command};

/// Most guests with limits of their own, so that commands about guests that come and go cannot fill
/// the daemon's memory.
pub const NAMED_GUESTS_MAX: usize = 10_000;

/// Most reservations at once.
const RESERVATIONS_MAX: usize = 64;
/// How long a reservation may last.
const RESERVATION_LASTS_MAX: Duration = Duration::from_secs(24 * 3600);
/// Most guests whose state from other hosts is taken in between two ticks.
const CARRIED_MAX: usize = 64;

impl Engine {
    /// Carries out the command of `who`, and records it.
    ///
    /// # Errors
    /// Why it is refused, as text for people. Then nothing has changed.
    pub async fn obey(
        &mut self,
        command: Command,
        who: String,
        world: &mut impl World,
    ) -> Result<String, String> {
        let words = command.words();
        self.dry_run = None;
        let answer = match command {
            Command::Pause => {
                self.controller.handle_event(Event::Pause);
                Ok("paused: guests keep the targets they have".to_owned())
            }
            Command::Resume => {
                self.controller.handle_event(Event::Resume);
                Ok(match self.mode() {
                    Mode::Observe => format!("resumed, but {}", HoldReason::Observing),
                    Mode::Balance => "resumed: plans are carried out again".to_owned(),
                })
            }
            Command::SetMode(mode) => Ok(self.set_mode(mode)),
            Command::SetPolicy(PolicyName::External) if !world.has_program() => Err(
                "`external` needs a program: name it under [policy.external] and restart or reload"
                    .to_owned(),
            ),
            Command::SetPolicy(name) => self.set_policy(name),
            Command::SetGuest(id, change) => self.set_guest(id, change),
            Command::PersistGuest(id, change) => self.persist_guest(id, change, world).await,
            Command::TakeCarried(id, carried) => self.take_carried(id, *carried, world.now()),
            Command::Reserve(id, size, lasts) => self.reserve(id, size, lasts, world.now()),
            Command::Unreserve(id) => self.unreserve(id),
        };
        let told = answer.as_ref().unwrap_or_else(|why| why);
        info!(command = words, who, "operator ({who}): {words}: {told}");
        world.record_event(Recorded::Command { who, command: words, answer: answer.clone() });
        answer
    }

    /// A dry run by the latest snapshot, as if a decision were due and Ballast were balancing. It
    /// is computed once and reused until the next tick, command or configuration.
    ///
    /// # Errors
    /// There was no tick yet; the text, for people, says so.
    pub fn dry_run(&mut self) -> Result<Arc<Plan>, String> {
        let (snapshot, _) =
            self.latest.as_ref().ok_or("the daemon has not finished its first tick")?;
        Ok(self.dry_run.get_or_insert_with(|| self.controller.dry_run(snapshot)).clone())
    }

    /// Takes in a configuration that was read again: its settings and its text. `Err` says why it
    /// could not be read; then the last good one stays in force.
    pub fn reload(&mut self, loaded: Result<(Settings, String), String>, world: &mut impl World) {
        self.dry_run = None;
        match loaded {
            Ok((mut settings, toml)) => {
                let complaints = self.book.reload(&settings, self.guests.carried_limits());
                self.warn_of_settings(&complaints);
                settings.limits.named = self.book.all();
                self.mode.configure(settings.mode);
                settings.mode = self.mode.in_force();
                info!("configuration reloaded: mode {}, policy {}", settings.mode, settings.policy);
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

    fn set_mode(&mut self, mode: Mode) -> String {
        self.mode.set(mode);
        self.controller.handle_event(Event::SetMode(mode));
        match mode {
            Mode::Observe => "observing: guests keep the targets they have".to_owned(),
            Mode::Balance if self.controller.paused() => {
                "balancing, once `ballast resume` ends the pause".to_owned()
            }
            Mode::Balance => "balancing: plans are carried out".to_owned(),
        }
    }

    fn reserve(
        &mut self,
        guest: GuestId,
        size: Bytes,
        lasts: Duration,
        now: Timestamp,
    ) -> Result<String, String> {
        if self.mode() == Mode::Observe {
            return Err(format!(
                "no guest gives up anything for `{guest}`: {}",
                HoldReason::Observing
            ));
        }
        let (snapshot, plan) =
            self.latest.as_ref().ok_or("the daemon has not finished its first tick")?;
        if snapshot.guest(&guest).is_some() {
            return Err(format!(
                "guest `{guest}` is here already: memory is reserved before a guest starts"
            ));
        }
        if size == Bytes::ZERO || lasts.is_zero() || lasts > RESERVATION_LASTS_MAX {
            let most = RESERVATION_LASTS_MAX.as_secs();
            return Err(format!(
                "{size} for {}s: expected some memory for 1s to {most}s",
                lasts.as_secs()
            ));
        }
        let others = self.controller.reservations().filter(|it| it.guest != guest);
        let others: Vec<Bytes> = others.map(|it| it.size).collect();
        let count = others.len();
        if count >= RESERVATIONS_MAX {
            return Err(format!("{count} reservations are in force already, which is the most"));
        }
        // Reservations made since the plan are not subtracted from it yet.
        let reserved: Bytes = plan.reservations.iter().map(|it| it.size).sum();
        let budget = plan.budget.distributable.saturating_add(reserved);
        let floors: Bytes = plan.guests.iter().filter_map(|it| Some(it.bounds?.floor)).sum();
        let of_others: Bytes = others.into_iter().sum();
        let most = budget.saturating_sub(floors).saturating_sub(of_others);
        if size > most {
            return Err(format!(
                "{size} for `{guest}`: {most} at most can be reserved, as {budget} are for guests, \
                 their floors take {floors} of it and other reservations {of_others}"
            ));
        }
        let until = now + lasts;
        let reservation = Reservation { guest: guest.clone(), size, until, free: Bytes::ZERO };
        self.controller.handle_event(Event::Reserve(reservation));
        Ok(format!("{size} are reserved for `{guest}` for {}s", lasts.as_secs()))
    }

    fn unreserve(&mut self, guest: GuestId) -> Result<String, String> {
        if !self.controller.reservations().any(|it| it.guest == guest) {
            return Err(format!("nothing is reserved for `{guest}`"));
        }
        self.controller.handle_event(Event::Unreserve(guest.clone()));
        Ok(format!("nothing is reserved for `{guest}` any more"))
    }

    fn set_policy(&mut self, name: PolicyName) -> Result<String, String> {
        ballast_policy::check(name, &self.controller.settings().policy_settings)
            .map_err(|error| format!("{error} (see [policy.flexmemd] in the configuration)"))?;
        self.controller.handle_event(Event::SetPolicy(name));
        Ok(format!("policy {name} from the next tick on{}", self.missing()))
    }

    /// The inputs the policy in force lacks, as the end of a sentence.
    fn missing(&mut self) -> String {
        let Ok(plan) = self.dry_run() else { return String::new() };
        let missing = plan.notes.iter().filter(|note| matches!(note, Note::MissingInput { .. }));
        missing.map(|note| format!("; {note}")).collect()
    }

    fn set_guest(&mut self, id: GuestId, change: GuestChange) -> Result<String, String> {
        self.may_name(&id)?;
        let mut book = self.book.clone();
        book.set(&id, &change)?;
        let limits = self.put_in_force(book, id.clone());
        let set = view::limits_set(&id, &limits);
        Ok(format!("{set}, until the daemon restarts or reloads"))
    }

    /// Like [`Engine::set_guest`], but the limits also live with the guest from now on.
    async fn persist_guest(
        &mut self,
        id: GuestId,
        change: GuestChange,
        world: &mut impl World,
    ) -> Result<String, String> {
        self.may_name(&id)?;
        let mut book = self.book.clone();
        let kept = book.set_metadata(&id, &change)?;
        let hidden = book.hidden_by_file(&id, &change);
        world.persist(&id, &kept).await?;
        let limits = self.put_in_force(book, id.clone());
        let set = view::limits_set(&id, &limits);
        let mut answer = format!("{set}, and written where the guest is defined");
        if !hidden.is_empty() {
            answer += "; the configuration file sets some of these limits too, and its values count \
                       again once the daemon restarts or reloads";
        }
        Ok(answer)
    }

    /// Continues with a guest where another host's daemon ended. Doing this twice changes nothing:
    /// what the guest has spent since, or an operator has set, stays. A floor that does not fit the
    /// budget is left out, because the guest stands still until it is started here.
    fn take_carried(
        &mut self,
        id: GuestId,
        carried: CarriedView,
        now: Timestamp,
    ) -> Result<String, String> {
        let (snapshot, _) =
            self.latest.as_ref().ok_or("the daemon has not finished its first tick")?;
        if snapshot.guest(&id).is_none() {
            return Err(format!("no guest `{id}` here that could have brought anything"));
        }
        if self.guests.carried_in_of(&id) == Some(&carried) {
            return Ok(format!("{id} has brought exactly that before: nothing changes"));
        }
        if self.carried.len() >= CARRIED_MAX {
            return Err(format!(
                "{CARRIED_MAX} guests have brought something since the last tick: try again"
            ));
        }
        carried.validate()?;
        let mut book = self.book.clone();
        let mut left_out = String::new();
        if !carried.limits.is_empty() {
            self.may_name(&id)?;
            if let Err(why) = book.carry(&id, &carried.limits) {
                let without = GuestChange { floor: None, ..carried.limits.clone() };
                book = self.book.clone();
                book.carry(&id, &without)?;
                left_out = format!("; its floor is left out: {why}");
            }
        }
        let limits = self.put_in_force(book, id.clone());
        let thrashed = carried.thrashed.filter(|it| it.left_ms > 0).map(|it| it.taken_at(now));
        let brought = CarriedGuest { guest: id.clone(), credits: carried.credits, thrashed };
        if brought.credits.is_some() || brought.thrashed.is_some() {
            self.controller.handle_event(Event::Carried(brought.clone()));
            self.carried.push(brought);
        }
        let mut answer = view::limits_set(&id, &limits);
        if carried.credits.is_some() {
            answer += ", with its credits";
        }
        if thrashed.is_some() {
            answer += ", with where it thrashed";
        }
        answer += &left_out;
        self.guests.set_carried_in(&id, carried);
        Ok(answer)
    }

    /// Whether limits of this guest may be set.
    fn may_name(&self, id: &GuestId) -> Result<(), String> {
        if self.book.is_named(id) {
            return Ok(());
        }
        if self.latest().is_none_or(|(snapshot, _)| snapshot.guest(id).is_none()) {
            return Err(format!("no guest `{id}` here, running or configured"));
        }
        if self.book.named() >= NAMED_GUESTS_MAX {
            return Err(format!(
                "{NAMED_GUESTS_MAX} guests have limits of their own already: reload the \
                 configuration to forget those that were set since"
            ));
        }
        Ok(())
    }

    /// Puts a book with changed limits of one guest in force.
    fn put_in_force(&mut self, book: LimitBook, id: GuestId) -> GuestLimits {
        self.book = book;
        let limits = self.book.limits(&id);
        self.controller.handle_event(Event::SetLimits(id, limits.clone()));
        limits
    }

    /// Takes in the settings that live with all guests now.
    pub(super) fn take_in_settings(&mut self, settings: BTreeMap<GuestId, GuestChange>) {
        let complaints = self.book.replace_metadata(settings);
        self.warn_of_settings(&complaints);
        self.controller.handle_event(Event::ReplaceLimits(self.book.all()));
    }

    /// Takes in the limits that the guests here brought from other hosts, after one of these came
    /// or went.
    pub(super) fn take_in_carried(&mut self) {
        let complaints = self.book.replace_carried(self.guests.carried_limits());
        self.warn_of_settings(&complaints);
        self.controller.handle_event(Event::ReplaceLimits(self.book.all()));
    }

    fn warn_of_settings(&mut self, complaints: &[String]) {
        if complaints.is_empty() {
            self.warnings.clear("settings");
        } else {
            self.warnings.warn("settings", &complaints.join("; "));
        }
    }
}
