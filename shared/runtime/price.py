"""What one question will cost: its pipeline is run dry, on made-up replies, and its calls are held against the device.

Made-up searches find nothing twice, draws of one prompt answer differently, and a made-up text can be searched with,
line by line, so a pipeline without loops makes no more calls than this.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import (
    Call,
    Estimate,
    FindRules,
    Generate,
    Grade,
    Judge,
    Mine,
    Rerank,
    Retrieve,
    Verify,
    Write,
)
from shared.contracts.documents import Document, Hit
from shared.contracts.params import Params
from shared.contracts.replies import (
    Estimated,
    FoundRules,
    Generated,
    Graded,
    Mined,
    NumberedRule,
    Rated,
    Reply,
    Retrieved,
    Scored,
    Token,
    Verified,
)
from shared.contracts.rules import Atom, Rule
from shared.contracts.samples import Item
from shared.pipelines.binding import Binding, Bound, Pin, SampleBinder
from shared.rag.self_rag import RETRIEVAL
from shared.runtime.jobs import JobSpec
from shared.runtime.models import BUILT_IN
from shared.runtime.replay import Replay

MOST_ROUNDS = 100
MOST_QUERIES = 20
"""Lines of a made-up text: as many queries as a job may want written at once."""
PINNED = ("dense", "sparse", "fallback", "rerank", "judge", "generate", "mine", "rules", *BUILT_IN)
"""Roles that a job may pin."""
LEASED = text("SELECT id, device FROM models WHERE id = ANY(:ids) AND needs_lease")
WAITING = text("SELECT count(*) FROM queue q JOIN models m ON m.id = q.model_id AND m.needs_lease")
WITH_WORK = text("""
    SELECT count(*) FROM unnest(CAST(:ids AS integer[])) r(id) WHERE EXISTS (
        SELECT 1 FROM queue q WHERE q.lane IN ('judge', 'generate') AND q.model_id = r.id)""")
LAST_LOADS = text("""
    SELECT DISTINCT ON (s.model) s.model, s.seconds
    FROM (SELECT epoch, servers FROM residencies WHERE device = ANY(:devices) ORDER BY epoch DESC LIMIT 200) r
    CROSS JOIN LATERAL jsonb_to_recordset(r.servers) s(model integer, seconds double precision)
    ORDER BY s.model, r.epoch DESC""")


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What a question costs at most, as the devices stood when it was asked."""

    loads: int
    """Models that must be loaded, if nothing else happens on their devices."""
    load_s: float | None
    """What their last loads took, added up; null: one of them was never loaded here."""
    loads_back: int
    """Resident models with work, which are unloaded for it and loaded again unless they are done within
    `device.online_patience_s`: what it costs others."""
    calls: dict[str, int]
    """By role; those whose replies are there already are not made again."""
    calls_before: int
    """Model calls that were in the queue already: the resident model's come first."""


async def price(connection: AsyncConnection, resident: Mapping[str, Sequence[int]], job: JobSpec, item: Item) -> Price:
    """The price of `item` under `job`, on devices that hold `resident`."""
    rounds = list(dry_run(job, item))
    calls = {bound.key: bound for round_ in rounds for bound in round_}
    ids = sorted({bound.model_id for bound in calls.values()})
    needed = [{bound.model_id for bound in round_} for round_ in rounds]
    leased: dict[str, set[int]] = defaultdict(set)
    for row in await connection.execute(LEASED, {"ids": ids}):
        leased[row.device].add(row.id)
    by_device = {
        device: _loads([round_ & models for round_ in needed], set(resident.get(device, ())))
        for device, models in leased.items()
    }
    loads = [model for models in by_device.values() for model in models]
    in_the_way = sorted(model for device, models in by_device.items() if models for model in resident.get(device, ()))
    last = await connection.execute(LAST_LOADS, {"devices": list(leased)})
    seconds = {row.model: row.seconds for row in last}
    return Price(
        loads=len(loads),
        load_s=round(sum(seconds[model] for model in loads), 3) if seconds.keys() >= set(loads) else None,
        loads_back=(await connection.execute(WITH_WORK, {"ids": in_the_way})).scalar_one(),
        calls=dict(Counter(bound.role for bound in calls.values())),
        calls_before=(await connection.execute(WAITING)).scalar_one(),
    )


def _loads(rounds: Sequence[set[int]], resident: set[int]) -> list[int]:
    """Models in the order of their loads, where whatever a round lacks takes the place of what was there."""
    loads: list[int] = []
    for needed in rounds:
        if missing := sorted(needed - resident):
            loads += missing
            resident = needed
    return loads


class MadeUp(dict[str, Document]):
    """A library of documents that nobody has; no two read alike."""

    def __missing__(self, hash_: str) -> Document:
        return Document(problem="", text=hash_)


