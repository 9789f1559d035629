"""Results of workflow stages by the hash of their inputs."""
