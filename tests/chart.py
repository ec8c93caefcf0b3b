"""Lint the Helm chart, render it for each file of values in `ci/`, and check the manifests: `make manifests`.

The programs are helm and kube-score; kubernetes-validate checks the manifests against the schemas of Kubernetes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).resolve().parents[1] / "deploy" / "helm" / "protoslice"
CUSTOM: Final = ("ServiceMonitor", "HTTPRoute")
"""The kinds for which Kubernetes has no schema."""
KUBERNETES: Final = "1.33"
IGNORED: Final = ("--ignore-test", "container-resources", "--ignore-test", "container-image-pull-policy")
"""The ignored checks: a processor limit would slow down requests, and images are named by version."""
SECRETS: Final = "/run/secrets/protoslice/"
REFUSED: Final = {
    "replicas=2": "more than one needs a bucket",
    "storage.uri=s3://models": "needs a PostgreSQL database",
    "storage.uri=ftp://models": "/storage/uri",
    "replicas=two": "replicas",
    "storrage.uri=s3://models": "storrage",
    "ingress.enabled=true": "ingress.host",
    "httpRoute.enabled=true": "parentRefs",
    "serviceMonitor.enabled=true": "tokenSecret",
    "backup.enabled=true": "backup.target",
    "settings.AUTH=open": "propertyName 'AUTH'",
}
"""Values that must be refused, with a part of the message."""


def main(helm: str, score: str) -> None:
    """Check the chart; end with a message at the first error."""
    for values in sorted(CHART.glob("ci/*-values.yaml")):
        subprocess.run([helm, "lint", "--strict", CHART, "--values", values], check=True)
        rendered = render(helm, "--values", str(values))
        assert rendered.returncode == 0, rendered.stderr
        manifests = [each for each in yaml.safe_load_all(rendered.stdout) if each]
        check(values.name, manifests)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump_all([each for each in manifests if each["kind"] not in CUSTOM], file)
            file.flush()
            program = Path(sys.executable).parent / "kubernetes-validate"
            subprocess.run([program, "--strict", "--kubernetes-version", KUBERNETES, file.name], check=True)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(rendered.stdout)
            file.flush()
            subprocess.run([score, "score", *IGNORED, file.name], check=True)
    for value, message in REFUSED.items():
        rendered = render(helm, "--set", value)
        assert rendered.returncode != 0, f"--set {value} is not refused"
        assert message in rendered.stderr, f"--set {value}: {rendered.stderr}"
    print(f"{len(REFUSED)} wrong values are refused")


def render(helm: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Return what `helm template` prints for a release named `models`."""
    return subprocess.run(
        [helm, "template", "models", CHART, "--kube-version", KUBERNETES, *options], capture_output=True, text=True
    )


def check(values: str, manifests: list[dict[str, Any]]) -> None:
    """Raise AssertionError unless each pod is restricted, stops in order, and has the volumes that it mounts."""
    kinds = {each["kind"] for each in manifests}
    print(f"{values}: {', '.join(sorted(kinds))}")
    assert not any(each["kind"] == "Secret" for each in manifests), "secrets are made by others"
    (deployment,) = [each["spec"] for each in manifests if each["kind"] == "Deployment"]
    jobs = [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in manifests if each["kind"] == "CronJob"]
    for pod in (deployment["template"]["spec"], *jobs):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["enableServiceLinks"] is False
        volumes = {each["name"] for each in pod["volumes"]}
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert {each["name"] for each in container["volumeMounts"]} <= volumes
            names = [each["name"] for each in container["env"]]
            assert len(names) == len(set(names)), f"a setting is set twice: {names}"
            read = {each["value"] for each in container["env"] if each["value"].startswith(SECRETS)}
            assert read <= set(secret_files(pod)), f"no secret has {read - set(secret_files(pod))}"
        for spread in pod.get("topologySpreadConstraints", ()):
            assert spread["labelSelector"] == deployment["selector"]
    serving = deployment["template"]["spec"]["containers"][0]
    probes = {name: serving[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert serving["ports"] == [{"name": "http", "containerPort": 8000}]
    variables = {each["name"]: each["value"] for each in serving["env"]}
    drain = float(variables["PROTOSLICE_DRAIN_SECONDS"]) + float(variables["PROTOSLICE_DRAIN_NOTICE_SECONDS"])
    assert deployment["template"]["spec"]["terminationGracePeriodSeconds"] > drain
    if deployment["replicas"] > 1:
        assert "PodDisruptionBudget" in kinds
        assert deployment["strategy"]["type"] == "RollingUpdate"
        assert variables["PROTOSLICE_STORAGE"].startswith("s3://")
        assert variables["PROTOSLICE_DATABASE_FILE"]
        assert {"PROTOSLICE_ISSUERS", "SSL_CERT_FILE"} <= variables.keys()
        assert deployment["template"]["spec"]["topologySpreadConstraints"]
    else:
        assert deployment["strategy"]["type"] == "Recreate"


def secret_files(pod: dict[str, Any]) -> list[str]:
    """Return the paths of a pod's files that hold a secret's keys."""
    sources = [source for each in pod["volumes"] for source in each.get("projected", {}).get("sources", ())]
    return [f"{SECRETS}{item['path']}" for source in sources for item in source["secret"]["items"]]


if __name__ == "__main__":
    main(*sys.argv[1:])