def drawn_roles(pipeline: str, params: Params, reuse: str) -> frozenset[str]:
    """Roles whose calls every repeat makes anew; one reply serves all repeats of the others.

    Raises:
        Unreadable: the pipeline is not installed.
    """
    job = made_up_job(pipeline, params, "nonce" if reuse == "none" else "")
    first = {bound.key for bound in _calls(job, 0)}
    return frozenset(bound.role for bound in _calls(job, 1) if bound.key not in first)


def is_greedy(pipeline: str, params: Params) -> bool:
    """Whether no answer is sampled.

    Raises:
        Unreadable: the pipeline is not installed.
    """
    return not any(call.role == "generate" and call.sampled for call in _calls(made_up_job(pipeline, params), 0))


def _calls(job: JobSpec, repeat: int) -> Iterator[Bound]:
    return (bound for round_ in dry_run(job, Item(ordinal=0, question="?"), repeat) for bound in round_)


def made_up_job(pipeline: str, params: Params, nonce: str = "") -> JobSpec:
    """A job whose models and indexes are nobody's, for dry runs that ask what calls a pipeline makes."""
    return JobSpec(
        id=0, pipeline=pipeline, rank=0, dataset_id=0, params=params, prepared=None,
        binding=Binding(pins=dict.fromkeys(PINNED, Pin(model_id=0, hash="")), params=params, nonce=nonce),
    )  # fmt: skip


def dry_run(job: JobSpec, item: Item, repeat: int = 0) -> Iterator[list[Bound]]:
    """The calls that wait for each other's replies, round by round: the calibration's, then the sample's."""
    library = MadeUp()
    if job.installed().prepare is not None:
        prepare = job.prepare([item], library)
        yield from dry_rounds(job, prepare)
        job = msgspec.structs.replace(job, prepared=prepare.result)
    yield from dry_rounds(job, job.start(item, repeat, library), repeat)


def dry_rounds(job: JobSpec, replay: Replay[Any], repeat: int = 0) -> Iterator[list[Bound]]:
    """The calls of a replay that is answered with made-up replies, round by round.

    Raises:
        TooManyCalls: more at once than can be stored.
        KeyError, ValueError: a call cannot be bound.
        RepeatedDraw: two sampled calls are equal.
    """
    binder = SampleBinder(job.binding, repeat)
    while replay.calls and replay.position < MOST_ROUNDS:
        replay.check_size()
        yield list(binder.bind(replay.calls))
        replay.answer([_made_up(call) for call in replay.calls])


def _made_up(call: Call) -> Reply:
    match call:
        case Retrieve():
            ranks = range(call.skip + 1, call.skip + call.k + 1)
            return Retrieved(hits=tuple(_hit(call.index, rank) for rank in ranks))
        case Rerank():
            # Neither good enough to leave anything out, nor so bad that the question is refused.
            return Scored(scores=tuple(0.5 for _ in call.documents))
        case Judge():
            return Rated(rating=3, text="[[3]]")
        case Write() | Generate():
            return _text(call)
        case Grade():
            return Graded(math_verify=None, strict=False)
        case _:
            return _measured(call)


def _measured(call: Verify | Estimate | FindRules | Mine) -> Reply:
    match call:
        case Verify():
            return Verified(verified=1, refuted=0, unknown=0)
        case Estimate():
            # Hard: the dearer path is priced.
            return Estimated(probability=1.0)
        case FindRules():
            return _rules(call)
        case Mine():
            return Mined(rules=())


def _rules(call: FindRules) -> FoundRules:
    """No question holds a phrase, so that the judge model names the relation; rules are the longest: most searches."""
    if not call.relation:
        return FoundRules(relation=None, phrases={} if call.question else {"relation": "relation"})
    found = tuple(NumberedRule(number, _rule(number)) for number in range(call.choice.most))
    return FoundRules(relation=call.relation, rules=found)


def _rule(number: int) -> Rule:
    body = (Atom(f"first {number}", 0, 2), Atom(f"second {number}", 2, 3), Atom(f"third {number}", 3, 1))
    return Rule(head=Atom("relation", 0, 1), body=body, support=1, body_size=1, confidence=1.0)


def _text(call: Write | Generate) -> Generated:
    if isinstance(call, Generate):
        tokens = (Token(text=RETRIEVAL, logprob=0.0),) if call.logprobs else ()
        # Each draw another answer: these are compared, and what has none is not rated.
        return Generated(text=f"\\boxed{{{call.draw}}}", tokens=tokens)
    lines = (f"{call.slots.get('question', '')} {call.template} {n}" for n in range(1, MOST_QUERIES + 1))
    return Generated(text="\n".join(lines))


def _hit(index: str, rank: int) -> Hit:
    return Hit(document=hashlib.sha256(f"{index} {rank}".encode()).hexdigest(), rank=rank, score=1 / rank)
