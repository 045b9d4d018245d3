"""Every pipeline's searches leave out what would give the answer away, as the job's parameters say."""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from shared.contracts.calls import RELEASE_0_1, Call, Duplicates, Retrieve, Yielded
from shared.contracts.samples import Item

T = TypeVar("T")


def without_duplicates(
    steps: Generator[Yielded, Any, T], rule: Duplicates, items: Sequence[Item]
) -> Generator[Yielded, Any, T]:
    """`steps`, whose searches say by which rule, and for which of `items` (one of a sample, many of a calibration)."""
    golds = {item.question: item.gold or "" for item in items} if rule == "same-answer" else {}
    only = items[0].question if len(items) == 1 else ""

    def completed(call: Call) -> Call:
        if not isinstance(call, Retrieve) or rule == RELEASE_0_1:
            return call
        item = "" if call.question == only else only
        return replace(call, duplicates=rule, item=item, gold=golds.get(item or call.question, ""))

    reply: Any = None
    while True:
        try:
            yielded = steps.send(reply)
        except StopIteration as stop:
            ended: T = stop.value
            return ended
        reply = yield [completed(call) for call in yielded] if isinstance(yielded, Sequence) else completed(yielded)
