"""The faults that the tests produce, by id: the event, and the behavior that is promised in spite of it.

`docs/reference/faults.md` is written from this table and from the results of the last runs.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    """One row."""

    id: str
    what: str
    promise: str
    """The promised behavior. Every row also promises no loss, no duplicate and no overlapping residencies."""


FAULTS: dict[str, Fault] = {
    fault.id: fault
    for fault in (
        Fault(
            "P1",
            "kill -9 of a worker during its model calls",
            "The calls in flight run again, at most 32. No other call does.",
        ),
        Fault(
            "P2",
            "kill -9 of a worker between a model's reply and its commit",
            "Replies that were not committed are computed again after their claims lapse.",
        ),
        Fault(
            "P3",
            "kill -9 of a worker between a commit and the acknowledgement of its tick",
            "Committed replies count and are not computed again. The sweeper wakes the samples that they make ready.",
        ),
        Fault(
            "P4",
            "kill -9 of a worker between taking a tick and recording it as unacknowledged",
            "The lane is woken again within 30 s.",
        ),
        Fault(
            "P5",
            "kill -9 of the worker's prefork child, as the kernel's OOM killer does it",
            "Same as for a worker. Its main process forks another child.",
        ),
        Fault(
            "P6",
            "the worker that holds the device is frozen for longer than its claim and wakes while the next "
            "worker holds the device",
            "Its late replies are discarded, each call counts once, and it reaches no back end under its old epoch.",
        ),
        Fault(
            "P7",
            "SIGTERM of a worker during a drain",
            "Its calls are given back without charging a try. No claim lapses.",
        ),
        Fault(
            "P8",
            "kill -9 of the guard in each state of the flip",
            "Its model servers die with it, no epoch is served twice, and the next guard starts again.",
        ),
        Fault(
            "P9",
            "kill -9 of the scheduler in each state of the flip",
            "A decision takes effect only if it is committed. The guard finishes a flip without a scheduler.",
        ),
        Fault(
            "P10",
            "kill -9 of the model server during a call, and during a load",
            "Its calls become suspects, its residency ends with the reason, and the model is loaded again.",
        ),
        Fault(
            "P11",
            "rolling restart of all services",
            "Every job continues without intervention.",
        ),
        Fault(
            "P12",
            "a service that crashes repeatedly",
            "Restarts are spaced out by at most 10 s. Jobs wait and continue when the service stays up.",
        ),
        Fault(
            "P14",
            "a foreign process has the id that a killed supervisor recorded for its child",
            "The supervisor neither waits for the process nor kills it, even if the wall clock was changed in between.",
        ),
        Fault(
            "P15",
            "kill -9 of each process in each state of a batch of OpenAI's API",
            "The batch reaches the state it was heading for. Each line is in one of its files, once, and given "
            "answers are kept.",
        ),
        Fault(
            "P13",
            "several processes are stopped for 30 s",
            "The job continues when the processes do. The outage lengthens no later pause.",
        ),
        Fault(
            "P16",
            "a process hangs forever",
            "The supervisor kills it and starts another, and the job continues.",
        ),
        Fault(
            "R1",
            "Redis restarts with its append-only file",
            "Ticks and lease return in a state at most 1 s old. The job continues.",
        ),
        Fault(
            "R2",
            "Redis restarts empty, or is flushed",
            "The sweeper sends ticks again, and the guard writes the lease again. All other state is in PostgreSQL.",
        ),
        Fault(
            "R3",
            "every Redis connection is killed",
            "Every client reconnects without intervention.",
        ),
        Fault(
            "R4",
            "Redis is away for 60 s",
            "No flip begins during the outage. Afterwards the job continues without intervention.",
        ),
        Fault(
            "R5",
            "Redis is full and refuses writes",
            "No lease is renewed and no tick is sent, so no call is claimed. The job continues when Redis has "
            "room again.",
        ),
        Fault(
            "R6",
            "Redis fails over to a replica that lacks the last writes",
            "An epoch that has ended grants nothing. The guard refuses it and writes the current one.",
        ),
        Fault(
            "R7",
            "Redis forgets its scripts",
            "The client sends an unknown script again.",
        ),
        Fault(
            "R8",
            "Redis answers more slowly than the lease is renewed",
            "The job only takes longer. An answer after the client's timeout counts as an outage of Redis.",
        ),
        Fault(
            "D1",
            "PostgreSQL restarts",
            "Stored answers stay. Interrupted work is done again, and no call is charged a try.",
        ),
        Fault(
            "D2",
            "the connection is cut inside COMMIT, so the client cannot know the outcome",
            "The work is done exactly once in both cases. A claim is recognized by its token, a reply by its "
            "claim, a job by its key.",
        ),
        Fault(
            "D3",
            "serialization failures and deadlocks",
            "The transaction is done again, and no call is charged a try.",
        ),
        Fault(
            "D4",
            "no connection is left in the pool",
            "Services wait for one. No call is charged a try.",
        ),
        Fault(
            "D5",
            "the disk is full during an insert",
            "Services wait. Stored answers stay, and no answer is half written.",
        ),
        Fault(
            "D6",
            "the database is read-only",
            "Services wait and give up connections that may only read.",
        ),
        Fault(
            "D7",
            "the schema is upgraded and downgraded with a job in flight",
            "The job continues under the schema in force.",
        ),
        Fault(
            "D8",
            "PostgreSQL is frozen for seconds",
            "Services wait no longer than the outage lasts. Readiness says how long ago a scheduler last "
            "checked the work.",
        ),
        Fault(
            "Q1",
            "one tick arrives five times at once",
            "Each call has one claim and each sample one lock. The other copies find no work.",
        ),
        Fault(
            "Q2",
            "ticks arrive in another order",
            "The result is the same, because a tick has no content.",
        ),
        Fault(
            "Q3",
            "every k-th tick is lost",
            "The sweeper sends another once the lost one no longer hides it, at most 15 s later.",
        ),
        Fault(
            "Q4",
            "a tick is delivered again while its first copy still runs",
            "The result is the same. The second copy finds no call to claim, or claims other work.",
        ),
        Fault(
            "Q5",
            "100,000 ticks are queued",
            "A few are kept and the others discarded. No work is done twice, and no work waits.",
        ),
        Fault(
            "T1",
            "the wall clock of one host jumps by an hour, forwards and backwards",
            "Claims follow the database's clock. Receipts and residencies stay in order, also across a restart "
            "of the guard.",
        ),
        Fault(
            "T2",
            "a clock is slewed",
            "Same as for a jump.",
        ),
        Fault(
            "T3",
            "the database's clock leaps",
            "Claims lapse early at worst, and no process waits for the clock to catch up. The audit may report "
            "that times went back.",
        ),
        Fault(
            "T4",
            "a process is starved and does not renew its claims",
            "Its claims lapse, their calls run again, and its late replies are discarded.",
        ),
        Fault(
            "T5",
            "wall clock and monotonic clock disagree",
            "Durations follow monotonic clocks. A time stamp is never earlier than an older one.",
        ),
        Fault(
            "B1",
            "the back end answers 500 or 424",
            "The call is tried three times, 2 and 15 s apart. Then the sample fails as backend_error, and the "
            "next sample that needs the reply asks again.",
        ),
        Fault(
            "B2",
            "the back end does not answer, or hangs after its headers",
            "The call is aborted at its deadline and tried again as a timeout. Other calls are answered in the "
            "meantime.",
        ),
        Fault(
            "B3",
            "the connection is reset in the middle of a reply",
            "The call is tried again. It is a suspect only if the model server died.",
        ),
        Fault(
            "B4",
            "200 with half a document",
            "The document is discarded, and the call is tried again as backend_error.",
        ),
        Fault(
            "B5",
            "200, ended by length",
            "The reply is kept as an answer, marked as truncated, and not requested again.",
        ),
        Fault(
            "B6",
            "200 without a text",
            "The reply is kept as unparsed for a judge and as refused for a generator. It is never a score.",
        ),
        Fault(
            "B7",
            "the back end cuts the prompt silently",
            "A reply that read fewer tokens than the prompt has words is rejected. No residency opens on a "
            "server that cuts.",
        ),
        Fault(
            "B8",
            "the model was pulled again: another digest",
            "No reply of another model is stored under the pinned one. Memory that the old runner keeps is "
            "measured and reported.",
        ),
        Fault(
            "B9",
            "part of the model is not on the GPU",
            "The residency ends, and its calls are not charged a try. A load that is not fully on the GPU "
            "quarantines the device, with the MiB.",
        ),
        Fault(
            "B10",
            "unload answers 200, and the memory stays taken",
            "The guard unloads once more. After that it loads nothing over it, and the reason gives the missing MiB.",
        ),
        Fault(
            "B11",
            "no model is listed as loaded, and the memory stays taken",
            "The guard does not believe the list and acts as for B10.",
        ),
        Fault(
            "B12",
            "another client loads another model",
            "The residency ends, and its calls are not charged a try. No model is loaded next to the other one,"
            " and the reason names it and a fix.",
        ),
        Fault(
            "B13",
            "the context shrank after the back end ran out of memory",
            "The residency ends at the next check. A load with another context than requested quarantines the device.",
        ),
        Fault(
            "B14",
            "out of GPU memory while generating",
            "The model is loaded again. The calls that failed with its runner are suspects and run alone.",
        ),
        Fault(
            "B15",
            "another process takes 3 GB",
            "No model is loaded over it, and the reason names the process and the MiB. Its memory counts as its own.",
        ),
        Fault(
            "B16",
            "freed memory shows as free four seconds later",
            "The flip waits, and the device is not quarantined.",
        ),
        Fault(
            "B17",
            "NVML is not available",
            "Memory that cannot be measured is not called verified. The device is quarantined until it can be "
            "measured or its memory is declared.",
        ),
        Fault(
            "B18",
            "the GPU falls off the bus",
            "The residency ends at the next measurement, and its calls go back without a charge. The device is "
            "quarantined until the GPU returns.",
        ),
        Fault(
            "B19",
            "the judge's answer cannot be read, or is out of range",
            "The answer counts as unparsed, never as a score, and is not clamped to one. The candidate is "
            "ranked without it and counted.",
        ),
        Fault(
            "B20",
            "an index is missing, or is not the one that the job pinned",
            "Every sample that needs it fails with a message that names the index. The same upload builds it again.",
        ),
        Fault(
            "B21",
            "a kill during a batch with other calls",
            "Lapsed calls run again alone. With `deterministic: true`, every reply equals that of an undisturbed run.",
        ),
        Fault(
            "B22",
            "a shared model server is away, accepts no connection, or is overloaded (429, 502, 503, 504)",
            "Its calls wait without a charge and give the reason. Calls of other models continue. The "
            "waiting calls are answered once the server is back.",
        ),
        Fault(
            "B23",
            "the search engine, the embedding server or the retriever is away in the middle of a job",
            "Searches wait without a charge and give the reason. Other indexes continue. The searches "
            "are answered once the service is back.",
        ),
        Fault(
            "S1",
            "a sample that crashes its reader",
            "Its grader is killed at the deadline. That sample has no verdict and says so. The others complete.",
        ),
        Fault(
            "S2",
            "a problem of 20,000 tokens",
            "That sample alone fails with a typed failure, before a model is asked. No text is cut silently.",
        ),
        Fault(
            "S3",
            "NUL bytes, lone surrogates, a megabyte of LaTeX",
            "The upload is refused with the line number, and none of it is kept.",
        ),
        Fault(
            "S4",
            "an empty corpus",
            "The upload is refused, so no job can use it.",
        ),
        Fault(
            "S5",
            "one custom_id twice",
            "The upload is refused with both line numbers, and none of it is kept.",
        ),
        Fault(
            "S6",
            "a job of 1 and a job of 50,000",
            "Both end with every sample once and with at most one load.",
        ),
        Fault(
            "C1",
            "cancel, in every state of a job",
            "Its open samples end as cancelled, ended ones keep their outcome, and no further model call of the"
            " job begins.",
        ),
        Fault(
            "C2",
            "many cancels at once",
            "Each job ends once. A job that shares their calls completes.",
        ),
        Fault(
            "C3",
            "delete while it runs",
            "The API deletes no stored data. The purge removes no job that has not ended.",
        ),
        Fault(
            "C4",
            "an urgent job arrives in the middle of a drain",
            "Its calls are claimed first, and it ends first, without an additional load.",
        ),
        Fault(
            "C5",
            "two jobs with different judges",
            "Each model is loaded once. The generator's calls of both jobs are drained together.",
        ),
        Fault(
            "C6",
            "a job of 300,000 samples is cancelled",
            "The request is answered at once. The samples end and are chained in batches, and other jobs and "
            "flips do not wait.",
        ),
        Fault(
            "H1",
            "the disk for logs and indexes is full",
            "Only log lines are lost. An index without room is refused with a message.",
        ),
        Fault(
            "H2",
            "memory is short: files are read from the disk again",
            "Loads take longer, up to `load_timeout_s`.",
        ),
        Fault(
            "H3",
            "no file descriptor is left",
            "The process stays alive and accepts no new connection. The client tries again.",
        ),
        Fault(
            "H4",
            "the host reboots",
            "All committed data is present, and jobs continue when the services are started again.",
        ),
        Fault(
            "N1",
            "two hosts lose each other's packets for 20 s",
            "Other hosts continue. When packets pass again, both work together within seconds. No call fails.",
        ),
        Fault(
            "N2",
            "the connections between two hosts die silently: a firewall forgets them, or a host loses its power",
            "Each host notices within a minute, opens new connections, and the calls in flight run again. A client of "
            "the API notices at the end of its timeout, by default 60 s.",
        ),
        Fault(
            "N3",
            "every packet between all hosts is late, and some are lost",
            "Everything takes longer. No call fails, and no model is loaded again.",
        ),
        Fault(
            "N4",
            "the clocks of all hosts are minutes apart",
            "Jobs, leases, claims and audits do not depend on it.",
        ),
        Fault(
            "N5",
            "a host loses the packets from and to all other hosts for a minute",
            "What needs it waits, and the rest continues. When packets pass again, it works again within a minute. "
            "Without Redis, workers may end themselves, and the service manager starts them again. No call fails.",
        ),
        Fault(
            "X8",
            "rows changed as the application's role, or as the owner; triggers, functions and rights replaced",
            "The application cannot change the data behind a report, and the audit finds changes by the owner.",
        ),
        Fault(
            "V1",
            "a sample whose stored data or pipeline this release cannot read",
            "It fails as `unreadable` with a message that names the unreadable data. All other samples continue.",
        ),
        Fault(
            "V2",
            "rows that the previous release wrote",
            "After the migration its jobs are listed and run to their end, and their audits are clean.",
        ),
        Fault(
            "V3",
            "a job with more slots in a step than a step can hold",
            "The job is refused with the number, the limit and the parameter to lower. At run time only its "
            "sample fails.",
        ),
        Fault(
            "X6",
            "a Parquet file that decompresses to gigabytes",
            "A process of at most 512 MiB refuses it with a message. The orchestrator stays below 900 MiB.",
        ),
        Fault(
            "X7",
            "a CSV header of 40,000 columns",
            "It is refused at once, with the number of columns and the limit.",
        ),
        Fault(
            "X1",
            "a header without end",
            "The connection is cut off at 64 KiB, 100 fields or 10 s with 431 or 408. Other requests are answered.",
        ),
        Fault(
            "X2",
            "half-open connections and idle uploads",
            "They are disconnected after 10 s without a header or 30 s without a byte of the body. An upload's "
            "place becomes free.",
        ),
        Fault(
            "X3",
            "more connections than allowed",
            "The extra connection gets 503 and is closed at once. There is room when another one ends.",
        ),
        Fault(
            "X4",
            "a page of another port writes",
            "403. Without keys, only the service's own address and `access.hosts` may write.",
        ),
        Fault(
            "X5",
            "identifiers and parameters that no honest client sends",
            "422 with the field or the line. No operation answers 500, and no value is stored.",
        ),
        Fault(
            "L1",
            "many clients that read a long answer slowly",
            "They hold neither a database connection nor a thread. Other requests are answered.",
        ),
        Fault(
            "L2",
            "the maximum number of uploads, all of them slow",
            "408 below 64 KiB/s over a minute, so that their places become free.",
        ),
        Fault(
            "L3",
            "a client opens more connections than allowed and sends nothing",
            "The connection that has waited longest for a request is closed for a new one.",
        ),
        Fault(
            "U1",
            "a form with hundreds of wrong fields",
            "It is checked at most twenty times, and the answer says that there may be further errors. Other "
            "requests are answered.",
        ),
        Fault(
            "U3",
            "a packed graph with long names",
            "Names of over 1,000 characters, or of 64 MiB in all, are refused. The orchestrator stays below 900 MiB.",
        ),
        Fault(
            "U4",
            "lines with thousands of values",
            "A line has at most 10,000 values. Other requests are answered, and the orchestrator stays below 900 MiB.",
        ),
        Fault(
            "U5",
            "plans of experiments of 1,000 cells, many at once",
            "They are computed one after the other. Other requests are answered.",
        ),
        Fault(
            "U6",
            "a job of 200,000 samples is cancelled",
            "The cancellation is answered at once, and other requests are answered while the job ends.",
        ),
        Fault(
            "H5",
            "the disk under the data folder is full, and processes end while it is",
            "The supervisor reports it and restarts the processes until there is room. Then the job continues.",
        ),
        Fault(
            "H6",
            "another user of the machine owns the device, or tries to hold the files of a stack",
            "A lock of another user is refused with that user's name. Other users can open no file of the data folder.",
        ),
    )
}
