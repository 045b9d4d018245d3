"""What the double of Ollama can be told to do wrong with its models and its answers, word by word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.doubles.ollama_server import Ollama

MIB = 1 << 20
STRANGER = "llama3:8b"
"""What somebody else loads."""
DEATHS: Mapping[str, str] = {
    "out_of_memory": "llama runner process has terminated: CUDA error: out of memory",
    "die": "an error was encountered while running the model: unexpected EOF",
    "end": "llama-server process has terminated: signal: killed",
}
"""What it says when a runner dies under a call: before 0.30, always, and since."""


def well(server: Ollama) -> None:
    """As before; what it kept is gone, and what it made of models that are loaded stays."""
    server.keeps = server.keeps_unlisted = server.hangs_on_load = False
    server.spill, server.train_context = 0, 1 << 20
    server.pulled.update(server.pulled_before)
    server.pulled_before.clear()
    server.kept.clear()
    strangers = [each for each, runner in server.runners.items() if runner.name == STRANGER]
    server.pulled.pop(STRANGER, None)
    for gone in (*server.asked_to_go, *strangers):
        server.runners.pop(gone, None)
    server.asked_to_go.clear()


def digest(server: Ollama) -> None:
    """Every tag was pulled again; what is loaded stays."""
    server.pulled_before = dict(server.pulled)
    for tag in server.pulled_before:
        server.pull(tag, "v2")


def create(server: Ollama) -> None:
    """Every tag was created again with another SYSTEM; the weights stay, and so does what is loaded."""
    server.pulled_before = dict(server.pulled)
    for tag in server.pulled_before:
        server.create(tag, system="You answer in one word.")


def remove(server: Ollama) -> None:
    """Remove every tag, as `ollama rm` does; loaded models stay."""
    server.pulled_before = dict(server.pulled)
    server.pulled.clear()


def kill(server: Ollama) -> None:
    """Every runner is dead, and nobody has noticed."""
    server.kill()


def spill(server: Ollama) -> None:
    """Part of every model is in main memory."""
    server.spill = 100 * MIB
    for runner in server.runners.values():
        runner.size_vram = runner.size - server.spill


def shrink(server: Ollama) -> None:
    """Every context is half of what it was, and stays so."""
    for runner in server.runners.values():
        runner.context_length //= 2
    server.train_context = min((runner.context_length for runner in server.runners.values()), default=32)


def keep(server: Ollama) -> None:
    """An unload is answered, and nothing happens."""
    server.keeps = True


def keep_unlisted(server: Ollama) -> None:
    """It leaves the list, and its memory stays taken."""
    server.keeps_unlisted = True


def stranger(server: Ollama) -> None:
    """Somebody else asks it something."""
    server.pull(STRANGER)
    server.load(STRANGER)


def hang_on_load(server: Ollama) -> None:
    """No load ends."""
    server.hangs_on_load = True


DEEDS: Mapping[str, Callable[[Ollama], None]] = {
    deed.__name__: deed
    for deed in (well, digest, create, remove, kill, spill, shrink, keep, keep_unlisted, stranger, hang_on_load)
}
ANSWERS: Mapping[str, dict[str, Any]] = {
    "loop": {"message": {"role": "assistant", "content": "so " * 40}},
    "length": {"done_reason": "length"},
    "empty": {"message": {"role": "assistant", "content": ""}},
    "unreadable": {"message": {"role": "assistant", "content": "It depends."}},
    "out_of_range": {"message": {"role": "assistant", "content": "[[9]]"}},
}
"""What stands in an answer instead."""
