"""Detection of connections whose other end is gone without a reset: its host lost power, or a firewall forgot them.

Without it, a client waits for an answer for ever, and for the acknowledgement of a request for 15 minutes.
"""

import socket
from functools import partial

import asyncpg
import httpx2

IDLE_S, INTERVAL_S, PROBES = 10, 5, 3
"""Seconds of silence before the first probe, seconds between probes, and the number of probes without an answer after
which the kernel ends the connection."""
LOST_S = IDLE_S + INTERVAL_S * PROBES
"""Seconds after which the kernel ends a connection whose other end has not acknowledged the sent bytes. Linux also
counts the time in which the other end lives but does not read: a process that is stopped or busy for so long, with more
than about 100 kB on the way to it, loses the connection."""
PATIENT_S = 45
"""The same for uploads and reports, whose transactions may be large and are not repeated. Clients of the API give up
after 60 s."""


def list_options(lost_s: int = LOST_S) -> list[tuple[int, int, int]]:
    """List the options of a client's socket."""
    tcp = {
        "TCP_KEEPIDLE": IDLE_S, "TCP_KEEPINTVL": INTERVAL_S, "TCP_KEEPCNT": PROBES, "TCP_USER_TIMEOUT": lost_s * 1000,
    }  # fmt: skip
    # macOS has no limit for unacknowledged data, and its own name for the first option.
    known = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in tcp.items() if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *known]


def make_session(lost_s: int = LOST_S) -> dict[str, str]:
    """Return the same for PostgreSQL's end of a connection, so that the locks of a host without power are released."""
    return {
        "tcp_keepalives_idle": str(IDLE_S), "tcp_keepalives_interval": str(INTERVAL_S),
        "tcp_keepalives_count": str(PROBES), "tcp_user_timeout": str(lost_s * 1000),
    }  # fmt: skip


make_transport = partial(httpx2.AsyncHTTPTransport, trust_env=False, socket_options=list_options())
"""Makes the transport of an HTTP client for another service, whose answer may take long."""


def watch(connection: "asyncpg.Connection[asyncpg.Record]", lost_s: int = LOST_S) -> None:
    """Have the kernel end this connection when the database is gone; asyncpg has no option for it."""
    sock = connection._transport.get_extra_info("socket")
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        for option in list_options(lost_s):
            sock.setsockopt(*option)
