"""Binding: what a call's key depends on, and what it must not depend on."""

import os
import subprocess
import sys
from itertools import product
from typing import Any

import msgspec
import pytest

from shared import canonical
from shared.calls import (
    Call,
    Decoding,
    DocumentRef,
    Embed,
    Estimate,
    Execute,
    Generate,
    Grade,
    Judge,
    Lane,
    Request,
    Rerank,
    Retrieve,
    Verify,
    Write,
    seed_of,
)
from shared.params import Params
from shared.pipelines.binding import Binding, Bound, Pin, RepeatedDraw, SampleBinder, bind
from shared.rag import prompts
from shared.rag.prompts import make_template_reference
from tests.unit.cases import named

ROLES = ("dense", "sparse", "judge", "generate", "grade", "rerank", "embed", "verify", "execute", "estimate")
PINS = {role: Pin(model_id=number, hash=f"{number:064x}") for number, role in enumerate(ROLES)}
DOCUMENT = "ab" * 32
JUDGE = Judge(rubric="reasoning-quality", document=DOCUMENT)
GENERATE = Generate(template="cot", question="What is 1 plus 1?", context=(DOCUMENT,))
RETRIEVE = Retrieve(question="?", index="dense", k=3)
GRADE = Grade(answer="2", gold="2")
VERIFY = Verify(document=DOCUMENT)
EXECUTE = Execute(program="answer = 1")
ESTIMATE = Estimate(question="?")
ALL = [RETRIEVE, JUDGE, GENERATE, GRADE, Rerank(question="?", documents=(DOCUMENT,)), VERIFY, EXECUTE, ESTIMATE]


def bound(call: Call, repeat: int = 0, **fields: Any) -> Bound:
    params = msgspec.convert(fields.pop("params", {}), Params)
    return bind(call, Binding(**{"pins": PINS, "params": params, "job": "job-1", **fields}), repeat)


def request(call: Call, repeat: int = 0, **fields: Any) -> Request:
    return msgspec.json.decode(bound(call, repeat, **fields).body, type=Request)


def stored_digest(made: Bound) -> bytes:
    return canonical.digest(msgspec.json.decode(made.body, type=Request))


KEYS = """
from tests.unit.shared.pipelines.test_binding import ALL, bound
print(*(bound(call, params={"anchors": {"positive": "p", "negative": "n"}}).key.hex() for call in ALL))
"""


def test_keys_are_the_same_in_every_process_and_under_every_hash_seed() -> None:
    found = set()
    for seed in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", KEYS], capture_output=True, text=True, check=True, env=environment)
        found.add(run.stdout)
    assert len(found) == 1
    keys = found.pop().split()
    assert len(set(keys)) == len(ALL)
    params = {"anchors": {"negative": "n", "positive": "p"}}
    assert keys == [bound(call, params=params).key.hex() for call in ALL]


def test_the_stored_request_hashes_to_the_key() -> None:
    made = [(call, named(bound, call)) for call in ALL]
    assert [call for call, each in made if len(each.key) != 32 or named(stored_digest, each) != each.key] == []


def test_every_call_goes_to_the_model_and_the_lane_of_its_role() -> None:
    cases = [
        (RETRIEVE, "retrieve", "dense", Lane.JUDGE),
        (Retrieve(question="?", index="sparse", k=3), "retrieve", "sparse", Lane.JUDGE),
        (JUDGE, "judge", "judge", Lane.JUDGE),
        (GENERATE, "generate", "generate", Lane.GENERATE),
        (GRADE, "grade", "grade", Lane.JUDGE),
        (Rerank(question="?", documents=()), "rerank", "rerank", Lane.JUDGE),
        (Embed(text="?"), "embed", "embed", Lane.JUDGE),
        (VERIFY, "verify", "verify", Lane.JUDGE),
        (EXECUTE, "execute", "execute", Lane.JUDGE),
        (ESTIMATE, "estimate", "estimate", Lane.JUDGE),
    ]
    wrong = []
    for call, role, pin, lane in cases:
        made = named(bound, call)
        found = made.role, made.model_id, made.lane, named(request, call).model
        if found != (role, PINS[pin].model_id, lane, PINS[pin].hash):
            wrong.append((call, found))
    assert wrong == []


