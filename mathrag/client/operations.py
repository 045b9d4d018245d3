"""Descriptors that turn the description of a request and the type of its answer into a method of both clients.

A group has the operations on one kind of object. The methods of `Corpora[Client]` return the answer; those of
`Corpora[AsyncConnection]` are coroutines."""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import GenericAlias
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec

from mathrag.client.connection import LARGEST, NOT_OURS, A, decode
from mathrag.client.errors import TooLarge
from mathrag.client.request import MOST_OF_A_PAGE, Request

if TYPE_CHECKING:
    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection


P = ParamSpec("P")
C = TypeVar("C", bound="Connection | AsyncConnection")


class Group(Generic[C]):
    """The operations on one kind of object, bound to one client."""

    def __init__(self, client: C) -> None:
        self.client = client


class Page(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """One page of a list, with the cursor of the next; None on the last page."""

    data: tuple[A, ...] = ()
    next_cursor: str | None = None


class Described(Generic[P, A]):
    """Base of operations: a function that builds the request, and the type of the answer."""

    def __init__(self, describe: Callable[P, Request[Any]], answer: type[A]) -> None:
        self.describe = describe
        self.answer = answer
        self.__doc__ = describe.__doc__
        self._name = describe.__name__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def describe_method(self, method: Callable[..., Any], returns: object) -> Any:
        """Give `method` the name, documentation and signature of the description, and return it."""
        method.__name__ = method.__qualname__ = self._name
        method.__doc__ = self.__doc__
        method.__annotations__ = {**inspect.get_annotations(self.describe), "return": returns}
        method.__signature__ = _unpack_filters(inspect.signature(self.describe), returns)  # type: ignore[attr-defined]
        return method


def _unpack_filters(signature: inspect.Signature, returns: object) -> inspect.Signature:
    """Return the signature with each field of `**filters` as an argument."""
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        if get_origin(each.annotation) is not Unpack:
            parameters.append(each)
            continue
        for name, kind in get_type_hints(get_args(each.annotation)[0]).items():
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, keyword, default=None, annotation=kind | None))
    return inspect.Signature(parameters, return_annotation=returns)


class Operation(Described[P, A]):
    """An operation that sends one request and returns its answer."""

    @overload
    def __get__(self, instance: None, owner: type) -> "Operation[P, A]": ...
    @overload
    def __get__(self, instance: "Group[Connection]", owner: type) -> Callable[P, A]: ...
    @overload
    def __get__(self, instance: "Group[AsyncConnection]", owner: type) -> Callable[P, Coroutine[Any, Any, A]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return self.describe_method(
            lambda *a, **k: instance.client.read(self.describe(*a, **k), self.answer), self.answer
        )


class Iterated(Described[P, A]):
    """Base of operations that yield several answers, each decoded as the operation's type."""

    entries: ClassVar[Callable[..., Iterator[Any]]]
    aentries: ClassVar[Callable[..., AsyncIterator[Any]]]
    """The same for the asynchronous client."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: "Group[Connection]", owner: type) -> Callable[P, Iterator[A]]: ...
    @overload
    def __get__(self, instance: "Group[AsyncConnection]", owner: type) -> Callable[P, AsyncIterator[A]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        entries = self.aentries if is_async(instance) else self.entries
        return self.describe_method(
            lambda *a, **k: entries(instance.client, self.describe(*a, **k), self.answer),
            GenericAlias(Iterator, (self.answer,)),
        )


class Download(Described[P, bytes]):
    """An operation that yields the bytes of a streamed answer as they arrive."""

    def __init__(self, describe: Callable[P, Request[Any]]) -> None:
        super().__init__(describe, bytes)

    @overload
    def __get__(self, instance: None, owner: type) -> "Download[P]": ...
    @overload
    def __get__(self, instance: "Group[Connection]", owner: type) -> Callable[P, Iterator[bytes]]: ...
    @overload
    def __get__(self, instance: "Group[AsyncConnection]", owner: type) -> Callable[P, AsyncIterator[bytes]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        client = instance.client
        return self.describe_method(
            lambda *a, **k: client.stream(self.describe(*a, **k), retries=client.retries), Iterator[bytes]
        )


def is_async(group: Group[Any]) -> bool:
    """Return True if the group's operations are coroutines."""
    return inspect.iscoroutinefunction(group.client.read)


def entries_of(client: "Connection", request: Request[Any], entry: type[A]) -> Iterator[A]:
    """Yield every entry of a list, and fetch page after page."""
    request = request.with_limit(MOST_OF_A_PAGE)
    while True:
        page = client.read(request, Page[entry])  # type: ignore[valid-type]
        yield from page.data
        if page.next_cursor is None:
            return
        request = request.with_cursor(page.next_cursor)


async def aentries_of(client: "AsyncConnection", request: Request[Any], entry: type[A]) -> AsyncIterator[A]:
    """Yield every entry of a list, like `entries_of`."""
    request = request.with_limit(MOST_OF_A_PAGE)
    while True:
        page = await client.read(request, Page[entry])  # type: ignore[valid-type]
        for each in page.data:
            yield each
        if page.next_cursor is None:
            return
        request = request.with_cursor(page.next_cursor)


def lines_of(client: "Connection", request: Request[Any], line: type[A]) -> Iterator[A]:
    """Yield every line of an answer, decoded as `line`."""
    split = LineSplitter()
    for piece in client.stream(request, retries=client.retries):
        for each in split.add(piece):
            yield decode(each, line, client.url)
    if split.rest:
        yield decode(split.rest, line, client.url)


async def alines_of(client: "AsyncConnection", request: Request[Any], line: type[A]) -> AsyncIterator[A]:
    """Yield every line of an answer, like `lines_of`."""
    split = LineSplitter()
    async for piece in client.stream(request, retries=client.retries):
        for each in split.add(piece):
            yield decode(each, line, client.url)
    if split.rest:
        yield decode(split.rest, line, client.url)


class LineSplitter:
    """Splits pieces of a text into lines of at most `LARGEST` bytes."""

    def __init__(self) -> None:
        self.rest = b""
        """Start of a line whose end has not arrived yet."""

    def add(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in this piece, without blank lines.

        Raises:
            TooLarge: a line is longer than `LARGEST`.
        """
        *lines, self.rest = (self.rest + piece).split(b"\n")
        if len(self.rest) > LARGEST:
            raise TooLarge("too_large", f"a line of the answer has more than {LARGEST >> 20} MiB", hint=NOT_OURS)
        return [line for line in lines if line]


class Listing(Iterated[P, A]):
    """An operation that yields every entry of a list, and fetches pages as they are needed."""

    entries = staticmethod(entries_of)
    aentries = staticmethod(aentries_of)


class Lines(Iterated[P, A]):
    """An operation that yields every line of a streamed answer as it arrives."""

    entries = staticmethod(lines_of)
    aentries = staticmethod(alines_of)
