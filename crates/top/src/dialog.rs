//! What lies over the view and takes all keys: help, a form, a question.

use crate::form::Form;
use crate::order::Order;

/// What lies over the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dialog {
    /// The keys.
    Help,
    /// A guest's bounds.
    Form(Form),
    /// Whether to do it.
    Question(Question),
}

/// A question about a command, before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// What is asked.
    pub(crate) text: String,
    /// The command that does the same in a shell.
    pub(crate) command: String,
    /// What is done after `y`.
    pub(crate) order: Order,
    /// The form it came from, to return to.
    pub(crate) form: Option<Form>,
}
