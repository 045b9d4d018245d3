import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mathrag.errors import Conflict, Invalid, Unavailable
from shared.connecting import NewModel, add_model, change_model, describe_model, find_models, set_value, write_settings
from shared.settings import MODELS, Settings
from tests.doubles.chat_server import Reply, Seen, as_json, chat_server
from tests.doubles.ollama_server import SHOWN, SIZE, ollama_server

# Values are set in the text of a settings file; everything else in it stays as it is.

BLOCK = """\
# Ours.
port: 8090 # of the API
models:
  # The good one.
  big: {driver: remote, url: "https://models.example.org/v1"} # paid
device:
  budget_mib: 160   # MiB
"""


@pytest.mark.parametrize(
    ("text", "path", "value", "expected"),
    [
        ("", ("roles", "judge"), "qwen", "roles: {judge: qwen}\n"),
        ("# Nothing yet.", ("roles", "judge"), "a", "# Nothing yet.\nroles: {judge: a}\n"),
        ("port: 8090 # of the API\n", ("port",), 1, "port: 1 # of the API\n"),
        ("port: 8090", ("roles", "judge"), "qwen", "port: 8090\nroles: {judge: qwen}\n"),
        ("roles: {judge: a} # ours\n", ("roles", "judge"), "b", "roles: {judge: b} # ours\n"),
        ("roles: {judge: a} # ours\n", ("roles", "generate"), "b", "roles: {judge: a, generate: b} # ours\n"),
        ("roles: {}\nport: 1\n", ("roles", "judge"), "a", "roles: {judge: a}\nport: 1\n"),
        ("roles:\nport: 1\n", ("roles", "judge"), "a", "roles: {judge: a}\nport: 1\n"),
        ("{port: 1}\n", ("roles", "judge"), "a", "{port: 1, roles: {judge: a}}\n"),
        (BLOCK, ("device", "budget_mib"), 640, BLOCK.replace("160", "640")),
        (
            BLOCK, ("models", "qwen2.5:7b"), {"driver": "ollama"},
            BLOCK.replace("  # The", "  'qwen2.5:7b': {driver: ollama}\n  # The"),
        ),
    ],
)  # fmt: skip
def test_a_value_is_set_and_the_rest_of_the_text_stays(
    text: str, path: tuple[str, ...], value: Any, expected: str
) -> None:
    assert set_value(text, path, value) == expected


QWEN = NewModel(name="qwen2.5:7b", fields={"driver": "ollama", "context": 4096, "footprint_mib": 5000}, mib=5000)


def test_a_model_with_both_roles_replaces_the_shipped_ones_and_gets_a_budget() -> None:
    made = yaml.safe_load(add_model("", QWEN, ("judge", "generate"), Settings()))
    assert made == {
        "models": {"qwen2.5:7b": QWEN.fields},
        "roles": {"judge": "qwen2.5:7b", "generate": "qwen2.5:7b"},
        "device": {"budget_mib": 5056},
    }


def test_the_shipped_judge_stays_where_only_the_answers_get_another_model() -> None:
    made = yaml.safe_load(add_model("", QWEN, ("generate",), Settings()))
    assert made["roles"] == {"judge": "world-judge", "generate": "qwen2.5:7b"}
    judge = {"driver": "process", "path": str(MODELS / "world-judge-f16.gguf"), "footprint_mib": 96}
    assert made["models"] == {"qwen2.5:7b": QWEN.fields, "world-judge": judge}


def settings_of(text: str) -> Settings:
    return Settings.model_validate(yaml.safe_load(text))


def test_a_second_model_joins_those_of_the_file() -> None:
    text = add_model(BLOCK, QWEN, ("generate",), settings_of(BLOCK))
    assert "# Ours." in text
    assert "  # The good one.\n" in text
    assert " # paid\n" in text
    assert "budget_mib: 5056   # MiB" in text
    assert set(yaml.safe_load(text)["models"]) == {"big", "qwen2.5:7b"}
    again = add_model(text, QWEN, ("judge",), settings_of(text))
    assert yaml.safe_load(again)["roles"] == {"judge": "qwen2.5:7b", "generate": "qwen2.5:7b"}


