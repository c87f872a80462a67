//! What is here of Xen, for a diagnosis.
//!
//! Idea: the same socket and the same program as the daemon's, once.

use std::path::Path;
use std::time::Duration;

use ballast_model::LinkDown;
use ballast_xenstore::is_xenstore;

use crate::xl::{XlInfo, parse_xl_info};
use crate::xl_program::XlProgram;

/// What answers here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenFound {
    /// Whether xenstored does.
    pub store: Result<(), LinkDown>,
    /// What `xl info` says; else why not.
    pub xl: Result<XlInfo, String>,
}

/// Looks at the socket of a xenstored and at the program `xl`, for at most `timeout` each.
pub async fn find_xen(socket: &Path, xl: &Path, timeout: Duration) -> XenFound {
    let store = is_xenstore(socket, timeout).await;
    let xl = XlProgram { path: xl.to_owned(), timeout }.run(&["info"]).await;
    let info = xl.and_then(|output| parse_xl_info(&output).map_err(|error| error.to_string()));
    XenFound { store, xl: info }
}
