#!/usr/bin/env bash
# Builds one of the images of this folder with docker, podman or buildah, whichever there is.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: docker/build.sh IMAGE [--builder docker|podman|buildah] [--base IMAGE] [--tag TAG] [OPTION ...]

  IMAGE      train, sim, ros, jetson or robot: the Dockerfile of that name
  --builder  program that builds (default: the first of docker, podman and buildah that works here)
  --base     image to start from instead of the one in the Dockerfile (train, sim, robot)
  --tag      name of the result (default: physai-IMAGE)
  OPTION     handed on to the builder, such as --build-arg, --platform or --volume
TEXT
}

fail() {
    echo "docker/build.sh: $1" >&2
    exit 2
}

cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { usage >&2; exit 2; }
case $1 in -h | --help) usage; exit 0 ;; esac
image=$1
shift
file=docker/$image.Dockerfile
images=$(cd docker && ls -- *.Dockerfile | sed 's/\.Dockerfile$//' | paste -sd ' ')
[[ $image =~ ^[a-z]+$ ]] && [ -f "$file" ] || fail "there is no image '$image', choose one of: $images"

builder='' tag=physai-$image options=()
while [ $# -gt 0 ]; do
    case $1 in
        --builder | --base | --tag) [ $# -gt 1 ] || fail "$1 needs a value" ;;&
        --builder) builder=$2; shift 2 ;;
        --base)
            grep -q '^ARG BASE=' "$file" || fail "$file takes no --base, it needs the image that it names"
            options+=(--build-arg "BASE=$2"); shift 2 ;;
        --tag) tag=$2; shift 2 ;;
        *) options+=("$1"); shift ;;
    esac
done

# A docker client without a daemon cannot build.
if [ -z "$builder" ]; then
    if command -v docker >/dev/null && docker info >/dev/null 2>&1; then builder=docker
    elif command -v podman >/dev/null; then builder=podman
    elif command -v buildah >/dev/null; then builder=buildah
    else fail "needs docker, podman or buildah; on Debian: apt-get install buildah"; fi
fi
case $builder in
    docker) build=(docker build) ;;
    # Health checks are part of Docker's image format only.
    podman) build=(podman build --format docker) ;;
    # In a container of its own buildah may not make namespaces; chroot needs none.
    buildah) build=(buildah bud --layers --format docker --isolation "${BUILDAH_ISOLATION:-chroot}") ;;
    *) fail "--builder must be docker, podman or buildah, got '$builder'" ;;
esac
exec "${build[@]}" -f "$file" -t "$tag" "${options[@]}" .
