# Training and simulation on a CPU; for NVIDIA GPUs add `--build-arg PIP_EXTRA_INDEX_URL=`, which takes PyPI's torch.
# Build and run from the repository's root:
#   docker/build.sh train
#   mkdir -p runs && docker run --rm --user "$(id -u)" -v "$PWD/runs:/runs" physai-train train ur10e-reach --out /runs/reach
# BASE is a Debian with Python 3.11 or newer; pin it by digest for builds that can be repeated.
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS build
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/physai
WORKDIR /src
COPY . .
RUN /opt/physai/bin/pip install --no-cache-dir -c constraints.txt '.[kuberay]' \
    && docker/sbom.sh /opt/physai

FROM ${BASE}
# Off-screen OpenGL, to render images and videos; wget, by which KubeRay before Ray 2.53 asks whether a node is well.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 libegl1 libgl1-mesa-dri wget \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/physai /opt/physai
RUN useradd --uid 1000 --create-home physai && mkdir /runs && chown physai /runs
USER physai
WORKDIR /home/physai
ENV PATH=/opt/physai/bin:$PATH
VOLUME /runs
ENTRYPOINT ["physai"]
