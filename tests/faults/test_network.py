"""A network between hosts that loses, forgets or delays packets without a word, under clocks that are minutes apart."""

import time
import uuid
from collections.abc import Iterator
from datetime import datetime

import httpx2
import pytest

from tests.faults import clocks, network
from tests.faults.hosts import APART_S, GUARDS, HOSTS, OPERATOR, ORCHESTRATORS, WORKERS, Hosts, run_hosts
from tests.faults.processes import until
from tests.faults.real import done
from tests.faults.recording import Seen
from tests.faults.trial import JOB
from tests.running import DEADLINE_S, ended

ITEMS = 60
FIRST, OTHER = ORCHESTRATORS
"""The jobs of a trial are submitted at the first one, and followed at the other one."""
PAIRS = (
    ("judge-1", "database"),
    ("judge-1", "redis"),
    ("judge-1", "guard-1"),
    ("judge-1", "retriever"),
    ("generator-1", "database"),
    ("generator-1", "redis"),
    ("generator-1", "guard-2"),
    ("guard-1", "database"),
    ("guard-1", "redis"),
    ("retriever", "database"),
    (FIRST, "database"),
    (FIRST, "redis"),
    (FIRST, "guard-1"),
    (FIRST, "retriever"),
    (OPERATOR, FIRST),
)
"""One of each kind. Workers also ask the guard of the other lane for its device, once."""
CUT_S = 20.0
"""Longer than a claim and the lease last without renewal, 5 and 15 s."""
ALONE_S = 60.0
"""Longer than a connection lasts without an answer, 25 or 45 s."""
PARTNERS = {
    "judge-1": "guard-1",
    "guard-1": "redis",
    "retriever": "database",
    "database": FIRST,
    "redis": FIRST,
    FIRST: OPERATOR,
}
"""Hosts that are isolated, each with one that it must work with again afterwards."""
DELAY_S, LOSS = 0.025, 0.02
RECOVERED_S = 150.0
"""A host that does not work within this time hangs."""
CORPUS = b'{"id": "only", "text": "The sum of two and two is four."}\n'
NOW = "SELECT clock_timestamp()"
OF_JOB = """
    FROM attempts a WHERE a.call_id IN (
        SELECT t.call_id FROM samples s JOIN steps t ON t.sample_id = s.id JOIN jobs j ON j.id = s.job_id
        WHERE j.public_id::text = $1)"""
STANDSTILL = f"""
    SELECT max(gap) FROM (
        SELECT created_at, extract(epoch FROM created_at - lag(created_at) OVER (ORDER BY created_at)) AS gap {OF_JOB}
        AND accepted) gaps WHERE created_at > $2"""  # noqa: S608 - constants
REPEATED = f"SELECT count(*) {OF_JOB} AND NOT accepted"
LOADS = "SELECT count(*) FROM residencies"
APART = """
    SELECT extract(epoch FROM max(ended_at - created_at) - min(ended_at - created_at))
    FROM attempts WHERE device IS NULL AND worker LIKE 'judge@%'"""
WORKED = """
    SELECT extract(epoch FROM min(a.created_at) - $1::timestamptz) FROM attempts a JOIN calls c ON c.id = a.call_id
    WHERE a.accepted AND a.created_at > $1 AND a.worker LIKE $2 AND COALESCE(a.device, '') LIKE $3 AND c.role LIKE $4"""

pytestmark = pytest.mark.skipif(not clocks.LIBRARIES, reason="libfaketime is not installed (Debian: libfaketime)")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := network.explain_absence():
        pytest.skip(reason)
    with run_hosts(tmp_path_factory.mktemp("hosts"), ITEMS) as running:
        yield running


@pytest.mark.fault("N4")
def test_hosts_whose_clocks_are_minutes_apart(hosts: Hosts, seen: Seen) -> None:
    seen.describe(f"libfaketime sets the clock of each host {APART_S / 60:g} minutes ahead of the one before")
    trial = Trial(hosts, seen, (OPERATOR, FIRST))
    trial.ends_well()
    assert hosts.rows(APART)[0][0] > APART_S / 2
    seen.note("all other trials of this family ran under the same clocks")


@pytest.mark.fault("N1")
@pytest.mark.parametrize("pair", PAIRS, ids=" - ".join)
def test_two_hosts_that_lose_each_others_packets_for_a_while(hosts: Hosts, seen: Seen, pair: tuple[str, str]) -> None:
    seen.describe(f"a switch loses every packet between two hosts for {CUT_S:g} s, at a fifth of the judge's calls")
    trial = Trial(hosts, seen, pair)
    hosts.network.cut(*pair)
    time.sleep(CUT_S)
    hosts.network.heal()
    trial.ends_well()


@pytest.mark.fault("N3")
def test_a_slow_network_that_loses_packets(hosts: Hosts, seen: Seen) -> None:
    seen.describe(f"a switch delays every packet between all hosts by {DELAY_S * 1000:g} ms, and loses {LOSS:.0%}")
    trial = Trial(hosts, seen, (OPERATOR, FIRST))
    hosts.network.disturb(delay_s=DELAY_S, loss=LOSS)
    try:
        hosts.services[OTHER].wait(trial.job, ended)
    finally:
        hosts.network.heal()
    trial.ends_well()


