"""Model servers that answer wrongly, late or never: what is the moment's is tried again, what is the input's is kept as
what it is, nothing becomes a score, and every job ends by itself.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from tests.faults.backends import DEADLINE_S, Backends, BackendsBackEnd, backends, deaf, far_away
from tests.faults.gates import Session
from tests.faults.processes import until
from tests.faults.recording import Seen
from tests.faults.trial import JOB, Trial
from tests.faults.vocabulary import Event, Scenario, Subject, at, at_judged_share, misbehave
from tests.running import Document, ended

ITEMS = 30
FAILED = """
    SELECT DISTINCT a.id, c.role, a.accepted, a.outcome, convert_from(a.reply, 'UTF8') AS said FROM attempts a
    JOIN calls c ON c.id = a.call_id JOIN steps t ON t.call_id = a.call_id JOIN samples s ON s.id = t.sample_id
    JOIN jobs j ON j.id = s.job_id WHERE j.public_id = CAST($1 AS uuid) AND a.outcome <> 'value'"""
CUT_SHORT = """
    SELECT count(DISTINCT a.id) AS made, count(DISTINCT a.call_id) AS calls FROM attempts a
    JOIN steps t ON t.call_id = a.call_id JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id
    WHERE j.public_id = CAST($1 AS uuid) AND a.finish_reason = 'length'"""

NEWEST = "SELECT COALESCE(max(epoch), 0) AS epoch FROM residencies"
REFUSED = "SELECT 1 FROM residencies WHERE epoch > $1 AND reason LIKE '%silently truncates prompts that do not fit%'"


class Failed(NamedTuple):
    role: str
    outcome: str
    accepted: bool
    said: str


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backends]:
    with backends(tmp_path_factory.mktemp("backends"), ITEMS) as made:
        yield made


@dataclass(frozen=True)
class Ordeal(Trial):
    rig: Backends

    def begins(self, fault: str, *events: Event, **fields: object) -> str:
        self.seen.describe("; ".join(map(str, events)))
        job = self.stack.submit(fault, **JOB, **fields)
        asyncio.run(BackendsBackEnd(self.rig, job).play(Scenario(fault, events)))
        return job

    def list_failed(self, job: str) -> list[Failed]:
        with Session(self.stack) as session:
            rows = session.rows(FAILED, job)
        return [Failed(row["role"], row["outcome"], row["accepted"], row["said"]) for row in rows]

    def ends_but_for(self, job: str, failed: int) -> Document:
        document = self.stack.wait(job, ended)
        counts = document["request_counts"]
        assert (document["state"], counts["failed"]) == ("completed", failed), document
        assert counts["completed"] == counts["total"] - failed
        assert self.stack.get(f"/v1/jobs/{job}/audit")["violations"] == []
        report: Document = self.stack.get(f"/v1/jobs/{job}/report")
        return report


@pytest.fixture
def ordeal(rig: Backends, seen: Seen) -> Iterator[Ordeal]:
    try:
        yield Ordeal(rig.stack, rig.whole, seen, rig)
    finally:
        rig.behave()


def wrong(share: float, how: str) -> Event:
    return at(at_judged_share(share), misbehave(Subject.SERVER, how))


def outcomes(found: list[Failed]) -> Counter[tuple[str, str, bool]]:
    return Counter((each.role, each.outcome, each.accepted) for each in found)


def newest(ordeal: Ordeal) -> int:
    with Session(ordeal.stack) as session:
        return int(session.rows(NEWEST)[0]["epoch"])


@pytest.mark.fault("B1")
def test_a_status_of_trouble_is_an_attempt_that_is_made_again(ordeal: Ordeal) -> None:
    events = (wrong(0.2, "tgi 500 x3"), wrong(0.4, "vllm 424 x3"))
    job = ordeal.begins("B1", *events)
    ordeal.ends_whole(job)
    found = ordeal.list_failed(job)
    assert outcomes(found) == {("judge", "backend_error", False): 3, ("generate", "backend_error", False): 3}
    assert Counter(each.said.partition("HTTP ")[2][:3] for each in found) == {"500": 3, "424": 3}
    ordeal.seen.note(
        "each is an attempt of kind backend_error with its status and is tried again after 2 s; none is charged twice"
    )


@pytest.mark.fault("B1")
def test_trouble_that_does_not_end_fails_its_samples_in_words(ordeal: Ordeal) -> None:
    job = ordeal.begins("B1", wrong(0.4, "vllm 500"))
    report = ordeal.ends_but_for(job, ITEMS)
    found = outcomes(ordeal.list_failed(job))
    assert found == {("generate", "backend_error", False): 2 * ITEMS, ("generate", "backend_error", True): ITEMS}
    assert report["failures"] == {"backend_error": ITEMS}
    ordeal.seen.note("a call is tried three times, 2 and 15 s apart; then its sample fails as backend_error")


OLLAMA_TROUBLES = [
    ("B1", "500 x3", "backend_error", 3),
    ("B3", "reset x2", "connection", 2),
    ("B4", "half x2", "backend_error", 2),
]


@pytest.mark.parametrize(
    ("fault", "how", "kind", "times"),
    [pytest.param(*row, marks=pytest.mark.fault(row[0]), id=row[0]) for row in OLLAMA_TROUBLES],
)
def test_trouble_of_an_ollama_server_is_the_same(ordeal: Ordeal, fault: str, how: str, kind: str, times: int) -> None:
    job = ordeal.begins(f"{fault}-ollama", wrong(0.2, f"ollama {how}"), models={"judge": "ollama"})
    ordeal.ends_whole(job)
    assert outcomes(ordeal.list_failed(job)) == {("judge", kind, False): times}
    ordeal.seen.note(f"on Ollama: {how.partition(' ')[0]} is {kind} and is tried again")


@pytest.mark.fault("B22")
def test_a_server_that_is_overloaded_charges_nobody(ordeal: Ordeal) -> None:
    events = (wrong(0.2, "tgi 429 x3"), wrong(0.4, "vllm 503 x3"))
    job = ordeal.begins("B22", *events)
    ordeal.ends_whole(job)
    other = ordeal.begins("B22-ollama", wrong(0.2, "ollama 503 x3"), models={"judge": "ollama"})
    ordeal.ends_whole(other)
    assert ordeal.list_failed(job) == ordeal.list_failed(other) == []
    ordeal.seen.note("429 and 503 store no attempt; each call is answered once")


@pytest.mark.fault("B22")
def test_calls_wait_for_a_remote_server_that_is_away_and_other_jobs_go_on(ordeal: Ordeal) -> None:
    ordeal.seen.describe("a remote server is away while another job runs to its end")
    job = ordeal.stack.submit("B22-far", **JOB, models={"generate": "far"})
    until("it says that it waits", lambda: ordeal.stack.get(f"/v1/jobs/{job}").get("waiting"))
    [waiting] = ordeal.stack.get(f"/v1/jobs/{job}")["waiting"]
    assert waiting["what"] == "the server of model 'far'"
    assert waiting["since"] < waiting["next_try"]
    ordeal.ends_whole(ordeal.stack.submit("B22-beside", **JOB))
    assert ordeal.stack.get(f"/v1/jobs/{job}")["state"] == "running"
    with far_away(ordeal.rig):
        ordeal.ends_whole(job)
    assert ordeal.list_failed(job) == []
    assert "waiting" not in ordeal.stack.get(f"/v1/jobs/{job}")
    ordeal.seen.note("no attempt is stored for the time of the outage")


@pytest.mark.fault("B2")
def test_a_server_that_hangs_is_waited_for_until_the_calls_deadline(ordeal: Ordeal) -> None:
    job = ordeal.begins("B2", wrong(0.2, "tgi hang x2"), wrong(0.4, "tgi hang_after_headers x2"))
    ordeal.ends_whole(job)
    found = ordeal.list_failed(job)
    assert outcomes(found) == {("judge", "timeout", False): 4}
    ordeal.seen.note(f"each ends as timeout after `call_timeout_s` ({DEADLINE_S:g} s here) and is tried again")


@pytest.mark.fault("B2", "B22")
def test_a_server_that_accepts_nobody_is_away(ordeal: Ordeal) -> None:
    ordeal.seen.describe("a remote server with a full connection queue, until the job reports that it waits")
    with deaf(ordeal.rig.far_port):
        job = ordeal.stack.submit("B2-far", **JOB, models={"generate": "far"})
        until("it says that it waits", lambda: ordeal.stack.get(f"/v1/jobs/{job}").get("waiting"))
    with far_away(ordeal.rig):
        ordeal.ends_whole(job)
    assert ordeal.list_failed(job) == []


@pytest.mark.fault("B3")
def test_a_reset_in_the_middle_of_a_reply_is_an_attempt_that_is_made_again(ordeal: Ordeal) -> None:
    job = ordeal.begins("B3", wrong(0.2, "tgi reset x3"), wrong(0.4, "vllm reset x3"))
    report = ordeal.ends_whole(job)
    assert outcomes(ordeal.list_failed(job)) == {
        ("judge", "connection", False): 3,
        ("generate", "connection", False): 3,
    }
    assert report["calls_lapsed"] == 0


@pytest.mark.fault("B4")
def test_half_a_document_is_an_attempt_that_is_made_again(ordeal: Ordeal) -> None:
    job = ordeal.begins("B4", wrong(0.2, "tgi half x3"), wrong(0.4, "vllm half x3"))
    ordeal.ends_whole(job)
    expected = {("judge", "backend_error", False): 3, ("generate", "backend_error", False): 3}
    assert outcomes(ordeal.list_failed(job)) == expected


@pytest.mark.fault("B5")
def test_an_answer_that_the_limit_ended_is_kept_as_such(ordeal: Ordeal) -> None:
    job = ordeal.begins("B5", wrong(0.4, "vllm length x4"))
    report = ordeal.ends_whole(job)
    with Session(ordeal.stack) as session:
        (found,) = session.rows(CUT_SHORT, job)
    assert (found["made"], found["calls"], report["truncated"]) == (4, 4, 4)
    assert ordeal.list_failed(job) == []
    ordeal.seen.note("four replies are stored as truncated, each generated once")


@pytest.mark.fault("B6")
def test_no_text_is_an_answer_of_its_own_kind(ordeal: Ordeal) -> None:
    job = ordeal.begins("B6", wrong(0.2, "tgi empty x3"), wrong(0.4, "vllm empty x3"))
    report = ordeal.ends_but_for(job, 3)
    assert outcomes(ordeal.list_failed(job)) == {("judge", "unparsed", True): 3, ("generate", "refused", True): 3}
    assert report["failures"] == {"refused": 3}
    ordeal.seen.note("the judge's replies are unparsed, never a score; the generator's fail their samples as refused")


@pytest.mark.fault("B7")
def test_a_prompt_that_was_cut_has_no_answer(ordeal: Ordeal) -> None:
    """The server counted fewer tokens than the prompt has words, so its reply is about another prompt.

    The generator is asked again without the document; a sample both of whose prompts were cut fails.
    """
    with far_away(ordeal.rig):
        events = (wrong(0.2, "tgi cut x3"), wrong(0.4, "far cut x3"))
        job = ordeal.begins("B7", *events, models={"generate": "far"})
        failed = ordeal.stack.wait(job, ended)["request_counts"]["failed"]
        report = ordeal.ends_but_for(job, failed)
    dropped = report["fallbacks"].get("context", {}).get("context_exceeded", 0)
    assert dropped + 2 * failed == 3
    assert report["failures"].get("context_exceeded", 0) == failed
    found = ordeal.list_failed(job)
    assert outcomes(found) == {("judge", "context_exceeded", True): 3, ("generate", "context_exceeded", True): 3}
    assert all("the prompt was truncated" in each.said for each in found)


@pytest.mark.fault("B7")
def test_a_server_that_cuts_prompts_is_not_opened(ordeal: Ordeal) -> None:
    ordeal.rig.misbehave("vllm", "cut")
    ordeal.seen.describe("vLLM cuts prompts before it is woken")
    since = newest(ordeal)
    job = ordeal.stack.submit("B7-load", **JOB)
    with Session(ordeal.stack) as session:
        until("the residency is refused", lambda: session.rows(REFUSED, since))
    ordeal.ends_whole(job)  # the server was ended for it, and a new one does not cut
    ordeal.seen.note(
        "the residency is quarantined: 'silently truncates prompts that do not fit'; the server is started again"
    )


@pytest.mark.fault("B19")
def test_a_judge_that_says_no_rating_gives_no_score(ordeal: Ordeal) -> None:
    job = ordeal.begins("B19", wrong(0.2, "tgi unreadable x4"), wrong(0.4, "tgi out_of_range x4"))
    report = ordeal.ends_whole(job)
    found = ordeal.list_failed(job)
    assert outcomes(found) == {("judge", "unparsed", True): 8}
    assert report["parse_failures"] == 8
    assert sum("[[9]]" in each.said.replace("no single [[1]] to [[5]]", "") for each in found) == 4
    ordeal.seen.note("eight replies are unparsed; the audit recomputes every order from the others")
