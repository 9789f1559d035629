"""File names and maximum file sizes; imports nothing, for programs with a short start-up time."""

CONTRACT_FILE = "contract.json"
"""Contract in a run folder or a bundle."""

MAX_CONTRACT_BYTES = 1 << 20
"""Maximum size of a contract; one of 64 joints takes about 60 kB."""

POLICY_FILE = "policy.onnx"
"""Policy in an export folder or a bundle."""

MAX_POLICY_BYTES = 256 << 20
"""Maximum size of an ONNX policy: about 60 million float32 weights."""

IMPORT_REPORT_FILE = "import.md"
"""Each field of an imported policy with its source, for people, in a run folder."""

IMPORT_RECORD_FILE = "import.json"
"""The same for machines, with the hashes of the files that were read."""

GOLDEN_FILE = "golden.npz"
"""Golden inputs and outputs of visited states, in the same folder as the policy, by the graph's tensor names."""
