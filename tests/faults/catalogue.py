"""Every fault that the system is held against, by id: what happens, and what is promised all the same.

`docs/faults.md` is written from this table and from what the last runs saw.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    """One row."""

    id: str
    what: str
    promise: str
    """What holds although it happens; that nothing is lost, doubled or overlapping holds for every row."""


FAULTS: dict[str, Fault] = {
    fault.id: fault
    for fault in (
        Fault("P1", "kill -9 of a worker in the middle of model calls", ""),
        Fault("P2", "kill -9 of a worker between a model's reply and its commit", ""),
        Fault("P3", "kill -9 of a worker between a commit and the acknowledgement of its tick", ""),
        Fault("P4", "kill -9 of a worker between taking a tick and noting it as unacknowledged", ""),
        Fault("P5", "kill -9 of the worker's prefork child, as the kernel's OOM killer does it", ""),
        Fault("P6", "the holder is frozen for longer than its claim and wakes while the next holds the device", ""),
        Fault("P7", "SIGTERM of a worker during a drain", ""),
        Fault("P8", "kill -9 of the guard in each state of the flip", ""),
        Fault("P9", "kill -9 of the scheduler in each state of the flip", ""),
        Fault("P10", "kill -9 of the model server in the middle of a call, and of a load", ""),
        Fault("P11", "rolling restart of all services", ""),
        Fault("P12", "a service that crashes over and over", ""),
        Fault("R1", "Redis restarts with its append-only file", ""),
        Fault("R2", "Redis restarts empty, or is flushed", ""),
        Fault("R3", "every Redis connection is killed", ""),
        Fault("R4", "Redis is away for 60 s", ""),
        Fault("R5", "Redis is full and refuses writes", ""),
        Fault("R6", "Redis fails over to a replica that lacks the last writes", ""),
        Fault("R7", "Redis forgets its scripts", ""),
        Fault("R8", "Redis answers later than the lease is renewed", ""),
        Fault("D1", "PostgreSQL restarts", ""),
        Fault("D2", "the connection is cut inside COMMIT: nobody knows whether it happened", ""),
        Fault("D3", "serialization failures and deadlocks", ""),
        Fault("D4", "no connection is left in the pool", ""),
        Fault("D5", "the disk is full during an insert", ""),
        Fault("D6", "the database is read-only", ""),
        Fault("D7", "the schema is upgraded and downgraded with a job in flight", ""),
        Fault("Q1", "one tick arrives five times at once", ""),
        Fault("Q2", "ticks arrive in another order", ""),
        Fault("Q3", "every k-th tick is lost", ""),
        Fault("Q4", "a tick is delivered again while its first copy still runs", ""),
        Fault("Q5", "100,000 ticks are queued", ""),
        Fault("T1", "the wall clock of one host jumps by an hour, forwards and backwards", ""),
        Fault("T2", "a clock is slewed", ""),
        Fault("T3", "the database's clock leaps", ""),
        Fault("T4", "a process does not come to renew its claims: it is starved", ""),
        Fault("T5", "wall clock and monotonic clock disagree", ""),
        Fault("B1", "the backend answers 500, 503, 429 or 424", ""),
        Fault("B2", "the backend does not accept, does not answer, or hangs after its headers", ""),
        Fault("B3", "the connection is reset in the middle of a reply", ""),
        Fault("B4", "200 with half a document", ""),
        Fault("B5", "200, ended by length", ""),
        Fault("B6", "200 without a text", ""),
        Fault("B7", "the backend cuts the prompt in silence", ""),
        Fault("B8", "the model was pulled again: another digest", ""),
        Fault("B9", "part of the model is not on the GPU", ""),
        Fault("B10", "unload says 200, and the memory stays taken", ""),
        Fault("B11", "nothing is listed as loaded, and the memory stays taken", ""),
        Fault("B12", "somebody else loads another model", ""),
        Fault("B13", "the context shrank after the backend ran out of memory", ""),
        Fault("B14", "out of GPU memory while generating", ""),
        Fault("B15", "another process takes 3 GB", ""),
        Fault("B16", "what is freed shows as free four seconds later", ""),
        Fault("B17", "NVML is not available", ""),
        Fault("B18", "the GPU falls off the bus", ""),
        Fault("B19", "the judge's answer cannot be read, or is out of range", ""),
        Fault("B20", "an index is gone, or is not the one that the job pinned", ""),
        Fault("S1", "a sample that crashes what reads it", ""),
        Fault("S2", "a problem of 20,000 tokens", ""),
        Fault("S3", "NUL bytes, lone surrogates, a megabyte of LaTeX", ""),
        Fault("S4", "an empty corpus", ""),
        Fault("S5", "one custom_id twice", ""),
        Fault("S6", "a job of 1 and a job of 50,000", ""),
        Fault("C1", "cancel, in every state of a job", ""),
        Fault("C2", "many cancels at once", ""),
        Fault("C3", "delete while it runs", ""),
        Fault("C4", "an urgent job arrives in the middle of a drain", ""),
        Fault("C5", "two jobs with different judges", ""),
        Fault("H1", "the disk for logs and indexes is full", ""),
        Fault("H2", "memory is short: files are read from the disk again", ""),
        Fault("H3", "no file descriptor is left", ""),
        Fault("H4", "the host reboots", ""),
    )
}
