from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from duetime.domain.log_levels import LogLevels
from duetime.domain.loopback import is_loopback
from duetime.settings import BadSetting
from duetime.settings.loading import load, load_on_demand
from duetime.settings.table import SETTINGS, Settings


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "duetime.toml"


def test_every_default_can_be_used(toml: Path) -> None:
    shown = load({}, {}).list_shown()
    assert [setting.name for setting in shown] == list(SETTINGS)
    assert {setting.source for setting in shown} == {"default"}


def test_a_flag_precedes_the_environment_then_the_file_then_the_default(toml: Path) -> None:
    environment = {"DUETIME_PORT": "2"}
    assert load({}, {}).port == 8080
    toml.write_text("port = 1")
    from_file = load({}, {})
    assert (from_file.port, from_file.given["PORT"].source) == (1, "duetime.toml")
    from_environment = load({"PORT": None}, environment)
    assert (from_environment.port, from_environment.given["PORT"].source) == (2, "DUETIME_PORT")
    from_flag = load({"PORT": "3"}, environment)
    assert (from_flag.port, from_flag.given["PORT"].source) == (3, "--port")


@pytest.mark.parametrize("key", ["port", "PORT", "Port"])
def test_names_in_the_file_are_read_in_any_case(toml: Path, key: str) -> None:
    toml.write_text(f"{key} = 9")
    assert load({}, {}).port == 9


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("DISPATCHER_DRAIN_TIMEOUT", "500ms", 0.5),
        ("DISPATCHER_DRAIN_TIMEOUT", "5", 5.0),
        ("DISPATCHER_DRAIN_TIMEOUT", "0s", 0.0),
        ("RECONCILE_INTERVAL", "2m", 120.0),
        ("CIRCUIT_BREAKER_COOLDOWN", "90s", 90.0),
        ("CIRCUIT_BREAKER_THRESHOLD", "0", 0),
        ("ENDPOINT_RATE", "0.5", 0.5),
        ("ENDPOINT_RATE", "0", 0.0),
        ("ENDPOINT_RATE", "100000", 100_000.0),
        ("EXECUTION_HISTORY_RETENTION", "1.5h", 5400.0),
        ("ALLOW_PRIVATE_TARGETS", "true", True),
        ("ALLOW_PRIVATE_TARGETS", "false", ()),
        ("LOG_LEVEL", "WARNING", LogLevels("warning")),
        ("LOG_LEVEL", "info,engine=debug", LogLevels("info", {"engine": "debug"})),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://otel.example:4318/x/", "https://otel.example:4318/x"),
        ("TRACES_SAMPLE_RATIO", "0.5", 0.5),
        ("SIGNING_SECRETS", "whsec_c2VjcmV0, plain ", ("whsec_c2VjcmV0", "plain")),
        ("JWT_SECRET", "x" * 32, "x" * 32),
        ("JWT_SECRET", "ä" * 16, "ä" * 16),
        ("JWT_SECRET", "", ""),
        ("FREE_JOBS_PER_DAY", "0", 0),
        ("PRO_REQUESTS_PER_HOUR", "5", 5),
        ("CORS_ORIGINS", "", ()),
        (
            "CORS_ORIGINS",
            "https://App.example.com, http://[::1]:3000,",
            ("https://app.example.com", "http://[::1]:3000"),
        ),
        ("QUEUE_MEMORY_LIMIT", "", None),
        ("QUEUE_MEMORY_LIMIT", "1", 1),
        ("QUEUE_MEMORY_LIMIT", "1024KB", 1_048_576),
        ("QUEUE_MEMORY_LIMIT", "500mb", 500 * 1_048_576),
        ("QUEUE_MEMORY_LIMIT", " 2 GB ", 2 * 1024**3),
        ("QUEUE_MEMORY_LIMIT", "2GiB", 2 * 1024**3),
        ("QUEUE_MEMORY_LIMIT", "1.5kib", 1536),
        ("QUEUE_MEMORY_LIMIT", "1T", 1024**4),
        ("QUEUE_MEMORY_LIMIT", "17B", 17),
        ("QUEUE_MEMORY_PERCENT", "100", 100),
        ("QUEUE_JOB_LIMIT", "1000", 1000),
        ("METRICS_PORT", "0", 0),
        ("JWT_ISSUER", " ", ""),
        ("JWT_AUDIENCE", "", ""),
        ("JOB_EXECUTION_TIMEOUT", "", None),
        ("JOB_EXECUTION_TIMEOUT", "5m", 300.0),
        ("MAX_EXECUTION_ATTEMPTS", "", None),
        ("MAX_EXECUTION_ATTEMPTS", "3", 3),
        ("DB_CONN_MAX_LIFETIME", "0", 0.0),
        ("ALLOWED_TARGETS", "", None),
        ("TARGET_RESPONSE_HEADER_TIMEOUT", "30s", 30.0),
    ],
)
def test_a_value_is_converted_to_its_type(toml: Path, name: str, text: str, value: object) -> None:
    assert getattr(load({}, {f"DUETIME_{name}": text}), name.lower()) == value


