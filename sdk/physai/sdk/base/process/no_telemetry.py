"""Turns telemetry of libraries off: physai contacts no server that the user did not name.

Imported by each of physai's packages before anything else, because ONNX Runtime writes a device id and a database when
it is imported. The environment is inherited by child processes. A variable that the user has set is kept.
"""

import os

VARIABLES = {
    # ONNX Runtime 1.31: writes below the user's cache folder and looks up a host of its maker.
    "ORT_DISABLE_TELEMETRY": "1",
    # Ray: usage statistics of a cluster.
    "RAY_USAGE_STATS_ENABLED": "0",
    # MLflow 3: events of its API.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Hugging Face libraries, as far as a user's code imports them.
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Environment variables and the values that turn telemetry off."""

for _name, _value in VARIABLES.items():
    os.environ.setdefault(_name, _value)
