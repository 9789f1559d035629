"""A validator of the tests, whose signature makes a robot's evidence count."""

from pathlib import Path

from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.signing.ed25519 import SigningKey, save_private_key, save_public_key
from physai.sdk.signing.evidence import sign_evidence
from physai.twin.model.twin import Twin, signed_twin

VALIDATOR = SigningKey.generate()
VALIDATORS = (VALIDATOR.public_key("validator"),)


def vouched_twin(twin: Twin) -> Twin:
    return signed_twin(twin, VALIDATOR)


def vouched_ticks(evidence: LatencyEvidence) -> LatencyEvidence:
    return evidence.model_copy(update={"signature": sign_evidence(VALIDATOR, "latency", evidence.sha256)})


def keep_keys(config: Path) -> None:
    """Put the validator's key where `physai` looks for the user's, below a folder that XDG_CONFIG_HOME names."""
    folder = config / "physai" / "keys"
    folder.mkdir(parents=True)
    save_private_key(VALIDATOR, folder / "validator.key", passphrase=None)
    save_public_key(VALIDATORS[0], folder / "validator.pub")
