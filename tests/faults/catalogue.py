"""Every fault that the system is held against, by id: what happens, and what is promised all the same.

`docs/reference/faults.md` is written from this table and from what the last runs saw.
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
        Fault(
            "P1",
            "kill -9 of a worker in the middle of model calls",
            "what it had in flight runs again, at most 32 calls; nothing else does",
        ),
        Fault(
            "P2",
            "kill -9 of a worker between a model's reply and its commit",
            "replies that were not committed are computed again, once their claims have lapsed",
        ),
        Fault(
            "P3",
            "kill -9 of a worker between a commit and the acknowledgement of its tick",
            "committed replies count and are not computed again; the sweeper wakes whom they make ready",
        ),
        Fault(
            "P4",
            "kill -9 of a worker between taking a tick and noting it as unacknowledged",
            "the lane is woken again within half a minute",
        ),
        Fault(
            "P5",
            "kill -9 of the worker's prefork child, as the kernel's OOM killer does it",
            "as for a worker; its main process forks another child",
        ),
        Fault(
            "P6",
            "the holder is frozen for longer than its claim and wakes while the next holds the device",
            "what it hands in late is discarded, each call counts once, and it reaches no backend under its old epoch",
        ),
        Fault("P7", "SIGTERM of a worker during a drain", "what it held is given back uncharged: no claim lapses"),
        Fault(
            "P8",
            "kill -9 of the guard in each state of the flip",
            "its model servers die with it, no epoch is served twice, and the next guard begins anew",
        ),
        Fault(
            "P9",
            "kill -9 of the scheduler in each state of the flip",
            "a decision is committed or was none, and the guard finishes a flip without a scheduler",
        ),
        Fault(
            "P10",
            "kill -9 of the model server in the middle of a call, and of a load",
            "its calls are suspects, its residency ends with the reason, and the model is loaded again",
        ),
        Fault("P11", "rolling restart of all services", "every job goes on by itself"),
        Fault(
            "P12",
            "a service that crashes over and over",
            "restarts are spaced out, 10 s at most; jobs wait, and go on when it stays up",
        ),
        Fault(
            "P14",
            "a process of somebody else has the id that a killed supervisor recorded for its child",
            "it is not waited for and not killed, wherever the wall clock was set meanwhile",
        ),
        Fault(
            "P15",
            "kill -9 of each process in each state of a batch of OpenAI's API",
            "the batch ends as it was going to, each line is in one of its files, once, and what was answered is kept",
        ),
        Fault(
            "P13",
            "several processes are stopped for 30 s",
            "the job goes on when they go on: no pause is longer because of the outage",
        ),
        Fault(
            "P16",
            "a process hangs for ever",
            "the supervisor kills it and starts another, and the job goes on",
        ),
        Fault(
            "R1",
            "Redis restarts with its append-only file",
            "ticks and lease come back as they were a second ago at most; the job goes on",
        ),
        Fault(
            "R2",
            "Redis restarts empty, or is flushed",
            "the sweeper sends ticks again, the guard writes the lease again; the rows know everything else",
        ),
        Fault("R3", "every Redis connection is killed", "every client connects again by itself"),
        Fault("R4", "Redis is away for 60 s", "no flip begins meanwhile; afterwards the job goes on by itself"),
        Fault(
            "R5",
            "Redis is full and refuses writes",
            "no lease is renewed and no tick sent, so nothing is claimed; with room again the job goes on",
        ),
        Fault(
            "R6",
            "Redis fails over to a replica that lacks the last writes",
            "an epoch that is over grants nothing: the guard refuses it, and writes the present one",
        ),
        Fault("R7", "Redis forgets its scripts", "a script that is not known is sent again"),
        Fault(
            "R8",
            "Redis answers later than the lease is renewed",
            "a job only takes longer; answers later than a client waits are as if Redis were away",
        ),
        Fault(
            "D1",
            "PostgreSQL restarts",
            "what was answered stays; what was cut off is done again, and charged to no call",
        ),
        Fault(
            "D2",
            "the connection is cut inside COMMIT: nobody knows whether it happened",
            "done once, happened or not: a claim is known by its token, a reply by its claim, a job by its key",
        ),
        Fault("D3", "serialization failures and deadlocks", "done again, and charged to no call"),
        Fault("D4", "no connection is left in the pool", "waited for; no call is charged for it"),
        Fault(
            "D5",
            "the disk is full during an insert",
            "waited for; what was answered stays, and nothing is half written",
        ),
        Fault("D6", "the database is read-only", "waited for; connections that may only read are given up"),
        Fault(
            "D7",
            "the schema is upgraded and downgraded with a job in flight",
            "the job goes on under the schema as it is then",
        ),
        Fault(
            "D8",
            "PostgreSQL is frozen for seconds",
            "waited for, and no longer than that; readiness says since when no scheduler has looked at the work",
        ),
        Fault(
            "Q1",
            "one tick arrives five times at once",
            "each call has one claim and each sample one lock: the others find nothing to do",
        ),
        Fault("Q2", "ticks arrive in another order", "nothing changes: a tick has no content"),
        Fault(
            "Q3",
            "every k-th tick is lost",
            "the sweeper sends another when the lost one no longer hides it, 15 s later at most",
        ),
        Fault(
            "Q4",
            "a tick is delivered again while its first copy still runs",
            "nothing changes: the second copy finds nothing to claim, or other work",
        ),
        Fault(
            "Q5",
            "100,000 ticks are queued",
            "few are kept, the others thrown away; no work is done twice and none waits",
        ),
        Fault(
            "T1",
            "the wall clock of one host jumps by an hour, forwards and backwards",
            "claims live by the database's clock; receipts and residencies stay in order, over a guard's restart, too",
        ),
        Fault("T2", "a clock is slewed", "as for a jump"),
        Fault(
            "T3",
            "the database's clock leaps",
            "claims lapse early at most, nobody waits until it has caught up; the audit may say that times went back",
        ),
        Fault(
            "T4",
            "a process does not come to renew its claims: it is starved",
            "its claims lapse, their calls run again, and what it hands in late is discarded",
        ),
        Fault(
            "T5",
            "wall clock and monotonic clock disagree",
            "what is measured follows monotonic clocks; a stamp never lies before an older one",
        ),
        Fault(
            "B1",
            "the backend answers 500 or 424",
            "tried three times, 2 and 15 s apart; then the sample fails as backend_error, and the next asker asks anew",
        ),
        Fault(
            "B2",
            "the backend does not answer, or hangs after its headers",
            "broken off at the call's deadline and tried again as a timeout; its neighbours are answered meanwhile",
        ),
        Fault(
            "B3",
            "the connection is reset in the middle of a reply",
            "tried again; it is a suspect only if the model server died",
        ),
        Fault("B4", "200 with half a document", "no part of it is read; tried again as backend_error"),
        Fault("B5", "200, ended by length", "kept as an answer, said to be truncated, not asked for again"),
        Fault(
            "B6",
            "200 without a text",
            "kept: unparsed of a judge, refused of a generator, never a score",
        ),
        Fault(
            "B7",
            "the backend cuts the prompt in silence",
            "fewer tokens read than the prompt has words are no answer; no residency opens on a server that cuts",
        ),
        Fault(
            "B8",
            "the model was pulled again: another digest",
            "no reply of another model is filed under the pinned one; what the old runner keeps is missed and named",
        ),
        Fault(
            "B9",
            "part of the model is not on the GPU",
            "the residency ends, its calls uncharged; a load that is not wholly on the GPU quarantines, in MiB",
        ),
        Fault(
            "B10",
            "unload says 200, and the memory stays taken",
            "it is unloaded once more; then nothing is loaded over it, and the reason says what is missing, in MiB",
        ),
        Fault("B11", "nothing is listed as loaded, and the memory stays taken", "the list is not believed: as B10"),
        Fault(
            "B12",
            "somebody else loads another model",
            "the residency ends, its calls uncharged; nothing is loaded beside it, and the reason names it and a fix",
        ),
        Fault(
            "B13",
            "the context shrank after the backend ran out of memory",
            "the residency ends at the next look; a load with another context than was asked for quarantines",
        ),
        Fault(
            "B14",
            "out of GPU memory while generating",
            "the model is loaded again; the calls that its runner took with it are suspects and run alone",
        ),
        Fault(
            "B15",
            "another process takes 3 GB",
            "nothing is loaded over it, and the reason names process and MiB; what it takes counts as its own",
        ),
        Fault("B16", "what is freed shows as free four seconds later", "the flip waits, and nothing is quarantined"),
        Fault(
            "B17",
            "NVML is not available",
            "what cannot be measured is not called verified: quarantined until it can be, or is declared",
        ),
        Fault(
            "B18",
            "the GPU falls off the bus",
            "the residency ends at the next sample, its calls go back uncharged; quarantined until the GPU is back",
        ),
        Fault(
            "B19",
            "the judge's answer cannot be read, or is out of range",
            "unparsed, never a score and not clamped to one; the candidate is ranked without, and counted",
        ),
        Fault(
            "B20",
            "an index is gone, or is not the one that the job pinned",
            "every sample that needs it fails in words that name the index; the same upload builds it again",
        ),
        Fault(
            "B21",
            "a kill beside other calls of a batch",
            "what lapsed runs again alone; with `deterministic: true` every reply is that of an undisturbed run",
        ),
        Fault(
            "B22",
            "a model server that calls share is away, accepts nobody, or is overloaded (429, 502, 503, 504)",
            "its calls wait uncharged and say for what; other models' calls go on; they are answered once it is back",
        ),
        Fault(
            "B23",
            "the search engine, the embedding server or the retriever is away in the middle of a job",
            "searches wait uncharged and say for what; other indexes go on; they are answered once it is back",
        ),
        Fault(
            "S1",
            "a sample that crashes what reads it",
            "its grader is killed at its deadline; that sample has no verdict, and says so; the others complete",
        ),
        Fault(
            "S2",
            "a problem of 20,000 tokens",
            "a typed failure of that sample alone, before a model is asked; nothing is cut in silence",
        ),
        Fault(
            "S3",
            "NUL bytes, lone surrogates, a megabyte of LaTeX",
            "the upload is refused with its line, and nothing of it is kept",
        ),
        Fault("S4", "an empty corpus", "it is refused, so no job can be submitted over one"),
        Fault("S5", "one custom_id twice", "the upload is refused with both lines, and nothing of it is kept"),
        Fault("S6", "a job of 1 and a job of 50,000", "both end, with every sample once, and at most one load"),
        Fault(
            "C1",
            "cancel, in every state of a job",
            "its samples end as cancelled, ended ones keep their outcome, and no model call of it begins any more",
        ),
        Fault("C2", "many cancels at once", "each ends once; a job that shares their calls completes"),
        Fault(
            "C3",
            "delete while it runs",
            "nothing that is stored can be deleted over the API; the purge takes no job that has not ended",
        ),
        Fault(
            "C4",
            "an urgent job arrives in the middle of a drain",
            "its calls are claimed first, and it ends first, without a load of its own",
        ),
        Fault(
            "C5",
            "two jobs with different judges",
            "one load for each model: what both want of the generator is drained at once",
        ),
        Fault(
            "C6",
            "a job of 300,000 samples is cancelled",
            "answered at once; its samples end and are chained in batches, and others' ends and flips wait for none",
        ),
        Fault(
            "H1",
            "the disk for logs and indexes is full",
            "log lines are lost and nothing else; an index without room is refused in words",
        ),
        Fault("H2", "memory is short: files are read from the disk again", "loads take longer, up to `load_timeout_s`"),
        Fault("H3", "no file descriptor is left", "it takes no new connection and lives; whoever asks tries again"),
        Fault(
            "H4",
            "the host reboots",
            "everything that was committed is there, and jobs go on when the services are started again",
        ),
        Fault(
            "X8",
            "rows changed as the application's role, or as the owner; triggers, functions and rights replaced",
            "what a report is made from cannot be changed by the application, and the audit finds who changes it",
        ),
        Fault(
            "V1",
            "a sample whose stored data or pipeline this release cannot read",
            "it fails as `unreadable`, in words that name what cannot be read; every other sample goes on",
        ),
        Fault(
            "V2",
            "rows that the previous release wrote",
            "after the migration its jobs are listed, go on to their end, and their audits are clean",
        ),
        Fault(
            "V3",
            "a job with more slots in a step than a step can hold",
            "it is refused with the number, the limit and the parameter to lower; at run time its sample alone fails",
        ),
        Fault(
            "X6",
            "a Parquet file that decompresses to gigabytes",
            "it is refused in words by a process of at most 512 MiB; the orchestrator stays below 900 MiB",
        ),
        Fault(
            "X7",
            "a CSV header of 40,000 columns",
            "it is refused at once, with the number of columns and the limit",
        ),
        Fault(
            "X1",
            "a header without end",
            "cut off at 64 KiB, 100 fields or 10 s with 431 or 408; others are answered meanwhile",
        ),
        Fault(
            "X2",
            "half-open connections and idle uploads",
            "disconnected after 10 s without a header, 30 s without a byte of body; an upload's place is free again",
        ),
        Fault("X3", "more connections than allowed", "503 and closed at once; there is room when one of them ends"),
        Fault(
            "X4",
            "a page of another port writes",
            "403: where no keys are asked for, only the service's own address and `access.hosts` may write",
        ),
        Fault(
            "X5",
            "identifiers and parameters no honest client sends",
            "422 with the field, or the line; no operation answers 500, and nothing is stored",
        ),
        Fault(
            "L1",
            "many clients that read a long answer slowly",
            "they hold neither a connection to the database nor a thread; other requests are answered",
        ),
        Fault(
            "L2",
            "slow uploads, as many as may run at once",
            "408 below 64 KiB/s over a minute, so that their places are free again",
        ),
        Fault(
            "L3",
            "a stranger opens more connections than allowed and sends nothing",
            "the connection that has waited longest for a request is closed for a new one",
        ),
        Fault(
            "U1",
            "a form with hundreds of wrong fields",
            "it is checked twenty times at most and says that there may be further errors; others are answered",
        ),
        Fault(
            "U3",
            "a packed graph with long names",
            "names of over 1,000 characters and of 64 MiB in all are refused; the orchestrator stays below 900 MiB",
        ),
        Fault(
            "U4",
            "lines with thousands of values",
            "a line has 10,000 values at most; others are answered, the orchestrator stays below 900 MiB",
        ),
        Fault(
            "U5",
            "plans of experiments of 1,000 cells, many at once",
            "they are computed one after the other; other requests are answered",
        ),
        Fault(
            "U6",
            "a job of 200,000 samples is cancelled",
            "the cancellation is answered at once, and other requests are answered while the job ends",
        ),
        Fault(
            "H5",
            "the disk under the data folder is full, and processes end meanwhile",
            "the supervisor says so and starts them again until there is room; then the job goes on",
        ),
        Fault(
            "H6",
            "another user of the machine owns the device, or tries to hold the files of a stack",
            "a lock of somebody else is refused with the user's name; no file of the data folder opens to others",
        ),
    )
}
