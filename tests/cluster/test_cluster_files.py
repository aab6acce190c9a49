"""The shipped cluster files, checked without a network.

Ray's own validation rejects unknown keys, but accepts much that fails or costs money only once machines run. What it
lets through is asserted here.
"""

import re
from pathlib import Path

import boto3
import pytest
import yaml
from botocore.validate import ParamValidator
from jsonschema import ValidationError
from ray.autoscaler._private.util import prepare_config, validate_config

REPOSITORY = Path(__file__).parents[2]
FILES = ["cluster.yaml", "cluster-local.yaml", "cluster-onprem.yaml"]

# (cores, GiB, GPUs) as EC2 lists them; an instance type that cluster.yaml begins to use is added here.
INSTANCES = {"m7i.xlarge": (4, 16, 0), "r6id.4xlarge": (16, 128, 0), "g6e.xlarge": (4, 32, 1)}


def prepared(file: str) -> dict:
    """The file as the launcher sees it, all defaults filled in."""
    return prepare_config(yaml.safe_load((REPOSITORY / file).read_text()))


@pytest.fixture(params=FILES)
def config(request: pytest.FixtureRequest) -> dict:
    return prepared(request.param)


@pytest.fixture
def aws() -> dict:
    return prepared("cluster.yaml")


def locked(package: str) -> str:
    """The version of a package in requirements.lock."""
    found = re.search(rf"^{package}==([\w.]+)", (REPOSITORY / "requirements.lock").read_text(), re.MULTILINE)
    assert found, f"{package} is not in requirements.lock"
    return found[1]


def worker_types(config: dict) -> dict[str, dict]:
    return {name: node for name, node in config["available_node_types"].items() if name != config["head_node_type"]}


def run_options(aws: dict, name: str) -> list[str]:
    """What `docker run` gets on a node of this type: a type's own options replace those of all workers."""
    docker = aws["docker"]
    if name == aws["head_node_type"]:
        return docker["run_options"] + docker["head_run_options"]
    own = aws["available_node_types"][name].get("docker", {})
    return docker["run_options"] + own.get("worker_run_options", docker["worker_run_options"])


def images(aws: dict) -> dict[str, str]:
    """The image of each node type."""
    docker = aws["docker"]
    by_type = {name: node.get("docker", {}).get("worker_image") for name, node in worker_types(aws).items()}
    return {aws["head_node_type"]: docker["head_image"]} | {
        name: image or docker["worker_image"] for name, image in by_type.items()
    }


def test_ray_accepts_the_file_and_no_misspelt_key_and_node_counts_fit_together(config: dict) -> None:
    validate_config(config)
    with pytest.raises(ValidationError, match="max_worker'"):
        validate_config({**config, "max_worker": 1})
    for name, node in config["available_node_types"].items():
        assert node["min_workers"] <= node["max_workers"] <= config["max_workers"], name


def test_what_is_mounted_is_there_and_what_is_installed_is_mounted(config: dict) -> None:
    mounts = dict(config["file_mounts"])
    assert mounts.pop("~/.ray/auth_token") == "~/.ray/auth_token"  # made by `ray get-auth-token --generate`
    for local in mounts.values():
        assert (REPOSITORY / local).exists(), local
    commands = " ".join(config["setup_commands"])
    assert re.search(r"pip install [^;]*--no-deps [^;]*~/dupq(\s|$)", commands), "the package itself is not installed"
    for path in re.findall(r"~/dupq/(\S+?)(?=[\s;]|$)", commands):
        assert (REPOSITORY / path).exists(), path


def test_every_node_installs_both_lock_files(aws: dict) -> None:
    on_premise = prepared("cluster-onprem.yaml")
    for commands in (aws["head_setup_commands"], aws["worker_setup_commands"], on_premise["setup_commands"]):
        assert {"requirements.lock", "requirements-torch.lock"} <= {*re.findall(r"[\w-]+\.lock", " ".join(commands))}
    for name, node in worker_types(aws).items():
        assert "worker_setup_commands" not in node, f"{name}: would replace the commands of all workers"


