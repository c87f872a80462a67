//! Dialogs: help, a form, a question. A dialog lies over the view and gets all keys.

use crate::form::Form;
use crate::order::Order;

/// A dialog over the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dialog {
    /// The help: the keys and what they do.
    Help,
    /// The form for a guest's bounds.
    Form(Form),
    /// The question whether to send a command.
    Question(Question),
}

/// A question about a command, before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The text of the question.
    pub(crate) text: String,
    /// The command that does the same in a shell.
    pub(crate) command: String,
    /// The order that `y` gives.
    pub(crate) order: Order,
    /// The form it came from, to return to.
    pub(crate) form: Option<Form>,
}