@pytest.mark.fault("N2")
@pytest.mark.parametrize("pair", PAIRS, ids=" - ".join)
def test_two_hosts_whose_connections_are_forgotten(hosts: Hosts, seen: Seen, pair: tuple[str, str]) -> None:
    seen.describe(
        "a switch loses every packet of the connections that two hosts have, for ever and without a reset, and lets "
        "new connections pass"
    )
    trial = Trial(hosts, seen, pair)
    assert hosts.network.forget(*pair)
    trial.ends_well()


@pytest.mark.fault("N5")
@pytest.mark.parametrize("host", PARTNERS, ids="{} - all others".format)
def test_a_host_that_is_isolated(hosts: Hosts, seen: Seen, host: str) -> None:
    seen.describe(f"a switch loses every packet from and to a host for {ALONE_S:g} s, at a fifth of the judge's calls")
    trial = Trial(hosts, seen, (host, PARTNERS[host]))
    hosts.network.cut(host, *(other for other in HOSTS if other != host))
    time.sleep(ALONE_S)
    hosts.network.heal()
    trial.ends_well()


class Trial:
    """A job during which something happens to two hosts."""

    def __init__(self, hosts: Hosts, seen: Seen, pair: tuple[str, str]) -> None:
        """Submit the job, and return at a fifth of the judge's calls."""
        self._hosts, self._seen, self._pair = hosts, seen, pair
        self._loads, self._restarts = hosts.rows(LOADS), hosts.restarts()
        self.job = hosts.services[FIRST].submit("faults", **JOB)
        hosts.services[OTHER].wait(self.job, lambda document: done(document, "judge") > 50)
        self._began = self._now()

    def ends_well(self) -> None:
        """Wait until the hosts that were parted work together again, and the job is complete; record both."""
        self._seen.figure("works again s", self._recover(self._now()))
        other = self._hosts.services[OTHER]
        other.assert_whole(self.job)
        report = other.get(f"/v1/jobs/{self.job}/report")
        self._seen.figure("longest pause s", self._hosts.rows(STANDSTILL, self.job, self._began)[0][0])
        self._seen.figure("calls lapsed", report["calls_lapsed"])
        self._seen.figure("calls repeated", self._hosts.rows(REPEATED, self.job)[0][0])
        self._seen.figure("job s", report["seconds"])
        self._seen.figure("loads", self._hosts.rows(LOADS)[0][0] - self._loads[0][0])
        until("every service runs", self._hosts.are_well)
        self._seen.figure("restarts", self._hosts.restarts() - self._restarts)

    def _recover(self, since: datetime) -> float:
        """Wait until the two hosts work together; the seconds that it took."""
        began = time.monotonic()
        match self._pair:
            case (one, other) if "retriever" in (one, other) and one not in WORKERS:
                api = self._hosts.services[FIRST if one == FIRST else OTHER].api
                request = {"params": {"name": f"more-{uuid.uuid4()}"}, "content": CORPUS}
                until("the retriever makes an index", lambda: api.post("/v1/corpora", **request).is_success)
            case (one, other) if FIRST in (one, other):
                until(f"{FIRST} is ready", lambda: self._hosts.is_ready(FIRST))
                self._hosts.services[OTHER].api.post(f"/v1/jobs/{self._submit()}/cancel")
            case (guard, "database") if guard in GUARDS:
                until("the guard reads the database", lambda: self._hosts.asks_database(guard, since))
            case (guard, "redis") if guard in GUARDS:
                renewed = self._hosts.has_renewed_lease
                until("the guard renews the lease", lambda: renewed(guard, time.monotonic() - began))
            case (worker, "redis") if worker in WORKERS:
                # Calls of this job need no message any longer.
                self._hosts.services[OTHER].wait(self.job, ended)
                later = self._now()
                return (later - since).total_seconds() + self._wait_for_work(later)
            case _:
                return self._wait_for_work(since)
        return time.monotonic() - began

    def _wait_for_work(self, since: datetime) -> float:
        """Wait for an answered call that took both hosts; another job makes more when this one has ended."""
        other, job = self._hosts.services[OTHER], self.job
        worker = next((f"%@{host}:%" for host in self._pair if host in WORKERS), "%")
        device = next((GUARDS[host] for host in self._pair if host in GUARDS), "%")
        role = "retrieve" if "retriever" in self._pair else "%"
        deadline = time.monotonic() + RECOVERED_S
        while (found := self._hosts.rows(WORKED, since, worker, device, role)[0][0]) is None:
            assert time.monotonic() < deadline, f"{self._pair} did not work together again"
            if ended(other.get(f"/v1/jobs/{job}")):
                job = other.submit("more", **JOB)
            time.sleep(0.2)
        if job != self.job:
            other.api.post(f"/v1/jobs/{job}/cancel")
            other.wait(job, ended)
        return float(found)

    def _submit(self) -> str:
        """Submit a job at the first orchestrator, which may just have been cut off."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self._hosts.services[FIRST].submit("more", **JOB)
            except (httpx2.TransportError, AssertionError):
                assert time.monotonic() < deadline
                time.sleep(0.5)

    def _now(self) -> datetime:
        found: datetime = self._hosts.rows(NOW)[0][0]
        return found
