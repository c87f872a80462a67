//! Looks for Xen on this machine, for a diagnosis.
//!
//! Idea: one connection to the socket and one run of the program that the daemon uses.

use std::path::Path;
use std::time::Duration;

use ballast_model::LinkDown;
use ballast_xenstore::is_xenstore;

use crate::xl::{XlInfo, parse_xl_info};
use crate::xl_program::XlProgram;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenProbe {
    /// Whether xenstored answers.
    pub store: Result<(), LinkDown>,
    /// The figures of `xl info`, or why there are none.
    pub xl: Result<XlInfo, String>,
}

/// Tries the socket of a xenstored and the program `xl`, for at most `timeout` each.
pub async fn probe_xen(socket: &Path, xl: &Path, timeout: Duration) -> XenProbe {
    let store = is_xenstore(socket, timeout).await;
    let xl = XlProgram { path: xl.to_owned(), timeout }.run(&["info"]).await;
    let info = xl.and_then(|output| parse_xl_info(&output).map_err(|error| error.to_string()));
    XenProbe { store, xl: info }
}
