//! Access control of the API.
//!
//! Idea: the kernel identifies the peer of each connection. The daemon's user and root may read and
//! write, members of one group may read, everybody else is refused.
//! Limits: supplementary groups are read from the peer's `/proc` entry, if it still has the same
//! user. A peer that ended or is in another PID namespace has only its primary group; the socket's
//! mode has then already kept out users outside the group.

use std::io;

use tokio::net::UnixStream;

/// Most bytes read of a peer's `/proc` entry: room for 65,536 groups of 11 characters.
const PROC_STATUS_BYTES_MAX: u64 = 1 << 20;

/// The process at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Effective user at connect time.
    pub uid: u32,
    /// Effective group at connect time.
    pub gid: u32,
    /// Supplementary groups; empty if they could not be read.
    pub groups: Vec<u32>,
}

impl Peer {
    /// The peer of `stream`.
    ///
    /// # Errors
    /// The kernel does not report the peer's credentials.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        let credentials = stream.peer_cred()?;
        let (uid, gid) = (credentials.uid(), credentials.gid());
        let groups = credentials.pid().and_then(|pid| groups_of(pid, uid)).unwrap_or_default();
        Ok(Peer { uid, gid, groups })
    }
}

fn groups_of(pid: i32, uid: u32) -> Option<Vec<u32>> {
    use std::io::Read;
    let file = std::fs::File::open(format!("/proc/{pid}/status")).ok()?;
    let mut text = String::new();
    file.take(PROC_STATUS_BYTES_MAX).read_to_string(&mut text).ok()?;
    groups_in(&text, uid)
}

/// The supplementary groups in a `/proc/PID/status`. `None` unless its effective user is `uid`: the
/// PID may belong to another process by now.
fn groups_in(status: &str, uid: u32) -> Option<Vec<u32>> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let effective: u32 = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    if effective != uid {
        return None;
    }
    Some(field("Groups:")?.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// What a peer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    None,
    /// Read.
    Read,
    /// Read and send commands.
    Write,
}

/// The rule that determines a peer's [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessPolicy {
    /// The user the daemon runs as.
    pub owner: u32,
    /// The group that may read.
    pub group: Option<u32>,
}

impl AccessPolicy {
    /// What `peer` may do.
    pub fn access(&self, peer: &Peer) -> Access {
        if peer.uid == 0 || peer.uid == self.owner {
            return Access::Write;
        }
        match self.group {
            Some(group) if peer.gid == group || peer.groups.contains(&group) => Access::Read,
            _ => Access::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn owner_and_root_write_the_group_reads_others_get_nothing() {
        let policy = AccessPolicy { owner: 990, group: Some(50) };
        let closed = AccessPolicy { group: None, ..policy };
        for (uid, gid, groups, open, shut) in [
            (0, 0, vec![], Access::Write, Access::Write),
            (990, 990, vec![], Access::Write, Access::Write),
            (1000, 50, vec![], Access::Read, Access::None),
            (1000, 1000, vec![4, 50], Access::Read, Access::None),
            (1000, 1000, vec![4, 990], Access::None, Access::None),
            (1000, 0, vec![0], Access::None, Access::None),
        ] {
            let peer = Peer { uid, gid, groups };
            assert_eq!(policy.access(&peer), open, "{peer:?}");
            assert_eq!(closed.access(&peer), shut, "{peer:?}");
        }
    }

    #[test]
    fn groups_count_only_from_a_process_of_the_same_user() {
        let status =
            "Name:\tcat\nUid:\t1000\t1001\t1000\t1000\nGid:\t5\t5\t5\t5\nGroups:\t4 24 50 \n";
        assert_eq!(groups_in(status, 1001), Some(vec![4, 24, 50]));
        assert_eq!(groups_in(status, 1000), None);
        assert_eq!(groups_in("Uid:\t7\t7\t7\t7\nGroups:\t \n", 7), Some(vec![]));
        assert_eq!(groups_in("", 0), None);
    }

    proptest! {
        #[test]
        fn arbitrary_status_never_panics(status in "(Uid:|Groups:|[0-9]|\\PC|\\s){0,60}", uid: u32) {
            let _ = groups_in(&status, uid);
        }
    }
}
