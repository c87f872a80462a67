//! Programs besides Ballast that move balloons.

use std::fmt;

/// A program that moves guests' balloons, recognized by its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum BalloonOwner {
    /// oVirt's memory overcommitment manager, alone or in vdsm.
    Mom,
    /// Proxmox VE's status daemon.
    Pvestatd,
    /// XAPI's ballooning daemon.
    Squeezed,
    /// Qubes' memory manager.
    Qmemman,
    /// Another instance of Ballast's daemon.
    Ballast,
}

impl BalloonOwner {
    /// Its name for people and machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            BalloonOwner::Mom => "mom",
            BalloonOwner::Pvestatd => "pvestatd",
            BalloonOwner::Squeezed => "squeezed",
            BalloonOwner::Qmemman => "qmemman",
            BalloonOwner::Ballast => "another ballast",
        }
    }
}

impl fmt::Display for BalloonOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
