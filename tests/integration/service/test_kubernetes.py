"""What docker/kubernetes deploys: objects that Kubernetes' API takes, that name each other, our programs and images.

Where `kubectl` is at hand, it builds the folders. KubeRay's own schema checks the Ray cluster in
tests/integration/cluster/workflow/test_emit.py.
"""

import argparse
import copy
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import kubernetes_validate
import pytest
import yaml

from physai.service.cli import serve
from physai.service.cli import tokens_verb as tokens

DOCKER = Path(__file__).parents[3] / "docker"
FOLDERS = [DOCKER / "kubernetes" / name for name in ("twin-service", "ray")]
VERSIONS = ("1.30", "1.37")
Object = dict[str, Any]


def objects(folder: Path) -> list[Object]:
    """The objects of a folder, as they are written."""
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(file.name for file in folder.iterdir())
    return [cast("Object", each) for name in listed for each in yaml.safe_load_all((folder / name).read_text("utf-8"))]


def pods(item: object) -> Iterator[Object]:
    """Every pod's template in an object."""
    if isinstance(item, dict):
        record = cast("Object", item)
        if "containers" in record:
            yield record
        for value in record.values():
            yield from pods(value)
    elif isinstance(item, list):
        for value in cast("list[object]", item):
            yield from pods(value)


ALL = [pytest.param(item, id=f"{item['kind']}-{item['metadata']['name']}") for f in FOLDERS for item in objects(f)]


@pytest.mark.parametrize("item", ALL)
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_has_these_fields(item: Object, version: str) -> None:
    if item["apiVersion"].startswith("ray.io/"):
        # The pods in it are Kubernetes'; the rest is KubeRay's.
        for pod in pods(item):
            whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
            kubernetes_validate.validate(whole, version, strict=True)
        return
    kubernetes_validate.validate(item, version, strict=True)
    for pod in pods(copy.deepcopy(item)):
        pod["containers"][0]["imagePullPolice"] = "Always"
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
        with pytest.raises(kubernetes_validate.ValidationError, match="imagePullPolice"):
            kubernetes_validate.validate(whole, version, strict=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kubectl_builds_the_folder(folder: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    built = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
    documents = [cast("Object", each) for each in yaml.safe_load_all(built)]
    assert len(documents) == len(objects(folder))
    assert {each["metadata"]["namespace"] for each in documents} == {"physai"}
    images = {container["image"] for each in documents for pod in pods(each) for container in pod["containers"]}
    # The images of ours in pods of Kubernetes' own kinds; KubeRay's are not known to kubectl, but replaced, too.
    assert all(re.fullmatch(r"registry.example.org/physai-\w+:0.1.0|postgres:17", image) for image in images)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_pods_mount_and_name_exists(folder: Path) -> None:
    every = objects(folder)
    claims = {each["metadata"]["name"] for each in every if each["kind"] == "PersistentVolumeClaim"}
    for each in every:
        templates = {t["metadata"]["name"] for t in each["spec"].get("volumeClaimTemplates", [])}
        for pod in pods(each):
            volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
            for volume in volumes.values():
                if "persistentVolumeClaim" in volume:
                    assert volume["persistentVolumeClaim"]["claimName"] in claims
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
                assert mounted <= {*volumes, *templates}
                words = " ".join(container.get("args", []))
                folders = [mount["mountPath"] for mount in container["volumeMounts"]]
                for path in re.findall(r"=(/\w+[\w/.]*)", words):
                    assert any(path == f or path.startswith(f"{f}/") for f in folders), path


def test_selectors_find_their_pods() -> None:
    every = objects(FOLDERS[0])
    labels = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in every
        if each["kind"] in ("Deployment", "StatefulSet")
    ]
    selectors = [each["spec"]["selector"] for each in every if each["kind"] == "Service"]
    policies = [each["spec"] for each in every if each["kind"] == "NetworkPolicy"]
    selectors += [policy["podSelector"]["matchLabels"] for policy in policies]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in every if each["kind"] == "Deployment"]
    selectors += [
        peer["podSelector"]["matchLabels"] for p in policies for r in p["ingress"] for peer in r.get("from", [])
    ]
    assert len(selectors) == 6
    assert all(any(selector.items() <= each.items() for each in labels) for selector in selectors)


def test_the_pods_start_our_programs() -> None:
    every = objects(FOLDERS[0])
    (pod,) = (each["spec"]["template"]["spec"] for each in every if each["kind"] == "Deployment")
    (database,) = (each for each in every if each["kind"] == "StatefulSet")
    (init,), (container,) = pod["initContainers"], pod["containers"]
    served, created = argparse.ArgumentParser(exit_on_error=False), argparse.ArgumentParser(exit_on_error=False)
    serve.command.add_arguments(served)
    tokens.command.add_arguments(created)
    assert container["args"][:2] == ["sim", "serve"]
    assert init["args"][:2] == ["sim", "tokens"]
    service, token = served.parse_args(container["args"][2:]), created.parse_args(init["args"][2:])
    assert init["args"][2] == "create"
    assert (token.name, token.scope) == ("admin", "admin")
    assert token.token_file == Path("/secrets/token/token")
    assert service.db == token.db == f"postgresql+psycopg://physai@{database['spec']['serviceName']}/physai"
    assert service.tls_cert.name == "tls.crt"
    assert service.tls_key.name == "tls.key"
    (port,) = container["ports"]
    assert port["containerPort"] == vars(service).get("port", 8800)
    assert {container[f"{probe}Probe"]["httpGet"]["port"] for probe in ("startup", "liveness", "readiness")} == {
        "https"
    }


@pytest.mark.parametrize(("folder", "image"), [(FOLDERS[0], "sim"), (FOLDERS[1], "train")], ids=["twin-service", "ray"])
def test_pods_run_as_the_user_of_the_image(folder: Path, image: str) -> None:
    text = (DOCKER / f"{image}.Dockerfile").read_text("utf-8")
    (user,) = re.findall(r"useradd --uid (\d+) --create-home physai", text)
    ours = [pod for each in objects(folder) for pod in pods(each) if pod["containers"][0]["image"] == f"physai-{image}"]
    assert ours
    for pod in ours:
        assert pod["securityContext"]["runAsUser"] == int(user)
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not container["securityContext"]["allowPrivilegeEscalation"]


def test_the_ray_of_the_cluster_is_that_of_the_image() -> None:
    (cluster,) = (each for each in objects(FOLDERS[1]) if each["kind"] == "RayCluster")
    pinned = re.findall(r"^ray==(.*)$", (DOCKER.parent / "constraints.txt").read_text("utf-8"), re.M)
    assert [cluster["spec"]["rayVersion"]] == pinned


def test_the_image_of_the_cluster_has_what_kuberay_asks_of_one() -> None:
    """Its probes ask the dashboard's agent, its jobs go to the dashboard; Ray alone has neither."""
    extras = tomllib.loads((DOCKER.parent / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert any(requirement.startswith("ray[default]") for requirement in extras["kuberay"])
    assert "'.[kuberay]'" in (DOCKER / "train.Dockerfile").read_text("utf-8")
