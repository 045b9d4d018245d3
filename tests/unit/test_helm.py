"""The Helm chart, without a cluster: what it renders, what Kubernetes and KEDA accept, and which values it refuses."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml
from pydantic import BaseModel

from shared.settings import REPOSITORY, Settings, load
from tests import golden

CHART = REPOSITORY / "deploy" / "helm"
VALUES = sorted((golden.FOLDER / "helm").glob("*.values.yaml"))
KEDA = json.loads((golden.FOLDER / "helm" / "keda.json").read_text())
HELM = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
pytestmark = pytest.mark.skipif(HELM is None, reason="neither helm-binary nor a `helm` on PATH is there")

Object = dict[str, Any]


def helm(command: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    assert HELM is not None
    return subprocess.run([HELM, command, *arguments], capture_output=True, text=True, check=False, timeout=60)


@cache
def render(values: str, *changes: str) -> str:
    """Render the chart with a values file of tests/golden/helm; `changes` are of the form KEY=JSON."""
    file = golden.FOLDER / "helm" / f"{values}.values.yaml"
    found = helm("template", "mathrag", str(CHART), "--namespace", "rag", "--values", str(file), *list_options(changes))
    assert found.returncode == 0, found.stderr
    return re.sub(r"\n\n+", "\n", found.stdout)


def list_options(changes: tuple[str, ...]) -> Iterator[str]:
    for change in changes:
        yield from ("--set-json", change)


def list_objects(values: str, *changes: str) -> list[Object]:
    return [each for each in yaml.safe_load_all(render(values, *changes)) if each]


def list_pods(values: str, *changes: str) -> dict[str, Object]:
    """Return the specifications of pods, by the kind and the name of their objects."""
    return {
        f"{each['kind']} {each['metadata']['name']}": each["spec"]["template"]["spec"]
        for each in list_objects(values, *changes)
        if "template" in each.get("spec", {})
    }


def name_of(file: Path) -> str:
    return file.name.partition(".")[0]


@pytest.mark.parametrize("values", ["least", "full"])
def test_the_chart_renders_as_recorded(values: str) -> None:
    golden.compare(f"helm/{values}.yaml", render(values))


@pytest.mark.parametrize("file", VALUES, ids=name_of)
def test_helm_lint_finds_nothing(file: Path) -> None:
    found = helm("lint", str(CHART), "--strict", "--values", str(file))
    assert found.returncode == 0, found.stdout + found.stderr


# Dynamic resource allocation, which "full" uses, is in Kubernetes from 1.34 on.
@pytest.mark.parametrize(
    ("values", "kubernetes"),
    [("least", "1.30"), ("least", "1.37"), ("full", "1.34"), ("full", "1.37"), ("stopped", "1.37")],
)
def test_kubernetes_and_keda_accept_every_object(values: str, kubernetes: str) -> None:
    for each in list_objects(values):
        group = each["apiVersion"].partition("/")[0]
        if group == "keda.sh":
            jsonschema_rs.validate(KEDA[each["kind"]], each)
        else:
            kubernetes_validate.validate(each, kubernetes, strict=True)


def test_an_unknown_field_of_keda_is_refused() -> None:
    scaled = next(each for each in list_objects("full") if each["kind"] == "ScaledObject")
    with pytest.raises(jsonschema_rs.ValidationError, match="maxReplicas"):
        jsonschema_rs.validate(KEDA["ScaledObject"], {**scaled, "spec": {**scaled["spec"], "maxReplicas": 3}})


GUARD = '"device": {"id": "GPU-1"}'
NODE = '"nodeSelector": {"kubernetes.io/hostname": "a"}'
CPU = '{"name": "main", "device": {"id": "cpu:0"}, "gpu": "none"}'


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (('secrets.services=""',), "secrets.services is empty"),
        (('secrets.owner=""',), "secrets.owner is empty"),
        (("judge.replicas=3", "judge.autoscaling.enabled=true", 'keda.secret="k"'), "judge.replicas is fixed"),
        (("generator.autoscaling.enabled=true",), "keda.secret is empty"),
        (
            ("judge.autoscaling={}".format('{"enabled": true, "minReplicas": 5}'), 'keda.secret="k"'),
            "maxReplicas is less than minReplicas",
        ),
        (('config.access.keys="off"',), "config.access.keys is off"),
        (("config.access.keys=false",), "config.access.keys is off"),
        (('config.models={"judge": {"url": "http://models:8000"}}',), "config.models.judge.url is http://models:8000"),
        (('config.retrieval.reranker.url="http://models:8000"',), "networkPolicy.modelServers is empty"),
        (('config.telemetry.otlp_endpoint="http://collector:4318"',), "networkPolicy.collector is empty"),
        (('config.device={"id": "cpu:0"}',), "config.device is set by the chart"),
        (('config.retrieval.dense.backend="elasticsearch"',), "secrets.elasticsearch is empty"),
        (
            ('config.retrieval.dense.backend="elasticsearch"', 'secrets.elasticsearch="s"'),
            "networkPolicy.elasticsearch.peers is empty",
        ),
        ((f"guards=[{CPU}, {CPU}]",), "two guards are named main"),
        ((f"guards=[{CPU}, {CPU.replace('main', 'other')}]",), "two guards own the device cpu:0"),
        ((f'guards=[{{"name": "a", "gpu": "resource", {GUARD}}}]',), "name its node in nodeSelector"),
        ((f"guards=[{CPU.replace('none', 'claim')}]",), "is not the UUID of one"),
        ((f"guards=[{CPU.replace('cpu:0', 'GPU-1')}]",), "its pod has no GPU"),
        ((f'guards=[{{"name": "a", "replicas": 2, "gpu": "resource", {GUARD}, {NODE}}}]',), "replicas"),
        (("networkPolicy.postgres.peers=[]",), "networkPolicy.postgres.peers is empty"),
        (("networkPolicy.redis.peers=[]",), "networkPolicy.redis.peers is empty"),
        (('orchestrator.service.type="LoadBalancer"',), "networkPolicy.clients is empty"),
        (('kueue.priorityClass="batch"',), "kueue.queue is empty"),
        (("judge.autoscaling.minReplicas=0",), "minReplicas"),
        (("orchestrator.replica=3",), "replica"),
        (("orchestrator.replicas=0",), "replicas"),
        (('image.pullPolicy="Sometimes"',), "pullPolicy"),
        (('image.tag="1@sha256:0"',), "tag"),
        (("guards=[]",), "guards"),
    ],
)
def test_values_that_cannot_work_are_refused_in_words(changes: tuple[str, ...], message: str) -> None:
    least = golden.FOLDER / "helm" / "least.values.yaml"
    found = helm("template", "mathrag", str(CHART), "--values", str(least), *list_options(changes))
    assert found.returncode != 0
    assert message in found.stderr


def list_secrets(group: type[BaseModel], path: str = "config") -> Iterator[str]:
    for name, field in group.model_fields.items():
        if not field.repr:
            yield f"{path}.{name}"
        for each in (field.annotation, *get_args(field.annotation)):
            if isinstance(each, type) and issubclass(each, BaseModel):
                yield from list_secrets(each, f"{path}.{name}")


@pytest.mark.parametrize("secret", list(list_secrets(Settings)))
def test_a_secret_is_not_accepted_in_the_configuration(secret: str) -> None:
    test_values_that_cannot_work_are_refused_in_words((f'{secret}="s"',), f"{secret} would be readable in a ConfigMap")


@pytest.mark.parametrize("change", ["config=null", "config.retrieval=null", "config.models.judge=null"])
def test_an_empty_part_of_the_configuration_is_accepted(change: str) -> None:
    assert list_objects("least", change)


def test_names_and_labels_fit_long_releases_and_tags() -> None:
    least, tag = golden.FOLDER / "helm" / "least.values.yaml", "0" * 100
    found = helm("template", "r" * 53, str(CHART), "--values", str(least), "--set-string", f"image.tag={tag}")
    objects = [each for each in yaml.safe_load_all(found.stdout) if each]
    [guard] = [each["metadata"] for each in objects if is_guard(each)]
    # The hash of `controller-revision-hash` has up to 10 characters, the name of a guard 16.
    assert len(guard["name"]) + 16 - len("main") + len("-0123456789") <= 63
    assert guard["labels"]["app.kubernetes.io/version"] == "0" * 63


@pytest.mark.parametrize("values", ["least", "full"])
def test_a_pod_has_no_more_rights_than_it_needs(values: str) -> None:
    pods = list_pods(values)
    assert len(pods) > 5
    for name, pod in pods.items():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}, name


def test_the_secret_of_elasticsearch_reaches_the_retriever_alone() -> None:
    pods = list_pods("full")
    assert {name for name, pod in pods.items() if "mathrag-search" in json.dumps(pod)} == {
        "Deployment mathrag-retriever"
    }


def test_the_owners_secret_reaches_migration_and_retention_alone() -> None:
    assert {name for name, pod in list_pods("least").items() if "mathrag-owner" in json.dumps(pod)} == {
        "Job mathrag-migrate",
        "Deployment mathrag-retention",
    }


@pytest.mark.parametrize("values", ["least", "full"])
def test_the_services_understand_their_configuration(
    values: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = list_objects(values)
    [config] = [each for each in objects if each["kind"] == "ConfigMap"]
    (tmp_path / "mathrag.yaml").write_text(config["data"]["mathrag.yaml"])
    monkeypatch.setenv("MATHRAG_CONFIG", str(tmp_path / "mathrag.yaml"))
    monkeypatch.setenv("MATHRAG_SECRETS_DIR", str(tmp_path))
    settings = load()
    services = {f"http://{each['metadata']['name']}" for each in objects if each["kind"] == "Service"}
    devices = settings.all_devices()
    assert {
        url.rpartition(":")[0] for url in (settings.retriever_url, *(each.guard_url for each in devices))
    } <= services
    commands = [each["spec"]["template"]["spec"]["containers"][0]["command"] for each in objects if is_guard(each)]
    assert [command[command.index("--device") + 1] for command in commands] == [each.id for each in devices]
    if values == "full":
        assert settings.limits.samples_per_key == 20_000_000


def is_guard(each: Object) -> bool:
    return bool(each["kind"] == "StatefulSet")


def test_a_guard_has_one_pod_and_no_scaler() -> None:
    objects = list_objects("full")
    assert [each["spec"]["replicas"] for each in objects if is_guard(each)] == [1, 1]
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in objects if each["kind"] == "ScaledObject"}
    assert scaled == {"mathrag-judge", "mathrag-generator"}
    fixed = {
        each["metadata"]["name"] for each in objects if each["kind"] == "Deployment" and "replicas" in each["spec"]
    }
    assert not fixed & scaled


def test_a_stopped_release_runs_nothing() -> None:
    objects = list_objects("stopped")
    replicas = {
        each["metadata"]["name"]: each["spec"].get("replicas")
        for each in objects
        if each["kind"] in ("Deployment", "StatefulSet")
    }
    # Helm may not set a number that KEDA has set.
    assert replicas.pop("mathrag-judge") is None
    assert set(replicas.values()) == {0}
    [judge] = [each["metadata"] for each in objects if each["kind"] == "ScaledObject"]
    assert judge["annotations"] == {"autoscaling.keda.sh/paused-replicas": "0"}


def test_a_gpu_is_claimed_by_its_uuid() -> None:
    pods = list_pods("full")
    assert pods["StatefulSet mathrag-guard-a"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pods["StatefulSet mathrag-guard-b"]["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]
    [claim] = [each for each in list_objects("full") if each["kind"] == "ResourceClaimTemplate"]
    assert pods["StatefulSet mathrag-guard-b"]["resourceClaims"] == [
        {"name": "gpu", "resourceClaimTemplateName": claim["metadata"]["name"]}
    ]
    [request] = claim["spec"]["spec"]["devices"]["requests"]
    assert "GPU-51d0a7b3-0000-4000-8000-000000000002" in request["exactly"]["selectors"][0]["cel"]["expression"]


def test_a_policy_of_every_pod_opens_what_its_service_calls() -> None:
    objects = list_objects("full")
    policies = {component_of(each): each["spec"] for each in objects if each["kind"] == "NetworkPolicy"}
    assert set(policies) == {component_of(each) for each in objects if "template" in each.get("spec", {})}
    calls = {
        name: re.findall(r"component: (\w+)", yaml.safe_dump(policy["egress"])) for name, policy in policies.items()
    }
    ports = {component_of(each): each["spec"]["ports"][0]["port"] for each in objects if each["kind"] == "Service"}
    for called in ("guard", "retriever"):
        [entry] = policies[called]["ingress"]
        callers = set(re.findall(r"component: (\w+)", yaml.safe_dump(entry["from"])))
        assert callers == {name for name, found in calls.items() if called in found}
        assert entry["ports"] == [{"port": ports[called]}]
    services = [folder for folder in (REPOSITORY / "services").iterdir() if folder.is_dir()]
    asking = {each.name for each in services if "RetrieverClient(" in "".join(map(Path.read_text, each.rglob("*.py")))}
    assert {name for name, found in calls.items() if "retriever" in found} == asking


def component_of(each: Object) -> str:
    return str(each["metadata"]["labels"]["app.kubernetes.io/component"])


def test_chart_and_programs_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
