"""Ask of a bundle what a robot asks before it installs one.

physai bundle pack RUN --sign && python examples/verify_bundle.py BUNDLE TRUST_FILE
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from physai.sdk import (
    Bundle,
    Origin,
    PhysaiError,
    Requirements,
    SignedTrust,
    TrustStore,
    VerificationError,
    Verified,
    read_bundle,
    verify,
)

if len(sys.argv) < 3:
    sys.exit(__doc__)
path, trust_path = Path(sys.argv[1]), Path(sys.argv[2])
bundle: Bundle = read_bundle(path)
print(f"{path.name}: {bundle.contract.task} for {bundle.contract.robot.name}, {len(bundle.policies)} policies")

try:
    trust: TrustStore = SignedTrust.load(trust_path).trust
except PhysaiError as error:
    sys.exit(str(error))
origin = Origin(kind="robot", robot=bundle.contract.robot.name)
requirements = Requirements()  # what a robot asks by default: every gate, evidence from a robot
print(f"a robot asks for the gates {', '.join(requirements.gates)}, with evidence of a {origin.kind}")
try:
    verified: Verified = verify(
        path.read_bytes(),
        trust,
        robot=bundle.contract.robot.name,
        now=datetime.now(UTC),
        floor=0,
        requirements=requirements,
    )
    print("accepted, signed by", verified.signers)
except VerificationError as error:
    print(f"refused ({error.rule.value}): {error}")
