//! Others who move balloons.

use std::fmt;

/// A program that moves the balloons of guests, as its process shows.
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
    /// Another daemon of Ballast.
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
