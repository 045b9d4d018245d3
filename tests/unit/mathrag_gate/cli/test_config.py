"""Settings: what may be set, where what is wrong stands, what holds, and where the data folder is."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from mathrag.cli.output import Exit
from mathrag.client.address import configured_data_dir
from mathrag.errors import Unavailable
from mathrag_gate.cli.config import schema
from mathrag_gate.cli.config_findings import OTHERS, find_unknown_variables, list_variables
from shared.settings import REPOSITORY, Settings, load
from tests.unit.cases import named
from tests.unit.commands import Server, mathrag, refuses, says

# Settings: what may be set, where what is wrong stands, and what holds.

EXAMPLE = REPOSITORY / "mathrag.example.yaml"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mathrag.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MATHRAG_CONFIG", "")  # a command sets it; after the test it is as it was
    monkeypatch.delenv("MATHRAG_CONFIG")


def written(folder: Path, text: str) -> str:
    (folder / "mathrag.yaml").write_text(text)
    return str(folder / "mathrag.yaml")


def test_the_committed_schema_is_the_codes() -> None:
    assert (REPOSITORY / "config-schema.json").read_text("utf-8") == mathrag("config", "schema").stdout


def test_the_schema_explains_what_the_code_explains() -> None:
    found = msgspec.json.decode(schema())
    assert "commit" in found["properties"]["commit"]["description"]
    assert str(REPOSITORY) not in schema()


def test_the_example_is_valid_and_says_the_defaults() -> None:
    assert mathrag("config", "validate", str(EXAMPLE)).exit_code == 0
    given = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    defaults = Settings().model_dump(mode="json")
    assert merged(defaults, given) == defaults


def merged(values: Any, others: Any) -> Any:
    if not isinstance(others, dict):
        return others
    return {**values, **{name: merged(values[name], value) for name, value in others.items()}}


def test_the_example_names_its_schema() -> None:
    first = EXAMPLE.read_text("utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=config-schema.json"
    assert (REPOSITORY / "config-schema.json").exists()


def test_what_is_commented_out_in_the_example_is_valid_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)  # its paths are relative
    text = re.sub(r"^( *)#(?! \S|$)", r"\1", EXAMPLE.read_text("utf-8"), flags=re.MULTILINE)
    shown = yaml.safe_load(text)
    assert set(shown) == set(Settings.model_fields)
    assert {"qwen", "big-qwen", "small-qwen", "big", "world-judge"} <= set(shown["models"])
    found = msgspec.json.decode(mathrag("config", "validate", written(tmp_path, text), "--json").stdout)
    assert {finding["key"] for finding in found["findings"]} == {"models.qwen.path"}


@pytest.mark.parametrize(("text", "said"), [
    ("port: 1\ndevise: {}\n", ("line 2: `devise`", "did you mean device?")),
    ("device:\n  id: x\n  budgt_mib: 3\n", ("line 3: `device.budgt_mib`", "device.budget_mib")),
    ("port: many\n", ("line 1: `port`: input should be a valid integer", "config schema")),
    ("models:\n  m:\n    driver: proces\n", ("line 3: `models.m.driver`", "'process'")),
    ("devices:\n- id: b\n- id: c\n  budgt_mib: 3\n", ("line 4: `devices.1.budgt_mib`", "device.budget_mib")),
    ("devices: [{id: b}, {id: b}]\n", ("two devices have the id 'b'", "correct the value")),
    ("a: [1\nb: 2\n", ("line 2, column 2", "expected")),
    ("- 1\n", ("line 1: must be a mapping of keys to values", "mathrag.example.yaml")),
])  # fmt: skip
def test_what_is_wrong_in_the_file_is_said_with_line_key_and_fix(
    tmp_path: Path, text: str, said: tuple[str, ...]
) -> None:
    ended = mathrag("config", "validate", written(tmp_path, text))
    assert ended.exit_code == Exit.INVALID
    assert all(words in ended.stdout for words in said), ended.stdout


@pytest.mark.parametrize(("name", "near"), [
    ("MATHRAG_PROT", "MATHRAG_PORT"), ("MATHRAG_WORKERS__CHNUK", "workers.chunk"), ("MATHRAG_ULR", "MATHRAG_URL"),
    ("MATHRAG_WORKERS_CHUNK", "MATHRAG_WORKERS__CHUNK"),
])  # fmt: skip
def test_a_misspelt_variable_is_found_once_with_what_was_meant(
    monkeypatch: pytest.MonkeyPatch, name: str, near: str
) -> None:
    monkeypatch.setenv(name, "3")
    found = msgspec.json.decode(mathrag("config", "validate", "--json").stdout)
    assert [finding["where"] for finding in found["findings"]] == [name]
    assert near in found["findings"][0]["fix"]


def test_variables_of_other_programs_and_of_single_models_are_none_of_our_business() -> None:
    assert not find_unknown_variables({"PATH": "", "MATHRAG_MODELS__QWEN__PATH": "x", "MATHRAG_ROLES__JUDGE": "y"})


def test_every_variable_that_the_repository_names_is_known() -> None:
    files = [
        REPOSITORY / name for name in ("docker-compose.yml", "Dockerfile", "Makefile", "docs/how-to/operations.md")
    ]
    named = {name for file in files for name in re.findall(r"\bMATHRAG_[A-Z_]*[A-Z]\b", file.read_text("utf-8"))}
    assert named
    assert not [name for name in sorted(named) if find_unknown_variables({name: ""})]
    assert not OTHERS & set(list_variables(Settings))


def test_a_value_that_is_wrong_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHRAG_PORT", "hunter2")
    assert "hunter2" not in mathrag("config", "validate").output


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert mathrag("config", "validate", str(tmp_path / "no.yaml")).exit_code == Exit.NOT_FOUND
    assert mathrag("config", "validate").exit_code == 0


def test_what_holds_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHRAG_SERVICE_KEY", "hunter2")
    monkeypatch.setenv("MATHRAG_DATABASE_URL", "postgresql+asyncpg://u:hunter2@h/d")
    monkeypatch.setenv("MATHRAG_RETRIEVER_URL", "http://u:hunter2@h:1")
    shown = mathrag("config").stdout
    assert "hunter2" not in shown
    assert yaml.safe_load(shown)["retriever_url"] == "http://u:***@h:1"
    found = msgspec.json.decode(mathrag("config", "show", "--json").stdout)
    assert (found["service_key"], found["port"]) == ("***", 8080)


def test_a_model_that_fits_on_no_device_is_found(tmp_path: Path) -> None:
    text = "devices: [{id: b}]\nmodels:\n  m: {driver: scripted, footprint_mib: 9000}\n"
    ended = mathrag("config", "validate", written(tmp_path, text))
    assert ended.exit_code == Exit.INVALID
    assert "line 3: `models.m`: declares 9000 MiB" in ended.stdout, ended.stdout
    assert "footprint_mib" in ended.stdout


def test_an_unknown_device_is_found(tmp_path: Path) -> None:
    text = "models:\n  m: {driver: scripted, device: gone}\n"
    ended = mathrag("config", "validate", written(tmp_path, text))
    assert ended.exit_code == Exit.INVALID
    assert "`models.m.device`: unknown device 'gone'; choose one of cpu:0" in ended.stdout, ended.stdout


CHANGED = {
    "version": 2, "params": {"crag": {"upper": 0.8}, "enhance": {"terms": {"gcd": ["largest"]}}},
    "changed_by": "alice", "changed_at": "2026-11-21T08:00:00Z",
}  # fmt: skip


def test_what_is_changed_while_all_runs_is_one_patch(server: Server) -> None:
    requests = server(says(CHANGED))
    ended = mathrag("config", "set", "crag.upper=0.8", 'enhance.terms={"gcd": ["largest"]}', "seed=null")
    (request,) = requests
    assert (request.method, request.url.path, request.headers["if-match"]) == ("PATCH", "/v1/configuration", "*")
    assert msgspec.json.decode(request.content) == {"params": {**CHANGED["params"], "seed": None}}  # type: ignore[dict-item]
    assert "version 2" in ended.stdout


def test_a_change_can_be_shown_and_must_be_one(server: Server) -> None:
    requests = server(says(CHANGED))
    shown = msgspec.json.decode(mathrag("config", "set", "seed=1", "--dry-run").stdout)
    assert (shown["method"], shown["body"]) == ("PATCH", {"params": {"seed": 1}})
    assert mathrag("config", "set", "seed").exit_code == Exit.USAGE
    assert mathrag("config", "set").exit_code == Exit.USAGE
    assert not requests


def test_a_refused_change_exits_like_a_refused_job(server: Server) -> None:
    server(refuses(422, "invalid", "`params.seed`: expected `int`, got `str`"))
    ended = mathrag("config", "set", "seed=x")
    assert (ended.exit_code, "`params.seed`" in ended.stderr) == (Exit.INVALID, True)


def test_versions_are_listed_with_what_they_hold(server: Server) -> None:
    server(says({"data": [CHANGED], "next_cursor": None}))
    line = mathrag("config", "history").stdout.splitlines()[1]
    assert line.split() == ["2", CHANGED["changed_at"], "alice", "crag.upper=0.8", 'enhance.terms.gcd=["largest"]']
    assert msgspec.json.decode(mathrag("config", "history", "--json").stdout) == [CHANGED]
    server(says({"data": [], "next_cursor": None}))
    assert "config set" in mathrag("config", "history").stdout


def test_show_tells_settings_and_configuration(server: Server) -> None:
    server(says(CHANGED))
    assert yaml.safe_load(mathrag("config", "show").stdout)["configuration"]["version"] == 2
    assert msgspec.json.decode(mathrag("config", "show", "--json").stdout)["configuration"] == CHANGED
    server(refuses(401, "unauthorized", "an API key is required"))
    shown = mathrag("config", "show").stdout
    assert yaml.safe_load(shown)["port"] == 8080
    assert "# configuration: an API key is required" in shown
    assert msgspec.json.decode(mathrag("config", "show", "--json").stdout)["configuration"] is None


@pytest.mark.parametrize(("text", "key", "fix"), [
    ("roles: {judge: world-jugde}\n", "roles.judge", "did you mean 'world-judge'?"),
    ("roles: {generate: zzz}\n", "roles.generate", "configured models are label-judge, world-generator, world-judge"),
    ("models: {m: {driver: process, path: /nowhere/m.gguf}}\nroles: {judge: m, generate: m}\n",
     "models.m.path", "ls -l /nowhere"),
    ("retrieval: {reranker: {kind: gguf, path: /nowhere/r.gguf}}\n", "retrieval.reranker.path", "ls -l /nowhere"),
])  # fmt: skip
def test_what_is_named_and_not_there_is_found_with_its_line(tmp_path: Path, text: str, key: str, fix: str) -> None:
    ended = mathrag("config", "validate", written(tmp_path, text), "--json")
    (found,) = msgspec.json.decode(ended.stdout)["findings"]
    assert (ended.exit_code, found["key"]) == (Exit.INVALID, key)
    assert ", line " in found["where"]
    assert fix in found["fix"]


def test_a_variable_that_names_no_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHRAG_CONFIG", str(tmp_path / "none.yaml"))
    ended = mathrag("config", "validate")
    assert ended.exit_code == Exit.INVALID
    assert "MATHRAG_CONFIG: the file `" in ended.stdout
    assert "cp mathrag.example.yaml" in ended.stdout


# The data folder is found without checking all settings, and is the one that they name.


def test_a_settings_file_that_is_missing_is_not_shown_as_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATHRAG_CONFIG", str(tmp_path / "none.yaml"))
    ended = mathrag("config", "show")
    assert ended.exit_code == Exit.NOT_FOUND
    assert ended.stderr.startswith("error: MATHRAG_CONFIG: the file `")
    assert "  fix: correct the path" in ended.stderr


def folders(text: str | None, variables: dict[str, str]) -> tuple[Path, Path]:
    Path("mathrag.yaml").unlink(missing_ok=True)
    if text is not None:
        Path("mathrag.yaml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return configured_data_dir(), load().data_dir


def test_it_is_the_folder_of_the_settings() -> None:
    texts = [
        None,
        "",
        "port: 81\n",
        "data_dir: elsewhere\n",
        "{data_dir: /a/b, port: 81}",
        '"data_dir": "x y"\nport: 1\n',
    ]
    settings = [
        {},
        {"MATHRAG_DATA_DIR": "here"},
        {"mathrag_data_dir": "small"},
        {"MATHRAG_DATA_DIR": ""},
        {"MATHRAG_PORT": "82"},
    ]
    found = {(text, str(variables)): named(folders, text, variables) for text, variables in product(texts, settings)}
    assert {case: (ours, theirs) for case, (ours, theirs) in found.items() if ours != theirs} == {}


def test_a_file_that_the_environment_names_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mathrag.yaml").write_text("data_dir: one\n")
    Path("other.yaml").write_text("data_dir: other\n")
    monkeypatch.setenv("MATHRAG_CONFIG", "other.yaml")
    assert configured_data_dir() == load().data_dir == Path("other")


def test_a_secret_file_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "mathrag_data_dir").write_text("hidden")
    monkeypatch.setenv("MATHRAG_SECRETS_DIR", str(tmp_path / "secrets"))
    assert configured_data_dir() == load().data_dir == Path("hidden")
    monkeypatch.setenv("MATHRAG_SECRETS_DIR", str(tmp_path / "none"))
    with pytest.raises(Unavailable):
        configured_data_dir()


@pytest.mark.parametrize("text", ["data_dir: [1]\n", "data_dir: 7\n", "data_dir: {\n", "- data_dir\n"])
def test_what_is_no_folder_is_refused_as_the_settings_refuse_it(text: str) -> None:
    Path("mathrag.yaml").write_text(text)
    with pytest.raises(Exception) as ours:  # noqa: PT011 - the same as the other one
        configured_data_dir()
    with pytest.raises(type(ours.value)) as theirs:
        load()
    assert str(ours.value) == str(theirs.value)
