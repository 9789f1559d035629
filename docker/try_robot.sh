#!/usr/bin/env bash
# Tries a robot image without a robot: trains a small policy here, installs it in a container, drives the virtual robot
# outside of it over UDP, installs a second version, and rolls back. With an arm64 image on an amd64 computer this needs
# qemu-user-static and a mounted binfmt_misc, see docs/how-to/images.md for how far that goes.
set -euo pipefail

case ${1:-} in
    '' | -h | --help)
        echo 'usage: docker/try_robot.sh IMAGE [FOLDER]   (PHYSAI: the physai of this computer, with extra train)'
        [ -n "${1:-}" ] && exit 0 || exit 2 ;;
esac
image=$1
folder=${2:-$(mktemp -d)}
physai=${PHYSAI:-physai}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

if command -v docker >/dev/null && docker info >/dev/null 2>&1; then program=docker
elif command -v podman >/dev/null; then program=podman
elif command -v buildah >/dev/null; then program=buildah
else echo 'docker/try_robot.sh: needs docker, podman or buildah' >&2; exit 2; fi
[ "$program" != buildah ] || container=$(buildah from --pull-never "$image")

robot=''
ended() {
    [ -z "$robot" ] || kill "$robot" 2>/dev/null || true
    [ "$program" != buildah ] || buildah rm "$container" >/dev/null
}
trap ended EXIT

# The container's files belong to this user, as the folder does.
inside() {
    if [ "$program" = buildah ]; then
        buildah run --isolation "${BUILDAH_ISOLATION:-chroot}" --user "$(id -u)" --volume "$folder:/robot" "$container" -- "$@"
    else
        "$program" run --rm --network host --user "$(id -u)" --volume "$folder:/robot" --entrypoint '' "$image" "$@"
    fi
}

agent() {
    local verb=$1
    shift
    inside physai robot "$verb" --root /robot/root "$@"
}

say() { printf '\n== %s\n' "$1"; }

say 'here: a policy, signed, in two versions'
[ -f "$folder/keys/trust.json" ] || "$physai" keys init "$folder/keys" >/dev/null
if [ ! -f "$folder/2.physai" ]; then
    "$physai" train cartpole-swingup --time-budget-s 15 --out "$folder/run" >/dev/null
    "$physai" export "$folder/run" >/dev/null
    for version in 1 2; do
        "$physai" bundle pack "$folder/run" --sign --key "$folder/keys/publisher.key" --version "$version" \
            -o "$folder/$version.physai" >/dev/null
    done
fi
# This robot takes policies without evidence: the question is whether the image works, not the policy.
echo '{"format_version": 1, "accept": ["stand-in"], "unsafe_no_verdict": true}' > "$folder/settings.json"
cp "$folder/keys/trust.json" "$folder/trust.json"

say "in the container: $(inside uname -m)"
rm -rf "$folder/root"
agent setup --robot cartpole/tried --trust /robot/trust.json --settings /robot/settings.json --stand-in
for version in 1 2; do
    say "version $version: install, activate, run against the virtual robot outside"
    agent install "/robot/$version.physai" --unsafe-no-verdict --activate
    "$physai" robot simulate cartpole-swingup --transport udp --set bind=127.0.0.1:17171 --clock lockstep \
        > "$folder/simulate-$version.log" 2>&1 &
    robot=$!
    code=0
    agent run --transport udp --set robot=127.0.0.1:17171 --duration-s "${SECONDS_OF_RUN:-10}" --no-lock \
        --unsafe-no-verdict --json > "$folder/run-$version.json" || code=$?
    kill "$robot" && wait "$robot" || true
    robot=''
    cat "$folder/run-$version.json"
    case $code in
        0) ;;
        1) echo 'the guard ended the run: a busy or emulated computer misses deadlines, which says nothing of a robot' ;;
        *) echo "docker/try_robot.sh: the runtime did not start, exit code $code" >&2; exit 1 ;;
    esac
    grep -q '"ticks": [1-9]' "$folder/run-$version.json"
    [ "$version" = 2 ] || agent commit --now
done
say 'back to the first version'
agent rollback
agent status
agent status --json | python3 -c '
import json, sys
active = [slot["marker"]["version"] for slot in json.load(sys.stdin)["slots"] if slot["active"]]
sys.exit(f"version 1 is not active, but {active}" if active != [1] else 0)'
say 'version 1 is active again'
