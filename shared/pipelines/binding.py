"""Turn a call that a pipeline yields into the request that is hashed, stored and executed.

A request holds everything that determines the reply and nothing else: texts by hash, no database ids, no job.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import assert_never

import msgspec

from shared import canonical
from shared.calls import (
    CALL_KINDS,
    MATH,
    Call,
    Converse,
    Decoding,
    DocumentRef,
    Embed,
    Estimate,
    Execute,
    FindRules,
    Generate,
    Grade,
    Judge,
    Lane,
    Mine,
    Request,
    Rerank,
    Retrieve,
    Rules,
    SlotValue,
    Verify,
    Write,
)
from shared.params import MOST_REPEATS, Params
from shared.rag.grading import GRADERS, choose_marking_grader
from shared.rag.prompts import localise, make_template_reference, template


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """The model row to which a job binds a role; the binding never changes."""

    model_id: int
    hash: str
    pinned: bool = True
    """False: the backend names no digest, so its replies are reused inside the job only."""


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the models, parameters and nonce with which a job's calls become requests."""

    pins: dict[str, Pin]
    """By role: dense, sparse, fallback, rerank, embed, judge, generate, grade, verify, execute, estimate, mine,
    rules."""
    params: Params
    nonce: str = ""
    """Set for `reuse: none`, so that no reply of another job is reused."""
    job: str = ""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its key, and the lane and model that queue it."""

    key: bytes
    body: bytes
    role: str
    lane: Lane
    model_id: int
    sampled: bool = False
    """Whether a model answers it at a temperature above 0."""


class RepeatedDraw(ValueError):
    """Raised when a pipeline asks for the same sampled text twice; the message names the call and what to do."""


ANSWERING = ("cot", "cot-zh")
"""Templates that `generate.template` replaces."""
MOST_DRAWS = 1000
"""Upper bound of the texts sampled from one prompt of one sample; draws count from 0."""


class SampleBinder:
    """Binds the calls of one sample, step by step, and refuses a sampled text that is asked for twice.

    Equal calls have one reply. Where a pipeline means to sample again, it would count one text several times. In one
    step that holds for every sampled call. An answer must not be generated again in a later step either, while a
    rating or a rewritten query may be read again: it is a measurement, and one reply serves all who ask.
    """

    def __init__(self, binding: Binding, repeat: int) -> None:
        self._binding = binding
        self._repeat = repeat
        self._generated: set[bytes] = set()

    def bind(self, calls: Sequence[Call]) -> tuple[Bound, ...]:
        """Bind the calls of the next step, in their order.

        Raises:
            KeyError, ValueError: as `bind`.
            RepeatedDraw: two sampled calls are equal.
        """
        bound = tuple(bind(call, self._binding, self._repeat) for call in calls)
        seen = set(self._generated)
        for each in bound:
            if each.sampled and each.key in seen:
                raise RepeatedDraw(
                    f"the pipeline asks for the same sampled {each.role!r} call twice, and both would get one reply:"
                    " give each call its own `draw` (0, 1, 2 ...), or ask once"
                )
            seen.add(each.key)
        self._generated |= {each.key for each in bound if each.role == "generate"}
        return bound


def bind(call: Call, binding: Binding, repeat: int) -> Bound:
    """Bind one call to the job's models and templates.

    Raises:
        KeyError: the job pins no model for the call's role.
        ValueError: the call's template does not accept its slots, or its draw cannot be used.
    """
    pin_name, request = _request(call, binding, repeat)
    pin = binding.pins[pin_name]
    nonce = binding.nonce or ("" if pin.pinned else binding.job)
    request = msgspec.structs.replace(request, model=pin.hash, nonce=nonce)
    body = canonical.encode(request)
    return Bound(
        key=sha256(body).digest(),
        body=body,
        role=request.role,
        lane=CALL_KINDS[request.role].lane,
        model_id=pin.model_id,
        sampled=request.decoding is not None and request.decoding.temperature > 0,
    )


def _request(call: Call, binding: Binding, repeat: int) -> tuple[str, Request]:
    match call:
        case Retrieve():
            return call.index, Request(
                role="retrieve", model="", values={"question": call.question}, k=call.k, skip=call.skip,
                hypothetical=call.hypothetical, duplicates=call.duplicates, item=call.item, gold=call.gold,
                threshold=call.threshold,
            )  # fmt: skip
        case Judge():
            return "judge", _judge(call, binding, repeat)
        case Write():
            return "judge", _write(call, binding, repeat)
        case Generate():
            return "generate", _generate(call, binding, repeat)
        case Converse():
            return "generate", Request(
                role="generate", model="", messages=call.messages, decoding=call.decoding, draw=call.draw
            )
        case Grade():
            values: dict[str, SlotValue | None] = {"answer": call.answer, "gold": call.gold}
            name = choose_marking_grader(binding.params.grading.grader, peers=call.peers)
            of_plugin = name not in GRADERS  # pass it all rules: only its code knows which of them it reads
            rules = Rules(
                grader=name,
                golds=call.expected.golds,
                choices=call.expected.choices if of_plugin or name == "choice" else (),
                threshold=binding.params.grading.threshold if of_plugin or name == "f1" else None,
                separators=binding.params.grading.separators if of_plugin or name == "set" else "",
            )
            return "grade", Request(role="grade", model="", values=values, rules=None if rules == MATH else rules)
        case _:
            request = _measurement(call)
            return request.role, request


def _measurement(call: Rerank | Embed | Verify | Execute | Estimate | FindRules | Mine) -> Request:
    """Build the request of a call without a prompt; its role is also the name of its pin."""
    match call:
        case Rerank():
            values: dict[str, SlotValue | None] = {"question": call.question, "documents": _references(call.documents)}
            return Request(role="rerank", model="", values=values)
        case Embed():
            return Request(role="embed", model="", values={"text": call.text})
        case Verify():
            return Request(role="verify", model="", values={"document": DocumentRef(call.document)})
        case Execute():
            return Request(role="execute", model="", values={"program": call.program})
        case Estimate():
            return Request(role="estimate", model="", values={"question": call.question})
        case FindRules():
            return Request(
                role="rules", model="", values={"relation": call.relation, "question": call.question},
                choice=call.choice, side=call.side, phrases=call.phrases,
            )  # fmt: skip
        case Mine():
            return Request(role="mine", model="", values={"relation": call.relation}, mining=call.mining)
        case _:
            assert_never(call)


def _judge(call: Judge, binding: Binding, repeat: int) -> Request:
    rubric = template(call.rubric)
    anchors = binding.params.anchors if rubric.optional else {}
    values: dict[str, SlotValue | None] = {**rubric.defaults, **anchors, **call.slots}
    if call.document:
        values["document"] = DocumentRef(call.document)
    if call.documents:
        values["documents"] = _references(call.documents)
    if call.question is not None:
        values["question"] = call.question
    decoding = call.decoding or binding.params.judge.decoding
    # The calibration's second rating of a document serves the second repeat of a job that shares nothing.
    draw = _check_draw(call.draw) + (repeat if binding.nonce else _find_first_draw(decoding, binding, repeat))
    request = _build_prompt_request("judge", rubric.id, values, decoding, draw)
    return msgspec.structs.replace(request, logprobs=call.logprobs)


def _find_first_draw(decoding: Decoding, binding: Binding, repeat: int) -> int:
    """Return the first draw of this repeat's calls to the judge model; 0 where one reply serves all repeats."""
    return MOST_DRAWS * repeat if binding.params.judge.per_repeat and decoding.temperature > 0 else 0


