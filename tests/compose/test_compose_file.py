"""Claims about docker-compose.yml and the images, as far as they can be judged without an engine."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from valet_local.compose import servers
from valet_local.container import READY
from valet_local.nats import NEEDED
from valet_local.plan import SERVICE_MODULES
from valet_protocol import subjects
from valet_service import config_file, credentials, settings
from valet_service.config_file import Sandbox

ROOT = Path(__file__).parents[2]
OURS = {name for name, _ in SERVICE_MODULES}
STOCK = {"nats", "postgres"}
COMMAND_TIMEOUT = 30.0
"""Seconds for `docker-compose config`, which starts nothing."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return compose["services"]


def test_the_services_are_those_that_valet_up_runs(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == OURS | STOCK | {"setup"}
    for name in OURS:
        assert services[name]["command"] == ["python", "-m", "valet_local.container", name]


def test_the_servers_are_stock_images_of_a_sufficient_version(services: dict[str, dict[str, Any]]) -> None:
    nats = re.fullmatch(r"nats:(\d+)\.(\d+)(?:\.\d+)?-alpine", services["nats"]["image"])
    assert nats
    assert (int(nats[1]), int(nats[2])) >= NEEDED
    assert re.fullmatch(r"postgres:1[78](\.\d+)?-alpine", services["postgres"]["image"])
    assert not any("build" in services[name] for name in STOCK)


def test_every_service_is_checked_restarted_and_limited(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["mem_limit"], name
        assert service["logging"]["options"]["max-size"], name
        if name == "setup":
            assert service["restart"] == "no"
            continue
        assert service["restart"] == "unless-stopped", name
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["pids_limit"], name


def test_readiness_is_looked_for_where_the_service_s_launcher_notes_it(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS - {"api"}:
        assert services[name]["healthcheck"]["test"] == ["CMD", "test", "-e", f"/tmp/{READY.name}"]
    for name in OURS:
        # a file in a tmpfs does not outlive the container's restart; an image without init would keep zombies
        assert services[name]["tmpfs"] == ["/tmp"]
        assert services[name]["init"] is True


def test_only_the_api_and_the_ways_into_sandboxes_are_published_and_only_to_this_machine(
    services: dict[str, dict[str, Any]],
) -> None:
    assert {name for name, service in services.items() if "ports" in service} == {"api", "portal"}
    assert all(port.startswith("${VALET_ADDRESS:-127.0.0.1}:") for port in services["portal"]["ports"])
    assert services["api"]["ports"] == ["${VALET_ADDRESS:-127.0.0.1}:${VALET_PORT:-8700}:8700"]
    assert services["api"]["environment"]["VALET_API_PORT"] == "8700"


def test_what_a_sandbox_can_reach_cannot_reach_the_database(
    compose: dict[str, Any], services: dict[str, dict[str, Any]]
) -> None:
    assert set(services["portal"]["networks"]).isdisjoint(services["postgres"]["networks"])
    assert {name for name in OURS | STOCK if "outside" in services[name]["networks"]} == {"api", "portal"}
    assert compose["networks"]["broker"]["internal"] is compose["networks"]["database"]["internal"] is True
    assert services["setup"]["network_mode"] == "none"


def test_no_container_has_a_capability_it_does_not_need(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS | {"setup", "nats"}:
        assert services[name]["cap_drop"] == ["ALL"], name
        assert "cap_add" not in services[name], name
        assert "privileged" not in services[name], name
        assert "no-new-privileges=true" in services[name]["security_opt"], name
    relaxed = {
        name for name in services if any("unconfined" in option for option in services[name].get("security_opt", []))
    }
    assert relaxed == {"sandbox-controller"}


def test_every_variable_is_one_that_services_read(services: dict[str, dict[str, Any]]) -> None:
    source = "\n".join(
        path.read_text()
        for folder in ("libs", "services", "infra/local")
        for path in (ROOT / folder).rglob("*.py")
        if "tests" not in path.parts
    )
    keys = {variable for _, variables in config_file.ENVIRONMENT_PROVIDERS for variable in variables}
    for name in OURS | {"setup"}:
        for variable in services[name]["environment"]:
            assert variable in keys or f'"{variable}"' in source, f"{name}: {variable}"


def test_the_environment_of_every_service_can_be_loaded(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS:
        environment = {key: str(value) for key, value in services[name]["environment"].items()}
        environment["VALET_SHARDS"] = default_of(environment["VALET_SHARDS"])
        loaded = settings.load(environment)
        assert loaded.shards == tuple(range(subjects.SHARDS))
        assert loaded.keys_dir == loaded.data_dir / "keys"
        if name in credentials.SERVICES:
            assert loaded.nats_creds == str(loaded.keys_dir / "creds" / f"{name}.creds")
        else:
            assert loaded.nats_creds is None


def test_no_secret_is_written_in_the_file_or_its_defaults() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    assert not re.search(r"(?i)password\s*[:=]\s*[^\s/$]", text)
    for name in ("valet.toml", "model-keys.env"):
        lines = (ROOT / "infra" / "docker" / name).read_text().splitlines()
        assert all(line.startswith("#") for line in lines), f"{name} sets something"


def test_the_servers_read_what_the_set_up_step_writes(services: dict[str, dict[str, Any]]) -> None:
    written = servers(Path("/etc/valet"))
    assert services["nats"]["command"][-1] == str(written.nats_config)
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"] == str(written.postgres_password)
    assert all("servers:/etc/valet:ro" in services[name]["volumes"] for name in STOCK)


def test_data_outlives_the_containers(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    assert "nats:/data" in services["nats"]["volumes"]
    assert "postgres:/var/lib/postgresql" in services["postgres"]["volumes"]
    assert all("data:/var/lib/valet" in services[name]["volumes"] for name in OURS)
    assert set(compose["volumes"]) == {"data", "servers", "nats", "postgres"}


def test_one_sandbox_fits_into_the_room_for_all(services: dict[str, dict[str, Any]]) -> None:
    room = default_of(services["sandbox-controller"]["mem_limit"])
    assert int(room.removesuffix("g")) * 1024 > Sandbox().memory_mb
    assert services["sandbox-controller"]["pids_limit"] > Sandbox().pids


def test_both_images_install_the_lock_strictly_and_end_as_an_ordinary_user() -> None:
    for path in ("infra/docker/Dockerfile", "sandbox-image/Dockerfile"):
        text = (ROOT / path).read_text()
        assert "pip install --require-hashes -r requirements.lock" in text
        assert "pip install --no-deps --no-build-isolation" in text
        assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["valet"]


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_docker_compose_accepts_the_file() -> None:
    done = subprocess.run(
        ["docker-compose", "-f", str(ROOT / "docker-compose.yml"), "config", "-q"],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def default_of(text: str) -> str:
    """What compose makes of `${NAME:-default}` when the name is not set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
