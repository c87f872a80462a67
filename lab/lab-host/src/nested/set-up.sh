# Makes a booted lab guest a host: run once in it, by its own shell. The disk becomes the root of
# everything that runs in it; what a host's system mounts is mounted there.
set -e
for disk in /sys/block/*; do
    [ "$(cat "$disk/serial" 2>/dev/null)" != host ] || device=/dev/${disk##*/}
done
mkdir -p /host
mount -t ext4 -o noatime "$device" /host
cd /host
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t debugfs debugfs sys/kernel/debug
mount -t tracefs tracefs sys/kernel/tracing
mount -t devtmpfs devtmpfs dev
mkdir -p dev/pts dev/shm home mnt root sbin usr/bin usr/lib usr/local/bin var/lib var/tmp
mount -t devpts devpts dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run
chmod 1777 tmp
# As systemd leaves it: every group has these controllers.
mount -t cgroup2 cgroup2 sys/fs/cgroup
echo "+cpu +memory" >sys/fs/cgroup/cgroup.subtree_control
chroot . /bin/busybox --install -s /bin
[ -e usr/bin/env ] || ln -s /bin/busybox usr/bin/env
echo "root:x:0:0:root:/root:/bin/bash" >etc/passwd
echo "root:x:0:" >etc/group
# As Debian's packages leave it, for a libvirt of the system.
echo "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/bin/sh" >>etc/passwd
printf 'libvirt-qemu:x:64055:\nkvm:x:104:\ntty:x:5:\n' >>etc/group
mkdir -p var/lib/libvirt var/log/libvirt var/cache/libvirt
[ -e var/run ] || ln -s /run var/run
mkdir -m 700 run/ballast
for port in /sys/class/virtio-ports/*; do
    # A console's port has no name.
    name=$(cat "$port/name" 2>/dev/null || true)
    [ -z "$name" ] || ln -s "/dev/${port##*/}" "run/ballast/$name"
done
