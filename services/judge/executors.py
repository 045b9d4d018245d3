"""Executors of the judge lane: what answers each role of a call."""

import asyncio
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import httpx2
import msgspec
import psutil
from anyio import CapacityLimiter, to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Refused, Unavailable
from mathrag.messages import redact
from services.judge.pools import MiningPool, ProgramPool, VerificationPool
from shared.calls import MATH, Request, RuleChoice, Rules, TemporalSimple
from shared.headers import add_trace_headers, authorization
from shared.keepalive import make_transport
from shared.models.retriever_client import NoReply, RetrieverClient
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.processes.grading_pool import GradingPool
from shared.rag.grading import GRADERS
from shared.rag.guidance import RelationNames, RuleRequest, choose, draw
from shared.rag.prompts import list_references
from shared.recent import LruCache
from shared.replies import Document, Embedded, Estimated, Failure, FailureKind, FoundRules, NumberedRule, Reply, Scored
from shared.rules.facts import phrase
from shared.runtime.pins import ESTIMATOR, NO_RERANKER, NOT_CONFIGURED, WEIGHTS, grader_identity, miner_identity
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.runtime.worker import CallEnd, Release, Wait
from shared.samples import Phrase
from shared.settings import EMBEDDINGS, Settings
from shared.shapes import Kind, PluginPin
from shared.storage import rules as stored_rules
from shared.storage.database import Database, sql
from shared.storage.provenance import LibraryCache

if TYPE_CHECKING:
    from shared.models.difficulty import DifficultyClassifier

# Shared by all executors: the ends of calls, and the effects of the retriever's failures on them.

_REQUEST = msgspec.json.Decoder(Request)
T = TypeVar("T")


class RetrieverAway(NamedTuple):
    """The retriever, or a server that it needs, is away."""

    what: str
    said: str


def end_calls(
    calls: Sequence[ClaimedCall], replies: Sequence[Reply | RetrieverAway], started: datetime
) -> list[AnsweredCall | Wait]:
    """Return the end of each call, now: answered, or waiting until the retriever is back."""
    receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
    return [
        Wait(call.id, reply.what, reply.said)
        if isinstance(reply, RetrieverAway)
        else AnsweredCall(call_id=call.id, reply=reply, receipt=receipt)
        for call, reply in zip(calls, replies, strict=True)
    ]


