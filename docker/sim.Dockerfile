# The digital twin as a service. Build and start with PostgreSQL beside it: see docker/compose.yaml.
FROM python:3.12-slim

# Off-screen OpenGL for the pictures in reports.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /physai
COPY . .
# train: jobs may train and quantise; traces and viewers: OpenTelemetry, Foxglove and OpenUSD.
RUN pip install --no-cache-dir -c constraints.txt '.[train,traces,viewers]'

RUN useradd --create-home physai && mkdir /data && chown physai /data
USER physai
VOLUME /data
ENTRYPOINT ["physai"]
CMD ["sim", "serve", "--data", "/data", "--log", "-"]
