"""What the pages show: jobs of all kinds, an experiment, rules, and texts that try to act."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shared.replies import Document
from tests.running import RunningStack, ended

HOSTILE = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\"> \u202eright to left\x07"
)
"""Acts where a page does not escape it."""
QUESTIONS = [
    {"question": f"{HOSTILE} What is $2+3$?", "gold": "5", "subject": HOSTILE, "level": "Level 1"},
    {
        "question": "What is \\(\\href{javascript:alert(1)}{x}\\) of $\\frac{1}{2}$? " + "A" * 20_000,
        "gold": "\\frac{1}{2}",
    },
    {"question": "一加一等于几?", "gold": "2"},
]  # fmt: skip
DOCUMENTS = [
    {"problem": f"{HOSTILE} number {n}", "text": f"{HOSTILE} It is $x^{n}$. " + "long " * 3000} for n in range(12)
]
DOCUMENT_HASH = Document(**DOCUMENTS[0]).hash
FACTS = [
    *({"subject": f"p{n}", "relation": "parent", "object": f"p{n + 1}"} for n in range(30)),
    *({"subject": f"p{n + 1}", "relation": "child", "object": f"p{n}"} for n in range(30)),
]
EXPERIMENT: dict[str, Any] = {
    "name": "grid", "datasets": [{"dataset": "world", "corpus": "world"}], "baseline": "dense",
    "variants": [{"name": "dense", "pipeline": "dense"}, {"name": "sparse", "pipeline": "sparse"}],
    "grid": {"context_size": [1, 3]},
}  # fmt: skip


def furnish(stack: RunningStack, folder: Path) -> None:
    """Everything that a page can show, ended."""
    stack.furnish(folder, items=24)
    upload(stack, "datasets", "hostile", QUESTIONS)
    upload(stack, "corpora", "hostile", DOCUMENTS)
    upload(stack, "graphs", "family", FACTS)
    mined = post(
        stack, "/v1/rules", {"name": "family", "graph": "family", "mining": {"miner": "amie", "min_head_facts": 5}}
    )
    jobs = [
        submit(stack, "gate", repeats=2),
        submit(stack, "dense", pipeline="dense"),
        submit(stack, "closed", pipeline="closed-book", corpus=None),
        submit(stack, "hostile", dataset="hostile", corpus="hostile", pipeline="hybrid", metadata={"said": HOSTILE}),
        submit(stack, "broken", dataset="hostile", corpus="hostile"),  # the judge can make nothing of these documents
        mined["job"],
    ]
    post(stack, "/v1/experiments", EXPERIMENT)
    jobs += [job["id"] for job in stack.get("/v1/jobs?experiment=grid")["data"]]
    for job in jobs:
        stack.wait(job, ended)
    for name, lifetime in (("alice", "90d"), ("bob", "0m")):
        reply = stack.api.post("/keys", data={"name": name, "scope": "read", "lifetime": lifetime})
        assert reply.status_code == 200, reply.text
    post(stack, "/v1/labels/sets", {"name": "blind", "job": "gate", "what": "documents", "size": 15})
    for number in range(1, 13):
        post(stack, f"/v1/labels/sets/blind/tasks/{number}/labels", {"value": 1 + number % 5, "note": HOSTILE[:60]})


def upload(stack: RunningStack, kind: str, name: str, lines: Iterable[Any]) -> None:
    """JSON lines."""
    body = "".join(json.dumps(line) + "\n" for line in lines)
    reply = stack.api.post(f"/v1/{kind}", params={"name": name}, content=body.encode())
    assert reply.status_code == 201, reply.text


def post(stack: RunningStack, path: str, body: Any) -> Any:
    """What the API says to `body`."""
    reply = stack.api.post(path, json=body)
    assert reply.status_code in (201, 202), reply.text
    return reply.json()


def submit(stack: RunningStack, name: str, **fields: Any) -> str:
    """A job of this name over the problem world; its id."""
    body = {"name": name, "dataset": "world", "corpus": "world", "pipeline": "mathrag-gate", **fields}
    return str(post(stack, "/v1/jobs", body)["id"])
