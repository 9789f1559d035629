"""Reports of a verdict: an HTML page and JUnit XML."""
