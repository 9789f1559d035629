"""Names and greatest sizes of the files a policy travels in; imports nothing, for programs that must start at once."""

CONTRACT_FILE = "contract.json"
"""Name of the contract in a run folder or a bundle."""

MAX_CONTRACT_BYTES = 1 << 20
"""Greatest size of a contract; one of 64 joints takes some 60 kB."""

POLICY_FILE = "policy.onnx"
"""Name of the policy in an export folder or a bundle."""

MAX_POLICY_BYTES = 256 << 20
"""Greatest size of a policy's ONNX file; sixty million weights take that much."""

GOLDEN_FILE = "golden.npz"
"""Name of the file next to it with inputs and expected outputs of visited states, by the graph's names."""
