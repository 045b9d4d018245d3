"""Price one question: run its pipeline dry on made-up replies, and compare its calls with the models on the devices.

Made-up searches never find the same document twice, draws of a prompt differ, and each line of a made-up text can be
a query. A pipeline without loops therefore makes at most these calls, but for those of metrics: they depend on the
length of the answer, which has six sentences here."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import calls, replies
from shared.params import Params
from shared.pipelines.binding import Binding, Bound, Pin, SampleBinder
from shared.rag.answer_metrics import get_metric
from shared.rag.self_rag import RETRIEVAL
from shared.runtime.advance import JobSpec, Replay
from shared.runtime.pins import BUILT_IN
from shared.samples import Control, Item

MOST_ROUNDS = 100
MOST_QUERIES = 20
"""Lines of a made-up text, as many as the queries that a job may request at once."""
SENTENCES = 6
"""Sentences of a made-up answer."""
PINNED = ("dense", "sparse", "fallback", "rerank", "embed", "judge", "generate", "mine", "rules", *BUILT_IN)
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
    """Upper bound of the cost of a question, given the models that the devices hold now."""

    loads: int
    """Number of models that must be loaded if the devices get no other work."""
    load_s: float | None
    """Sum of the seconds of these models' last loads; null if one of them was never loaded on its device."""
    loads_back: int
    """Number of resident models with work that are unloaded for this question and loaded again afterwards, unless their
    work ends within `device.online_patience_s`."""
    calls: dict[str, int]
    """Upper bound of the calls by role; calls whose replies are already stored are not made again."""
    calls_before: int
    """Number of model calls in the queue when the question arrives; those of the resident models run first."""


async def price_question(
    connection: AsyncConnection, resident: Mapping[str, Sequence[int]], job: JobSpec, item: Item
) -> Price:
    """Price `item` under `job`, on devices that hold `resident`."""
    rounds = list(dry_run(job, item))
    asked = {bound.key: bound for round_ in rounds for bound in round_}
    ids = sorted({bound.model_id for bound in asked.values()})
    needed = [{bound.model_id for bound in round_} for round_ in rounds]
    leased: dict[str, set[int]] = defaultdict(set)
    for row in await connection.execute(LEASED, {"ids": ids}):
        leased[row.device].add(row.id)
    by_device = {
        device: _list_loads([round_ & models for round_ in needed], set(resident.get(device, ())))
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
        calls=dict(Counter(bound.role for bound in asked.values())),
        calls_before=(await connection.execute(WAITING)).scalar_one(),
    )


def _list_loads(rounds: Sequence[set[int]], resident: set[int]) -> list[int]:
    """List the models in the order of their loads; a round that lacks models replaces all resident ones."""
    loads: list[int] = []
    for needed in rounds:
        if missing := sorted(needed - resident):
            loads += missing
            resident = needed
    return loads


class MadeUpLibrary(dict[str, replies.Document]):
    """A library in which every hash has its own document."""

    def __missing__(self, hash_: str) -> replies.Document:
        return replies.Document(problem="", text=hash_)


def list_drawn_roles(pipeline: str, params: Params, reuse: str) -> frozenset[str]:
    """Return the roles whose calls each repeat makes again; all repeats share the replies of other roles.

    Raises:
        Unreadable: the pipeline is not installed.
    """
    job = make_placeholder_job(pipeline, params, "nonce" if reuse == "none" else "")
    first = {bound.key for bound in _list_calls(job, 0)}
    return frozenset(bound.role for bound in _list_calls(job, 1) if bound.key not in first)


def is_greedy(pipeline: str, params: Params) -> bool:
    """Tell whether all answers are decoded greedily.

    Raises:
        Unreadable: the pipeline is not installed.
    """
    job = make_placeholder_job(pipeline, params)
    return not any(call.role == "generate" and call.sampled for call in _list_calls(job, 0))


def _list_calls(job: JobSpec, repeat: int) -> Iterator[Bound]:
    return (bound for round_ in dry_run(job, make_placeholder_item(job.params), repeat) for bound in round_)


def make_placeholder_item(params: Params) -> Item:
    """Return an item for dry runs; it has a gold answer if a metric reads it."""
    needs_gold = any(get_metric(name).needs_gold for name in params.metrics.names)
    return Item(ordinal=0, question="?", gold="1" if needs_gold else None)


PLACEHOLDER_CONTROL = Control(question="!", documents=tuple(f"{number:064x}" for number in range(1000)))
"""Material of a sample that controls the metrics, in dry runs."""


def make_placeholder_job(pipeline: str, params: Params, nonce: str = "") -> JobSpec:
    """Return a job with placeholder models and indexes, for dry runs that list a pipeline's calls."""
    return JobSpec(
        id=0, pipeline=pipeline, dataset_id=0, params=params, prepared=None,
        binding=Binding(pins=dict.fromkeys(PINNED, Pin(model_id=0, hash="")), params=params, nonce=nonce),
    )  # fmt: skip


