# The robot's programs with ONNX Runtime on the CPU, for amd64 and arm64: a robot without TensorRT, or a test of the
# robot's side on a computer that emulates arm64 (.ci/arm64). For a Jetson with TensorRT see jetson.Dockerfile.
#   docker/build.sh robot --platform linux/arm64
# BASE is a Debian with Python 3.11 or newer; pin it by digest for builds that can be repeated.
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS build
# cyclonedds has no wheel for arm64: its source is built against Debian's library, in which libddsc lies elsewhere than
# the build looks for it.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv python3-dev gcc libc6-dev cyclonedds-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/physai
WORKDIR /src
COPY . .
RUN /opt/physai/bin/pip install --no-cache-dir -c constraints.txt '.[robot]' \
    && docker/cyclonedds.sh /opt/physai
RUN docker/sbom.sh /opt/physai

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 libddsc0debian \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/physai /opt/physai
RUN useradd --uid 1000 --create-home physai \
    && mkdir -p /var/lib/physai /run/physai && chown physai /var/lib/physai /run/physai
USER physai
WORKDIR /home/physai
ENV PATH=/opt/physai/bin:$PATH
VOLUME /var/lib/physai
ENTRYPOINT ["physai"]
