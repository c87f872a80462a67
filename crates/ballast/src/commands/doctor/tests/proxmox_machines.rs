//! Proxmox VE's machines, by their configurations.

use std::collections::BTreeSet;

use ballast_proxmox::VmFolder;

use super::*;

/// A folder with these configurations, by VMID.
fn machines(texts: &[(u32, &str)]) -> VmFolder {
    let folder = tempfile::tempdir().unwrap();
    for (vmid, text) in texts {
        fs::write(folder.path().join(format!("{vmid}.conf")), text).unwrap();
    }
    VmFolder::read(folder.path()).unwrap().unwrap()
}

fn seen(machines: VmFolder, running: &[u32]) -> ProxmoxSeen {
    ProxmoxSeen {
        folder: "/p".into(),
        is_configured: true,
        machines: Ok(machines),
        running: running.iter().copied().collect::<BTreeSet<u32>>(),
    }
}

const QMP: &str = "[qmp]\nfolders = [\"/q\"]\n";

#[test]
fn machines_are_guests_by_the_sockets_in_their_args() {
    let machines = machines(&[
        (100, "name: web\nargs: -qmp unix:/q/web.sock,server=on,wait=off\n"),
        (101, "name: late\nargs: -qmp unix:/q/late.sock,server=on,wait=off\n"),
        (102, "name: off\nargs: -qmp unix:/q/off.sock,server=on,wait=off\n"),
        (103, "name: other\n"),
        (104, "name: elsewhere\nargs: -qmp unix:/other/e.sock,server=on,wait=off\n"),
    ]);
    let folder = QmpFolder {
        path: "/q".into(),
        is_there: true,
        sockets: vec![QmpSocket { path: "/q/web.sock".into(), state: SocketState::Answers }],
        notices: vec![],
    };
    let folders = [folder];
    let mut seen = seen(machines, &[100, 101, 103, 104]);
    let mut found = proxmox::judge(&seen, &folders, &config(QMP));
    seen.is_configured = false;
    found.extend(proxmox::judge(&seen, &folders, &config(QMP)).into_iter().take(1));
    seen.machines = Err("Transport endpoint is not connected".to_owned());
    found.extend(proxmox::judge(&seen, &folders, &config(QMP)));
    expect![[r#"
        ok proxmox /p: 5 machines, 3 of them guests
        warning proxmox /p: machine 101 runs without the socket that its args name
          $ qm reboot 101
        note proxmox /p: no guests, as their args name no socket: 103, 104
          $ less /usr/share/doc/ballast/proxmox.md
        note proxmox /p: 5 machines, 3 of them guests; not configured, so bounds and tags are not read
          $ $EDITOR /etc/b.toml && systemctl restart ballast    # folder = "/p" under [proxmox]
        warning proxmox /p: cannot be read: Transport endpoint is not connected
          $ ls -l /p
    "#]]
    .assert_eq(&as_text(&found));
}

#[test]
fn pvestatd_is_an_owner_only_of_what_it_moves() {
    let args = |name: &str| format!("args: -qmp unix:/q/{name}.sock,server=on,wait=off\n");
    let moved = format!("memory: 2048\nballoon: 1024\n{}", args("moved"));
    let left = format!("memory: 2048\nballoon: 1024\nshares: 0\n{}", args("left"));
    let excluded =
        format!("memory: 2048\nballoon: 1024\ntags: ballast-unmanaged\n{}", args("excluded"));
    let machines = machines(&[
        (100, moved.as_str()),
        (101, left.as_str()),
        (102, excluded.as_str()),
        (103, "memory: 2048\nballoon: 1024\n"),
    ]);
    assert_eq!(proxmox::moved(&machines, &config(QMP)), [100]);
    let none = format!("{QMP}[defaults]\nmanaged = false\n");
    assert!(proxmox::moved(&machines, &config(&none)).is_empty());
    let some = format!("{none}[guests.excluded]\nmanaged = true\n");
    assert_eq!(proxmox::moved(&machines, &config(&some)), [102], "the file takes precedence");

    let owners = [(10, BalloonOwner::Pvestatd)];
    let mut found = permissions::judge_owners(&owners, Some(&[]));
    found.extend(permissions::judge_owners(&owners, Some(&[100, 102])));
    expect![[r#"
        ok owner: pvestatd runs (process 10) and moves no guest of Ballast's
        warning owner: pvestatd runs (process 10) and moves machines 100 102
          $ for vmid in 100 102; do qm set $vmid --shares 0; done
    "#]]
    .assert_eq(&as_text(&found));
}
