"""Places where work runs and files lie: worker processes, Ray, object stores, and the sandbox of user code."""

# Libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry
