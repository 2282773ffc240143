"""Claims about the list of processes and who is told what. No process is started here."""

import signal
from pathlib import Path

import msgspec
from valet_local import plan

FACTS = plan.Facts(
    python="/usr/bin/python3",
    nats_command=("nats-server",),
    nats_url="nats://127.0.0.1:1",
    postgres_command=("postgres",),
    database_url="postgresql://valet@/valet?host=/run",
    data_dir=Path("/d"),
    run_dir=Path("/d/run"),
    keys_dir=Path("/d/keys"),
    creds_dir=Path("/d/keys/creds"),
    token_file=Path("/d/keys/token"),
    config=Path("/d/valet.toml"),
    host="127.0.0.1",
    port=8700,
    isolation=None,
    log_level="info",
    programs={"VALET_OPENCODE_BIN": "/o"},
    key_variables=frozenset({"ANTHROPIC_API_KEY"}),
)
INHERITED = {"PATH": "/bin", "ANTHROPIC_API_KEY": "sk-secret", "VALET_API_PORT": "1", "NOTIFY_SOCKET": "/x"}


def _by_name() -> dict[str, plan.ProcessSpec]:
    return {spec.name: spec for spec in plan.build(FACTS, INHERITED, plan.SERVICE_MODULES)}


def test_services_start_after_the_servers_they_use() -> None:
    specs = _by_name()
    assert specs["api"].after == ("nats", "postgres")
    assert specs["portal"].after == ()
    assert specs["nats"].after == specs["postgres"].after == ()


def test_servers_stop_after_the_services_and_postgres_does_not_wait_for_clients() -> None:
    specs = _by_name()
    assert {name for name, spec in specs.items() if spec.rank == "server"} == {"nats", "postgres"}
    assert specs["postgres"].stop_signal is signal.SIGINT


def test_only_those_who_call_models_get_the_keys() -> None:
    values = {name: spec.environment.get("ANTHROPIC_API_KEY") for name, spec in _by_name().items()}
    assert values == {
        "nats": None,
        "postgres": None,
        "session-ledger": "set",
        "event-bus": "set",
        "knowledge+automation": "set",
        "api": "set",
        "sandbox-controller": "sk-secret",
        "portal": "sk-secret",
    }


def test_only_those_who_store_objects_get_the_object_stores_keys() -> None:
    facts = msgspec.structs.replace(FACTS, object_variables=frozenset({"S3_SECRET"}))
    specs = plan.build(facts, {**INHERITED, "S3_SECRET": "s3-secret"}, plan.SERVICE_MODULES)
    told = {spec.name for spec in specs if spec.environment.get("S3_SECRET") == "s3-secret"}
    assert told == {"api", "portal"}
    assert {spec.environment.get("S3_SECRET") for spec in specs if spec.rank == "service"} == {"set", "s3-secret"}


def test_a_key_that_is_not_set_is_not_said_to_be() -> None:
    inherited = {**INHERITED, "ANTHROPIC_API_KEY": ""}
    assert plan.service_environment(FACTS, inherited, "api")["ANTHROPIC_API_KEY"] == ""


def test_variables_of_an_outer_platform_do_not_leak_in() -> None:
    environment = _by_name()["api"].environment
    assert environment["VALET_API_PORT"] == "8700"
    assert "NOTIFY_SOCKET" not in environment


def test_each_service_has_its_own_credentials_and_only_api_the_token() -> None:
    specs = _by_name()
    for name, _ in plan.SERVICE_MODULES:
        if name in specs:
            assert specs[name].environment["VALET_NATS_CREDS"] == f"/d/keys/creds/{name}.creds"
    assert [name for name, spec in specs.items() if "VALET_ADMIN_TOKEN_FILE" in spec.environment] == ["api"]


def test_the_smallest_services_are_one_process_that_finds_the_credentials_of_each() -> None:
    spec = _by_name()["knowledge+automation"]
    assert spec.command[1:] == (
        "-P",
        "-m",
        "valet_service.host",
        "knowledge=valet_knowledge",
        "automation=valet_automation",
    )
    assert spec.environment["VALET_NATS_CREDS"] == "/d/keys/creds"
    assert spec.after == ("nats", "postgres")


def test_one_of_them_by_itself_is_a_process_like_any_other() -> None:
    *_, spec = plan.build(FACTS, INHERITED, [("automation", "valet_automation")])
    assert (spec.name, spec.command[1:]) == ("automation", ("-P", "-m", "valet_automation"))
    assert spec.environment["VALET_NATS_CREDS"] == "/d/keys/creds/automation.creds"