def test_another_model_is_another_call() -> None:
    others = {role: msgspec.structs.replace(pin, hash="f" * 64) for role, pin in PINS.items()}
    moved = {role: msgspec.structs.replace(pin, model_id=99) for role, pin in PINS.items()}
    keys = [(call, [named(bound, call, pins=pins).key for pins in (PINS, others, moved)]) for call in ALL]
    assert [call for call, (own, other, _) in keys if own == other] == []
    assert [call for call, (own, _, elsewhere) in keys if own != elsewhere] == []


def test_greedy_calls_and_measurements_are_drawn_once_for_all_repeats() -> None:
    wrong = []
    for call, params in product(ALL, [{}, {"judge": {"temperature": 0.9}}, {"generate": {"temperature": 0.0}}]):
        same = named(bound, call, 0, params=params).key == named(bound, call, 4, params=params).key
        if not same or named(request, call, 4, params=params).draw != 0:
            wrong.append((call, params))
    assert wrong == []


def test_sampled_generation_is_drawn_once_a_repeat() -> None:
    sampled = {"generate": {"temperature": 0.7}}
    keys = {bound(GENERATE, repeat, params=sampled).key for repeat in range(5)}
    assert len(keys) == 5
    assert request(GENERATE, 3, params=sampled).draw == 3


def test_the_job_is_not_in_the_key() -> None:
    assert all(bound(call, job="job-1").key == bound(call, job="job-2").key for call in ALL)


def test_a_nonce_makes_every_call_the_jobs_own_and_every_repeat_a_draw() -> None:
    for call in ALL:
        assert len({bound(call).key, bound(call, nonce="one").key, bound(call, nonce="two").key}) == 3
    assert [request(call, 2, nonce="one").draw for call in (JUDGE, GENERATE)] == [2, 2]
    assert [request(call, 2, nonce="one").draw for call in (RETRIEVE, GRADE)] == [0, 0]


def test_a_rating_that_is_asked_for_again_is_another_call_with_another_seed() -> None:
    again = msgspec.structs.replace(JUDGE, draw=1)
    assert bound(JUDGE).key != bound(again).key == bound(again).key
    assert seed_of(bound(JUDGE).key) != seed_of(bound(again).key)
    assert [request(again, repeat).draw for repeat in (0, 2)] == [1, 1]
    assert request(again, 2, nonce="one").draw == 3


def test_what_an_unpinned_model_says_is_kept_inside_the_job() -> None:
    pins = {**PINS, "generate": Pin(model_id=3, hash=PINS["generate"].hash, pinned=False)}
    assert bound(GENERATE, 0, pins=pins).key == bound(GENERATE, 1, pins=pins).key
    assert bound(GENERATE, pins=pins, job="job-1").key != bound(GENERATE, pins=pins, job="job-2").key
    assert bound(JUDGE, pins=pins, job="job-1").key == bound(JUDGE, job="job-2").key


def test_a_request_names_its_template_by_id_and_hash() -> None:
    assert request(GENERATE).template == f"cot@{prompts.template('cot').hash}"
    assert request(JUDGE).template == make_template_reference("reasoning-quality")


def test_a_changed_template_text_is_another_call(monkeypatch: pytest.MonkeyPatch) -> None:
    before = bound(GENERATE).key
    changed = msgspec.structs.replace(prompts.template("cot"), text="Do it. {{context}}{{question}}")
    monkeypatch.setattr(prompts, "template", lambda _: changed)
    make_template_reference.cache_clear()
    try:
        assert bound(GENERATE).key != before
    finally:
        make_template_reference.cache_clear()


def test_an_anchor_of_the_job_replaces_the_rubrics_own() -> None:
    defaults = prompts.template("reasoning-quality").defaults
    assert request(JUDGE).values["negative"] == defaults["negative"]
    changed = request(JUDGE, params={"anchors": {"negative": "a guess"}})
    assert changed.values["negative"] == "a guess"
    assert changed.values["positive"] == defaults["positive"]
    assert canonical.digest(changed) != bound(JUDGE).key


