from pathlib import Path
from typing import Any

import pytest

from shared.models import commands
from shared.models.commands import LLAMA, PROGRAMS, TGI, VLLM, VLLM_SLEEP, Launch, LaunchRequest, find_warning
from shared.settings import Model
from tests.unit.cases import named

# Command lines of model servers: what the guard says, what the operator may say, and how their own words are read.


KEY = "a-secret-key"
SHA = "0123456789abcdef0123456789abcdef01234567"
FOLDER = Path("/models/qwen")


def model(server: str, **fields: Any) -> Model:
    return Model(driver="process", server=server, **({"path": FOLDER} | fields))  # type: ignore[arg-type]


def launch(of: Model, parallel: int = 4) -> Launch:
    return commands.build_launch(LaunchRequest("judge", of, parallel), port=4001, spare=4002, key=KEY)


def told(arguments: tuple[str, ...], flag: str) -> str:
    assert arguments.count(flag) == 1
    return arguments[arguments.index(flag) + 1]


def test_llama_server_gets_a_context_for_each_of_its_slots() -> None:
    arguments, _ = launch(model("llama.cpp", path="/m.gguf", context=2048, threads=3))
    assert arguments[0] == "llama-server"
    said = {flag: told(arguments, flag) for flag in ("--model", "--ctx-size", "--parallel", "--threads", "--alias")}
    assert said == {"--model": "/m.gguf", "--ctx-size": "8192", "--parallel": "4", "--threads": "3", "--alias": "judge"}
    assert "--no-context-shift" in arguments


def test_tgi_gets_a_context_that_prompt_and_answer_share() -> None:
    arguments, environment = launch(model("tgi", hub="Qwen/Q", path=None, revision=SHA, context=2048))
    flags = ("--model-id", "--revision", "--max-total-tokens", "--max-input-tokens", "--max-concurrent-requests")
    assert [told(arguments, flag) for flag in flags] == ["Qwen/Q", SHA, "2048", "2047", "4"]
    assert environment["PREFIX_CACHING"] == "0"


def test_two_tgi_servers_share_neither_sockets_nor_ports() -> None:
    arguments, _ = launch(model("tgi"))
    assert told(arguments, "--master-port") == "4002"
    assert "4001" in told(arguments, "--shard-uds-path")


def test_vllm_serves_under_our_name_and_takes_no_sampling_from_the_models_folder() -> None:
    arguments, _ = launch(model("vllm", context=2048))
    assert arguments[:3] == ("vllm", "serve", str(FOLDER))
    flags = ("--served-model-name", "--max-model-len", "--max-num-seqs", "--generation-config", "--seed")
    assert [told(arguments, flag) for flag in flags] == ["judge", "2048", "4", "vllm", "0"]
    assert "--enable-sleep-mode" not in arguments


def test_a_deterministic_llama_server_keeps_no_prompt() -> None:
    assert "--no-cache-prompt" in launch(model("llama.cpp", deterministic=True)).arguments
    assert "--no-cache-prompt" not in launch(model("llama.cpp")).arguments


@pytest.mark.parametrize(
    "of",
    [model("vllm", deterministic=True), Model(driver="vllm-sleep", path=FOLDER, deterministic=True)],
    ids=["vllm", "vllm-sleep"],
)
def test_a_deterministic_vllm_has_batch_invariant_kernels(of: Model) -> None:
    assert launch(of).environment["VLLM_BATCH_INVARIANT"] == "1"
    assert "VLLM_BATCH_INVARIANT" not in launch(of.model_copy(update={"deterministic": False})).environment
    assert commands.deterministic_options(of)["deterministic"] is True


@pytest.mark.parametrize(("version", "refused"), [("0.11.0", True), ("0.11.1", False), ("0.20.0rc1", False)])
def test_a_vllm_without_batch_invariant_kernels_is_not_taken_for_deterministic(version: str, *, refused: bool) -> None:
    page = {"data": [CARD], "version": version}
    asked = LaunchRequest("judge", model("vllm", path=Path("/models/qwen"), context=2048, deterministic=True), 4)
    found = VLLM.find_misfit(page, asked)
    assert (found == f"is vLLM {version}, which cannot be `deterministic`; install 0.11.1 or later") is refused
    assert (found is None) is not refused


