# Training and simulation on a CPU. Build from the repository's root:
#   docker build -f docker/train.Dockerfile -t physai-train .
#   docker run --rm -v "$PWD/runs:/runs" physai-train train ur10e-reach --out /runs/reach
FROM python:3.12-slim

# Off-screen OpenGL, to render images and videos.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /physai
COPY . .
RUN pip install --no-cache-dir -c constraints.txt '.[train]'

ENTRYPOINT ["physai"]
