"""TLS in front of a server on loopback, with certificates of an authority that openssl makes for the test."""

import hashlib
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple


class Certified(NamedTuple):
    """An authority, and a certificate that it signed."""

    authority: Path
    certificate: Path
    """The certificate followed by the authority's, as Elasticsearch sends them."""
    key: Path

    def fingerprint(self) -> str:
        """SHA-256 of the authority's certificate, as Elasticsearch prints it at its first start."""
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(self.authority.read_text())).hexdigest()


def certify(folder: Path, name: str = "IP:127.0.0.1") -> Certified:
    """Make an authority and a certificate for `name`, an entry of subjectAltName."""
    folder.mkdir()
    elliptic = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    new = ["openssl", "req", "-x509", *elliptic, "-nodes", "-days", "2"]
    _run([*new, "-subj", "/CN=Authority of a test", "-keyout", "ca.key", "-out", "ca.crt"], folder)
    signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-addext", f"subjectAltName={name}"]
    server = ["-addext", "basicConstraints=critical,CA:FALSE"]
    _run([*new, "-subj", "/CN=search", *signed, *server, "-keyout", "server.key", "-out", "server.crt"], folder)
    chain = folder / "chain.crt"
    chain.write_text((folder / "server.crt").read_text() + (folder / "ca.crt").read_text())
    return Certified(folder / "ca.crt", chain, folder / "server.key")


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@contextmanager
def tls_proxy(url: str, certified: Certified) -> Iterator[str]:
    """Run a TLS proxy of the server at `url` for the length of the block, and yield its https:// URL."""
    port = int(url.rpartition(":")[2])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certified.certificate, certified.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=_accept, args=(listening, context, port), daemon=True).start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with suppress(OSError):  # the listener was closed
        while True:
            accepted, _ = listening.accept()
            Thread(target=_serve, args=(accepted, context, port), daemon=True).start()


def _serve(accepted: socket.socket, context: ssl.SSLContext, port: int) -> None:
    """Forward one connection in both directions."""
    with (
        accepted,
        suppress(OSError),
        context.wrap_socket(accepted, server_side=True) as client,
        socket.create_connection(("127.0.0.1", port)) as server,
    ):
        back = Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        _copy(client, server)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
