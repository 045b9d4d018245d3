"""The version of what the program itself answers stands for its answers, which are recorded."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from shared import canonical
from shared.calls import MATHEMATICAL, Amie, Rules, TLogic
from shared.mathtext import equations, mathematics
from shared.rag.grading import GRADERS, TEXT_VERSION, Grader, InvalidGold, mark
from shared.replies import Rule
from shared.rules import MINERS_VERSION
from shared.rules.miners import mine
from tests import golden
from tests.unit.shared.rules.test_tlogic import draw_quads, make_graph

REPLIES = {
    r"So \boxed{\frac{1}{2}}.": "0.5",
    r"The answer is $x = 3$.": "3",
    r"\boxed{x^2 - 1}": "(x-1)(x+1)",
    r"\boxed{(1, 2]}": "(1,2]",
    r"\boxed{50\%}": "0.5",
    r"\boxed{1,000}": "1000",
    "#### 18 apples": "18",
    "2 + 3 = 5 and then 7": "7",
    "<think>5</think>": "5",
    "答案是 18。": "18",
    "Answer: Paris, Rome": "Rome and Paris",
    "The answer is the Eiffel Tower.": "Eiffel tower",
    "It is in Paris, France.": "paris",
    "I choose B, since it fits.": "B",
    "": "5",
}
"""Gold answers by reply."""
TEXTS = {
    "So 3+4=7, so 2*5=11.",
    r"\[2\cdot 3 = 6 = 7 - 1\]",
    r"$(x+1)^2 = x^2 + 2x + 1$ and $x^2 = 4$",
    r"$i^2 = -1$ and $\sqrt{2} \approx 1.414$",
    r"$\frac{1}{3} = 0.33$, which is 33\% = 0.33",
    "2 加 3 等于 5，即 $2+3=5$。",
    "Monday = the first day.",
}
GRAPH = make_graph(draw_quads(1, 60))
MININGS = (
    Amie(min_support=1, min_head_facts=1),
    TLogic(walks=20, samples=20),
    TLogic(exact=True, transition="uniform"),
)


def grade(grader: Grader, reply: str, gold: str) -> str:
    """The answer that the grader finds in the reply, and its verdict."""
    answer = grader.extract(reply).answer
    if grader.mark is None:
        return f"{answer}"
    try:
        verdict = mark(answer, gold, Rules(grader=grader.name, choices=("Rome", "Paris")))
    except InvalidGold as error:
        return f"{answer}: {error}"
    return f"{answer}: correct {verdict.correct}, strict {verdict.strict}, score {verdict.score}"


def summarise(rules: Sequence[Rule]) -> str:
    """The first rules and the hash of all, in which floats are rounded: processors differ in the last digits."""
    lines = [f"{each.head} <- {each.body}: {each.support}/{each.body_size}, {each.confidence:.6g}" for each in rules]
    return "; ".join([*lines[:2], f"{len(lines)} rules {canonical.digest(lines).hex()[:12]}"])


def record() -> dict[str, Any]:
    graded = {
        name: {
            "version": mathematics.VERSION if name in MATHEMATICAL else TEXT_VERSION,
            "outcomes": {f"{reply} = {gold}": grade(grader, reply, gold) for reply, gold in REPLIES.items()},
        }
        for name, grader in GRADERS.items()
    }
    verified = {text: str(equations.verify(text)) for text in sorted(TEXTS)}
    mined = {msgspec.json.encode(mining).decode(): summarise(mine(GRAPH, "r0", mining)) for mining in MININGS}
    return {
        **graded,
        "verifier": {"version": equations.VERSION, "outcomes": verified},
        "miners": {"version": MINERS_VERSION, "outcomes": mined},
    }


def test_graders_verifier_and_miners_answer_what_their_versions_did() -> None:
    found = record()
    recorded = json.loads((golden.FOLDER / "outcomes.json").read_text("utf-8"))
    changed = sorted(
        name
        for name, each in found.items()
        if name in recorded and each["version"] == recorded[name]["version"] and each != recorded[name]
    )
    assert not changed, f"raise the version of {', '.join(changed)}"
    golden.compare("outcomes.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
