//! Actions under way: each a few commands, sent one after the other.
//!
//! Idea: a command is sent when the one before it was accepted, and what an action comes to is decided
//! when its turn comes, from what is known then. The first command refused ends the action: what would
//! have followed was reckoned with it. Whatever an action has done by then stays; the next one, made
//! from what is then seen, goes on from there.
//! Cost: an action that moves the balloon alone is one command.
//! Limits: [`ORDERS_MAX`] actions wait; all commands of one share its time.

use std::collections::VecDeque;

use ballast_model::{Action, Bytes, LinkState, OutcomeKind, Timestamp};

use super::plugging::Step;
use super::questions::{Asker, Question};
use super::{Guest, Ticket};
use crate::codec::{self, ErrorReply};
use crate::command::Command;
use crate::session::{IN_FLIGHT_MAX, SendError};

/// Most actions that wait for one guest: as many as there may be commands without an answer.
const ORDERS_MAX: usize = IN_FLIGHT_MAX;

/// An action on its way.
#[derive(Debug)]
struct Order {
    ticket: Ticket,
    target: Bytes,
    plug: Option<Bytes>,
    deadline: Timestamp,
    /// Its commands still to be sent; `None` before its turn.
    steps: Option<VecDeque<Step>>,
    /// The command that waits for its answer.
    sent: Option<Step>,
}

/// The actions of one guest, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Orders(VecDeque<Order>);

impl Orders {
    /// Whether no action is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_empty()
    }
}

impl Guest {
    /// Gives the guest the memory an action says, by balloon and by plugging; [`Guest::pop_finished`]
    /// tells what came of it.
    ///
    /// # Errors
    /// Where it cannot even be sent.
    pub fn begin_action(&mut self, action: &Action, now: Timestamp) -> Result<Ticket, OutcomeKind> {
        self.need_link()?;
        if self.orders.0.len() >= ORDERS_MAX {
            return Err(OutcomeKind::Failed(format!("not sent: {}", SendError::Full)));
        }
        let ticket = self.take_ticket();
        self.orders.0.push_back(Order {
            ticket,
            target: action.target,
            plug: action.plug,
            deadline: now + self.command_timeout,
            steps: None,
            sent: None,
        });
        self.advance_orders(now);
        Ok(ticket)
    }

    /// Presses the guest's power button; [`Guest::pop_finished`] tells what came of it.
    ///
    /// # Errors
    /// Where it cannot even be sent.
    pub fn begin_powerdown(&mut self, now: Timestamp) -> Result<Ticket, OutcomeKind> {
        self.need_link()?;
        let ticket = self.take_ticket();
        let command = Command::SystemPowerdown;
        if !self.ask(Question::Powerdown, Asker::Order(ticket), &command, now) {
            return Err(OutcomeKind::Failed(format!("not sent: {}", SendError::Full)));
        }
        Ok(ticket)
    }

    fn need_link(&self) -> Result<(), OutcomeKind> {
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

    /// Sends whatever can be sent now.
    pub(super) fn advance_orders(&mut self, now: Timestamp) {
        while let Some(mut order) = self.orders.0.pop_front() {
            if order.sent.is_some() {
                return self.orders.0.push_front(order);
            }
            match self.send_next(&mut order, now) {
                Ok(true) => return self.orders.0.push_front(order),
                Ok(false) => self.finished.push((order.ticket, OutcomeKind::Accepted)),
                Err(how) => self.finished.push((order.ticket, OutcomeKind::Failed(how))),
            }
        }
        for number in self.plugging.take_orphans() {
            let command = Command::RemoveMemory { number };
            self.ask(Question::RemoveMemory(number), Asker::Nobody, &command, now);
        }
    }

    /// Sends the next command of an order; says whether there was one.
    fn send_next(&mut self, order: &mut Order, now: Timestamp) -> Result<bool, String> {
        if order.steps.is_none() {
            let unplugged = self.unplugged_memory();
            let has_balloon = self.has_balloon();
            let steps = self.plugging.steps(order.target, order.plug, unplugged, has_balloon)?;
            order.steps = Some(steps.into());
        }
        let Some(step) = order.steps.as_mut().and_then(VecDeque::pop_front) else {
            return Ok(false);
        };
        let (command, asker) = (step.command(), Asker::Order(order.ticket));
        if now >= order.deadline {
            return Err(format!("{}: not sent, no time is left for it", command.name()));
        }
        if !self.ask_until(Question::Step, asker, &command, order.deadline) {
            return Err(format!("{}: not sent: {}", command.name(), SendError::Full));
        }
        order.sent = Some(step);
        Ok(true)
    }

    /// A command of an action was answered.
    pub(super) fn step_answered(&mut self, of: Ticket, result: Result<(), &ErrorReply>) {
        let Some(order) = self.orders.0.front_mut().filter(|order| order.ticket == of) else {
            return;
        };
        let Some(step) = order.sent.take() else { return };
        match result {
            Ok(()) => self.plugging.accepted(&step),
            Err(error) => {
                let how = failure(step.command().name(), error);
                self.plugging.refused(&step);
                // Whatever it was reckoned with may have changed.
                self.probe_again |= !matches!(step, Step::Balloon(_));
                self.orders.0.pop_front();
                self.finished.push((of, OutcomeKind::Failed(how)));
            }
        }
    }

    /// A command was not answered in time: its action is over, and those behind it are not begun.
    pub(super) fn order_late(&mut self, of: Ticket) {
        let how = format!(
            "no answer within {:.1}s; it may still be carried out",
            self.command_timeout.as_secs_f64()
        );
        self.finished.push((of, OutcomeKind::Failed(how)));
        if self.orders.0.front().is_some_and(|order| order.ticket == of) {
            self.orders.0.pop_front();
            self.drop_orders("not sent: an earlier command was not answered in time");
        }
    }

    /// None of the actions that wait will be begun.
    pub(super) fn drop_orders(&mut self, how: &str) {
        for order in self.orders.0.drain(..) {
            self.finished.push((order.ticket, OutcomeKind::Failed(how.to_owned())));
        }
    }
}

/// How the refusal of a command is told.
pub(super) fn failure(command: &str, error: &ErrorReply) -> String {
    codec::shorten(&format!("{command}: {error}"))
}
