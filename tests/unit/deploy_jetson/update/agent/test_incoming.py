"""Uploads: what a robot lacks, and bundles put together from what it has."""

from hashlib import sha256
from pathlib import Path

import pytest
from tests.harness.fixtures.sample import sample_policy
from tests.harness.fixtures.site import Site

from physai.deploy_jetson.update.agent.incoming import assemble, missing, parse_recipe
from physai.deploy_jetson.update.slots.slot_errors import InstallError
from physai.sdk.bundle.archive import BundleError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE


def upload(site: Site, data: bytes, *, only: list[str]) -> None:
    members = read_bundle(data).members
    for name in members:
        if members.sha256(name) in only:
            (site.agent.root / "incoming" / members.sha256(name)).write_bytes(members[name])


def test_a_first_bundle_is_missing_as_a_whole(site: Site) -> None:
    recipe = read_bundle(site.bundles[1]).digests
    absent = missing(site.agent.store, recipe.values())
    assert absent == list(recipe.values())
    upload(site, site.bundles[1], only=absent)
    assert missing(site.agent.store, recipe.values()) == []
    assert assemble(site.agent.store, recipe) == site.bundles[1]


def test_only_what_changed_is_missing(site: Site) -> None:
    site.run(1)
    members = {**sample_policy(seed=1), GOLDEN_FILE: sample_policy(seed=1)[GOLDEN_FILE]}
    changed = site.workshop.validated(site.workshop.published(members, version=2))
    recipe = read_bundle(changed).digests
    absent = missing(site.agent.store, recipe.values())
    assert recipe[POLICY_FILE] not in absent
    assert recipe["manifest.json"] in absent
    upload(site, changed, only=absent)
    assert assemble(site.agent.store, recipe) == changed
    assert site.agent.install(assemble(site.agent.store, recipe)).slot == "b"
    assert site.agent.gc() > 0
    assert list((site.agent.root / "incoming").iterdir()) == []


def test_a_damaged_upload_is_asked_for_again(site: Site) -> None:
    recipe = read_bundle(site.bundles[1]).digests
    upload(site, site.bundles[1], only=list(recipe.values()))
    path: Path = site.agent.root / "incoming" / recipe[POLICY_FILE]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InstallError, match=r"member policy.onnx .* was not uploaded, or its upload is damaged"):
        assemble(site.agent.store, recipe)
    assert missing(site.agent.store, recipe.values()) == [recipe[POLICY_FILE]]
    assert not path.exists()


def test_a_damaged_slot_is_no_source(site: Site) -> None:
    site.run(1)
    (site.agent.root / "slots/a/bundle.physai").write_bytes(b"x")
    recipe = read_bundle(site.bundles[1]).digests
    assert missing(site.agent.store, recipe.values()) == list(recipe.values())


def test_members_that_make_no_bundle(site: Site) -> None:
    data = b"not a member"
    digest = sha256(data).hexdigest()
    (site.agent.root / "incoming" / digest).write_bytes(data)
    with pytest.raises(BundleError):
        assemble(site.agent.store, {"../evil": digest})


@pytest.mark.parametrize(
    ("digests", "reason"),
    [
        (["../../etc/passwd"], "is not a SHA-256"),
        (["AB" * 32], "is not a SHA-256"),
        (["ab" * 32 + "\n"], "is not a SHA-256"),
        ([f"{number:064x}" for number in range(65)], "65 members, a bundle has at most 64"),
    ],
)
def test_what_is_no_digest(site: Site, digests: list[str], reason: str) -> None:
    with pytest.raises(InstallError, match=reason):
        missing(site.agent.store, digests)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_recipe(data: bytes) -> None:
    with pytest.raises(InstallError, match="recipe"):
        parse_recipe(data)
