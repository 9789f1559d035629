"""Messages of ROS 2 and their serialisation."""
