"""Collection of rollouts on the CPU and on devices, in one process or several."""
