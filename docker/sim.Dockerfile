# The digital twin as a service. Build with `docker/build.sh sim`, start with PostgreSQL: see docker/compose.yaml.
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
# train: jobs may train and quantise; traces and viewers: OpenTelemetry, Foxglove and OpenUSD.
RUN /opt/physai/bin/pip install --no-cache-dir -c constraints.txt '.[train,traces,viewers]' \
    && docker/sbom.sh /opt/physai

FROM ${BASE}
# Off-screen OpenGL for the pictures in reports.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 libegl1 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/physai /opt/physai
RUN useradd --uid 1000 --create-home physai && mkdir /data && chown physai /data
USER physai
WORKDIR /home/physai
ENV PATH=/opt/physai/bin:$PATH
VOLUME /data
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8800/healthz', timeout=4)"]
ENTRYPOINT ["physai"]
CMD ["sim", "serve", "--data", "/data", "--log", "-"]
