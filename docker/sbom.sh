#!/bin/sh
# Writes what a virtual environment holds as a CycloneDX bill of materials to ENVIRONMENT/sbom.cdx.json. The tool that
# reads it stays out of the environment and the image.
set -eu
python3 -m venv /tmp/sbom
/tmp/sbom/bin/pip install --quiet --no-cache-dir 'cyclonedx-bom>=5,<8'
/tmp/sbom/bin/cyclonedx-py environment "$1/bin/python" --output-reproducible --of JSON -o "$1/sbom.cdx.json"
rm -rf /tmp/sbom
