"""Learning from people: answers, reward models and fine-tuning."""

# Libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry
