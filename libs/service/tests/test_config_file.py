"""Claims about `valet.toml`: what it means, and that a wrong one is refused with line and reason."""

import pytest
from valet_service import config_file
from valet_service.config_file import ConfigError

GOOD = """
default_model = "local/qwen"

[providers.local]
base_url = "http://127.0.0.1:11434/v1"
models = ["qwen", "gemma"]

[providers.paid]
base_url = "https://models.example.org/v1"
api_key_env = "PAID_KEY"
[providers.paid.models."big/one"]
name = "Big One"
context = 200000
cost = { input = 3, output = 15 }

[sandbox]
network = "none"
allow_hosts = ["*.example.org"]
memory_mb = 1024
"""


def test_a_whole_file_is_read() -> None:
    config = config_file.parse(GOOD)
    local, paid = config.providers
    assert config.default_model == "local/qwen"
    assert [name for name, _ in local.models] == ["qwen", "gemma"]
    big = paid.model("big/one")
    assert big is not None
    assert big.cost is not None
    assert (big.name, big.context, big.cost.output) == ("Big One", 200_000, 15.0)
    assert (config.sandbox.network, config.sandbox.memory_mb) == ("none", 1024)


def test_an_empty_file_is_the_defaults() -> None:
    assert config_file.parse("") == config_file.ValetConfig()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = [1,\n  2\n", 3, "not TOML"),
        ("x = = 1", 1, "not TOML"),
        ("\n\n[sandbox]\nmemory = 5\n", 4, "unknown key 'memory'"),
        ('[sandbox]\n# words\nmemory_mb = "much"\n', 3, "sandbox.memory_mb: expected int, got str"),
        ('[sandbox]\nisolation = "docker"\n', 2, "docker"),
        ("[sandbox]\npids = 1\n", 2, "the least is 32"),
        ('[sandbox]\npublic_host = "http://x:1"\n', 2, "without http://"),
        ('[sandbox]\npublic_ports = "20000"\n', 2, "write two of them, such as 20000-20063"),
        ('[sandbox]\n\npublic_ports = "80-90"\n', 3, "the first port is at least 1024"),
        ('[sandbox]\npublic_ports = "20010-20000"\n', 2, "not before it"),
        ('[sandbox]\npublic_ports = "65000-65536"\n', 2, "at most 65535"),
        ("[sandbox]\npublic_ports = 20000\n", 2, "expected str"),
        ('[sandbox]\npublic_ports = "2000-2001"\npublic_url = "https://v.example"\n', 3, "needs {port} once"),
        ('[sandbox]\npublic_ports = "2000-2001"\npublic_url = "https://v.example/{port}"\n', 3, "no path"),
        ('[sandbox]\npublic_ports = "2000-2001"\npublic_url = "{port}.v.example"\n', 3, "not an http or https URL"),
        ('[sandbox]\npublic_url = "https://{port}.v.example"\n', 2, "needs public_ports as well"),
        ("sandbox = 3\n", 1, "sandbox"),
        ("providers = 3\n", 1, "providers must be a table"),
        ('[providers.a]\nbase_url = "localhost:80"\nmodels = ["m"]\n', 2, "is not an http or https URL"),
        ('[providers.a]\nbase_url = "http://h:99999"\nmodels = ["m"]\n', 2, "is not an http or https URL"),
        ('[providers.a]\nmodels = ["m"]\n', 1, "needs a base_url"),
        ('[providers.a]\nbase_url = "http://h/v1"\n', 1, "needs models"),
        ('[providers.a]\nbase_url = "http://h/v1"\nmodels = [\n  1,\n]\n', 3, "expected str, got int"),
        ('[providers.a]\nbase_url = "http://h/v1"\nmodels = "m"\n', 3, "must be a list of model ids"),
        (
            '[providers.a]\nbase_url = "http://h/v1"\n[providers.a.models."m.1"]\nsize = 1\n',
            4,
            "unknown key 'size'",
        ),
        (
            '[providers.a]\nbase_url = "http://h/v1"\n[providers.a.models.m]\ncost = {inputs = 1}\n',
            4,
            "unknown key 'inputs'",
        ),
        ('[objects]\nstore = "disk"\n', 2, "disk"),
        (
            '[objects]\nbuckets = "x"\n',
            2,
            "known here: access_key_env, bucket, endpoint, region, secret_key_env, store",
        ),
        ('[objects]\nbucket = "abc"\n', 2, 'objects.bucket is for store = "s3" only'),
        ('\n[objects]\nstore = "s3"\n', 2, "objects needs bucket"),
        ('[objects]\nstore = "s3"\nbucket = "A b"\n', 3, "small letters"),
        ('[objects]\nstore = "s3"\nbucket = "abc"\nendpoint = "s3.example"\n', 4, "is not an http or https URL"),
        ('[objects]\nstore = "s3"\nbucket = "abc"\naccess_key_env = "A"\n', 4, "needs secret_key_env as well"),
        (
            '[objects]\nstore = "s3"\nbucket = "abc"\naccess_key_env = "A"\nsecret_key_env = "s/e+c="\n',
            5,
            "NAME of an environment variable",
        ),
        ("[providers.Anthropic]\n", 1, "small letters"),
        ('default_model = "big"\n', 1, "provider/model"),
        ('\ndefault_model = "a/b"\n', 2, "no [providers.a]"),
        ('default_model = "a/x"\n[providers.a]\nbase_url="http://h"\nmodels=["m"]\n', 1, "only m"),
        ("nonsense = 1\n", 1, "known here: default_model, objects, providers, sandbox"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line_and_the_reason(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_file.parse(text, "my.toml")
    assert caught.value.line == line, str(caught.value)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"my.toml:{line}: ")


def test_ports_go_from_the_first_to_the_last() -> None:
    text = '[sandbox]\npublic_ports = "20000 - 20001"\npublic_url = "https://{port}.valet.example.org"\n'
    sandbox = config_file.parse(text).sandbox
    assert list(config_file.port_range(sandbox.public_ports or "")) == [20000, 20001]
    assert list(config_file.port_range("1024-1024")) == [1024]
    assert config_file.parse(text.replace("{port}.valet", "valet").replace(".org", ".org:{port}")).sandbox.public_url


def test_a_pasted_key_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        config_file.parse('[providers.openai]\napi_key_env = "sk-secret-123"\n')
    assert caught.value.line == 2
    assert "sk-secret" not in str(caught.value)


def test_usual_environment_variables_work_with_no_file() -> None:
    config = config_file.with_environment(
        config_file.ValetConfig(), {"ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k", "OPENAI_API_KEY": ""}
    )
    assert [(p.id, p.api_key_env, p.from_environment) for p in config.providers] == [
        ("anthropic", "ANTHROPIC_API_KEY", True),
        ("google", "GEMINI_API_KEY", True),
    ]


def test_the_file_wins_over_the_environment() -> None:
    config = config_file.parse('[providers.openai]\nbase_url = "http://proxy/v1"\nmodels = ["m"]\n')
    assert config_file.with_environment(config, {"OPENAI_API_KEY": "k"}) == config


def test_a_missing_key_is_named() -> None:
    assert config_file.missing_keys(config_file.parse(GOOD), {}) == (("paid", "PAID_KEY"),)
