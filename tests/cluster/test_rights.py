"""The policies of examples/cluster: what they allow, and that nothing else is."""

import fnmatch
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TAGGED = {"aws:ResourceTag/ray-cluster-name": "dupq"}
HARMLESS = ("ec2:Describe*", "s3:GetObject", "s3:ListBucket", "ssm:GetParameters")


def statements(role: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / f"examples/cluster/dupq-{role}.json").read_text())["Statement"]


def conditions(role: str, action: str, resource: str) -> list[dict[str, str]]:
    """The conditions under which a role may do something; empty: it may not; [{}]: always."""
    return [
        statement.get("Condition", {}).get("StringEquals", {})
        for statement in statements(role)
        if any(fnmatch.fnmatchcase(action, pattern) for pattern in statement["Action"])
        and any(fnmatch.fnmatchcase(resource, pattern) for pattern in statement["Resource"])
    ]


@pytest.mark.parametrize("role", ["worker", "head"])
def test_nodes_read_the_whole_bucket_and_write_below_the_outputs_only(role: str) -> None:
    for action in ("s3:PutObject", "s3:DeleteObject"):
        for folder in ("archive", "encoder", "runs"):
            assert conditions(role, action, f"arn:aws:s3:::BUCKET/{folder}/x/y.parquet") == [{}]
        for place in ("BUCKET/dumps/cs.7z", "BUCKET/latest.json", "BUCKET/runs", "BUCKET/runsx/a", "OTHER/runs/x"):
            assert conditions(role, action, f"arn:aws:s3:::{place}") == []
    assert conditions(role, "s3:GetObject", "arn:aws:s3:::BUCKET/dumps/cs.7z") == [{}]
    assert conditions(role, "s3:ListBucket", "arn:aws:s3:::BUCKET") == [{}]


def test_workers_have_no_rights_but_those_to_files() -> None:
    actions = {action for statement in statements("worker") for action in statement["Action"]}
    assert actions == {"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"}


def test_the_head_ends_and_starts_only_machines_that_are_tagged() -> None:
    machine = "arn:aws:ec2:us-east-1:ACCOUNT:instance/i-1"
    assert conditions("head", "ec2:TerminateInstances", machine) == [TAGGED]
    assert conditions("head", "ec2:RunInstances", machine) == [{"aws:RequestTag/ray-cluster-name": "dupq"}]
    assert {} not in conditions("head", "ec2:CreateTags", machine)
    assert len(conditions("head", "ec2:CreateTags", machine)) == 2
    assert conditions("head", "iam:PassRole", "arn:aws:iam::ACCOUNT:role/admin") == []
    (passing,) = conditions("head", "iam:PassRole", "arn:aws:iam::ACCOUNT:role/dupq-worker")
    assert passing == {"iam:PassedToService": "ec2.amazonaws.com"}


def test_the_tag_is_the_one_that_ray_gives_the_machines_of_cluster_yaml() -> None:
    from ray.autoscaler.tags import TAG_RAY_CLUSTER_NAME

    name = yaml.safe_load((ROOT / "cluster.yaml").read_text())["cluster_name"]
    assert {f"aws:ResourceTag/{TAG_RAY_CLUSTER_NAME}": name} == TAGGED


@pytest.mark.parametrize("role", ["worker", "head"])
def test_what_holds_for_all_resources_only_looks(role: str) -> None:
    for statement in statements(role):
        assert "*" not in statement["Action"]
        if "*" in statement["Resource"]:
            assert set(statement["Action"]) <= set(HARMLESS), statement["Sid"]
        assert "NotAction" not in statement
        assert "NotResource" not in statement