def test_anchors_do_not_touch_any_other_call() -> None:
    anchors = {"anchors": {"negative": "a guess"}}
    same = [call for call in ALL if bound(call, params=anchors).key == bound(call).key]
    assert same == [call for call in ALL if call is not JUDGE]


def test_documents_are_named_not_quoted() -> None:
    assert request(JUDGE).values["document"] == DocumentRef(DOCUMENT)
    assert request(GENERATE).values["context"] == [DocumentRef(DOCUMENT)]


def test_a_generation_without_documents_has_no_context() -> None:
    bare = Generate(template="cot", question="?")
    assert "context" not in request(bare).values
    assert bound(bare).key == bound(Generate(template="cot", question="?", context=())).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (GENERATE, msgspec.structs.replace(GENERATE, question="What is 1 plus 2?")),
        (GENERATE, msgspec.structs.replace(GENERATE, context=(DOCUMENT, "cd" * 32))),
        (JUDGE, msgspec.structs.replace(JUDGE, document="cd" * 32)),
        (RETRIEVE, msgspec.structs.replace(RETRIEVE, k=4)),
        (GRADE, msgspec.structs.replace(GRADE, answer=None)),
        (Grade(answer="a", gold="b"), Grade(answer="b", gold="a")),
        (VERIFY, msgspec.structs.replace(VERIFY, document="cd" * 32)),
        (EXECUTE, Execute(program="answer = 2")),
        (ESTIMATE, Estimate(question="?!")),
    ],
)
def test_every_field_of_a_call_is_in_its_key(one: Call, other: Call) -> None:
    assert bound(one).key != bound(other).key


@pytest.mark.parametrize("change", [{"temperature": 0.2}, {"max_tokens": 11}])
def test_the_decoding_of_its_role_is_in_a_calls_key(change: dict[str, Any]) -> None:
    for role, call, other in (("judge", JUDGE, GENERATE), ("generate", GENERATE, JUDGE)):
        assert bound(call, params={role: change}).key != bound(call).key
        assert bound(other, params={role: change}).key == bound(other).key


def test_a_role_without_a_model_and_a_slot_without_a_place_are_errors() -> None:
    with pytest.raises(KeyError, match="rerank"):
        bound(Rerank(question="?", documents=()), pins={"judge": PINS["judge"]})
    with pytest.raises(ValueError, match=r"no slot.*no_such_slot"):
        bound(JUDGE, params={"anchors": {"no_such_slot": "?"}})
    with pytest.raises(ValueError, match="question"):
        bound(msgspec.structs.replace(JUDGE, question="seen"))
    with pytest.raises(ValueError, match="no-such-template"):
        bound(msgspec.structs.replace(GENERATE, template="no-such-template"))


def test_the_seed_is_31_bits_of_the_key() -> None:
    assert seed_of(b"\xff" * 32) == 2**31 - 1
    assert seed_of(b"\x00" * 32) == 0
    assert seed_of(b"\x80" + b"\x00" * 31) == 2**30
    assert seed_of(b"\x00\x00\x00\x02" + b"\xff" * 28) == 1
    assert seed_of(bound(GENERATE).key) == seed_of(bound(GENERATE, job="another").key)


def test_decoding_compares_as_json_does() -> None:
    params = msgspec.convert({"generate": {"temperature": 0}}, Params)
    assert params.generate.decoding == Decoding(temperature=0.0, max_tokens=512)
    assert isinstance(params.generate.temperature, float)


SAMPLED = {"generate": {"temperature": 0.8}}


def draws(*numbers: int) -> list[Call]:
    return [msgspec.structs.replace(GENERATE, draw=number) for number in numbers]


def binder(**fields: Any) -> SampleBinder:
    params = msgspec.convert(fields.pop("params", {}), Params)
    return SampleBinder(Binding(**{"pins": PINS, "params": params, "job": "job-1", **fields}), 0)


