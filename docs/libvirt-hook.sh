#!/bin/sh
# A hook of libvirt that reserves memory for each domain that starts. Install it as
# /etc/libvirt/hooks/qemu, mode 755, and restart libvirt's daemon if it was the first hook.
#
# Libvirt runs it as `qemu DOMAIN OPERATION STEP …` with the domain's XML on its standard input. It
# must not wait for the memory: while a hook runs, libvirt lists no domain to anybody, so Ballast
# would see none of those that are to give it. A domain that must find its memory free is started
# by `ballast reserve SIZE --for DOMAIN && virsh start DOMAIN` instead.

[ "$2/$3" = prepare/begin ] || exit 0
kib=$(sed -n "s:.*<memory unit='KiB'>\([0-9]*\)</memory>.*:\1:p" | head -n 1)
[ -n "$kib" ] || exit 0
# What is reserved already stays: a move of Ballast's fleet, or whoever starts the domain, may have
# reserved less than its <memory>. As the domain is no guest yet, nothing else has its name.
ballast status --json </dev/null 2>/dev/null | tr -d ' ' | grep -qF "\"guest\":\"$1\"" && exit 0
# Refused, or no daemon: the domain starts all the same.
ballast reserve "$((kib * 1024))" --for "$1" --wait 0s >/dev/null 2>&1
exit 0
