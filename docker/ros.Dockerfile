# The policy node in ROS 2, for x86_64 and for a Jetson Thor (arm64, JetPack 7): built with
#   docker build -f docker/ros.Dockerfile --build-arg ROS_DISTRO=jazzy -t physai-ros .
# and run with the robot's tree, its network and the right to be scheduled in time:
#   docker run --network host --ipc host --cap-add SYS_NICE --cap-add IPC_LOCK --ulimit rtprio=80 --ulimit memlock=-1 \
#     -v /var/lib/physai:/var/lib/physai physai-ros
ARG ROS_DISTRO=jazzy
FROM ros:${ROS_DISTRO}-ros-base
ARG ROS_DISTRO

RUN apt-get update && apt-get install --yes --no-install-recommends \
        python3-pip python3-colcon-common-extensions ros-${ROS_DISTRO}-rmw-cyclonedds-cpp \
    && rm -rf /var/lib/apt/lists/*
ENV RMW_IMPLEMENTATION=rmw_cyclonedds_cpp

COPY . /opt/physai
# The node runs in the system's Python, beside rclpy; pip is told that this is meant.
RUN pip install --break-system-packages --no-cache-dir '/opt/physai[ros]'
WORKDIR /opt/physai_ws
RUN cp -r /opt/physai/ros/colcon src && . /opt/ros/${ROS_DISTRO}/setup.sh && colcon build --merge-install

RUN printf '#!/bin/sh\nset -e\n. /opt/ros/%s/setup.sh\n. /opt/physai_ws/install/setup.sh\nexec "$@"\n' "${ROS_DISTRO}" \
        > /entry && chmod +x /entry
ENTRYPOINT ["/entry"]
CMD ["ros2", "launch", "physai_ros", "policy.launch.py"]
