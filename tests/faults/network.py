"""Hosts on one machine: network namespaces, whose packets pass a switch that can lose or delay them silently.

`python -m tests.faults.network ADDRESS...` is the switch. Each address gets a namespace with a TUN device, the first
one the namespace of this process; all vanish when the switch ends. Needs root and /dev/net/tun.
"""

import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PREFIX = f"198.18.{os.getpid() % 256}."
"""Addresses that RFC 2544 reserves for tests of networks. Another run on this machine has others."""
BITS = 24
TRIAL = "unshare --net --uts sh -c 'hostname tried && ip tuntap add dev tried mode tun'"
PACKETS = 64
"""Packets that are taken from one host before the next one's."""


class Network:
    """Hosts, by name, and the faults of the network between them."""

    def __init__(self, switch: "subprocess.Popen[bytes]", addresses: Mapping[str, str]) -> None:
        self._switch = switch
        self.addresses = addresses
        self._namespaces = {name: f"/proc/{switch.pid}/fd/{self._answer()}" for name in addresses}

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` on a host, as the same process, with its own network and host name."""
        named = ["/usr/bin/unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]
        return ["/usr/bin/nsenter", f"--net={self._namespaces[host]}", *named, *command]

    def cut(self, one: str, *others: str) -> None:
        """Lose every packet between a host and others."""
        for other in others:
            self._tell(between=self._find(one, other), loss=1.0)

    def forget(self, one: str, other: str) -> int:
        """Lose every packet of the connections that two hosts have now, for ever, as a firewall does that forgot them
        or a host that took over an address. They can open new connections.

        Returns:
            How many connections they have had so far.
        """
        return int(self._tell(forget=self._find(one, other)))

    def disturb(self, *, delay_s: float, loss: float) -> None:
        """Delay every packet between all hosts, and lose this share of them."""
        self._tell(delay_s=delay_s, loss=loss)

    def heal(self) -> None:
        """End all cuts and disturbances."""
        self._tell(heal=True)

    def list_pairs(self) -> set[frozenset[str]]:
        """List the pairs of hosts that have sent each other packets."""
        names = {address: name for name, address in self.addresses.items()}
        return {frozenset(names[each] for each in pair) for pair in self._tell(pairs=True)}

    def _find(self, *hosts: str) -> list[str]:
        return [self.addresses[host] for host in hosts]

    def _tell(self, **order: Any) -> Any:
        assert self._switch.stdin is not None
        self._switch.stdin.write(json.dumps(order).encode() + b"\n")
        self._switch.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._switch.stdout is not None
        line = self._switch.stdout.readline()
        assert line, "the switch has ended"
        return json.loads(line)


def explain_absence() -> str:
    """Explain why this process cannot make hosts; empty if it can."""
    tried = subprocess.run(["/bin/sh", "-c", TRIAL], capture_output=True, text=True)
    return tried.stderr.strip() and f"hosts need network namespaces with TUN devices: {tried.stderr.strip()}"


@contextmanager
def run_network(hosts: Sequence[str], log: Path) -> Iterator[Network]:
    """Connect these hosts by a switch. The first one is this machine's own namespace."""
    addresses = {host: f"{PREFIX}{number}" for number, host in enumerate(hosts, 1)}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.faults.network", *addresses.values()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        ) as switch,
    ):  # fmt: skip
        try:
            yield Network(switch, addresses)
        finally:
            assert switch.stdin is not None
            switch.stdin.close()  # which ends it
            switch.wait(10)


class Switch:
    """Forwards packets between devices, by the rules of their pairs."""

    def __init__(self, devices: Mapping[bytes, int]) -> None:
        self._devices = devices
        """File descriptor of each address's TUN device."""
        self._rules: dict[frozenset[bytes], tuple[float, float]] = {}
        """Delay in seconds and share of loss, by pair."""
        self._default = (0.0, 0.0)
        self._flows: dict[frozenset[bytes], set[frozenset[bytes]]] = {}
        """TCP connections of each pair, by both ends' addresses and ports."""
        self._dead: set[frozenset[bytes]] = set()
        self._late: list[tuple[float, int, int, bytes]] = []
        """Delayed packets: when they are due, their order, their device and their bytes."""
        self._count = 0
        self._random = random.Random(1)  # noqa: S311 - no secret

    def run(self) -> None:
        """Forward packets and obey until the input ends."""
        readable = selectors.DefaultSelector()
        readable.register(sys.stdin.buffer, selectors.EVENT_READ)
        for device in self._devices.values():
            readable.register(device, selectors.EVENT_READ, device)
        while True:
            wait_s = max(0.0, self._late[0][0] - time.monotonic()) if self._late else None
            for key, _ in readable.select(wait_s):
                if key.data is not None:
                    self._forward_all(key.data)
                elif order := sys.stdin.buffer.readline():
                    _say(self._obey(json.loads(order)))
                else:
                    return
            while self._late and self._late[0][0] <= time.monotonic():
                self._send(*heapq.heappop(self._late)[2:])

    def _obey(self, order: dict[str, Any]) -> Any:
        match order:
            case {"forget": pair}:
                forgotten = self._flows.get(_parse_pair(pair), set())
                self._dead |= forgotten
                return len(forgotten)
            case {"between": pair, "loss": loss}:
                self._rules[_parse_pair(pair)] = (0.0, loss)
            case {"delay_s": delay_s, "loss": loss}:
                self._default = (delay_s, loss)
            case {"heal": True}:
                self._default = (0.0, 0.0)
                self._rules.clear()
            case {"pairs": True}:
                return [[socket.inet_ntoa(each) for each in pair] for pair in self._flows]
        return None

    def _forward_all(self, device: int) -> None:
        with suppress(BlockingIOError):
            for _ in range(PACKETS):
                self._forward(os.read(device, 65536))

    def _forward(self, packet: bytes) -> None:
        target = self._devices.get(packet[16:20])
        if target is None or packet[0] >> 4 != 4:
            return
        pair = frozenset((packet[12:16], packet[16:20]))
        if packet[9] == socket.IPPROTO_TCP:
            ports = (packet[0] & 15) * 4
            ends = (packet[12:16] + packet[ports : ports + 2], packet[16:20] + packet[ports + 2 : ports + 4])
            flow = frozenset(ends)
            self._flows.setdefault(pair, set()).add(flow)
            if flow in self._dead:
                return
        delay_s, loss = self._rules.get(pair, self._default)
        if loss and self._random.random() < loss:
            return
        if delay_s:
            self._count += 1
            heapq.heappush(self._late, (time.monotonic() + delay_s, self._count, target, packet))
        else:
            self._send(target, packet)

    def _send(self, device: int, packet: bytes) -> None:
        with suppress(BlockingIOError):  # its queue is full: packets are lost in life, too
            os.write(device, packet)


def _say(answer: Any) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


def _parse_pair(addresses: Sequence[str]) -> frozenset[bytes]:
    return frozenset(socket.inet_aton(each) for each in addresses)


def _make_host(address: str) -> int:
    """Make a TUN device with this address in the present namespace; its file descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    name = f"mathrag{os.getpid() % 10**6}"
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    orders = f"link set lo up\naddr add {address}/{BITS} dev {name}\nlink set {name} txqueuelen 10000 up\n"
    subprocess.run(["/sbin/ip", "-batch", "-"], input=orders, text=True, check=True)
    return device


def _main(addresses: Sequence[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    devices = {}
    for number, address in enumerate(addresses):
        if number and libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        devices[socket.inet_aton(address)] = _make_host(address)
        _say(os.open("/proc/self/ns/net", os.O_RDONLY))
    Switch(devices).run()


if __name__ == "__main__":
    _main(sys.argv[1:])
