"""Makes a robot folder that physai and plain MuJoCo load from somebody else's URDF or MJCF."""
