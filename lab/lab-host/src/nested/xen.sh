# Starts Xen's services in a machine that Xen has booted, as Debian's init script does: run once in
# its root, with Xen's tools in $PATH.
set -e
cd /
mount -t xenfs xenfs /proc/xen
grep -q control_d /proc/xen/capabilities || { echo "it is not Xen's first domain" >&2; exit 1; }
mkdir -p /run/lock /run/xen /run/xenstored /var/lib/xen/dump /var/lib/xenstored
mkdir -p /var/log/xen/console /etc/xen/scripts
[ -e /var/lock ] || ln -s /run/lock /var/lock
# The first domain keeps its memory, whatever guests are started.
echo 'autoballoon = "off"' >/etc/xen/xl.conf
# What libxl runs for a guest's disk: it has to name the disk's device to the driver. The lab gives it
# devices only.
cat >/etc/xen/scripts/block <<'END'
#!/bin/sh
[ "$1" = add ] || exit 0
device=$(xenstore-read "$XENBUS_PATH/params")
xenstore-write "$XENBUS_PATH/physical-device" "$(stat -c %t:%T "$device")"
xenstore-write "$XENBUS_PATH/hotplug-status" connected
END
chmod 755 /etc/xen/scripts/block
# Their output must not keep this script's open.
xenstored --pid-file /run/xenstored.pid </dev/null >/dev/null 2>&1
waited=0
until [ -S /run/xenstored/socket ]; do
    [ $waited -lt 100 ] || { echo "xenstored does not listen" >&2; exit 1; }
    waited=$((waited + 1))
    sleep 0.1
done
xen-init-dom0 >/dev/null
xenconsoled --log=guest --pid-file=/run/xenconsoled.pid </dev/null >/dev/null 2>&1
