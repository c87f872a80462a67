# Starts systemd as the first process of namespaces of its own, and ends with the status that systemd
# exits with. Its files are the machine's, but /etc is a copy, and /run, /var/lib and /usr/local/bin
# are empty at first; or, for packages to be installed, /usr, /etc and /var are the machine's with what
# is written on top of it, and have no units. When standard input ends, every process in there is killed.
#
# Usage: unshare --mount bash systemd.sh start FOLDER PROGRAM
#   FOLDER   is /run/lab inside; `units` in it has all units that systemd finds
#   PROGRAM  is /usr/local/bin/ballast inside; or - where packages are to be installed
#
# shellcheck shell=bash disable=SC2046 # `again` prints words
set -eu
stage=$1 folder=$2 program=$3

# Where the cgroups are mounted: version 2, and the memory controller of version 1 where it is in use.
trees=$folder/cgroup
memory=$folder/memory
if grep -q '^memory[[:space:]]*[1-9]' /proc/cgroups; then
    trees="$trees $memory"
fi

# Where systemd finds units.
units=/run/lab/units

# The command of another stage.
again() { echo bash "$0" "$1" "$folder" "$program"; }

# Ends the machine and removes what outlives its processes.
start() {
    trap '' INT TERM
    name=ballast-unit-$$
    export name
    mkdir "$folder/cgroup" "$folder/memory" "$folder/etc" "$folder/bin"
    mount -t cgroup2 cgroup2 "$folder/cgroup"
    [ "$trees" = "$folder/cgroup" ] || mount -t cgroup -o memory cgroup "$memory"
    setpriv --pdeathsig KILL $(again enter) </dev/null &
    machine=$!
    exec 3<&0
    { read -r _ <&3 || kill -KILL "$machine"; } &
    watcher=$!
    disown "$watcher"
    status=0
    wait "$machine" || status=$?
    kill -KILL "$watcher" || true
    find "$folder" -path '*/runs/*/swap' -type f | while read -r file; do
        area=$(cat "$file")
        swapoff "$area" 2>/dev/null || true
        rm -f "$area"
    done
    for tree in $trees; do
        # Processes that were killed leave a little later.
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            find "$tree/$name" -depth -type d -exec rmdir {} + 2>/dev/null && break
            sleep 0.2
        done
    done
    exit "$status"
}

# Has cgroups of its own, which become the roots of what systemd sees.
enter() {
    for tree in $trees; do
        mkdir "$tree/$name"
        echo 0 >"$tree/$name/cgroup.procs"
    done
    exec unshare --cgroup $(again wait)
}

# The process that waits for systemd is not in the root, which has groups only.
wait_outside() {
    mkdir "$folder/cgroup/$name/outside"
    echo 0 >"$folder/cgroup/$name/outside/cgroup.procs"
    exec unshare --mount --pid --uts --ipc --fork --kill-child $(again systemd)
}

# The machine's files but for a few folders.
with_program() {
    mount -t tmpfs -o mode=755 tmpfs "$folder/etc"
    cp -a /etc/. "$folder/etc"
    mount -n --move "$folder/etc" /etc
    mount -t tmpfs -o mode=755 tmpfs "$folder/bin"
    touch "$folder/bin/ballast"
    mount --bind "$program" "$folder/bin/ballast"
    mount -n --move "$folder/bin" /usr/local/bin
    mount -t tmpfs -o mode=755 tmpfs /var/lib
}

# All of the machine's files, and what is written on top of them, in memory.
with_packages() {
    mount -t tmpfs -o mode=755 tmpfs "$folder/etc"
    for name in usr etc var; do
        over=$folder/etc/$name
        mkdir "$over" "$over.work"
        mount -t overlay -o "lowerdir=/$name,upperdir=$over,workdir=$over.work" overlay "/$name"
    done
    # No unit of the machine's is to be started, and nothing may keep a package from starting its own.
    mount -t tmpfs -o mode=755 tmpfs /etc/systemd/system
    mount -t tmpfs -o mode=755 tmpfs /usr/lib/systemd/system
    [ ! -e /usr/sbin/policy-rc.d ] || mount --bind /bin/true /usr/sbin/policy-rc.d
    units=/run/lab/units:/etc/systemd/system:/usr/lib/systemd/system
}

systemd() {
    echo 0 >"$folder/cgroup/$name/cgroup.procs"
    mount -t proc proc /proc
    # A test changes no setting of the machine's kernel and writes neither to its console nor to its log.
    mount --bind /proc/sys /proc/sys
    mount -o remount,bind,ro /proc/sys
    mount --bind /dev/null /dev/console
    mount --bind /dev/null /dev/kmsg
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    if [ "$trees" != "$folder/cgroup" ]; then
        mkdir /sys/fs/cgroup/memory
        mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory
    fi
    if [ "$program" = - ]; then
        with_packages
    else
        with_program
    fi
    umount "$folder/cgroup"
    umount "$memory" 2>/dev/null || true
    mount -t tmpfs -o mode=755 tmpfs /mnt
    mkdir /mnt/lab
    mount --bind "$folder" /mnt/lab
    mount -n --move /mnt /run
    # As udev and QEMU's package leave it.
    grep -q '^kvm:' /etc/group || echo kvm:x:64054: >>/etc/group
    kvm=$(sed -n 's/^kvm:[^:]*:\([0-9]*\):.*/\1/p' /etc/group)
    echo "hypervisor:x:64055:$kvm::/nonexistent:/bin/false" >>/etc/passwd
    export container=unshare SYSTEMD_UNIT_PATH="$units" TMPDIR=/run/lab
    exec /lib/systemd/systemd --system --unit=test.target
}

case $stage in
start) start ;;
enter) enter ;;
wait) wait_outside ;;
systemd) systemd ;;
esac
