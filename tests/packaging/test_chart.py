"""The Helm chart in `deploy/helm`, as `make chart` has rendered it for each file of values."""

import functools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import yaml

from hookmill import __version__
from scripts.chart import CASES, CHART, RENDERED, fingerprint

KUBERNETES = ("1.27", "1.37")
"""The oldest and the newest version whose schemas are installed and that the chart supports."""


def values_of(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CASES / f"{name}.yaml").read_text())
    return values


@functools.cache
def manifests_of(name: str) -> list[dict[str, Any]]:
    text = (RENDERED / f"{name}.yaml").read_text()
    return [manifest for manifest in yaml.safe_load_all(text) if manifest is not None]


def the(manifests: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    [manifest] = [each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name]
    return manifest


def pods_of(manifests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "Job"):
            yield manifest["spec"]["template"]["spec"]


@pytest.fixture(params=["least", "everything", "stopped"])
def manifests(request):
    return manifests_of(request.param)


def test_chart_is_rendered_as_it_is_now():
    cases = {path.name: fingerprint(path) for path in CASES.glob("*.yaml")}
    rendered = {path.name: path.read_text().partition("\n")[0].split()[-1] for path in RENDERED.glob("*.yaml")}

    assert rendered == cases, "the chart or its values have changed: run `make chart`"


def test_chart_has_the_version_of_the_package():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_valid_for_kubernetes(version):
    # Loading it takes seconds.
    import kubernetes_validate

    # Every template is in `everything`. `least` leaves out fields, of which some are required.
    manifests = manifests_of("everything") + manifests_of("least")

    assert len(manifests) > 17
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_schema_of_values_knows_every_value():
    schema = jsonschema_rs.Draft202012Validator(json.loads((CHART / "values.schema.json").read_text()))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    schema.validate(defaults | values_of("least"))
    schema.validate(values_of("everything"))
    assert {".".join(map(str, error.instance_path)) for error in schema.iter_errors(defaults)} == {
        "image.repository",
        "baseUrl",
        "database.secretName",
        "masterKey.secretName",
    }
    assert not schema.is_valid(values_of("least") | {"serve": {"replica": 3}})


def test_pods_have_the_restricted_security_standard(manifests):
    for pod in pods_of(manifests):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert {next(iter(volume.keys() - {"name"})) for volume in pod["volumes"]} <= {"emptyDir", "configMap"}
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_kubernetes_sets_no_variables_that_would_be_settings(manifests):
    assert {pod["enableServiceLinks"] for pod in pods_of(manifests)} == {False}


def test_secrets_are_references(manifests):
    assert "Secret" not in {manifest["kind"] for manifest in manifests}
    for pod in pods_of(manifests):
        values = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
        assert values["HOOKMILL_DATABASE_URL"] is None
        assert values["HOOKMILL_MASTER_KEY"] is None


def test_volumes_are_those_that_the_pod_declares(manifests):
    for pod in pods_of(manifests):
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume)


def test_service_and_disruption_budgets_select_their_pods(manifests):
    labels = {
        component: the(manifests, "Deployment", f"hookmill-{component}")["spec"]["template"]["metadata"]["labels"]
        for component in ("serve", "worker")
    }

    service = the(manifests, "Service", "hookmill")["spec"]
    assert service["selector"].items() <= labels["serve"].items()
    assert not service["selector"].items() <= labels["worker"].items()
    for component in ("serve", "worker"):
        budget = the(manifests, "PodDisruptionBudget", f"hookmill-{component}")["spec"]
        assert budget["selector"]["matchLabels"].items() <= labels[component].items()
        assert budget["maxUnavailable"] == 1


def test_upgrade_migrates_before_pods_change(manifests):
    job = the(manifests, "Job", "hookmill-migrate")

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate"]
    assert job["spec"]["backoffLimit"] == 0


def test_stopped_release_has_no_pods():
    manifests = manifests_of("stopped")

    replicas = {
        each["metadata"]["name"]: each["spec"]["replicas"] for each in manifests if each["kind"] == "Deployment"
    }
    assert replicas == {"hookmill-serve": 0, "hookmill-worker": 0}
    assert "HorizontalPodAutoscaler" not in {each["kind"] for each in manifests}


def test_autoscaler_decides_the_number_of_pods():
    manifests = manifests_of("everything")

    assert "replicas" not in the(manifests, "Deployment", "hookmill-serve")["spec"]
    assert the(manifests, "HorizontalPodAutoscaler", "hookmill-serve")["spec"]["minReplicas"] == 3


def test_config_is_passed_on_unchanged():
    config = the(manifests_of("everything"), "ConfigMap", "hookmill")

    assert config["data"]["hookmill.toml"] == values_of("everything")["config"]


def test_ingress_has_the_host_of_the_base_url():
    spec = the(manifests_of("everything"), "Ingress", "hookmill")["spec"]

    assert [rule["host"] for rule in spec["rules"]] == ["hooks.example.com"]
    assert spec["tls"] == [{"hosts": ["hooks.example.com"], "secretName": "hooks-example-com"}]
