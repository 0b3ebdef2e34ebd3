"""The files of examples/cluster name commands, settings, ports and hosts that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from guard.cli import main
from guard.config import parse_setting
from guard.served_settings import ServerAddress

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "examples" / "cluster"
COMPOSE: dict[str, Any] = yaml.safe_load((CLUSTER / "compose.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = [
    manifest
    for path in sorted((CLUSTER / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]
VARIABLES = frozenset(re.findall(r"^(\w+)=", (CLUSTER / "cluster.env.example").read_text(), re.M))
_REFERENCE = re.compile(r"\$\{(\w+)[^}]*\}|\$\((\w+)\)")
_SECRET = re.compile(r"PASSWORD|TOKEN|_KEY")


def workloads() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each Deployment and StatefulSet by name."""
    for manifest in MANIFESTS:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            yield manifest["metadata"]["name"], manifest


def containers() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each container of Kubernetes with the name of its workload."""
    for name, manifest in workloads():
        for container in manifest["spec"]["template"]["spec"]["containers"]:
            yield name, container


def commands() -> Iterator[list[str]]:
    """Yield each command that a container begins with."""
    for service in COMPOSE["services"].values():
        if "command" in service:
            yield service["command"]
    for _, container in containers():
        if "command" in container:
            yield container["command"]


def environments() -> Iterator[dict[str, str]]:
    """Yield the variables of each container; those from a Secret refer to it as in Compose."""
    for service in COMPOSE["services"].values():
        yield service.get("environment", {})
    for _, container in containers():
        yield {
            entry["name"]: entry.get("value")
            or "${" + entry["valueFrom"]["secretKeyRef"]["key"] + "}"
            for entry in container.get("env", ())
        }


def values_of(option: str, command: list[str]) -> list[str]:
    """Return the values of a repeated option that is written ``--option=value``."""
    return [word.partition("=")[2] for word in command if word.startswith(f"{option}=")]


def test_every_command_line_has_options_that_there_are() -> None:
    from litellm import run_server

    programs = {"guard": main, "litellm": run_server}
    asked = list(commands())
    assert {command[0] for command in asked} == set(programs)
    for name, *words in asked:
        command: Any = programs[name]
        if name == "guard":
            command = main.get_command(click.Context(main), words.pop(0))
        command.make_context(name, words)  # refuses unknown options and values


def test_every_variable_is_a_setting_and_every_secret_is_asked_for() -> None:
    keys = set()
    for environment in environments():
        for name, value in environment.items():
            referred = {first or second for first, second in _REFERENCE.findall(value)}
            assert referred <= VARIABLES, name
            if _SECRET.search(name):
                assert referred, f"{name} is written out"
            if name.startswith("BIASGUARD_"):
                keys.add(key := name.removeprefix("BIASGUARD_").lower())
                parse_setting(key, _REFERENCE.sub("x", value), name)
    assert keys == {"detector", "served", "events", "metrics"}
    secrets = {
        item["key"]
        for _, manifest in workloads()
        for volume in manifest["spec"]["template"]["spec"].get("volumes", ())
        for item in volume.get("secret", {}).get("items", ())
    }
    assert secrets | {"GUARD_SERVE_TOKEN"} <= VARIABLES


def test_compose_reaches_no_further_than_this_machine() -> None:
    published = [p for s in COMPOSE["services"].values() for p in s.get("ports", ())]
    assert len(published) == 3
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_images_are_pinned_and_limited() -> None:
    images = [s["image"] for s in COMPOSE["services"].values()]
    images += [container["image"] for _, container in containers()]
    assert all(re.search(r":v?\d", image) for image in images)
    assert set(images) == {s["image"] for s in COMPOSE["services"].values()}
    for service in COMPOSE["services"].values():
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    for name, container in containers():
        assert {"requests", "limits"} <= set(container["resources"]), name
        assert {"readinessProbe", "livenessProbe"} <= set(container), name


def test_each_detector_is_known_by_the_name_that_proxies_ask() -> None:
    sets = {n: m["spec"] for n, m in workloads() if m["kind"] == "StatefulSet"}
    of_kubernetes = {
        f"{name}-{number}.{spec['serviceName']}"
        for name, spec in sets.items()
        for number in range(spec["replicas"])
    }
    of_compose = {
        alias
        for service in COMPOSE["services"].values()
        for alias in service.get("networks", {}).get("default", {}).get("aliases", ())
    }
    asked = [e["BIASGUARD_DETECTOR"] for e in environments() if "BIASGUARD_DETECTOR" in e]
    servers = [command for command in commands() if command[:2] == ["guard", "serve"]]
    assert len(asked) == len(servers) == 3  # two in Compose, one set in Kubernetes
    for addresses in asked:
        for address in map(ServerAddress, addresses.split(",")):
            assert address.host in of_kubernetes & of_compose
            for command in servers:
                assert address.host in values_of("--allow-host", command)
                assert str(address.port) in values_of("--port", command)


def test_prometheus_asks_ports_that_are_listened_on() -> None:
    jobs = yaml.safe_load((CLUSTER / "prometheus.yml").read_text())["scrape_configs"]
    ports = {m["metadata"]["name"]: m["spec"] for m in MANIFESTS if m["kind"] == "Service"}
    listened = {port for command in commands() for port in values_of("--port", command)}
    for job in jobs:
        (target,) = job["dns_sd_configs"]
        (name,) = target["names"]
        assert ports[name]["clusterIP"] == "None"  # the name has the address of each container
        assert [port["port"] for port in ports[name]["ports"]] == [target["port"]]
        assert str(target["port"]) in listened
    token = jobs[1]["authorization"]["credentials_file"]
    assert token == "/run/secrets/GUARD_SERVE_TOKEN"
    assert "GUARD_SERVE_TOKEN" in COMPOSE["services"]["prometheus"]["secrets"]


def test_selectors_volumes_and_files_are_there() -> None:
    made = yaml.safe_load((CLUSTER / "kustomization.yaml").read_text())
    maps = {generator["name"]: generator["files"] for generator in made["configMapGenerator"]}
    listed = [CLUSTER / name for name in made["resources"]]
    files = [CLUSTER / f.rpartition("=")[2] for names in maps.values() for f in names]
    mounted = [
        CLUSTER / volume.partition(":")[0]
        for service in COMPOSE["services"].values()
        for volume in service.get("volumes", ())
        if volume.startswith(".")
    ]
    for path in (*listed, *files, *mounted):
        assert path.exists(), path
    labels = {n: m["spec"]["template"]["metadata"]["labels"] for n, m in workloads()}
    for manifest in MANIFESTS:
        spec = manifest["spec"]
        selector = spec["selector"].get("matchLabels", spec["selector"])
        assert selector in labels.values(), manifest["metadata"]["name"]
    for name, manifest in workloads():
        pod = manifest["spec"]["template"]["spec"]
        volumes = {v["name"] for v in pod.get("volumes", ())}
        volumes |= {c["metadata"]["name"] for c in manifest["spec"].get("volumeClaimTemplates", ())}
        used = {v["configMap"]["name"] for v in pod.get("volumes", ()) if "configMap" in v}
        assert used <= maps.keys(), name
        for container in pod["containers"]:
            assert {v["name"] for v in container.get("volumeMounts", ())} == volumes


def test_the_image_and_ray_install_extras_that_there_are() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    known = set(
        re.findall(r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2], re.M)
    )
    for name in ("Dockerfile", "ray.yaml"):
        text = (CLUSTER / name).read_text()
        (wanted,) = re.findall(r"(?:source|checkout)\[([\w,]+)\]", text)
        assert set(wanted.split(",")) <= known


def test_secrets_and_judged_text_are_in_no_copy_of_the_checkout() -> None:
    ignored = (CLUSTER / "Dockerfile.dockerignore").read_text().splitlines()
    assert {"**/cluster.env", "**/*.db*", "/runs", ".git", "**/.venv*"} <= set(ignored)
    excluded = yaml.safe_load((CLUSTER / "ray.yaml").read_text())["rsync_exclude"]
    # The patterns of rsync match in every folder.
    assert set(excluded) == {line.removeprefix("**/") for line in ignored if line[0] != "#"}


def test_ray_takes_its_cluster_file() -> None:
    pytest.importorskip("ray", reason="Ray is not installed (extra 'scale')")
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load((CLUSTER / "ray.yaml").read_text())))
