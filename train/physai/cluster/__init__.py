"""Training on many computers: generators of rollouts, sweeps and workflows."""

# Libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry
