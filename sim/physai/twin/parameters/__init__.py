"""Parameters of a robot model that a calibration fits."""
