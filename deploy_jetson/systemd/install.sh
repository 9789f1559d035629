#!/usr/bin/env bash
# Makes a Jetson (or any Linux machine with systemd) a robot that takes policies:
#
#   sudo deploy_jetson/systemd/install.sh --robot ur10e/cell-3 --trust trust.json [--login id_ed25519.pub]
#       [--package FILE.whl] [-- SETUP OPTIONS]
#
# Makes the user physai (flash as physai@ROBOT; --login lets an ssh key in), an environment in /opt/physai that sees the
# system's TensorRT, the tree /var/lib/physai and the units beside this script. Run it again to upgrade; slots, state and
# what is running stay. DESTDIR puts everything below another folder and leaves users and services alone.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
destination=${DESTDIR:-}
robot='' trust='' login='' package='physai-sdk[robot]'

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

refuse() {
    echo "install.sh: $1" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        --robot) robot=${2:?--robot needs a name}; shift 2 ;;
        --trust) trust=${2:?--trust needs a file}; shift 2 ;;
        --login) login=${2:?--login needs a public key}; shift 2 ;;
        --package) package=${2:?--package needs a file or a requirement}; shift 2 ;;
        -h | --help) usage; exit 0 ;;
        --) shift; break ;;
        *) refuse "unknown option $1 (see --help)" ;;
    esac
done
[ -n "$robot" ] || refuse 'say which robot this is: --robot NAME'
[ -n "$trust" ] || refuse "say whom it believes: --trust FILE (see \`physai keys trust\`)"
[ -r "$trust" ] || refuse "$trust cannot be read"
[ -z "$login" ] || ssh-keygen -l -f "$login" >/dev/null 2>&1 || refuse "$login is no public key"
! grep -qs 'PRIVATE KEY' "$login" || refuse "$login is a private key; it stays where it is, give the .pub beside it"
[ -n "$destination" ] || [ "$(id -u)" -eq 0 ] || refuse 'run it as root'
[ ! -f "$package" ] || package="${package}[robot]"

as_physai() {
    if [ -n "$destination" ]; then "$@"; else runuser -u physai -- "$@"; fi
}

if [ -z "$destination" ] && ! id physai >/dev/null 2>&1; then
    useradd --system --create-home --home-dir /home/physai --shell /bin/bash physai
fi

if [ -n "$login" ]; then
    folder=$destination/home/physai/.ssh
    install -d -m 0700 "$folder"
    touch "$folder/authorized_keys"
    chmod 0600 "$folder/authorized_keys"
    grep -qxFf "$login" "$folder/authorized_keys" || cat "$login" >>"$folder/authorized_keys"
    [ -n "$destination" ] || chown -R physai:physai "$folder"
fi

environment=$destination/opt/physai
[ -x "$environment/bin/python" ] || python3 -m venv --system-site-packages "$environment"
"$environment/bin/python" -m pip install --quiet --upgrade "$package"
install -d "$destination/usr/local/bin"
ln -sfn /opt/physai/bin/physai "$destination/usr/local/bin/physai"

root=$destination/var/lib/physai
if [ -n "$destination" ]; then install -d "$root"; else install -d -o physai -g physai -m 0755 "$root"; fi
# The user physai may not be able to read the file where it lies.
copy=$(mktemp)
trap 'rm -f "$copy"' EXIT
install -m 0644 "$trust" "$copy"
as_physai "$environment/bin/physai" robot setup --root "$root" --robot "$robot" --trust "$copy" "$@"

install -d "$destination/etc/systemd/system"
install -m 0644 "$here"/*.service "$here"/*.path "$destination/etc/systemd/system/"
if [ -z "$destination" ]; then
    systemctl daemon-reload
    systemctl enable physai-recover.service physai-agent.service physai-runtime.path
    systemctl restart physai-recover.service physai-agent.service physai-runtime.path
fi
echo "ready: physai flash physai@$(hostname) BUNDLE"
