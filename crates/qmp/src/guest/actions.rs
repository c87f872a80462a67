//! Carries out actions: each is a few commands, sent one after the other.
//!
//! Idea: the steps of an action are computed when its turn comes, from the state known then, and a
//! step is sent once the step before it was accepted. The first step refused ends the action,
//! because the following ones depend on it. Effects of earlier steps stay; the next action starts
//! from the state then observed.
//! Cost: an action that only moves the balloon is one command.
//! Limits: [`ACTIONS_MAX`] pending actions; all steps of an action share one deadline.

use std::collections::VecDeque;

use ballast_model::{Action, LinkState, OutcomeKind, Timestamp};

use super::hotplug::ActionStep;
use super::monitor::GuestMonitor;
use super::requests::{PendingAction, Purpose, Requester, Ticket};
use crate::codec::{self, ErrorReply};
use crate::command::QmpCommand;
use crate::session::{IN_FLIGHT_MAX, SendError};

/// Most actions pending for one guest: as many as there may be unanswered commands.
const ACTIONS_MAX: usize = IN_FLIGHT_MAX;

impl GuestMonitor {
    /// Sets the guest's memory as `action` says, by balloon and by plugging.
    /// [`GuestMonitor::pop_finished`] gives the outcome.
    ///
    /// # Errors
    /// The action cannot be sent.
    pub fn begin_action(&mut self, action: &Action, now: Timestamp) -> Result<Ticket, OutcomeKind> {
        self.check_link()?;
        if self.actions.len() >= ACTIONS_MAX {
            return Err(OutcomeKind::Failed(format!("not sent: {}", SendError::Full)));
        }
        let ticket = self.take_ticket();
        self.actions.push_back(PendingAction {
            ticket,
            target: action.target,
            plug: action.plug,
            deadline: now + self.command_timeout,
            steps: None,
            sent: None,
        });
        self.advance_actions(now);
        Ok(ticket)
    }

    /// Presses the guest's power button. [`GuestMonitor::pop_finished`] gives the outcome.
    ///
    /// # Errors
    /// The command cannot be sent.
    pub fn begin_powerdown(&mut self, now: Timestamp) -> Result<Ticket, OutcomeKind> {
        self.check_link()?;
        let ticket = self.take_ticket();
        let command = QmpCommand::SystemPowerdown;
        if !self.send(Purpose::Powerdown, Requester::Caller(ticket), &command, now) {
            return Err(OutcomeKind::Failed(format!("not sent: {}", SendError::Full)));
        }
        Ok(ticket)
    }

    fn check_link(&self) -> Result<(), OutcomeKind> {
        match self.link() {
            LinkState::Up => Ok(()),
            LinkState::Down(why) => Err(OutcomeKind::Failed(format!("not sent: {why}"))),
        }
    }

    fn take_ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    /// Sends all steps that can be sent now.
    pub(super) fn advance_actions(&mut self, now: Timestamp) {
        while let Some(mut action) = self.actions.pop_front() {
            if action.sent.is_some() {
                return self.actions.push_front(action);
            }
            match self.send_next_step(&mut action, now) {
                Ok(true) => return self.actions.push_front(action),
                Ok(false) => self.finished.push((action.ticket, OutcomeKind::Accepted)),
                Err(how) => self.finished.push((action.ticket, OutcomeKind::Failed(how))),
            }
        }
        for number in self.hotplug.take_orphans() {
            let command = QmpCommand::RemoveMemory { number };
            self.send(Purpose::RemoveMemory(number), Requester::Nobody, &command, now);
        }
    }

    /// Sends the next step of an action; returns whether there was one.
    fn send_next_step(
        &mut self,
        action: &mut PendingAction,
        now: Timestamp,
    ) -> Result<bool, String> {
        if action.steps.is_none() {
            let fixed = self.fixed_memory();
            let has_balloon = self.may_have_balloon();
            let steps = self.hotplug.steps(action.target, action.plug, fixed, has_balloon)?;
            action.steps = Some(steps.into());
        }
        let Some(step) = action.steps.as_mut().and_then(VecDeque::pop_front) else {
            return Ok(false);
        };
        let (command, requester) = (step.command(), Requester::Caller(action.ticket));
        if now >= action.deadline {
            return Err(format!("{}: not sent: the deadline has passed", command.name()));
        }
        if !self.send_until(Purpose::Step, requester, &command, now, action.deadline) {
            return Err(format!("{}: not sent: {}", command.name(), SendError::Full));
        }
        action.sent = Some(step);
        Ok(true)
    }

    /// Handles the reply to a step.
    pub(super) fn step_answered(&mut self, ticket: Ticket, result: Result<(), &ErrorReply>) {
        let Some(action) = self.actions.front_mut().filter(|action| action.ticket == ticket) else {
            return;
        };
        let Some(step) = action.sent.take() else { return };
        match result {
            Ok(()) => self.hotplug.accepted(&step),
            Err(error) => {
                let how = failure(step.command().name(), error);
                self.hotplug.refused(&step);
                // A refused plug step means that the known devices are outdated.
                self.probe_again |= !matches!(step, ActionStep::Balloon(_));
                self.actions.pop_front();
                self.finished.push((ticket, OutcomeKind::Failed(how)));
            }
        }
    }

    /// Fails an order whose reply is late. If it is an action, the actions behind it fail too.
    pub(super) fn order_late(&mut self, ticket: Ticket) {
        let how = format!(
            "no reply within {:.1}s; it may still be carried out",
            self.command_timeout.as_secs_f64()
        );
        self.finished.push((ticket, OutcomeKind::Failed(how)));
        if self.actions.front().is_some_and(|action| action.ticket == ticket) {
            self.actions.pop_front();
            self.fail_actions("not sent: the reply to an earlier command is late");
        }
    }

    pub(super) fn fail_actions(&mut self, how: &str) {
        for action in self.actions.drain(..) {
            self.finished.push((action.ticket, OutcomeKind::Failed(how.to_owned())));
        }
    }
}

/// The text of a refused command.
pub(super) fn failure(command: &str, error: &ErrorReply) -> String {
    codec::shorten(&format!("{command}: {error}"))
}
