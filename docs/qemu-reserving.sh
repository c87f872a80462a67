#!/bin/sh
# Starts QEMU when its memory is free: type it where you would type qemu-system-x86_64, with the
# same arguments. Ballast knows a guest by its QMP socket, NAME.sock, and this by -name: give both
# the same name, or set BALLAST_GUEST.
#
#   BALLAST_QEMU      the program that it becomes        (default: qemu-system-, and the machine)
#   BALLAST_GUEST     the guest's name for Ballast       (default: what -name says)
#   BALLAST_WAIT      how long to wait for the memory    (default: 30s)
#   BALLAST_REQUIRED  if not empty, a guest whose memory is not free by then, or for which no
#                     daemon reserves any, is not started, and the status is 1; else it starts
#                     all the same
#
# For a guest that moves in (-incoming defer) it reserves nothing: whoever moves the guest has
# reserved what it holds, which may be less than -m.

name=$BALLAST_GUEST
memory=
incoming=
before=
for argument; do
    case $before in
        -name | --name)
            [ -n "$name" ] || name=${argument#guest=}
            name=${name%%,*}
            ;;
        -m | --m)
            size=${argument##*size=}
            size=${size%%,*}
            # QEMU's own unit is a MiB.
            case $size in
                *[kK]) memory=${size%?}KiB ;;
                *[mM]) memory=${size%?}MiB ;;
                *[gG]) memory=${size%?}GiB ;;
                *[tT]) memory=${size%?}TiB ;;
                *) memory=${size}MiB ;;
            esac
            ;;
        -incoming | --incoming) incoming=$argument ;;
    esac
    before=$argument
done
if [ "$incoming" = defer ]; then
    :
elif [ -n "$name" ] && [ -n "$memory" ]; then
    if ! ballast reserve "$memory" --for "$name" --wait "${BALLAST_WAIT:-30s}" >&2 &&
        [ -n "$BALLAST_REQUIRED" ]; then
        ballast reserve --release --for "$name" >/dev/null 2>&1
        exit 1
    fi
elif [ -n "$BALLAST_REQUIRED" ]; then
    echo "error: nothing is reserved: QEMU's arguments lack -m or -name" >&2
    exit 1
fi
exec "${BALLAST_QEMU:-qemu-system-$(uname -m)}" "$@"
