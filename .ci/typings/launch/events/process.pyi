class ProcessExited:
    returncode: int
