//! Finds a virtio-serial port by name: by udev's link under `/dev/virtio-ports`, or in sysfs for
//! guests without udev.

use std::fs;
use std::path::{Path, PathBuf};

/// The device of the port `name`, below `root`.
pub fn find(root: &Path, name: &str) -> Option<PathBuf> {
    let link = root.join("dev/virtio-ports").join(name);
    if link.exists() {
        return Some(link);
    }
    let ports = fs::read_dir(root.join("sys/class/virtio-ports")).ok()?;
    let named = ports.flatten().find(|port| {
        fs::read_to_string(port.path().join("name")).is_ok_and(|found| found.trim() == name)
    })?;
    Some(root.join("dev").join(named.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_link_or_in_sysfs() {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("sys/class/virtio-ports/vport1p2");
        fs::create_dir_all(&port).unwrap();
        fs::write(port.join("name"), "org.test\n").unwrap();
        assert_eq!(find(root.path(), "org.test"), Some(root.path().join("dev/vport1p2")));
        assert_eq!(find(root.path(), "org"), None);
        let link = root.path().join("dev/virtio-ports/org.test");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        fs::write(&link, "").unwrap();
        assert_eq!(find(root.path(), "org.test"), Some(link));
    }
}
