"""Keys, a signed bundle and changes of trust from Python.

physai train cartpole-swingup --out run --iterations 3 && physai export run
python examples/keys_and_bundles.py run folder
"""

import sys
from pathlib import Path

from physai.sdk import (
    VerificationError,
    change_trust,
    inspect_machine,
    load_key,
    make_keys,
    pack_bundle,
    revoke_key,
    rotate_key,
    sign_as_publisher,
    sign_trust,
    state_time,
    verify_bundle,
)


def main(run: Path, folder: Path) -> None:
    """Pack and sign a policy, replace the publisher's key, and sign again."""
    keys = folder / "keys"
    trust = keys / "trust.json"
    make_keys(keys, label="example")
    old = load_key("publisher", keys / "publisher.key")
    packed = pack_bundle(run, out=folder / "policy.physai", publisher=old)
    # The first key was lost: its successor is trusted, and what the old one signed is rejected from now on.
    rotate_key(keys / "publisher.key", trust=trust)
    revoke_key(old.key_id, reason="laptop stolen", trust=trust)
    change_trust(thresholds={"validator": 1}, trust=trust)
    sign_trust(trust=trust)
    try:
        verify_bundle(packed.path, trust=trust, require_verdict=False)
    except VerificationError as error:
        print("refused:", error.reason)
    signed = sign_as_publisher(packed.path, load_key("publisher", keys / "publisher-2.key"), replace=True)
    print("accepted:", verify_bundle(signed.path, trust=trust, require_verdict=False).policy)
    state_time([load_key("validator", keys / "validator.key")], robot="cartpole", out=folder / "time.json")
    print("on", inspect_machine().platform)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).mkdir(exist_ok=True)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
