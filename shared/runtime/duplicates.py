"""Make every pipeline's searches leave out documents that would reveal the answer, as `params.duplicates` says."""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from shared.contracts.calls import RELEASE_0_1, Call, Duplicates, Retrieve, Yielded
from shared.contracts.samples import Item

T = TypeVar("T")


def exclude_duplicates(
    steps: Generator[Yielded, Any, T], rule: Duplicates, items: Sequence[Item]
) -> Generator[Yielded, Any, T]:
    """Run `steps` and add the duplicate rule and the asked item to each of their searches.

    `items` holds one item for a sample and several for a calibration.
    """
    golds = {item.question: item.gold or "" for item in items} if rule == "same-answer" else {}
    only = items[0].question if len(items) == 1 else ""

    def complete(call: Call) -> Call:
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
        reply = yield [complete(call) for call in yielded] if isinstance(yielded, Sequence) else complete(yielded)
