#!/bin/sh
# Installs the Python binding of CycloneDDS into a virtual environment where it has no wheel: from its source, against
# Debian's cyclonedds-dev.
set -eu
if "$1/bin/python" -c 'import cyclonedds' 2>/dev/null; then
    exit 0
fi
# The build expects CycloneDDS in a folder of its own; Debian has the libraries in a folder named after the processor.
mkdir -p /tmp/cyclonedds
ln -sfn "/usr/lib/$(gcc -print-multiarch)" /tmp/cyclonedds/lib
ln -sfn /usr/include /tmp/cyclonedds/include
ln -sfn /usr/bin /tmp/cyclonedds/bin
CYCLONEDDS_HOME=/tmp/cyclonedds "$1/bin/pip" install --no-cache-dir --no-binary cyclonedds 'cyclonedds>=0.10.5,<0.11'
"$1/bin/python" -c 'import cyclonedds.core'
rm -rf /tmp/cyclonedds