def test_networks_are_read_from_a_list(toml: Path) -> None:
    toml.write_text('allow_private_targets = ["10.0.0.0/8", "fd00::/8"]')
    assert load({}, {}).allow_private_targets == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("PORT", "http", "must be a whole number"),
        ("PORT", "65536", "must lie between 0 and 65535"),
        ("DISPATCHER_WORKERS", "0", "must be at least 1"),
        ("DISPATCHER_DRAIN_TIMEOUT", "soon", "must be a duration such as 500ms"),
        ("DISPATCHER_DRAIN_TIMEOUT", "-1s", "must be a duration such as 500ms"),
        ("RECONCILE_INTERVAL", "0s", "must be at least 1s"),
        ("CIRCUIT_BREAKER_COOLDOWN", "0s", "must be at least 1s"),
        ("CIRCUIT_BREAKER_THRESHOLD", "-1", "must not be negative"),
        *(
            ("ENDPOINT_RATE", text, "must be 0, or lie between 0.001 and 100000")
            for text in ("-1", "fast", "1e9", "nan")
        ),
        ("ALLOW_PRIVATE_TARGETS", "10.0.0.1/8", "must be true, false, or networks"),
        ("LOG_LEVEL", "loud", "must be one of debug, info, warning, error"),
        ("LOG_LEVEL", "info,engin=debug", "there is no area 'engin'; did you mean engine?"),
        ("TRACES_SAMPLE_RATIO", "2", "must lie between 0 and 1"),
        ("TRACES_SAMPLE_RATIO", "nan", "must lie between 0 and 1"),
        ("SIGNING_SECRETS", "whsec_", "after whsec_ there must be base64"),
        ("JWT_SECRET", "x" * 31, "must have at least 32 bytes; `openssl rand -base64 32` prints one"),
        ("JOB_EXECUTION_TIMEOUT", "0s", "must lie between 100ms and 24h, or be empty"),
        ("JOB_EXECUTION_TIMEOUT", "25h", "must lie between 100ms and 24h, or be empty"),
        ("MAX_EXECUTION_ATTEMPTS", "0", "must lie between 1 and 101, or be empty"),
        ("DB_CONN_MAX_LIFETIME", "10ms", "must be 0, or at least 1s"),
        ("ALLOWED_TARGETS", "https://example.com", "must be hosts such as example.com"),
        ("TARGET_MAX_IDLE_CONNS", "0", "must be at least 1"),
        ("FREE_REQUESTS_PER_HOUR", "-1", "must not be negative"),
        ("PRO_JOBS_PER_DAY", "many", "must be a whole number"),
        ("CORS_ORIGINS", "*", "* would let every web page send requests"),
        ("CORS_ORIGINS", "https://*.example.com", "* would let every web page send requests"),
        ("CORS_ORIGINS", "https://a.example.com/", "must be origins such as"),
        ("CORS_ORIGINS", "https://a.example.com,null", "must be origins such as"),
        ("CORS_ORIGINS", "a.example.com", "must be origins such as"),
        ("CORS_ORIGINS", "https://me@a.example.com", "must be origins such as"),
        ("CORS_ORIGINS", "ftp://a.example.com", "must be origins such as"),
        ("CORS_ORIGINS", "https://a.example.com:443", "leave out :443, as browsers do"),
        ("LOG_SIZE_LIMIT", "", "must be a size such as 2GB"),
        ("QUEUE_MEMORY_LIMIT", "0", "must be a size such as 2GB"),
        ("QUEUE_MEMORY_LIMIT", "-1GB", "must be a size such as 2GB"),
        ("QUEUE_MEMORY_LIMIT", "2XB", "must be a size such as 2GB"),
        ("QUEUE_MEMORY_LIMIT", "GB", "must be a size such as 2GB"),
        ("QUEUE_MEMORY_LIMIT", "9" * 400, "must be a size such as 2GB"),
        ("QUEUE_MEMORY_PERCENT", "0", "must lie between 1 and 100"),
        ("QUEUE_MEMORY_PERCENT", "101", "must lie between 1 and 100"),
        ("QUEUE_JOB_LIMIT", "-1", "must not be negative"),
        ("METRICS_PORT", "65536", "must lie between 0 and 65535"),
    ],
)
def test_a_bad_value_names_the_setting_its_source_and_what_it_should_be(
    toml: Path, name: str, text: str, says: str
) -> None:
    with pytest.raises(BadSetting) as raised:
        load({}, {f"DUETIME_{name}": text})
    assert str(raised.value).startswith(f"{name}: ")
    assert f"(from DUETIME_{name})" in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.parametrize(("name", "text"), [("SIGNING_SECRETS", "whsec_hush!"), ("JWT_SECRET", "hush")])
