"""The Kubernetes manifests: valid for old and new clusters, consistent, and without rights."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from perdure.api.app import create_app
from perdure.config.settings import Settings

from .files import image_environment, manifests, objects

OLDEST = "1.30"
"""The first version whose containers can sleep before they stop."""
MANIFESTS = [(path.name, document) for path, document in manifests()]
DEPLOYMENTS = objects("Deployment")
SERVER_PATHS = {getattr(route, "path", None) for route in create_app().routes}

every_object = pytest.mark.parametrize(
    "document", [each for _, each in MANIFESTS], ids=[f"{name} {each['kind']}" for name, each in MANIFESTS]
)
every_deployment = pytest.mark.parametrize(
    "deployment", DEPLOYMENTS, ids=[each["metadata"]["name"] for each in DEPLOYMENTS]
)


def containers(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    pod = deployment["spec"]["template"]["spec"]
    return [*pod["initContainers"], *pod["containers"]]


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@every_object
def test_an_object_is_valid(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_mistake_would_be_found() -> None:
    document = {**DEPLOYMENTS[0], "spec": {**DEPLOYMENTS[0]["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, OLDEST, strict=True)


def test_everything_is_in_the_one_namespace() -> None:
    (namespace,) = objects("Namespace")
    for _, document in MANIFESTS:
        if document is not namespace and document["kind"] != "Namespace":
            assert document["metadata"]["namespace"] == namespace["metadata"]["name"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    names = [(document["kind"], document["metadata"]["name"]) for _, document in MANIFESTS]
    assert len(set(names)) == len(names)


def test_files_are_applied_in_an_order_that_works() -> None:
    applied = [document["kind"] for name, document in MANIFESTS if name.endswith(".yaml")]
    assert applied[:2] == ["Namespace", "ConfigMap"]
    # A directory is applied without it: nobody overwrites a secret by a placeholder.
    assert [name for name, document in MANIFESTS if document["kind"] == "Secret"] == ["secret.yaml.example"]


@every_deployment
def test_selectors_and_references_meet(deployment: dict[str, Any]) -> None:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    (budget,) = [
        each for each in objects("PodDisruptionBudget") if each["spec"]["selector"]["matchLabels"] == labels
    ]
    assert budget["spec"]["maxUnavailable"] < deployment["spec"]["replicas"] == 2
    pod = deployment["spec"]["template"]["spec"]
    for spread in pod["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == labels
    volumes = {volume["name"] for volume in pod["volumes"]}
    known = {(kind, each["metadata"]["name"]) for kind in ("ConfigMap", "Secret") for each in objects(kind)}
    for container in containers(deployment):
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        for source in container["envFrom"]:
            ((kind, reference),) = source.items()
            assert (kind.removesuffix("Ref").lower(), reference["name"]) in {(k.lower(), n) for k, n in known}
    assert len({container["image"] for each in DEPLOYMENTS for container in containers(each)}) == 1


@every_deployment
def test_pods_hold_to_the_restricted_standard(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] >= 10_000
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(pod)
    for container in containers(deployment):
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= container["resources"].keys()
        assert "memory" in container["resources"]["limits"]
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {image_environment()["PERDURE_DATA_DIR"], "/tmp"} <= mounted


@every_deployment
def test_the_schema_is_upgraded_before_anything_runs(deployment: dict[str, Any]) -> None:
    (first,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert first["args"] == ["db", "upgrade"]


def test_probes_ask_the_server_and_the_service_leads_to_it() -> None:
    (server,) = [each for each in DEPLOYMENTS if each["metadata"]["name"] == "perdure-api"]
    (container,) = server["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": Settings().server.port}
    probes = {
        name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {probe["path"] for probe in probes.values()} <= SERVER_PATHS
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]
    assert {probe["port"] for probe in probes.values()} == {"http"}
    (service,) = objects("Service")
    assert service["spec"]["selector"] == server["spec"]["selector"]["matchLabels"]
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= set(ports)


def test_workers_are_scraped_where_they_answer() -> None:
    (worker,) = [each for each in DEPLOYMENTS if each["metadata"]["name"] == "perdure-worker"]
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    (config,) = objects("ConfigMap")
    assert container["ports"] == [
        {"name": "metrics", "containerPort": int(config["data"]["PERDURE_WORK_METRICS_PORT"])}
    ]
    assert config["data"]["PERDURE_WORK_METRICS_HOST"] == "0.0.0.0"
