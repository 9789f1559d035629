# The digital twin as a service. Build with `docker/build.sh sim`, start with PostgreSQL: see docker/compose.yaml.
# Alone, it serves port 8800 of the container with a certificate, tls.crt and tls.key in /certs, to holders of a token:
#   docker run --rm -v physai-data:/data physai-sim sim tokens create admin --scope admin --data /data
#   docker run -d --name physai-sim -p 8800:8800 -v physai-data:/data -v "$PWD/certs:/certs:ro" physai-sim
# BASE is a Debian with Python 3.11 or newer; pin it by digest for builds that can be repeated.
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS build
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
# train: jobs may train and quantise; traces and viewers: OpenTelemetry, Foxglove and OpenUSD.
ARG EXTRAS=train,traces,viewers
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/physai
WORKDIR /src
COPY . .
RUN /opt/physai/bin/pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]" \
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
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["python", "-m", "physai.service.serving.health"]
EXPOSE 8800
ENTRYPOINT ["physai"]
# Loopback is the container's own: what is published has to listen on all addresses, and so needs TLS and a token.
CMD ["sim", "serve", "--data", "/data", "--log", "-", "--host", "0.0.0.0", "--tls-cert", "/certs/tls.crt", "--tls-key", "/certs/tls.key"]