def test_draws_of_one_prompt_are_calls_of_their_own_with_seeds_of_their_own() -> None:
    made = [bound(call, repeat, params=SAMPLED) for call in draws(0, 1, 2) for repeat in range(5)]
    assert len({each.key for each in made}) == len({seed_of(each.key) for each in made}) == 15


def test_the_first_draw_has_the_key_that_calls_had_before_there_were_draws() -> None:
    made = bound(GENERATE, 3, params=SAMPLED)
    assert made.body.endswith(b'"decoding":{"temperature":0.8,"max_tokens":512},"draw":3}')
    assert bound(GENERATE, 0, params=SAMPLED).body.endswith(b'"decoding":{"temperature":0.8,"max_tokens":512}}')


def test_a_call_may_have_a_temperature_of_its_own() -> None:
    call = msgspec.structs.replace(GENERATE, temperature=0.5, draw=1)
    assert request(call).decoding == Decoding(temperature=0.5, max_tokens=512)
    assert request(GENERATE, params=SAMPLED).decoding == Decoding(temperature=0.8, max_tokens=512)


@pytest.mark.parametrize("call", [*draws(1), msgspec.structs.replace(GENERATE, temperature=0.0, draw=1)])
def test_a_draw_of_a_greedy_generation_is_refused(call: Call) -> None:
    with pytest.raises(ValueError, match=r"draw 1 of a greedy generation.*set `generate.temperature` above 0"):
        bound(call, params={"generate": {"temperature": 0.8}} if call.temperature is not None else {})  # type: ignore[union-attr]


@pytest.mark.parametrize("draw", [-1, 1000])
def test_a_draw_that_could_be_another_repeats_is_refused(draw: int) -> None:
    write = Write(template="rewrite", decoding=Decoding(temperature=0.7), slots={"question": "?"}, draw=draw)
    for call in (*draws(draw), msgspec.structs.replace(JUDGE, draw=draw), write):
        with pytest.raises(ValueError, match=rf"draw {draw} is out of range: use 0 to 999"):
            bound(call, params=SAMPLED)


def test_equal_sampled_calls_in_one_step_are_refused() -> None:
    write = Write(template="rewrite", decoding=Decoding(temperature=0.7), slots={"question": "?"})
    for call, role in ((GENERATE, "generate"), (JUDGE, "judge"), (write, "write")):
        with pytest.raises(RepeatedDraw, match=rf"the same sampled '{role}' call twice.*its own `draw`"):
            binder(params=SAMPLED).bind([call, call])


def test_an_answer_that_is_sampled_again_in_a_later_step_is_refused() -> None:
    sample = binder(params=SAMPLED)
    sample.bind([GENERATE])
    with pytest.raises(RepeatedDraw, match="its own `draw`"):
        sample.bind([GENERATE])
    assert len(sample.bind(draws(1))) == 1


def test_equal_calls_that_are_not_sampled_share_their_reply() -> None:
    sample = binder()
    assert len(sample.bind([RETRIEVE, RETRIEVE, GENERATE, GENERATE, GRADE, GRADE])) == 6
    sample.bind([JUDGE])
    sample.bind([JUDGE, GENERATE])


def test_the_judge_is_asked_anew_by_every_repeat_where_the_job_says_so() -> None:
    write = Write(template="rewrite", decoding=Decoding(temperature=0.7), slots={"question": "?"})
    for call in (JUDGE, write):
        anew = {bound(call, repeat, params={"judge": {"per_repeat": True}}).key for repeat in range(5)}
        assert len(anew) == 5
        assert bound(call).key == bound(call, params={"judge": {"per_repeat": True}}).key
    greedy = {"judge": {"per_repeat": True, "temperature": 0.0}}
    assert bound(JUDGE, 0, params=greedy).key == bound(JUDGE, 4, params=greedy).key


def test_whether_repeats_ask_anew_is_not_in_the_key() -> None:
    assert request(JUDGE, params={"judge": {"per_repeat": True}}).decoding == Decoding(temperature=0.1, max_tokens=10)