def test_nothing_is_scheduled_on_heads_and_workers_cost_nothing_while_there_is_no_work(aws: dict) -> None:
    assert "--num-cpus=0" in " ".join(prepared("cluster-onprem.yaml")["head_start_ray_commands"])
    head = aws["available_node_types"][aws["head_node_type"]]
    assert (head["resources"], head["max_workers"]) == ({"CPU": 0}, 0)
    assert "--env RAY_ADDRESS=auto" in run_options(aws, aws["head_node_type"])  # no job starts a Ray of its own there
    for name, node in worker_types(aws).items():
        assert node["min_workers"] == 0, name
        assert node["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot", name
    assert aws["idle_timeout_minutes"] <= 10
    assert aws["provider"]["cache_stopped_nodes"] is False


def test_resources_are_those_of_the_machines(aws: dict) -> None:
    for name, node in worker_types(aws).items():
        cores, _, gpus = INSTANCES[node["node_config"]["InstanceType"]]
        assert node["resources"] == {"CPU": cores} | ({"GPU": gpus} if gpus else {}), name


def test_shared_memory_holds_the_object_store_of_each_machine(aws: dict) -> None:
    for name, node in aws["available_node_types"].items():
        _, gigabytes, _ = INSTANCES[node["node_config"]["InstanceType"]]
        options = " ".join(run_options(aws, name))
        (size,) = map(int, re.findall(r"--shm-size=(\d+)gb", options))
        assert 0.3 * gigabytes <= size <= 0.5 * gigabytes, name
    smallest = min(INSTANCES[node["node_config"]["InstanceType"]][1] for node in worker_types(aws).values())
    (size,) = map(int, re.findall(r"--shm-size=(\d+)gb", " ".join(aws["docker"]["worker_run_options"])))
    assert size <= 0.5 * smallest


def test_images_hold_the_locked_ray_and_a_gpu_where_there_is_one(aws: dict) -> None:
    """All by digest, or none; the same image everywhere."""
    digests: dict[str, set[str]] = {}
    for name, image in [*images(aws).items(), ("docker", aws["docker"]["worker_image"])]:
        resources = aws["available_node_types"].get(name, {"resources": {"GPU": 1}})["resources"]
        tag, at, digest = image.partition("@")
        assert tag == f"rayproject/ray:{locked('ray')}-py311-{'gpu' if 'GPU' in resources else 'cpu'}", name
        assert re.fullmatch(r"sha256:[0-9a-f]{64}" if at else "", digest), f"{name}: {digest!r} is no digest"
        digests.setdefault(tag, set()).add(digest)
    assert all(len(found) == 1 for found in digests.values()), "one image by several digests"
    assert len({bool(digest) for found in digests.values() for digest in found}) == 1, "only some images are pinned"
    for name, node in aws["available_node_types"].items():
        ami = node["node_config"]["ImageId"]
        assert re.fullmatch(r"ami-([0-9a-f]{8}|[0-9a-f]{17})|resolve:ssm:/aws/service/\S+", ami), f"{name}: {ami}"


def test_nodes_read_s3_in_the_region_they_run_in_and_with_a_role(aws: dict) -> None:
    for name, node in aws["available_node_types"].items():
        assert f"--env AWS_REGION={aws['provider']['region']}" in run_options(aws, name), name
        assert "--env RAY_AUTH_MODE=token" in run_options(aws, name), name
        assert node["node_config"]["IamInstanceProfile"]["Name"].startswith("dupq-"), name
    assert not re.search(r"AKIA|aws_secret|AWS_SECRET", (REPOSITORY / "cluster.yaml").read_text())


def test_objects_spill_into_a_folder_that_the_container_mounts(aws: dict) -> None:
    for commands in (aws["head_start_ray_commands"], aws["worker_start_ray_commands"]):
        (folder,) = re.findall(r"--object-spilling-directory=(\S+)", " ".join(commands))
        for name in aws["available_node_types"]:
            (mount,) = re.findall(r"--volume (\S+):" + re.escape(folder), " ".join(run_options(aws, name)))
            assert any(mount in command for command in aws["initialization_commands"])


def test_ec2_knows_every_machine_setting(aws: dict) -> None:
    model = boto3.client("ec2", region_name=aws["provider"]["region"]).meta.service_model
    request = model.operation_model("RunInstances").input_shape
    for name, node in aws["available_node_types"].items():
        settings = {**node["node_config"], "MinCount": 1, "MaxCount": 1}
        assert ParamValidator().validate(settings, request).generate_report() == "", name
        assert settings["InstanceType"] in model.shape_for("InstanceType").enum, name