def test_sleep_mode_is_switched_on_twice() -> None:
    arguments, environment = launch(Model(driver="vllm-sleep", path=FOLDER))
    assert "--enable-sleep-mode" in arguments
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"


@pytest.mark.parametrize(
    "of", [*(model(name) for name in PROGRAMS), Model(driver="vllm-sleep", path=FOLDER)], ids=[*PROGRAMS, "vllm-sleep"]
)
def test_every_program_listens_on_loopback_alone_with_a_key_that_no_process_list_shows(of: Model) -> None:
    arguments, environment = launch(of)
    assert "127.0.0.1" in arguments
    assert told(arguments, "--port") == "4001"
    assert KEY in environment.values()
    assert KEY not in " ".join(arguments)
    assert not any("{" in each for each in arguments)


def test_an_operators_command_comes_first_and_its_arguments_stay() -> None:
    of = model("tgi", command=("/opt/launcher", "--quantize", "eetq"))
    assert launch(of).arguments[:4] == (*of.command, "--model-id")


@pytest.mark.parametrize("fields", [{"driver": "process", "server": "vllm"}, {"driver": "vllm-sleep"}])
def test_vllm_gets_its_model_before_any_argument(fields: dict[str, Any]) -> None:
    of = Model(path=FOLDER, command=("/opt/vllm", "serve", "--gpu-memory-utilization", "0.4"), **fields)
    assert launch(of).arguments[:5] == ("/opt/vllm", "serve", str(FOLDER), "--gpu-memory-utilization", "0.4")


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("vllm",), "must begin with the program, followed by `serve`"),
        (("vllm", "--dtype", "half"), "must begin with the program, followed by `serve`"),
        (
            ("vllm", "serve", "Qwen/Q", "--dtype", "half"),
            "must not contain the model 'Qwen/Q': the guard adds it after `serve`",
        ),
    ],
)
def test_a_vllm_command_has_room_for_the_model_behind_serve(command: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        commands.select_program(model("vllm", command=command))


def refusal(server: str, given: str) -> str:
    try:
        commands.select_program(model(server, command=(*PROGRAMS[server].command, given)))
    except ValueError as refused:
        return str(refused)
    return "(nothing)"


def test_what_the_guard_says_nobody_else_says() -> None:
    cases = [
        ("llama.cpp", "--ctx-size"),
        ("tgi", "--max-total-tokens=99"),
        ("vllm", "--api-key=secret"),
        ("vllm", "--revision"),
        ("tgi", "--hostname"),
        *(("llama.cpp", each) for each in ("-m", "-a", "-c", "-np", "-t", "-cram", "--ctx_size", "--context-shift")),
        *(("llama.cpp", each) for each in ("--webui", "--ui", "--no-ui")),
        *(("vllm", each) for each in ("--max_model_len", "--model", "--enable-prefix-caching", "--config=a.yaml")),
        *(("tgi", each) for each in ("-p", "--max-input-length=9")),
    ]
    said = {(server, given): named(refusal, server, given) for server, given in cases}
    assert {
        case: words
        for case, words in said.items()
        if f"`command` must not contain {case[1].partition('=')[0].replace('_', '-')}: the guard sets it" not in words
    } == {}


def test_a_deterministic_llama_server_is_told_nothing_of_its_prompt_cache() -> None:
    command = ("llama-server", "--cache-prompt")
    assert commands.select_program(model("llama.cpp", command=command)) is LLAMA
    with pytest.raises(ValueError, match="must not contain --cache-prompt: the guard sets it"):
        commands.select_program(model("llama.cpp", command=command, deterministic=True))


@pytest.mark.parametrize(("server", "fix"), [("llama.cpp", "needs a `path`$"), ("tgi", "a `path` or a `hub`")])
def test_a_model_without_weights_is_refused_with_the_fix(server: str, fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        commands.select_program(model(server, path=None))


PROPS = {"model_path": "/models/qwen", "total_slots": 4, "default_generation_settings": {"n_ctx": 2048}}
INFO = {"model_id": "/models/qwen", "model_sha": SHA, "max_total_tokens": 2048}
CARD = {"id": "judge", "root": "/models/qwen", "max_model_len": 2048}


def test_a_server_that_is_not_what_was_asked_for_is_found_out() -> None:
    cases = [
        (LLAMA, PROPS, None),
        (LLAMA, PROPS | {"default_generation_settings": {"n_ctx": 2304}}, None),  # it rounds up
        (LLAMA, PROPS | {"default_generation_settings": {"n_ctx": 1024}}, "a context of 1024, not 2048"),
        (LLAMA, PROPS | {"total_slots": 1}, "has 1 slots, not 4"),
        (LLAMA, PROPS | {"model_path": "/other.gguf"}, "serves /other.gguf"),
        (TGI, INFO, None),
        (TGI, INFO | {"model_id": "gpt2"}, "serves gpt2"),
        (TGI, INFO | {"model_sha": "f" * 40}, "serves revision ffff"),
        (TGI, INFO | {"model_sha": None}, "reports no revision, as it could not reach the hub; remove `revision`"),
        (TGI, INFO | {"max_total_tokens": 1024}, "set `context`"),
        (VLLM, {"data": [CARD]}, None),
        (VLLM, {"data": [CARD | {"root": "gpt2"}]}, "serves gpt2 as judge"),
        (VLLM, {"data": [CARD | {"max_model_len": 1024}]}, "a context of 1024"),
        (VLLM_SLEEP, {"data": [CARD | {"id": "other"}]}, "as other"),
    ]
    asked = LaunchRequest("judge", model("tgi", hub="/models/qwen", path=None, context=2048, revision=SHA), 4)
    wrong = []
    for kind, page, problem in cases:
        found = named(kind.find_misfit, page, asked)
        if found is not None if problem is None else problem not in str(found):
            wrong.append((kind, page, found))
    assert wrong == []


@pytest.mark.parametrize(
    ("kind", "printed", "page"),
    [
        (LLAMA, "version: 6710 (f3de1cc1)\nbuilt with cc for x86_64-linux-gnu\n", {"build_info": "b6710-f3de1cc1"}),
        (LLAMA, "version: 0.6.0 (build 11434, commit ab12)\nbuilt with cc\n", {"build_info": "b11434-ab12"}),
        (TGI, "text-generation-launcher 3.3.6\n", {"version": "3.3.6"}),
        (VLLM, "INFO 11-21 10:00:00 [__init__.py:216] platform cuda\n0.11.0\n", {"version": "0.11.0"}),
        (VLLM, "0.11.1.dev3+gabc\n", {"version": "0.11.1.dev3+gabc"}),
    ],
)
def test_what_is_served_is_the_version_that_is_printed(
    kind: commands.Program, printed: str, page: dict[str, Any]
) -> None:
    found = kind.version_pattern.search(printed)
    assert found is not None
    assert "10:00" not in found[1]
    assert kind.version(page) in found[1]


# Versions of model servers that lose answers are known by whatever they call themselves.


@pytest.mark.parametrize(
    "version",
    ["b10434-7e4c0a9", "10434 (7e4c0a9)", "0.1.0-dev (build 1, commit 7e4c0a9)", "b1-7e4c0a9", "10566 (abcdef0)"],
)
def test_a_version_that_loses_answers_is_warned_of(version: str) -> None:
    said = find_warning("llama.cpp", version)
    assert said is not None
    assert version in said
    assert "install another version" in said


@pytest.mark.parametrize(
    ("backend", "version"),
    [("llama.cpp", "11434 (1234567)"), ("llama.cpp", "b11549-1234567"), ("llama.cpp", ""), ("vllm", "10434")],
)
def test_nothing_is_said_of_other_versions(backend: str, version: str) -> None:
    assert find_warning(backend, version) is None
