"""Updates of a robot: upload, slots, installation, trial and rollback."""