def _write(call: Write, binding: Binding, repeat: int) -> Request:
    values: dict[str, SlotValue | None] = dict(call.slots)
    if call.documents:
        values["documents"] = _references(call.documents)
    first = MOST_DRAWS * repeat if binding.nonce else _find_first_draw(call.decoding, binding, repeat)
    draw = _check_draw(call.draw) + first
    return _build_prompt_request("write", call.template, values, call.decoding, draw)


def _generate(call: Generate, binding: Binding, repeat: int) -> Request:
    decoding = binding.params.generate.decoding
    if call.temperature is not None:
        decoding = msgspec.structs.replace(decoding, temperature=call.temperature)
    if call.draw and not decoding.temperature:
        raise ValueError(
            f"draw {call.draw} of a greedy generation would repeat the same answer:"
            " set `generate.temperature` above 0, or ask once"
        )
    values: dict[str, SlotValue | None] = {"question": call.question, **call.slots}
    if call.passage or call.context:
        values["context"] = call.passage or _references(call.context)
    sampled = decoding.temperature > 0 or bool(binding.nonce)
    # Draw 0 of a repeat is the repeat's number, as before calls had draws, so that keys of stored replies still match.
    draw = repeat + MOST_REPEATS * _check_draw(call.draw) if sampled else 0
    # The call's template, or the job's own if the call uses one of the shipped prompts for answers. A stored prompt is
    # named by its hash alone, so that its name does not matter.
    own = binding.params.generate.template if call.template in ANSWERING else ""
    _, stored, hash_ = own.partition("@")
    if stored:
        request = Request(role="generate", model="", template=f"@{hash_}", values=values, decoding=decoding, draw=draw)
    else:
        answer_template = localise(own, call.question) if own else call.template
        request = _build_prompt_request("generate", answer_template, values, decoding, draw)
    return msgspec.structs.replace(request, logprobs=call.logprobs)


def _check_draw(draw: int) -> int:
    if not 0 <= draw < MOST_DRAWS:
        raise ValueError(f"draw {draw} is out of range: use 0 to {MOST_DRAWS - 1}")
    return draw


def _references(hashes: Sequence[str]) -> SlotValue:
    return [DocumentRef(hash_) for hash_ in hashes]


def _build_prompt_request(
    role: str, template_id: str, values: dict[str, SlotValue | None], decoding: Decoding, draw: int
) -> Request:
    found = template(template_id)
    unknown = values.keys() - set(found.slots)
    if unknown:
        raise ValueError(f"template `{template_id}` has no slot {sorted(unknown)}; it has {sorted(found.slots)}")
    template_reference = make_template_reference(template_id)
    return Request(role=role, model="", template=template_reference, values=dict(values), decoding=decoding, draw=draw)
