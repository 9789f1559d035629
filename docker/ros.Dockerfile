# The ROS 2 policy node, for x86_64 and Jetson Thor (arm64, JetPack 7). Build:
#   docker build -f docker/ros.Dockerfile --build-arg ROS_DISTRO=jazzy -t physai-ros .
# Run with the robot's slots, the host network and permission for real-time scheduling:
#   docker run --network host --ipc host --cap-add SYS_NICE --cap-add IPC_LOCK --ulimit rtprio=80 --ulimit memlock=-1 \
#     -v /var/lib/physai:/var/lib/physai -v /etc/physai:/etc/physai:ro physai-ros
# `--build-arg EXTRAS=ros,sim` adds the twin, which simulate.launch.py needs.
ARG ROS_DISTRO=jazzy
FROM ros:${ROS_DISTRO}-ros-base
ARG ROS_DISTRO
ARG EXTRAS=ros

RUN apt-get update && apt-get install --yes --no-install-recommends \
        python3-venv ros-${ROS_DISTRO}-rmw-cyclonedds-cpp \
    && rm -rf /var/lib/apt/lists/*
ENV RMW_IMPLEMENTATION=rmw_cyclonedds_cpp

# A virtual environment with system packages for rclpy; outside of one, pip cannot replace Debian's packages, such as an
# older cryptography.
RUN python3 -m venv --system-site-packages /opt/venv
ENV PATH=/opt/venv/bin:$PATH
COPY . /opt/physai
RUN pip install --no-cache-dir "/opt/physai[${EXTRAS}]" colcon-common-extensions
WORKDIR /opt/physai_ws
# rosdep installs the dependencies of the launch files. colcon runs in the environment's Python, so the node does, too.
RUN cp -r /opt/physai/ros/colcon src && . /opt/ros/${ROS_DISTRO}/setup.sh \
    && apt-get update && rosdep update --rosdistro ${ROS_DISTRO} \
    && rosdep install --from-paths src --ignore-src --default-yes && rm -rf /var/lib/apt/lists/* \
    && python -m colcon build --merge-install

RUN printf '#!/bin/sh\nset -e\n. /opt/ros/%s/setup.sh\n. /opt/physai_ws/install/setup.sh\nexec "$@"\n' "${ROS_DISTRO}" \
        > /entry && chmod +x /entry
# The limits above, not root, permit real-time scheduling and locked memory. ubuntu is user 1000 of the base.
RUN id 1000 >/dev/null 2>&1 && userdel --remove ubuntu; useradd --uid 1000 --create-home physai \
    && mkdir -p /var/lib/physai && chown physai /var/lib/physai
USER physai
WORKDIR /home/physai
ENTRYPOINT ["/entry"]
CMD ["ros2", "launch", "physai_ros", "policy.launch.py"]