def dry_run(job: JobSpec, item: Item, repeat: int = 0) -> Iterator[list[Bound]]:
    """Yield the calls of each round, first of the calibration, then of the sample; rounds depend on earlier replies."""
    library = MadeUpLibrary()
    if job.find_pipeline().prepare is not None:
        prepare = job.prepare([item], library)
        yield from dry_rounds(job, prepare)
        prepared = prepare.result
        if prepared is not None and prepared.relevance is not None:
            # The dearer path is priced: a judge that is trusted is asked for every candidate.
            trusted = msgspec.structs.replace(prepared.relevance, passed=True)
            prepared = msgspec.structs.replace(prepared, relevance=trusted)
        job = msgspec.structs.replace(job, prepared=prepared)
    yield from dry_rounds(job, job.start(item, repeat, library), repeat)


def dry_rounds(job: JobSpec, replay: Replay[Any], repeat: int = 0) -> Iterator[list[Bound]]:
    """Yield the calls of each round of a replay that gets made-up replies.

    Raises:
        TooManyCalls: a round has more calls than can be stored.
        KeyError, ValueError: a call cannot be bound.
        RepeatedDraw: two sampled calls are equal.
    """
    binder = SampleBinder(job.binding, repeat)
    while replay.calls and replay.position < MOST_ROUNDS:
        replay.check_size()
        yield list(binder.bind(replay.calls))
        replay.answer([_make_up_reply(call) for call in replay.calls])


def _make_up_reply(call: calls.Call) -> replies.Reply:
    match call:
        case calls.Retrieve():
            ranks = range(call.skip + 1, call.skip + call.k + 1)
            documents = (hashlib.sha256(f"{call.index} {rank}".encode()).hexdigest() for rank in ranks)
            hits = zip(documents, ranks, strict=True)
            return replies.Retrieved(
                hits=tuple(replies.Hit(document=each, rank=rank, score=1 / rank) for each, rank in hits)
            )
        case calls.Rerank():
            # Neither good enough to leave anything out, nor so bad that the question is refused.
            return replies.Scored(scores=tuple(0.5 for _ in call.documents))
        case calls.Judge():
            relevant = replies.Relevance(probability=0.5, text="yes")
            return relevant if call.logprobs else replies.Rated(rating=3, text="[[3]]")
        case calls.Write() | calls.Generate():
            return _make_up_text(call)
        case calls.Converse():
            return replies.Generated(text="?")
        case calls.Grade():
            return replies.Graded(math_verify=None, strict=False)
        case _:
            return _make_up_measurement(call)


def _make_up_text(call: calls.Write | calls.Generate) -> replies.Generated:
    if isinstance(call, calls.Generate):
        if call.template.startswith("program"):
            return replies.Generated(text="```python\nanswer = 1\n```")
        tokens = (replies.Token(text=RETRIEVAL, logprob=0.0),) if call.logprobs else ()
        # Each draw another answer: these are compared, and a draw without one is not rated.
        written = "".join(f"Sentence {n} [1]. " for n in range(1, SENTENCES))
        return replies.Generated(text=f"{written}\\boxed{{{call.draw}}}", tokens=tokens)
    if call.template == "claims":
        return replies.Generated(text="".join(f"{n}. Claim {n}\n" for n in range(1, SENTENCES + 1)))
    if call.template.startswith(("write-question", "write-two-hop-question")):
        # It passes the checks that need no model, so that the others are priced: made-up documents are their hashes.
        quotations = "\n".join(f"Quotation: {hash_}" for hash_ in call.documents)
        return replies.Generated(text=f"Question: ?\nAnswer: {call.documents[0]}\n{quotations}")
    lines = (f"{call.slots.get('question', '')} {call.template} {n}" for n in range(1, MOST_QUERIES + 1))
    return replies.Generated(text="\n".join(lines))


def _make_up_measurement(
    call: calls.Embed | calls.Verify | calls.Execute | calls.Estimate | calls.FindRules | calls.Mine,
) -> replies.Reply:
    match call:
        case calls.Embed():
            return replies.Embedded(vector=b"")
        case calls.Verify():
            return replies.Verified(verified=1, refuted=0, unknown=0)
        case calls.Execute():
            # Without an output the question is asked again, which is the dearer path.
            return replies.Failure(kind=replies.FailureKind.PROGRAM_ERROR)
        case calls.Estimate():
            # Hard: the dearer path is priced.
            return replies.Estimated(probability=1.0)
        case calls.FindRules():
            # The replies that cost most: the judge must name the relation, and rules are as long as possible.
            if not call.relation:
                return replies.FoundRules(relation=None, phrases={} if call.question else {"relation": "relation"})
            found = tuple(replies.NumberedRule(number, _make_up_rule(number)) for number in range(call.choice.most))
            return replies.FoundRules(relation=call.relation, rules=found)
        case calls.Mine():
            return replies.Mined(rules=())


def _make_up_rule(number: int) -> replies.Rule:
    terms = {"first": (0, 2), "second": (2, 3), "third": (3, 1)}
    body = tuple(replies.Atom(f"{name} {number}", *ends) for name, ends in terms.items())
    return replies.Rule(head=replies.Atom("relation", 0, 1), body=body, support=1, body_size=1, confidence=1.0)