def test_another_model_of_the_same_name_is_a_conflict() -> None:
    other = NewModel(name="big", fields={"driver": "ollama"})
    with pytest.raises(Conflict, match="model 'big' is already configured"):
        add_model(BLOCK, other, ("generate",), settings_of(BLOCK))


def test_a_file_that_cannot_be_changed_is_left_to_the_reader_with_the_lines_to_write() -> None:
    text = "roles: &both {judge: a, generate: a}\nmodels: {a: {driver: scripted}}\nextra: *both\n"
    settings = Settings.model_validate(
        {"roles": {"judge": "a", "generate": "a"}, "models": {"a": {"driver": "scripted"}}}
    )
    with pytest.raises(Invalid, match="cannot be changed automatically") as refused:
        add_model(text, QWEN, ("generate",), settings)
    assert "qwen2.5:7b: {driver: ollama" in str(refused.value.hint)


def test_the_file_keeps_its_permissions_and_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "real.yaml", tmp_path / "mathrag.yaml"
    file.write_text("port: 1\n")
    file.chmod(0o640)
    link.symlink_to(file)
    write_settings(link, "port: 2\n")
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "port: 2\n", 0o640)


# What a machine has.


@pytest.mark.anyio
async def test_ollamas_models_and_gguf_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    file = shutil.copy(MODELS / "world-judge-f16.gguf", tmp_path / "deep" / "er" / "mine.gguf")
    (tmp_path / "deep" / "notes.txt").write_text("no model")
    async with ollama_server("qwen2.5:7b") as (_, server):
        found = await find_models([tmp_path, MODELS], server.url)
        assert [(each.what, each.source, each.mib) for each in found[:2]] == [
            ("qwen2.5:7b", "Ollama", round(SIZE / 2**20)),
            (str(file), "file", round(file.stat().st_size / 2**20)),
        ]
    assert not any("world-judge" in each.what for each in found)  # shipped with the program


@pytest.mark.anyio
async def test_a_search_for_files_ends_four_folders_below_its_start_and_after_two_thousand_folders(
    tmp_path: Path,
) -> None:
    deep, late = tmp_path / "deep" / "1" / "2" / "3" / "4", tmp_path / "late"
    for folder in (deep / "5", late, *(tmp_path / "wide" / str(n) for n in range(2_000))):
        folder.mkdir(parents=True)
    for file in (deep / "found.gguf", deep / "5" / "deeper.gguf", late / "late.gguf"):
        file.touch()
    async with ollama_server() as (_, server):
        found = await find_models([tmp_path / "deep", tmp_path / "wide", late], server.url)
        assert [each.what for each in found] == [str(deep / "found.gguf")]
        near = await find_models([tmp_path / "deep", late], server.url)
        assert str(late / "late.gguf") in [each.what for each in near]


@pytest.mark.anyio
async def test_a_model_of_ollama_is_described_with_the_memory_that_it_will_take() -> None:
    async with ollama_server("qwen2.5:7b") as (double, server):
        silent = await describe_model("qwen2.5:7b", ollama_url=server.url)
        double.shown = SHOWN
        found = await describe_model("qwen2.5:7b", ollama_url=server.url)
        with pytest.raises(Unavailable, match=r"has no model 'qwen2\.5:14b'"):
            await describe_model("qwen2.5:14b", ollama_url=server.url)
        with pytest.raises(Invalid, match="is Ollama, whose /v1 silently truncates prompts"):
            await describe_model(f"{server.url}/v1")
    fields = {"driver": "ollama", "url": server.url, "context": 4096, "parallel": 4, "footprint_mib": found.mib}
    assert (found.name, found.fields) == ("qwen2.5:7b", fields)
    assert (silent.mib, silent.fields) == (0, {"driver": "ollama", "url": server.url, "context": 4096, "parallel": 4})
    assert SIZE / 2**20 < found.mib < 2 * SIZE / 2**20
    with pytest.raises(Unavailable, match="no Ollama at"):
        await describe_model("qwen2.5:7b", ollama_url=server.url)


