"""MCAP files and ROS 2 bags."""
