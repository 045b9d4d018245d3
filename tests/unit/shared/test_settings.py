"""Settings: the environment over the file over the defaults, and nothing that nobody reads."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mathrag.errors import Unavailable
from shared.settings import Model, Settings, Workers, load


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "mathrag.yaml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_run_the_shipped_models_in_two_stages() -> None:
    settings = load()
    assert settings.device.residency == "staged"
    footprints = [settings.models[settings.roles[role]].footprint_mib for role in ("judge", "generate")]
    assert max(footprints) <= settings.device.budget_mib < sum(footprints)
    assert settings.workers == Workers()


def test_the_file_overrides_the_defaults() -> None:
    written("port: 9000\nworkers:\n  chunk: 4\n")
    settings = load()
    assert (settings.port, settings.workers.chunk) == (9000, 4)
    assert settings.workers.streams == Workers().streams


def test_the_environment_overrides_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    written("port: 9000\nworkers:\n  chunk: 4\n  streams: 3\n")
    monkeypatch.setenv("MATHRAG_PORT", "9001")
    monkeypatch.setenv("MATHRAG_WORKERS__CHUNK", "5")
    settings = load()
    assert (settings.port, settings.workers.chunk, settings.workers.streams) == (9001, 5, 3)


def test_arguments_override_both(monkeypatch: pytest.MonkeyPatch) -> None:
    written("port: 9000\n")
    monkeypatch.setenv("MATHRAG_PORT", "9001")
    assert Settings(port=9002).port == 9002


def test_another_file_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    written("port: 9000\n")
    monkeypatch.setenv("MATHRAG_CONFIG", str(written("host: 0.0.0.1\n", "other.yaml")))
    settings = load()
    assert settings.host == "0.0.0.1"
    assert settings.port == 8080
    monkeypatch.delenv("MATHRAG_CONFIG")
    assert (load().port, load().host) == (9000, "127.0.0.1")


def test_no_file_is_fine() -> None:
    assert load().port == 8080


@pytest.mark.parametrize(
    "text",
    ["prot: 9000\n", "workers:\n  chnuk: 4\n", "device:\n  residencies: staged\n", "models:\n  m:\n    drivr: x\n"],
)
def test_a_misspelt_key_is_refused_by_name(text: str) -> None:
    written(text)
    with pytest.raises(ValidationError) as raised:
        load()
    assert any(word in str(raised.value) for word in ("prot", "chnuk", "residencies", "drivr"))


def test_a_misspelt_variable_of_a_section_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHRAG_WORKERS__CHNUK", "4")
    with pytest.raises(ValidationError, match="chnuk"):
        load()


@pytest.mark.parametrize(
    "text",
    ["port: 70000\n", "workers:\n  chunk: 0\n", "workers:\n  claim_ttl_s: 0\n", "device:\n  residency: sometimes\n"],
)
def test_values_that_cannot_work_are_refused(text: str) -> None:
    written(text)
    with pytest.raises(ValidationError):
        load()


def test_a_secret_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mathrag_service_key").write_text("from-a-file\n")
    (tmp_path / "mathrag_redis_url").write_text("redis://from-a-file")
    monkeypatch.setenv("MATHRAG_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("MATHRAG_REDIS_URL", "redis://from-the-environment")
    written("service_key: from-the-settings\n")
    settings = load()
    assert (settings.service_key, settings.redis_url) == ("from-a-file", "redis://from-the-environment")


def test_a_folder_of_secrets_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MATHRAG_SECRETS_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable, match=r"MATHRAG_SECRETS_DIR.*nowhere"):
        load()


def test_secrets_are_not_printed() -> None:
    secrets = {name: f"hush-{name}" for name in ("database_url", "owner_url", "redis_url", "service_key")}
    settings = Settings.model_validate(secrets)
    assert "hush" not in repr(settings) + str(settings) + settings.model_dump_json() + repr(settings.model_dump())
    assert settings.service_key == "hush-service_key"


def test_an_error_does_not_repeat_what_was_given() -> None:
    written("port: s3cret\nservice_kye: s3cret\n")
    with pytest.raises(ValidationError) as raised:
        load()
    assert "s3cret" not in str(raised.value)
    assert "service_kye" in str(raised.value)


@pytest.mark.parametrize(
    "url", ["https://user:s3cret@models.example/v1", "https://s3cret@models.example", "file:///s3cret"]
)
def test_a_model_servers_address_holds_no_password(url: str) -> None:
    written(f"models:\n  m:\n    driver: remote\n    url: {url}\n")
    with pytest.raises(ValidationError, match="api_key_env") as raised:
        load()
    assert "s3cret" not in str(raised.value)


def test_one_device_is_all_that_there_is_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHRAG_DEVICE__ID", "GPU-0f")
    monkeypatch.setenv("MATHRAG_GUARD_URL", "http://guard:8082")
    (only,) = load().all_devices()
    assert (only.id, only.guard_url) == ("GPU-0f", "http://guard:8082")
    assert list(load().guards()) == ["guard"]


def test_further_devices_stand_beside_the_first() -> None:
    written(
        "device: {id: a}\nguard_url: http://one\ndevices:\n- {id: b, budget_mib: 7, guard_url: http://two}\n- {id: c}\n"
    )
    guards = load().guards()
    assert {name: (device.id, device.guard_url) for name, device in guards.items()} == {
        "guard": ("a", "http://one"),
        "guard-2": ("b", "http://two"),
        "guard-3": ("c", ""),
    }
    assert [device.budget_mib for device in load().all_devices()] == [160, 7, 160]


def test_the_supervisor_says_further_devices_in_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    written("devices: [{id: b}, {id: c}]\n")
    monkeypatch.setenv("MATHRAG_DEVICES", '[{"id": "b", "guard_url": "http://two"}]')
    assert [(device.id, device.guard_url) for device in load().devices] == [("b", "http://two")]


def test_two_devices_of_one_name_are_refused() -> None:
    written("devices: [{id: 'cpu:0'}]\n")
    with pytest.raises(ValidationError, match="two devices have the id 'cpu:0'"):
        load()


def test_a_model_on_an_unknown_device_is_refused() -> None:
    written("devices: [{id: b}]\nmodels: {m: {driver: scripted, device: gone}}\n")
    with pytest.raises(ValidationError, match=r"models\.m\.device.*unknown device 'gone'; choose one of cpu:0, b"):
        load()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"driver": "remote", "server": "vllm"}, "`server` belongs to driver `process`, not `remote`: remove it"),
        ({"driver": "vllm-sleep", "server": "vllm"}, "`server` belongs to driver `process`"),
        ({"driver": "process", "command": ["vllm"]}, "`command` needs the `server` that it starts"),
        ({"driver": "ollama", "command": ["ollama"]}, "`command` needs the `server` that it starts"),
        ({"driver": "process", "server": "llama.cpp", "hub": "Qwen/Q"}, "`hub` is only for TGI and vLLM: set `path`"),
        ({"driver": "vllm-sleep", "hub": "Qwen/Q", "path": "/models/q"}, "`hub` and `path` both name a model"),
        ({"driver": "vllm-sleep", "hub": "Qwen/Q", "revision": "main"}, "revision"),
        ({"driver": "vllm-sleep", "path": "/models/q", "revision": "0" * 40}, "`revision` is a commit of `hub`"),
        ({"driver": "scripted", "call_timeout_s": 0}, "call_timeout_s"),
        ({"driver": "process", "deterministic": True, "parallel": 8}, "needs one slot on llama.cpp: remove"),
        ({"driver": "process", "server": "tgi", "deterministic": True}, "`deterministic` cannot be guaranteed by tgi"),
        ({"driver": "ollama", "deterministic": True}, "`deterministic` cannot be guaranteed by ollama"),
        ({"driver": "remote", "deterministic": True}, "serve the model with llama.cpp or vLLM"),
        ({"driver": "plugin", "plugin": "p", "constrain_labels": True}, "`constrain_labels` is unknown to drivers"),
    ],
)
def test_a_model_that_cannot_be_meant_is_refused_with_field_and_fix(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        Model(**fields)


def test_sleep_mode_takes_a_command_and_a_name_on_the_hub() -> None:
    model = Model(driver="vllm-sleep", command=("vllm", "serve"), hub="Qwen/Q", revision="0" * 40)
    assert (model.server, model.asleep_mib, model.call_timeout_s) == ("embedded", 0, 120)


@pytest.mark.parametrize(
    ("fields", "slots"),
    [
        ({"driver": "process"}, 1),
        ({"driver": "process", "server": "llama.cpp"}, 1),
        ({"driver": "process", "server": "vllm"}, 8),
        ({"driver": "vllm-sleep", "parallel": 4}, 4),
        ({"driver": "scripted"}, 8),
    ],
)
def test_a_deterministic_model_has_one_slot_where_slots_change_replies(fields: dict[str, Any], slots: int) -> None:
    assert Model(**fields, deterministic=True).parallel == slots
    assert Model(**(fields | {"parallel": 1}), deterministic=True).parallel == 1