@pytest.mark.anyio
async def test_a_file_is_described_by_its_header(tmp_path: Path) -> None:
    found = await describe_model(str(MODELS / "rules-generator-f16.gguf"))
    assert (found.name, found.fields["driver"], found.fields["context"]) == ("rules-generator-f16", "process", 2048)
    assert found.mib == found.fields["footprint_mib"] > 0
    (tmp_path / "not.gguf").write_text("no model")
    for wrong in (tmp_path / "not.gguf", tmp_path / "missing.gguf"):
        with pytest.raises(Invalid, match="is not the GGUF file of a language model"):
            await describe_model(str(wrong))


def respond_with(models: Any) -> Any:
    def respond(request: Seen) -> Reply:
        if request.path != "/v1/models":
            return Reply(status=404, body=b"")
        return as_json(models)

    return respond


@pytest.mark.anyio
async def test_the_model_of_an_address_is_chosen_among_those_that_it_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", "secret")
    two = {"data": [{"id": "small"}, {"id": "large"}]}
    async with chat_server(respond_with(two)) as server:
        url = f"{server.url}/v1"
        found = await describe_model(f"{url}/", served="large", api_key_env="BIG_KEY")
        fields: Mapping[str, Any] = {"driver": "remote", "url": url, "parallel": 4, "api_key_env": "BIG_KEY"}
        assert (found.name, found.fields, found.mib) == ("large", fields, 0)
        with pytest.raises(Invalid, match="has 2 models; name one of them") as refused:
            await describe_model(url)
        assert refused.value.hint == "it has small, large"
        with pytest.raises(Invalid, match="has no model 'larg'"):
            await describe_model(url, served="larg")
    async with chat_server(respond_with({"data": [{"id": "only"}]})) as server:
        assert (await describe_model(f"{server.url}/v1")).name == "only"
        with pytest.raises(Unavailable, match="no OpenAI-compatible server answers at"):
            await describe_model(server.url)
    async with chat_server(respond_with(["what"])) as server:
        with pytest.raises(Invalid, match="does not list models"):
            await describe_model(f"{server.url}/v1")
    with pytest.raises(Unavailable, match="no OpenAI-compatible server answers at"):
        await describe_model(f"{server.url}/v1")
    with pytest.raises(Unavailable, match="NO_KEY is not set"):
        await describe_model("http://127.0.0.1:1/v1", api_key_env="NO_KEY")
    with pytest.raises(Invalid, match="is not an address"):
        await describe_model("qwen2.5:7b", served="x")


def test_a_field_of_a_model_is_changed_and_all_else_is_kept() -> None:
    text = "# mine\nmodels:\n  a: {driver: scripted, parallel: 2}  # judge\n  b:\n    driver: scripted\nport: 1\n"
    settings = settings_of(text)
    one = change_model(text, "a", {"parallel": 8}, settings)
    assert one == text.replace("parallel: 2", "parallel: 8")
    both = yaml.safe_load(change_model(one, "b", {"parallel": 4, "footprint_mib": 9}, settings))
    assert both["models"]["b"] == {"driver": "scripted", "parallel": 4, "footprint_mib": 9}
    assert both["models"]["a"]["parallel"] == 8


def test_a_file_without_models_gets_the_shipped_ones_with_the_change() -> None:
    text = change_model("port: 1\n", "world-judge", {"parallel": 4}, Settings())
    changed = settings_of(text)
    assert changed.models["world-judge"].parallel == 4
    assert changed.models == {**Settings().models, "world-judge": changed.models["world-judge"]}
    assert changed.port == 1
