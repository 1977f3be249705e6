"""HAProxy, Prometheus, Grafana, Compose and Kubernetes files: valid for the real programs and for this gateway."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.gateway.records import RECORD, STATE
from prometheus_client.parser import text_string_to_metric_families
from voxgate.gateway.observability.metrics import Metrics
from voxgate.gateway.settings import Settings, settings_from

from .checkers import DOCKER, accepts, tool

BOARD = DOCKER / "grafana/voxgate.json"
MANIFESTS = sorted([*(DOCKER / "k8s/base").glob("[!k]*.yaml"), DOCKER / "k8s/gpu/claim.yaml"])
FOREIGN = frozenset({"up", "process_cpu_seconds_total", "process_resident_memory_bytes"})
"""Metrics of Prometheus itself and of its client library."""
RANGE = "$__rate_interval"


def exposed() -> dict[str, set[str]]:
    """Every series of a gateway that has served, with its labels."""
    metrics = Metrics(lambda: STATE)
    metrics.utterance_ended(RECORD)
    metrics.handshake_refused("x")
    metrics.error_sent("native", "x")
    metrics.session_opened("native", "team-a")
    metrics.engine_ready()
    metrics.update_state()
    families = text_string_to_metric_families(metrics.exposition().decode())
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def board() -> dict[str, Any]:
    return dict(json.loads(BOARD.read_text("utf-8")))


def expressions() -> list[tuple[str, str]]:
    """(place, PromQL) of every panel and alert."""
    panels = [panel for panel in board()["panels"] if panel["type"] != "row"]
    found = [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]
    rules = yaml.safe_load((DOCKER / "alerts.yml").read_text("utf-8"))
    return found + [(rule["alert"], rule["expr"]) for group in rules["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_expressions_use_existing_metrics(where: str, expression: str) -> None:
    there = exposed()
    names = set(re.findall(r"\b(?:voxgate|process)_\w+|\bup\b", expression))
    assert names, where
    assert names - FOREIGN <= set(there), where
    known = set().union(*(there.get(name, set()) for name in names)) | {"instance", "job"}
    used = set(re.findall(r"(\w+)=~?\"", expression))
    grouped = {
        label.strip() for labels in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in labels.split(",")
    }
    assert used | grouped <= known, where


def test_expressions_are_valid_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"test:{index}", "expr": expression.replace(RANGE, "1m").replace("$instance", ".*")}
        for index, (_, expression) in enumerate(expressions())
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "test", "rules": rules}]}), encoding="utf-8")
    accepts(tool("promtool"), "check", "rules", path)


def test_prometheus_accepts_its_configuration() -> None:
    accepts(tool("promtool"), "check", "config", DOCKER / "prometheus.yml")


def test_alerts_fire_when_they_should() -> None:
    accepts(tool("promtool"), "test", "rules", Path(__file__).with_name("alerts_test.yml"))


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in board()["panels"]]
    assert len(ids) == len(set(ids))


def test_dashboard_shows_every_important_metric() -> None:
    asked = " ".join(expression for _, expression in expressions())
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed() if name.startswith("voxgate_")}
    unasked = {name for name in names if name not in asked}
    assert unasked == {
        "voxgate_build_info",
        "voxgate_key_utterances_total",
        "voxgate_queue_limit",
        "voxgate_step_seconds_p50",
        "voxgate_steps_total",
    }


def test_haproxy_accepts_its_configuration() -> None:
    environment = {**os.environ, "GATEWAY_HOST": "localhost"}
    said = accepts(tool("haproxy"), "-c", "-f", DOCKER / "haproxy.cfg", env=environment)
    assert "WARNING" not in said


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8")))


def test_compose_mounts_existing_files_and_sets_existing_options() -> None:
    services = compose()["services"]
    volumes = compose()["volumes"]
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (DOCKER / source).exists() if source.startswith(".") else source in volumes
    check_environment(services["gateway"]["environment"])
    cuda = yaml.safe_load((DOCKER / "compose.cuda.yaml").read_text("utf-8"))
    check_environment(cuda["services"]["gateway"]["environment"])
    assert set(cuda["services"]) <= set(services)
    assert "ports" not in services["gateway"], "everything comes through the balancer"


def test_compose_services_are_confined() -> None:
    for name, service in compose()["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "pids_limit"} <= set(service), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert "build" in service or re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", service["image"]), name


def test_grafana_has_no_account() -> None:
    settings = compose()["services"]["grafana"]["environment"]
    assert settings["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == settings["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert settings["GF_AUTH_BASIC_ENABLED"] == "false"


def check_environment(environment: dict[str, str]) -> None:
    """Assert that every VOXGATE_ variable is a setting with a valid value."""
    settings_from({}, None, environment)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_manifests_have_known_fields(manifest: Path) -> None:
    accepts(tool("kubernetes-validate"), "--strict", manifest)


def deployment() -> dict[str, Any]:
    return dict(yaml.safe_load((DOCKER / "k8s/base/deployment.yaml").read_text("utf-8")))


def test_pod_has_time_to_drain() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    (gateway,) = pod["containers"]
    environment = {entry["name"]: entry["value"] for entry in gateway["env"]}
    check_environment(environment)
    before_s = int(gateway["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= before_s + int(environment["VOXGATE_SHUTDOWN_GRACE_S"]) + 5
    gateway_service = compose()["services"]["gateway"]
    grace_s = int(gateway_service["stop_grace_period"].removesuffix("s"))
    assert grace_s >= int(gateway_service["environment"]["VOXGATE_SHUTDOWN_GRACE_S"]) + 5


def test_probes_and_ports_match_the_gateway() -> None:
    pod = deployment()["spec"]["template"]
    (gateway,) = pod["spec"]["containers"]
    probes = {name: gateway[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
    assert {name: probe["httpGet"] for name, probe in probes.items()} == {
        "startup": {"path": "/readyz", "port": "admin"},
        "readiness": {"path": "/readyz", "port": "admin"},
        "liveness": {"path": "/healthz", "port": "admin"},
    }
    assert all(probe["timeoutSeconds"] > 1 and probe["failureThreshold"] > 1 for probe in probes.values())
    ports = {port["name"]: port["containerPort"] for port in gateway["ports"]}
    environment = {entry["name"]: entry["value"] for entry in gateway["env"]}
    assert ports["agent"] == int(environment["VOXGATE_HAPROXY_AGENT_PORT"])
    assert ports["admin"] == int(environment["VOXGATE_ADMIN_PORT"])
    assert ports["speech"] == Settings().port
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(ports["admin"])
    haproxy = (DOCKER / "haproxy.cfg").read_text("utf-8")
    assert f" port {ports['admin']} agent-check agent-port {ports['agent']} " in haproxy
    composed = compose()["services"]["gateway"]["environment"]
    for name in ("VOXGATE_ADMIN_HOST", "VOXGATE_ADMIN_PORT", "VOXGATE_HAPROXY_AGENT_PORT"):
        assert composed[name] == environment[name]
    prometheus = yaml.safe_load((DOCKER / "prometheus.yml").read_text("utf-8"))
    assert prometheus["scrape_configs"][0]["dns_sd_configs"][0]["port"] == ports["admin"]


def manifest(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((DOCKER / f"k8s/base/{name}.yaml").read_text("utf-8")))


def test_only_the_speech_port_is_open_to_all() -> None:
    policy = manifest("networkpolicy")["spec"]
    assert policy["podSelector"] == deployment()["spec"]["selector"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    to_all = [[port["port"] for port in rule["ports"]] for rule in policy["ingress"] if "from" not in rule]
    assert to_all == [["speech"]]


def test_pods_are_spread_and_their_volumes_bounded() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    assert {each["topologyKey"] for each in pod["topologySpreadConstraints"]} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"])


def test_haproxy_has_a_server_for_each_replica_of_an_update() -> None:
    surge = deployment()["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    (servers,) = re.findall(r"server-template gateway (\d+) ", (DOCKER / "haproxy.cfg").read_text("utf-8"))
    assert manifest("hpa")["spec"]["maxReplicas"] + surge <= int(servers)


def test_kustomizations_and_autoscaler_refer_to_existing_objects() -> None:
    for name in ("base", "gpu"):
        folder = DOCKER / "k8s" / name
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
        paths = [*kustomization["resources"], *(patch["path"] for patch in kustomization.get("patches", []))]
        assert all((folder / path).exists() for path in paths)
    autoscaler = (DOCKER / "k8s/base/hpa.yaml").read_text("utf-8")
    (metric,) = re.findall(r"metric: {name: (\w+)}", autoscaler)
    assert metric in exposed()
    assert metric in (DOCKER / "k8s/prometheus-adapter.yaml").read_text("utf-8")
