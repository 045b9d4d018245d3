"""The double of Ollama answers as the real server was recorded to: each exchange is replayed against it, in order.

Compared are status, form, the words of errors, why an answer ended, and which manifest `/api/tags` and `/api/ps` name;
texts, times and counts are the model's and the machine's.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from shared.settings import REPOSITORY
from tests.doubles.chat_server import Reply, Seen
from tests.doubles.ollama_models import Manifest
from tests.doubles.ollama_server import Ollama
from tests.unit.cases import named

pytestmark = pytest.mark.anyio

RECORDED = REPOSITORY / "tests" / "recorded" / "ollama-0.33.0-rc2.jsonl"
HEAD, *EXCHANGES = [json.loads(line) for line in RECORDED.read_text().splitlines()]
FIRST = Manifest("generator", template="<|im_start|>user\n{{ .System }}{{ .Prompt }}<|im_end|>")
LISTS = ("/api/tags", "/api/ps")
LONG = "one two three four five six seven eight nine ten " * 3


def answer(prompt: str) -> str:
    return "8 " + "= " * 40 if "= = =" in prompt else LONG


def create_with_a_system_text(double: Ollama) -> None:
    double.create("generator:latest", system="You are a careful calculator that explains each step that it takes.")


def create_as_before(double: Ollama) -> None:
    double.put("generator:latest", FIRST)


def die_under_the_next(double: Ollama) -> None:
    double.wrong.left["die"] = 1


BEFORE: dict[str, Callable[[Ollama], None]] = {
    "tags, the tag was created again with another SYSTEM while loaded": create_with_a_system_text,
    "chat, back": create_as_before,
    "chat, created again": create_as_before,
    "chat, the runner is killed under it": die_under_the_next,
}
"""What was done on the real server before these exchanges."""


@pytest.fixture(scope="module")
def replies() -> dict[str, Reply]:
    double = Ollama(version="0.33.0-rc2", most=1, answer=answer)
    double.put("generator:latest", FIRST)
    double.put("judge:latest", Manifest("judge"))
    found = {}
    for exchange in EXCHANGES:
        BEFORE.get(exchange["name"], lambda _: None)(double)
        request = exchange["request"]
        body = json.dumps(request.get("body")).encode()
        found[exchange["name"]] = double.respond(Seen(request["method"], request["path"], {}, body))
    return found


def form(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: form(each) for name, each in value.items()}
    if isinstance(value, list):
        return [form(each) for each in value[:1]]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def lines(reply: Reply) -> list[str]:
    return reply.body.decode().splitlines()


def kind(content_type: str | None) -> str | None:
    return content_type.partition(";")[0] if content_type else None


def words(document: dict[str, Any]) -> str:
    return re.sub(r"\d+", "N", document.get("error", ""))


def ended(document: dict[str, Any]) -> tuple[object, object]:
    return document.get("done"), document.get("done_reason")


def differences(exchange: dict[str, Any], reply: Reply) -> list[str]:
    recorded = exchange["response"]
    status, content_type = reply.status, kind(reply.headers.get("Content-Type"))
    found = [] if status == recorded["status"] else [f"status {status}, not {recorded['status']}"]
    if content_type != kind(recorded["content_type"]):
        found.append(f"type {content_type}, not {recorded['content_type']}")
    said, theirs = lines(reply), recorded["lines"]
    if content_type == "text/plain" or not (said and theirs):
        return found if said == theirs else [*found, f"lines {said}, not {theirs}"]
    ends = zip(said[:1] + said[-1:], theirs[:1] + theirs[-1:], strict=True)
    return [*found, *(f"{mine}, not {their}" for mine, their in ends if not alike(exchange["name"], mine, their))]


def alike(name: str, mine: str, theirs: str) -> bool:
    my, their = json.loads(mine), json.loads(theirs)
    if (words(my), ended(my)) != (words(their), ended(their)):
        return False
    return name == "show" or form(my) == form(their) or "logprobs" in their


def test_the_double_answers_as_the_server_did(replies: dict[str, Reply]) -> None:
    found = {each["name"]: named(differences, each, replies[each["name"]]) for each in EXCHANGES}
    assert {name: different for name, different in found.items() if different} == {}


def test_show_names_what_a_footprint_and_an_identity_follow_from(replies: dict[str, Reply]) -> None:
    recorded = next(each for each in EXCHANGES if each["name"] == "show")
    mine, theirs = json.loads(replies["show"].body), json.loads(recorded["response"]["lines"][0])
    assert mine.keys() == theirs.keys()
    assert form(mine["details"]) == form(theirs["details"])


def manifests(responses: dict[str, dict[str, Any]]) -> list[str]:
    letters: dict[str, str] = {}
    found = []
    for exchange in EXCHANGES:
        if exchange["request"]["path"] in LISTS:
            models = responses[exchange["name"]]["models"]
            digest = next((each["digest"] for each in models if each["name"] == "generator:latest"), None)
            found.append(letters.setdefault(digest, "abc"[len(letters)]) if digest else "-")
    return found


def test_lists_name_the_manifests_that_the_server_named(replies: dict[str, Reply]) -> None:
    looks = [each for each in EXCHANGES if each["request"]["path"] in LISTS]
    recorded = {each["name"]: json.loads(each["response"]["lines"][0]) for each in looks}
    mine = {name: json.loads(replies[name].body) for name in recorded}
    assert manifests(mine) == manifests(recorded)
    assert "b" in manifests(recorded)


def loads_and_prompts(responses: dict[str, list[str]]) -> dict[str, tuple[bool, bool]]:
    last = {name: json.loads(said[-1]) for name, said in responses.items()}
    figures = {name: each for name, each in last.items() if "load_duration" in each}
    first = figures["chat, first"]["prompt_eval_count"]
    return {
        name: (each["load_duration"] > 200_000_000, each["prompt_eval_count"] > first)
        for name, each in figures.items()
    }  # fmt: skip


def test_the_same_calls_wait_for_a_load_and_are_given_a_longer_prompt(replies: dict[str, Reply]) -> None:
    chats = [each for each in EXCHANGES if each["request"]["path"] == "/api/chat" and each["response"]["lines"]]
    recorded = loads_and_prompts({each["name"]: each["response"]["lines"] for each in chats})
    assert loads_and_prompts({each["name"]: lines(replies[each["name"]]) for each in chats}) == recorded
    assert recorded["chat, the same moment: more prompt tokens than before"] == (False, True)


def test_a_repetition_is_stopped_at_the_same_token(replies: dict[str, Reply]) -> None:
    name = "chat, a token 31 times: stopped, done false, no reason"
    recorded = next(each["response"]["lines"] for each in EXCHANGES if each["name"] == name)
    for said in (recorded, lines(replies[name])):
        tokens = [json.loads(line)["message"]["content"].strip() for line in said]
        assert len(set(tokens[-31:])) == 1
        assert tokens[-32] != tokens[-1]


def test_the_recording_says_what_was_recorded_and_when() -> None:
    assert HEAD["server"].startswith("Ollama 0.33.0-rc2")
    assert HEAD["recorded"] == "2026-11-22"