def test_an_invalid_secret_is_not_shown(toml: Path, name: str, text: str) -> None:
    with pytest.raises(BadSetting) as raised:
        load({}, {f"DUETIME_{name}": text})
    assert "hush" not in str(raised.value)


def test_some_settings_can_be_read_although_others_are_invalid(toml: Path) -> None:
    toml.write_text(f'port = "none"\nunknown = 1\njwt_secret = "{"x" * 32}"')
    assert load_on_demand({}).jwt_secret == "x" * 32
    assert load_on_demand({"DUETIME_JWT_SECRET": "y" * 32}).jwt_secret == "y" * 32
    settings = load_on_demand({"DUETIME_JWT_SECRET": "short"})
    with pytest.raises(BadSetting, match="JWT_SECRET"):
        _ = settings.jwt_secret


def test_an_unknown_key_in_the_file_names_the_nearest_one(toml: Path) -> None:
    toml.write_text("prot = 1")
    with pytest.raises(BadSetting, match=r"duetime.toml: unknown setting 'prot'; did you mean 'port'\?"):
        load({}, {})
    toml.write_text("zzz = 1")
    with pytest.raises(BadSetting, match="`duetime config show` lists them all"):
        load({}, {})


def test_the_error_for_an_invalid_toml_file_names_it(toml: Path) -> None:
    toml.write_text("port: 1")
    with pytest.raises(BadSetting, match=r"^duetime.toml: "):
        load({}, {})


def test_a_secret_is_shown_as_hidden_and_an_empty_one_as_empty(toml: Path) -> None:
    assert Settings.signing_secrets.show(load({}, {})) == ""
    assert Settings.signing_secrets.show(load({}, {"DUETIME_SIGNING_SECRETS": "plain"})) == "********"
    assert Settings.jwt_secret.show(load({}, {"DUETIME_JWT_SECRET": "x" * 32})) == "********"


def test_a_node_without_a_name_gets_the_name_of_the_machine(toml: Path) -> None:
    settings = load({}, {})
    assert settings.node_name
    assert Settings.node_name.show(settings) == settings.node_name


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("example", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    "url",
    ["postgresql://ann@db/shop", "postgres://ann:s%2Fx@db:5432/shop", "postgresql://a:b@[::1]:5432/shop", "",
     "postgresql://a@one:1,two:2/shop", "postgresql:///shop?host=/run/postgresql", "postgresql://postgres:@/x?host=/y"],
)  # fmt: skip
def test_a_url_of_a_database_is_accepted(toml: Path, url: str) -> None:
    assert load({"DATABASE_URL": url}, {}).database_url == url


@pytest.mark.parametrize("password", ["se/cret", "12/se@cret", "12#secret", "se#cret", "12/se"])
def test_a_password_with_unescaped_characters_is_refused_and_not_shown(toml: Path, password: str) -> None:
    with pytest.raises(BadSetting, match="%2F %40") as refused:
        load({"DATABASE_URL": f"postgresql://ann:{password}@db/shop"}, {})
    assert "cret" not in str(refused.value)
