"""The proxy of the fault tests: what it cuts is cut, what it passes is whole."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.proxy import HOST, SSL_REQUEST, Cut, Cuts, Hit, PostgresWire, Proxy, RedisWire, Ticks, list_writes

TICK = [b"LPUSH", b"mathrag:celery:judge", b"{}"]
IDLE, INSIDE = b"Z\0\0\0\x05I", b"Z\0\0\0\x05T"
DONE = b"C\0\0\0\x0bCOMMIT\0"
ANSWER = "WITH gone AS (DELETE FROM queue q) INSERT INTO attempts (call_id) SELECT 1 ON CONFLICT DO UPDATE SET a = 1"
CLAIM = "SELECT 1 FROM queue FOR NO KEY UPDATE OF queue"


@contextmanager
def echo(word: bytes = b"") -> Iterator[int]:
    with socket.create_server((HOST, 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(client,), daemon=True).start()

        def answer(client: socket.socket) -> None:
            with client:
                try:
                    while heard := client.recv(1000):
                        client.sendall(word + heard)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@contextmanager
def through(proxy: Proxy) -> Iterator[Callable[[bytes], bytes]]:
    with socket.create_connection((HOST, proxy.port)) as client:

        def say(words: bytes, patience_s: float = 30) -> bytes:
            client.settimeout(patience_s)
            try:
                client.sendall(words)
                return client.recv(1000)
            except ConnectionError:
                return b""

        yield say


def test_a_severed_connection_is_gone_and_a_new_one_works() -> None:
    with echo() as port, Proxy(port) as proxy:
        with through(proxy) as say:
            assert say(b"hello") == b"hello"
            assert proxy.sever() == 1
            assert say(b"hello") == b""
        with through(proxy) as say:
            assert say(b"again") == b"again"


def test_nobody_gets_through_while_it_is_parted() -> None:
    with echo() as port, Proxy(port) as proxy:
        proxy.part()
        with through(proxy) as say:
            assert say(b"hello") == b""
        proxy.heal()
        with through(proxy) as say:
            assert say(b"hello") == b"hello"


def test_a_silent_connection_lives_and_says_nothing_until_it_is_healed() -> None:
    with echo() as port, Proxy(port) as proxy, through(proxy) as say:
        assert say(b"a") == b"a"
        proxy.silence()
        with pytest.raises(TimeoutError):
            say(b"b", patience_s=0.1)
        proxy.heal()
        assert say(b"").startswith(b"b") or say(b"c").startswith(b"b")


def test_a_switched_proxy_leads_to_the_other_server() -> None:
    with echo(b"1:") as first, echo(b"2:") as second, Proxy(first) as proxy:
        with through(proxy) as say:
            assert say(b"who") == b"1:who"
        proxy.switch(second)
        with through(proxy) as say:
            assert say(b"who") == b"2:who"


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with echo() as port:
        pass
    with Proxy(port) as proxy, through(proxy) as say:
        assert say(b"hello") == b""


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def started(cuts: Cuts) -> PostgresWire:
    wire = PostgresWire(cuts)
    request = struct.pack("!II", 8, SSL_REQUEST)
    assert wire.up(request) == request
    assert wire.down(b"N") == b"N"
    startup = message(b"", struct.pack("!I", 196608) + b"user\0x\0\0")
    assert wire.up(startup) == startup
    assert wire.down(IDLE) == IDLE
    return wire


def execute(sql: str, name: bytes = b"s1") -> bytes:
    parse = message(b"P", name + b"\0" + sql.encode() + b"\0\0\0")
    bind = message(b"B", b"\0" + name + b"\0\0\0\0\0\0\0")
    return parse + bind + message(b"E", b"\0\0\0\0\0") + message(b"S", b"")


def query(sql: str) -> bytes:
    return message(b"Q", sql.encode() + b"\0")


def test_a_single_statement_that_writes_is_a_commit() -> None:
    assert list_writes(ANSWER) == {"delete queue", "insert attempts"}
    cuts = Cuts()
    wire = started(cuts)
    assert wire.up(execute(CLAIM)) == execute(CLAIM)
    assert wire.up(execute(ANSWER)) == execute(ANSWER)
    assert cuts.seen == {"delete queue, insert attempts": 1}


def test_a_transaction_commits_all_that_it_wrote_at_once() -> None:
    cuts = Cuts()
    wire = started(cuts)
    for end, count in (("ROLLBACK;", 0), ("COMMIT;", 1)):
        wire.up(query("BEGIN;"))
        wire.down(INSIDE)
        wire.up(execute("UPDATE samples SET state = 1"))
        wire.down(INSIDE)
        wire.up(execute("INSERT INTO steps SELECT 1"))
        wire.down(INSIDE)
        wire.up(query(end))
        wire.down(IDLE)
        assert cuts.seen == ({"insert steps, update samples": 1} if count else {})


def test_a_commit_is_cut_after_it_happened_then_before_then_no_more() -> None:
    cuts = Cuts(every=1, most=2)
    wire = started(cuts)
    assert wire.up(execute(ANSWER)) == execute(ANSWER)
    assert wire.down(DONE) == b""
    with pytest.raises(Cut):
        wire.down(IDLE)
    with pytest.raises(Cut):
        started(cuts).up(execute(ANSWER))
    assert started(cuts).up(execute(ANSWER)) == execute(ANSWER)
    wrote = "delete queue, insert attempts"
    assert cuts.hits == {Hit(wrote, happened=True): 1, Hit(wrote, happened=False): 1}


@given(st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_messages_in_pieces_are_understood_alike(sizes: list[int]) -> None:
    cuts = Cuts()
    wire = started(cuts)
    sent, passed = execute(CLAIM) + execute(ANSWER, b"s2") + query("SELECT 1"), b""
    at = 0
    for size in [*sizes, len(sent)]:
        passed += wire.up(sent[at : at + size])
        at += size
    assert passed == sent
    assert cuts.seen == {"delete queue, insert attempts": 1}


def packed(command: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in command)


def test_every_k_th_tick_is_lost_and_its_sender_gets_an_answer_all_the_same() -> None:
    ticks = Ticks()
    ticks.drop_every = 2
    assert [ticks.command(TICK)[0] for _ in range(4)] == [b"LPUSH", b"LLEN", b"LPUSH", b"LLEN"]
    assert ticks.command([b"SET", b"a", b"b"]) == [b"SET", b"a", b"b"]
    assert (ticks.sent, ticks.dropped) == (4, 2)


def test_a_tick_is_multiplied() -> None:
    ticks = Ticks()
    ticks.copies = 5
    assert ticks.command(TICK) == [*TICK[:2], *[b"{}"] * 5]


def test_of_two_ticks_the_second_overtakes_the_first() -> None:
    ticks = Ticks()
    ticks.swaps = 1
    assert ticks.command([*TICK[:2], b"1"])[0] == b"LLEN"
    assert ticks.command([b"LPUSH", b"mathrag:celery:generate", b"x"])[0] == b"LLEN"
    assert ticks.command([*TICK[:2], b"2"]) == [*TICK[:2], b"2", b"1"]
    assert ticks.command([*TICK[:2], b"3"]) == [*TICK[:2], b"3"], "so many change places, and no more"


@given(st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=4), max_size=5), st.integers(1, 40))
def test_commands_in_pieces_are_understood_alike(commands: list[list[bytes]], size: int) -> None:
    sent = b"".join(map(packed, commands))
    heard: list[list[bytes]] = []
    wire = RedisWire(lambda command: heard.append(command) or command)  # type: ignore[func-returns-value]
    passed = b"".join(wire.up(sent[at : at + size]) for at in range(0, len(sent), size))
    assert (passed, heard) == (sent, commands)
