"""The manifests of examples/kubernetes: valid by KubeRay's own schemas, and right in what no schema knows."""

import copy
import functools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError
from test_cluster_files import locked

from dupq import __version__

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
SCHEMAS = Path(os.environ.get("DUPQ_SHARED_K8S", ROOT.parent / "shared" / "k8s"))
NIGHT = (ROOT / "examples/cluster/night.sh").read_text()
# Kubernetes' own kinds, of which the manifests use little
_NAMED = {"type": "object", "properties": {"name": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}}}
_PLAIN = {
    "ServiceAccount": {"automountServiceAccountToken": {"type": "boolean"}},
    "ConfigMap": {"data": {"type": "object", "additionalProperties": {"type": "string"}}},
}


@functools.cache
def validator_of(kind: str) -> Draft202012Validator:
    return Draft202012Validator(schema_of(kind))


def schema_of(kind: str) -> dict[str, Any]:
    """The schema of a kind, in which an object has no other properties than those it names, as `kubectl` demands."""
    if kind in _PLAIN:
        own = {"apiVersion": {"const": "v1"}, "kind": {"const": kind}, "metadata": {**_NAMED, "required": ["name"]}}
        return strict({"type": "object", "required": [*own], "properties": own | _PLAIN[kind]})
    file = SCHEMAS / f"{kind}-v1.json"
    if not file.exists():
        pytest.skip(f"{file}: KubeRay's schemas are not here")
    return strict(json.loads(file.read_text()))


def strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(each) for name, each in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
        made.setdefault("additionalProperties", is_open)
    return made


def check(manifest: dict[str, Any]) -> None:
    validator_of(manifest["kind"]).validate(manifest)


def manifests() -> dict[str, dict[str, Any]]:
    return copy.deepcopy(_manifests())


@functools.cache
def _manifests() -> dict[str, dict[str, Any]]:
    files = (yaml.safe_load_all(file.read_text()) for file in sorted(FOLDER.glob("*.yaml")))
    return {manifest["kind"]: manifest for file in files for manifest in file}


def job_of(kind: str) -> dict[str, Any]:
    spec = manifests()[kind]["spec"]
    return spec["jobTemplate"] if kind == "RayCronJob" else spec


JOBS = ("RayJob", "RayCronJob")


@pytest.fixture(params=JOBS)
def job(request: pytest.FixtureRequest) -> dict[str, Any]:
    return job_of(request.param)


def pods(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    cluster = job["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        yield group["template"]["spec"]
    yield job["submitterPodTemplate"]["spec"]


@pytest.mark.parametrize("kind", ["ServiceAccount", "ConfigMap", *JOBS])
def test_a_manifest_is_valid_and_one_with_a_misspelt_key_is_not(kind: str) -> None:
    manifest = manifests()[kind]
    check(manifest)
    place = manifest.get("spec", manifest)
    (place["jobTemplate"] if kind == "RayCronJob" else place)["backofLimit"] = 0
    with pytest.raises(ValidationError):
        check(manifest)


def test_the_first_job_and_the_nights_have_the_same_cluster(job: dict[str, Any]) -> None:
    first, night = map(job_of, JOBS)
    assert first["entrypoint"] == f"{night['entrypoint']} first"
    assert {**first, "entrypoint": night["entrypoint"]} == night
    assert job["rayClusterSpec"]["rayVersion"] == locked("ray")
    assert job["backoffLimit"] == 0


def test_no_shell_on_the_way_changes_the_command_and_it_is_there(job: dict[str, Any]) -> None:
    assert not set(job["entrypoint"]) & set("\"'$&;|*<>()")
    script = job["entrypoint"].split()[1]
    (folder,) = {
        mount["mountPath"] for mount in next(pods(job))["containers"][0]["volumeMounts"] if mount["name"] == "night"
    }
    page = (ROOT / "docs/kubernetes.md").read_text()
    assert script == f"{folder}/night.sh"
    assert "kubectl create configmap dupq-night --from-file=examples/cluster/night.sh" in page


def test_no_pod_is_root_or_writes_but_to_its_volumes(job: dict[str, Any]) -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for pod in pods(job):
        security = pod["securityContext"]
        assert (str(security["runAsUser"]), str(security["runAsGroup"])) == user
        assert security["runAsNonRoot"] is True
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        (container,) = pod["containers"]
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert re.fullmatch(rf"dupq:{re.escape(__version__)}(-gpu)?", container["image"])
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
        assert mounts["/tmp"]["emptyDir"] == {}
        if container["name"] != "ray-job-submitter":
            assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory"


def test_only_the_group_with_gpus_has_the_image_for_them(job: dict[str, Any]) -> None:
    for pod in pods(job):
        (container,) = pod["containers"]
        assert ("nvidia.com/gpu" in container["resources"]["limits"]) == container["image"].endswith("-gpu")


def test_every_setting_is_one_that_the_night_or_ray_reads() -> None:
    names = manifests()["ConfigMap"]["data"].keys()
    assert {name for name in names if not name.startswith(("AWS_", "RAY_"))} == {
        *re.findall(r"\$\{([A-Z_]+):", NIGHT)
    } - {"WORKERS"}
