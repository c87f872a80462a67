# Loads Debian's profiles of libvirt, in an outer machine that has them: run once, in its root, with
# what Ballast adds to them in $tracker_rules.
set -e
mount -t securityfs securityfs /sys/kernel/security
cd /etc/apparmor.d
# Folders that a package leaves empty, and what an administrator may add: profiles include both.
mkdir -p /etc/apparmor abi tunables/xdg-user-dirs.d
: >>/etc/apparmor/parser.conf
sed -n 's/.*include.*<\(local\/.*\)>.*/\1/p' $(find . -type f) | while read -r name; do
    mkdir -p "${name%/*}"
    [ -e "$name" ] || : >"$name"
done
# The machine's root is a folder to its kernel, which profiles do not know; the lab's files are
# nowhere in a domain's XML. Of /run, only what is libvirt's is opened, so that a tracker in
# /run/ballast/track has nothing but the rules for it.
{
    echo '/host/** rkmix,'
    echo '/host/{cache,tmp,var,proc,run/libvirt,dev/pts,dev/shm}/** w,'
    echo '/host/dev/{kvm,null,zero,ptmx} w,'
    # The daemon, which is not confined, passes it on, opened.
    echo 'deny /host/dev/userfaultfd rwk,'
    # What a host adds for the tracker (docs/apparmor-libvirt-qemu).
    echo "$tracker_rules" | sed 's|^/|/host/|'
} >local/abstractions/libvirt-qemu
echo '/host/** r,' >local/usr.lib.libvirt.virt-aa-helper
/sbin/apparmor_parser -r -K usr.sbin.libvirtd
/sbin/apparmor_parser -r -K usr.lib.libvirt.virt-aa-helper
