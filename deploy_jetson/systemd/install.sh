#!/usr/bin/env bash
# Sets up a Jetson (or any Linux machine with systemd) as a robot:
#
#   sudo deploy_jetson/systemd/install.sh --robot ur10e/cell-3 --trust trust.json [--login id_ed25519.pub]
#       [--package FILE.whl] [-- SETUP OPTIONS]
#
# Creates the user physai, which runs the robot and owns its slots in /var/lib/physai; root's folder /etc/physai with
# the robot's identity and trust file; an environment in /opt/physai with access to the system's TensorRT; and the units
# next to this script. --login adds an ssh key that may only flash, as physai@ROBOT. Run it again to upgrade: slots, state
# and the running policy are kept. DESTDIR installs below another folder without changing users and services.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
destination=${DESTDIR:-}
receive='/opt/physai/bin/physai robot receive --root /var/lib/physai --config-root /etc/physai'
robot='' trust='' login='' package='physai-sdk[robot]'

usage() {
    sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
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
[ -n "$robot" ] || refuse 'give the robot a name: --robot NAME'
[ -n "$trust" ] || refuse "give a trust file: --trust FILE (see \`physai keys trust\`)"
[ -r "$trust" ] || refuse "$trust cannot be read"
[ -z "$login" ] || ssh-keygen -l -f "$login" >/dev/null 2>&1 || refuse "$login is not a public key"
! grep -qs 'PRIVATE KEY' "$login" || refuse "$login is a private key; give the .pub file next to it"
[ -n "$destination" ] || [ "$(id -u)" -eq 0 ] || refuse 'run it as root'
[ ! -f "$package" ] || package="${package}[robot]"

umask 022

# sh runs sshd's forced command without reading files of the home, unlike bash; '*' disables password login.
if [ -z "$destination" ]; then
    id physai >/dev/null 2>&1 || useradd --system --password '*' --no-create-home --home-dir /home/physai physai
    [ "$(id -u physai)" -lt 1000 ] || refuse 'physai is a personal account here; the robot needs a system account of that name'
    usermod --shell /bin/sh physai
fi

home=$destination/home/physai
keys=$home/.ssh/authorized_keys
# In older installations the home belonged to physai, so that account could have added unrestricted keys.
install -d -m 0755 "$home"
[ -n "$destination" ] || chown -h root:root "$home"
[ ! -L "$home/.ssh" ] || rm "$home/.ssh"
install -d -m 0755 "$home/.ssh"
[ -n "$destination" ] || chown -hR root:root "$home"
chmod -R go-w "$home"
if [ -n "$login" ]; then
    entered=$(grep -oE '(ssh|ecdsa|sk)-[^ ]+ AAAA[A-Za-z0-9+/=]+( .*)?$' "$login") || refuse "$login is not a public key"
    others=$(grep -svFf <(cut -d ' ' -f 2 <<<"$entered") "$keys" || true)
    rm -f "$keys"
    printf '%s' "${others:+$others
}" >"$keys"
    sed "s|^|command=\"$receive\",restrict |" <<<"$entered" >>"$keys"
fi
[ ! -e "$keys" ] || chmod 0644 "$keys"
free=$(grep -sv '^ *\(#\|$\)' "$home"/.ssh/authorized_keys* | grep -vcF 'restrict ' || true)
[ "$free" -eq 0 ] || echo "install.sh: $free keys in $keys allow a shell; add them with --login" >&2

environment=$destination/opt/physai
[ -x "$environment/bin/python" ] || python3 -m venv --system-site-packages "$environment"
"$environment/bin/python" -m pip install --quiet --upgrade "$package"
install -d "$destination/usr/local/bin"
ln -sfn /opt/physai/bin/physai "$destination/usr/local/bin/physai"

root=$destination/var/lib/physai
if [ -n "$destination" ]; then install -d "$root"; else install -d -o physai -g physai -m 0755 "$root"; fi
setup=("$environment/bin/physai" robot setup --root "$root" --config-root "$destination/etc/physai")
"${setup[@]}" --robot "$robot" --trust "$trust" "$@"
# Locations used by older installations.
rm -f "$root/robot" "$root/limits" "$root/trust.json"

install -d "$destination/etc/systemd/system"
install -m 0644 "$here"/*.service "$here"/*.path "$destination/etc/systemd/system/"
if [ -z "$destination" ]; then
    systemctl daemon-reload
    systemctl enable physai-recover.service physai-agent.service physai-runtime.path
    systemctl restart physai-recover.service physai-agent.service physai-runtime.path
fi
echo "ready: physai flash physai@$(hostname) BUNDLE"