async def as_completed(work: Iterable[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
    """Yield results in the order in which they are ready; closing it cancels and awaits the rest.

    An exception of a coroutine is raised, and the others are cancelled.
    """
    tasks = [asyncio.create_task(each) for each in work]
    try:
        for ended in asyncio.as_completed(tasks):
            yield await ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


OUTAGE_STATUSES = (401, 403, 429, 502, 503, 504)
"""Statuses of an outage, which would meet any request, unless the retriever's problem document tells otherwise."""
MAX_DETAIL = 1000
"""Characters of a server's refusal that are kept."""


def make_client(settings: Settings) -> RetrieverClient:
    """Make a client that sends the service key and the trace."""
    http = httpx2.AsyncClient(
        transport=make_transport(), trust_env=False, event_hooks={"request": [add_trace_headers]},
        headers=authorization(settings.service_key),
    )  # fmt: skip
    return RetrieverClient(http, settings)


def translate_failure(error: NoReply, address: str) -> Failure | RetrieverAway:
    """Translate the retriever's failure to reply: an outage of it or of a server that it needs, or a typed failure.

    It is `unavailable` if such a server refuses our key, as waiting would not help.
    """
    refuses_all, problem = error.status in OUTAGE_STATUSES, error.problem
    if refuses_all and problem.type == Unavailable.kind:
        return RetrieverAway(redact(problem.what), redact(problem.detail))
    unreachable = isinstance(error.cause, httpx2.ConnectError | httpx2.ConnectTimeout)
    if unreachable or (refuses_all and not problem.what):
        return RetrieverAway(f"the retriever at {address}", str(error))
    if problem.type == Refused.kind:
        # A server that refuses our key refuses every search, so no fallback may hide it.
        kind = FailureKind.UNAVAILABLE if problem.what != problem.detail else error.kind
        # `str(error)` is cut earlier, and the reason may be at its end.
        return Failure(kind=kind, detail=redact("; ".join(filter(None, (problem.detail, problem.hint))))[:MAX_DETAIL])
    return Failure(kind=error.kind, detail=str(error))


UNANSWERED = (FailureKind.CONNECTION, FailureKind.TIMEOUT)
"""Failures without an answer of the retriever, which concern all that it is asked."""


async def ask_together(
    ask: Callable[[Sequence[T]], Awaitable[Sequence[Reply]]], asked: Sequence[T], address: str
) -> Sequence[Reply | RetrieverAway]:
    """Ask the retriever in one request; if it refuses that, in one request each, as one may be at fault."""
    try:
        return await ask(asked)
    except NoReply as error:
        answer = translate_failure(error, address)
    if isinstance(answer, RetrieverAway) or answer.kind in UNANSWERED or len(asked) == 1:
        return [answer] * len(asked)
    return [reply for each in asked for reply in await ask_together(ask, [each], address)]


class UnconfiguredExecutor:
    """The executor of a role that is not configured: the pipeline continues without its replies."""

    def __init__(self, detail: str) -> None:
        self._reply = Failure(kind=FailureKind.NOT_CONFIGURED, detail=detail)

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Yield the same failure for every call."""
        for end in end_calls(calls, [self._reply] * len(calls), datetime.now(UTC)):
            yield end


INDEX = text("SELECT id FROM indexes WHERE model_id = :model AND state = 'ready' LIMIT 1")


class RetrieveExecutor:
    """The executor of retrieve calls."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self.retriever = make_client(settings)
        self._indexes: dict[int, int] = {}

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Yield one reply per call, all from one request."""
        started = datetime.now(UTC)
        searches = [await self._make_search(call) for call in calls]
        replies = await ask_together(self.retriever.search, searches, self.retriever.address)
        for end in end_calls(calls, replies, started):
            yield end

    async def _make_search(self, call: ClaimedCall) -> dict[str, object]:
        request = _REQUEST.decode(call.request)
        model_id = call.model_id
        if model_id not in self._indexes:
            async with self._database.transaction() as connection:
                self._indexes[model_id] = (await connection.execute(INDEX, {"model": model_id})).scalar_one()
        return {
            "index": self._indexes[model_id], "question": request.values["question"], "k": request.k,
            "skip": request.skip, "hypothetical": request.hypothetical, "duplicates": request.duplicates,
            "item": request.item, "gold": request.gold, "threshold": request.threshold,
        }  # fmt: skip


class EmbedExecutor:
    """The executor of embed calls."""

    def __init__(self, settings: Settings) -> None:
        self.retriever = make_client(settings)

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Yield one reply per call. A chunk is of one model."""
        started = datetime.now(UTC)
        requests = [_REQUEST.decode(call.request) for call in calls]
        texts, model = [str(each.values["text"]) for each in requests], requests[0].model

        async def embed(some: Sequence[str]) -> Sequence[Reply]:
            return [Embedded(vector=vector) for vector in (await self.retriever.embed(some, model)).vectors]

        for end in end_calls(calls, await ask_together(embed, texts, self.retriever.address), started):
            yield end


async def read_documents(database: Database, library: LibraryCache, requests: Sequence[Request]) -> dict[str, Document]:
    """Read the documents that requests name, by hash."""
    hashes = {ref.doc for request in requests for ref in list_references(request)}
    async with database.statement() as connection:
        return await library.documents(connection, hashes)


def fail_missing(document: str) -> Failure:
    return Failure(kind=FailureKind.BACKEND_ERROR, detail=f"document {document!r} does not exist")


class VerifyExecutor:
    """The executor of verify calls, with a pool of processes that can be killed."""

    def __init__(self, database: Database, pool: VerificationPool) -> None:
        self._database = database
        self._pool = pool
        self._library = LibraryCache()

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncGenerator[CallEnd, None]:  # noqa: ARG002 - no lease
        """Yield the verdicts as they arrive; the pool bounds how many documents are verified at once."""
        requests = [_REQUEST.decode(call.request) for call in calls]
        documents = await read_documents(self._database, self._library, requests)

        async def verify(call: ClaimedCall, request: Request) -> CallEnd:
            started = datetime.now(UTC)
            (document,) = list_references(request)
            if document.doc in documents:
                # Without its problem, which states conditions rather than steps.
                reply: Reply = await self._pool.verify(documents[document.doc].text)
            else:
                reply = fail_missing(document.doc)
            return end_calls([call], [reply], started)[0]

        async with aclosing(as_completed(map(verify, calls, requests))) as answers:
            async for answer in answers:
                yield answer


class ProgramExecutor:
    """The executor of execute calls, with a pool of processes that can be killed."""

    def __init__(self, pool: ProgramPool) -> None:
        self._pool = pool

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncGenerator[CallEnd, None]:  # noqa: ARG002 - no lease
        """Yield the outputs as they arrive; the pool bounds how many programs run at once."""

        async def execute(call: ClaimedCall) -> CallEnd:
            started = datetime.now(UTC)
            program = str(_REQUEST.decode(call.request).values["program"])
            return end_calls([call], [await self._pool.execute(program)], started)[0]

        async with aclosing(as_completed(map(execute, calls))) as answers:
            async for answer in answers:
                yield answer


OTHER_CLASSIFIER = Failure(
    kind=FailureKind.BACKEND_ERROR, detail="the job was given another difficulty classifier than this one"
)
UNKNOWN = Failure(kind=FailureKind.REFUSED, detail="Chinese, or without a known word: the classifier cannot tell")


class EstimateExecutor:
    """The executor of estimate calls, by the shipped difficulty classifier, which is read at the first call."""

    def __init__(self, weights: Path = WEIGHTS, embeddings: Path = EMBEDDINGS) -> None:
        self._weights = weights
        self._embeddings = embeddings
        self._limiter = CapacityLimiter(1)

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Yield one reply per call, all computed at once."""
        started = datetime.now(UTC)
        requests = [_REQUEST.decode(call.request) for call in calls]
        replies = await to_thread.run_sync(self._make_replies, requests, limiter=self._limiter)
        for end in end_calls(calls, replies, started):
            yield end

    def _make_replies(self, requests: Sequence[Request]) -> list[Reply]:
        """Estimate all requests; a classifier that cannot be read is an infrastructure failure, which can be fixed."""
        try:
            found = self._classifier.probabilities([str(request.values["question"]) for request in requests])
        except Unavailable as error:
            return [Failure(kind=FailureKind.BACKEND_ERROR, detail=error.message)] * len(requests)
        replies: list[Reply] = []
        for request, probability in zip(requests, found, strict=True):
            if request.model != ESTIMATOR.hash.hex():
                replies.append(OTHER_CLASSIFIER)
            else:
                replies.append(UNKNOWN if probability is None else Estimated(probability=probability))
        return replies

    @cached_property
    def _classifier(self) -> "DifficultyClassifier":
        # NumPy and the tokenizers, 8 MiB, which a judge without such calls does not need.
        from shared.models.difficulty import DifficultyClassifier, read_regression
        from shared.models.embedding import StaticEmbedder

        return DifficultyClassifier(read_regression(self._weights), StaticEmbedder(self._embeddings))


class RerankExecutor:
    """The executor of rerank calls, which are a request to the retriever each."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self.retriever = make_client(settings)
        self._library = LibraryCache()

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Rerank one call after another, since each is a whole batch for the model."""
        requests = [_REQUEST.decode(call.request) for call in calls]
        documents = await read_documents(self._database, self._library, requests)
        for call, request in zip(calls, requests, strict=True):
            started = datetime.now(UTC)
            yield end_calls([call], [await self._reply(request, documents)], started)[0]

    async def _reply(self, request: Request, documents: Mapping[str, Document]) -> Reply | RetrieverAway:
        """Return the scores; a job without a reranker gets a failure at once, and its pipeline continues without
        scores."""
        if request.model == NO_RERANKER.hash.hex():
            return NOT_CONFIGURED
        try:
            texts = [documents[ref.doc].whole for ref in list_references(request)]
        except KeyError as missing:
            return fail_missing(*missing.args)
        if not texts:
            return Scored(scores=())
        try:
            return await self.retriever.rerank(request.model, request.values["question"], texts)
        except NoReply as error:
            return translate_failure(error, self.retriever.address)


class GradeExecutor:
    """The executor of grade calls; the grader of each plug-in has its own pool, so that it stops no other."""

    def __init__(self, pool: GradingPool, plugin_pool: Callable[[Plugin], GradingPool]) -> None:
        """`plugin_pool` makes the pool of a plug-in's grader, when the first answer comes."""
        self._pool = pool
        self._plugin_pool = plugin_pool
        self._pools: dict[PluginPin, GradingPool] = {}

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncGenerator[CallEnd, None]:  # noqa: ARG002 - no lease
        """Yield the grades as they arrive; the pool bounds how many run at once."""
        async with aclosing(as_completed([self._grade(call) for call in calls])) as answers:
            async for answer in answers:
                yield answer

    async def _grade(self, call: ClaimedCall) -> AnsweredCall | Wait:
        request = _REQUEST.decode(call.request)
        rules = request.rules or MATH
        plugin, pool = loading.get_usable(Kind.GRADER, rules.grader), self._pool
        if plugin is not None and grader_identity(rules.grader).hash.hex() != request.model:
            plugin = None
        if plugin is not None:
            if plugin.pin not in self._pools:
                self._pools[plugin.pin] = self._plugin_pool(plugin)
            pool = self._pools[plugin.pin]
        elif rules.grader not in GRADERS:
            return _wait(call, rules)
        answer, gold = _require_text(request.values["answer"]), _require_text(request.values["gold"]) or ""
        started = datetime.now(UTC)
        reply = await pool.grade(answer, gold, rules)
        is_broken = isinstance(reply, Failure) and reply.kind is FailureKind.BACKEND_ERROR
        if is_broken and plugin is not None and loading.has_changed(plugin):
            return _wait(call, rules)
        return end_calls([call], [reply], started)[0]


def _wait(call: ClaimedCall, rules: Rules) -> Wait:
    """Make the call wait for the plug-in's code of when the job was submitted: other code would give other verdicts."""
    message = "it is not installed with the code that the job was submitted with; `mathrag plugin list` says more"
    return Wait(call.id, f"the plug-in's grader {rules.grader!r}", message)


def _require_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


GRAPH = text("""
    SELECT m.digest, (SELECT g.id FROM graphs g WHERE encode(g.hash, 'hex') = m.digest ORDER BY g.id LIMIT 1) AS graph
    FROM models m WHERE m.id = :model""")
# Calls of a paused job are still wanted: work that has begun may end.
WANTED = sql("""
    SELECT EXISTS (SELECT 1 FROM steps t JOIN samples s ON {WAITS_FOR_STEP}
                   JOIN jobs j ON j.id = s.job_id AND j.state <> 'cancelling' WHERE t.call_id = :call)""")
CHECK_S = 2.0
"""Between two checks whether a job still waits for a relation, which may take an hour."""
PREFIX = "mathrag-mining-"


class CannotMine(Exception):
    """The graph cannot be mined here; the message says why."""


class MineExecutor:
    """The executor of mine calls. A graph is written to a temporary folder when its first relation is mined."""

    def __init__(self, database: Database, pool: MiningPool) -> None:
        self._database = database
        self._pool = pool
        # Remove the folders of workers that were killed.
        for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            pid = folder.name.removeprefix(PREFIX).partition("-")[0]
            if folder.stat().st_uid == os.getuid() and pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._writing = asyncio.Lock()
        self._users: Counter[Path] = Counter()

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Mine one call after another: the worker claims one call per chunk, and runs one chunk per process.

        A call for which no job waits any more is released, and its process is killed.
        """
        for call in calls:
            started = datetime.now(UTC)
            reply = await self._reply_while_wanted(call)
            yield Release(call.id) if reply is None else end_calls([call], [reply], started)[0]

    async def close(self) -> None:
        """End the processes and remove the files."""
        await self._pool.close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _reply_while_wanted(self, call: ClaimedCall) -> Reply | None:
        replying = asyncio.create_task(self._reply(call))
        try:
            while not (await asyncio.wait({replying}, timeout=CHECK_S))[0]:
                if not (await self._database.column(WANTED, {"call": call.id}))[0]:
                    return None
            return await replying
        finally:
            replying.cancel()
            await asyncio.gather(replying, return_exceptions=True)

    async def _reply(self, call: ClaimedCall) -> Reply:
        request = _REQUEST.decode(call.request)
        if request.mining is None:
            return Failure(kind=FailureKind.REFUSED, detail="the call does not name a miner")
        if isinstance(request.mining, TemporalSimple):
            return Failure(kind=FailureKind.REFUSED, detail="this release does not have the miner temporal-simple")
        try:
            async with self._open_graph(call.model_id, request.model) as graph:
                return await self._pool.mine(graph, str(request.values["relation"]), request.mining)
        except CannotMine as error:
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=str(error))

    @asynccontextmanager
    async def _open_graph(self, model: int, identity: str) -> AsyncIterator[Path]:
        """Yield the folder of the model's graph, which is kept while any block uses it."""
        folder = self._folder / identity
        async with self._writing:
            if not folder.exists():
                await self._write_graph(folder, model, identity)
            self._users[folder] += 1
        try:
            yield folder
        finally:
            self._users[folder] -= 1

    async def _write_graph(self, folder: Path, model: int, identity: str) -> None:
        """Write the graph into `folder`, once the folders of others that no block uses are removed."""
        async with self._database.transaction() as connection:
            row = (await connection.execute(GRAPH, {"model": model})).one()
            if miner_identity(row.digest).hash.hex() != identity:
                raise CannotMine(
                    "the job was submitted with other miners than this worker has; restart the service and mine again"
                )
            if row.graph is None:
                raise CannotMine("the graph no longer exists; import it and mine again")
            for unused in [each for each in self._users if not self._users[each]]:
                del self._users[unused]
                await asyncio.to_thread(shutil.rmtree, unused, ignore_errors=True)
            partial = folder.with_suffix(".partial")
            partial.mkdir(exist_ok=True)
            from services.judge import graphs  # NumPy, which a judge that does not mine does not need

            await graphs.write_graph(connection, row.graph, partial)
        partial.rename(folder)


CHOICES = 10_000
"""Choices that are cached: two per relation of the running jobs, with at most 20 rules each."""
VOCABULARIES = 8
"""Banks whose relations and phrases are cached, and thresholds of random choices whose rule numbers are."""
NO_BANK = Failure(
    kind=FailureKind.BACKEND_ERROR,
    detail="the rule bank no longer exists: mine or import it again, then requeue the job",
)
NO_PHRASES = Failure(
    kind=FailureKind.BACKEND_ERROR,
    detail="the graph with the job's phrases no longer exists: create it again, then requeue the job",
)
NO_CHOICE = Failure(kind=FailureKind.REFUSED, detail="the call does not say which rules to choose")
ChosenRules = tuple[NumberedRule, ...]


class BankVocabulary(NamedTuple):
    """The relations of a bank's heads, and words for relations."""

    heads: Sequence[str]
    declared: Mapping[str, Phrase]
    names: RelationNames

    def phrases(self, relations: Collection[str]) -> dict[str, str]:
        return {relation: phrase(relation, self.declared.get(relation)) for relation in sorted(relations)}


class RulesExecutor:
    """The executor of calls that find rules. Its caches of banks and phrases are keyed by their hashes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._choices: LruCache[ChosenRules] = LruCache(CHOICES)
        self._vocabularies: LruCache[BankVocabulary] = LruCache(VOCABULARIES)
        self._numbers: LruCache[Sequence[int]] = LruCache(VOCABULARIES)

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:  # noqa: ARG002 - no lease
        """Yield one reply per call, all computed at once; the calls of a chunk have the same bank."""
        started = datetime.now(UTC)
        requests = [_REQUEST.decode(call.request) for call in calls]
        async with self._database.transaction() as connection:
            bank = await stored_rules.find_pinned_bank(connection, calls[0].model_id)
            replies = [NO_BANK] * len(calls) if bank is None else await self._make_replies(connection, bank, requests)
        for end in end_calls(calls, replies, started):
            yield end

    async def _make_replies(
        self, connection: AsyncConnection, bank: stored_rules.PinnedBank, requests: Sequence[Request]
    ) -> list[Reply]:
        known = {
            hash_: await self._read_vocabulary(connection, bank, hash_) for hash_ in {each.phrases for each in requests}
        }
        choices = [_find_choice(request, known[request.phrases]) for request in requests]
        taken = await self._find_rules(connection, bank, {each for each in choices if each is not None})
        made = zip(requests, choices, strict=True)
        return [_make_rules_reply(request, known[request.phrases], each, taken) for request, each in made]

    async def _read_vocabulary(
        self, connection: AsyncConnection, bank: stored_rules.PinnedBank, phrases: str
    ) -> BankVocabulary | None:
        key = f"{bank.hash} {phrases}"
        if found := self._vocabularies.find([key]):
            return found[key]
        declared = await stored_rules.find_phrases(connection, phrases) if phrases else {}
        if declared is None:
            return None
        relations = await stored_rules.list_relations(connection, bank.id)
        heads = [relation for relation, is_head in relations.items() if is_head]
        # All words by which questions may name a relation, with rules or without.
        names = [(relation, phrase(relation, declared.get(relation))) for relation in {*relations, *declared}]
        names += [(relation, said.inverse) for relation, said in declared.items() if said.inverse]
        made = BankVocabulary(heads, declared, RelationNames(names))
        self._vocabularies.keep({key: made})
        return made

    async def _find_rules(
        self, connection: AsyncConnection, bank: stored_rules.PinnedBank, asked: Collection[RuleRequest]
    ) -> Mapping[RuleRequest, ChosenRules]:
        keys = {each: f"{bank.hash} {each}" for each in asked}
        kept = self._choices.find(keys.values())
        missing = [each for each in asked if keys[each] not in kept]
        random = [each for each in missing if each.choice.order == "random"]
        # Draw random rules by their numbers, so that the bank need not be read.
        numbers = {each: await self._draw_numbers(connection, bank, each.choice) for each in random}
        wanted = {number for drawn in numbers.values() for number in drawn}
        rules = await stored_rules.find_rules_by_number(connection, bank.id, wanted) if wanted else {}
        found = {each: tuple(rules[number] for number in drawn) for each, drawn in numbers.items()}
        found |= await _read_choices(connection, bank, [each for each in missing if each.choice.order != "random"])
        self._choices.keep({keys[each]: rules for each, rules in found.items()})
        return {each: found[each] if each in found else kept[keys[each]] for each in asked}

    async def _draw_numbers(
        self, connection: AsyncConnection, bank: stored_rules.PinnedBank, choice: RuleChoice
    ) -> list[int]:  # fmt: skip
        key = f"{bank.hash} {choice.confidence} {choice.support}"
        if key not in (known := self._numbers.find([key])):
            known = {key: await stored_rules.list_rule_numbers(connection, bank.id, choice.confidence, choice.support)}
            self._numbers.keep(known)
        return [known[key][place] for place in draw(choice.seed, choice.most, len(known[key]))]


async def _read_choices(
    connection: AsyncConnection, bank: stored_rules.PinnedBank, asked: Sequence[RuleRequest]
) -> dict[RuleRequest, ChosenRules]:  # fmt: skip
    """Read the rules of each choice; the bank is read once, in batches."""
    taken: dict[RuleRequest, ChosenRules] = dict.fromkeys(asked, ())
    relations = {each.relation for each in asked}
    if not relations:
        return taken
    least = min(each.choice.confidence for each in asked)
    async for batch in stored_rules.stream_rules_for_heads(connection, bank.id, relations, least):
        by_head: dict[str, list[NumberedRule]] = defaultdict(list)
        for rule in batch:
            by_head[rule.rule.head.relation].append(rule)
        for each in asked:
            if each.relation in by_head:
                taken[each] = choose((*taken[each], *by_head[each.relation]), each, bank.miner)
    return taken


def _find_choice(request: Request, known: BankVocabulary | None) -> RuleRequest | None:
    """Find the choice that a request asks for; None if its relation is missing or not recognised."""
    if known is None or request.choice is None:
        return None
    relation, question = str(request.values["relation"]), str(request.values["question"])
    found = relation or known.names.find_in(question)
    return None if found is None else RuleRequest(found, request.side, request.choice)


def _make_rules_reply(
    request: Request, known: BankVocabulary | None, asked: RuleRequest | None, taken: Mapping[RuleRequest, ChosenRules]
) -> Reply:
    if request.choice is None:
        return NO_CHOICE
    if known is None:
        return NO_PHRASES
    if asked is None:
        return FoundRules(relation=None, phrases={} if request.values["question"] else known.phrases(known.heads))
    atoms = {atom for each in taken[asked] for atom in (each.rule.head, *each.rule.body)}
    return FoundRules(
        relation=asked.relation, rules=taken[asked], phrases=known.phrases({atom.relation for atom in atoms})
    )
