"""Home pose, base and end effector of an imported robot."""
