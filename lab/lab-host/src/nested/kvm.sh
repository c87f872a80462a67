# Ends with status 3 if the machine has no usable KVM: run once in its root.
[ -c dev/kvm ] || { echo "it has no /dev/kvm" >&2; exit 3; }
# As udev leaves it.
chmod 666 dev/kvm
# Both ends of nested paging, without which a guest is slow beyond use.
case "$(cat sys/module/kvm_amd/parameters/npt)" in
Y | 1) ;;
*) echo "its KVM has no nested paging" >&2; exit 3 ;;
esac
