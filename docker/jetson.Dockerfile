# The robot's image, with TensorRT for Jetson (Thor, or Orin with JetPack 7). Build it from the repository's root, on the
# robot or for linux/arm64. JETSON_RELEASE is the robot's Jetson Linux release, CUDA its CUDA version: r38.4 and 13-0 for
# JetPack 7.1, r39.2 and 13-2 for JetPack 7.2.0.
#   docker build -f docker/jetson.Dockerfile --build-arg JETSON_RELEASE=r39.2 --build-arg CUDA=13-2 -t physai-jetson .
#   docker run -d --name physai-agent --runtime nvidia -v /var/lib/physai:/var/lib/physai -v /run/physai:/run/physai \
#       -v /etc/physai:/etc/physai:ro physai-jetson robot watch
#   physai flash ROBOT BUNDLE --physai 'docker exec -i physai-agent physai'
FROM ubuntu:24.04

ARG JETSON_RELEASE=r39.2
ARG CUDA=13-2

ADD https://repo.download.nvidia.com/jetson/jetson-ota-public.asc /usr/share/keyrings/nvidia-jetson.asc
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && chmod 644 /usr/share/keyrings/nvidia-jetson.asc \
    && for part in common som; do \
        echo "deb [signed-by=/usr/share/keyrings/nvidia-jetson.asc] https://repo.download.nvidia.com/jetson/$part $JETSON_RELEASE main"; \
    done > /etc/apt/sources.list.d/nvidia-jetson.list \
    && apt-get update \
    && apt-get install -y --no-install-recommends \
        python3 python3-venv "cuda-cudart-$CUDA" tensorrt-libs python3-libnvinfer \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /physai
COPY . .
# With system packages, because TensorRT's Python package is one of them.
RUN python3 -m venv --system-site-packages /opt/physai \
    && /opt/physai/bin/pip install --no-cache-dir -c constraints.txt '.[robot]'

# The group of the GPU's devices. The folders on the robot that are mounted belong to user 1000, too.
RUN id 1000 >/dev/null 2>&1 && userdel --remove ubuntu; useradd --uid 1000 --create-home --groups video physai \
    && mkdir -p /var/lib/physai /run/physai && chown physai /var/lib/physai /run/physai
USER physai
WORKDIR /home/physai
ENV PATH=/opt/physai/bin:$PATH
VOLUME /var/lib/physai
ENTRYPOINT ["physai"]
