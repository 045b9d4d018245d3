"""Prompts that users store: named, versioned, and found by the hash of their content."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, NotFound, TooLarge
from mathrag.messages import make_hint
from shared import canonical
from shared.rag.prompts import (
    ANSWER_SLOTS,
    LONGEST_TEXT,
    MOST_EXAMPLES,
    SHIPPED_ANSWERS,
    Example,
    Template,
    TemplateError,
    list_packaged_ids,
    list_template_ids,
    make_answer_prompt,
    template,
)
from shared.storage.database import KNOWN_NAMES, MOST, Database, check_name, record_operation

COLUMNS = "name, version, encode(hash, 'hex') AS hash, content, created_by, project, created_at FROM prompts"
ONE = text(f"""
    SELECT {COLUMNS} WHERE name = :name AND (CAST(:version AS integer) IS NULL OR version = :version)
        AND (CAST(:hash AS text) IS NULL OR encode(hash, 'hex') = :hash) ORDER BY version DESC LIMIT 1""")
NEWEST = text(f"SELECT DISTINCT ON (name) {COLUMNS} ORDER BY name, version DESC LIMIT :most")
VERSIONS = text(f"SELECT {COLUMNS} WHERE name = :name ORDER BY version DESC")
OF_HASHES = text(f"SELECT DISTINCT ON (hash) {COLUMNS} WHERE hash = ANY(:hashes) ORDER BY hash, id")
LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('prompt ' || :name, 0))")
INSERT = text("""
    INSERT INTO prompts (name, version, hash, content, created_by)
    VALUES (:name, :version, :hash, :content, :actor)""")

Origin = Literal["stored", "shipped", "file"]
MOST_BYTES = 64 << 10
"""Upper bound of a prompt's content, as JSON; lists return up to 1,000 of them."""
LONGEST_VERSION = 9
"""Digits of a version number; a longer reference is a hash."""


class PromptContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages that ask for an answer."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)]
    """The user's message. `{{question}}` is replaced by the question, and `{{context}}` by the documents, each followed
    by an empty line."""
    system: Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)] = ""
    """The system prompt, word for word."""
    examples: Annotated[tuple[Example, ...], msgspec.Meta(max_length=MOST_EXAMPLES)] = ()
    """Worked examples (few-shot). Each becomes a user's message in the form of `text`, and the assistant's reply."""

    def to_template(self) -> Template:
        """Return the template that calls name by its hash.

        Raises:
            Invalid: the text does not show the question, or has an unknown placeholder.
        """
        try:
            return make_answer_prompt(self.text, self.system, self.examples)
        except TemplateError as error:
            hint = "write {{question}} where the question goes, and {{context}} where the documents go"
            raise Invalid(str(error), hint=hint) from error


class AnswerPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt for answers: a stored one, a shipped one, or a file of the folder `plugins.templates`."""

    name: str
    """Name of the prompt."""
    version: int
    """Number of the version, from 1."""
    hash: str
    """SHA-256 of the content, in hex; calls identify the prompt by it."""
    text: str
    """The user message, with the placeholders `{{question}}` and `{{context}}`."""
    system: str = ""
    """The system prompt; empty if there is none."""
    examples: tuple[Example, ...] = ()
    """Worked examples, in order."""
    origin: Origin = "stored"
    """Whether the prompt is stored, shipped, or a file of `plugins.templates`."""
    created_by: str | None = None
    """Name of the API key, or `local` without keys; null unless the prompt is stored."""
    created_at: datetime | None = None
    """Time at which the version was stored; null unless the prompt is stored."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""

    @property
    def pinned(self) -> str:
        """Return the value of `generate.template` that always means this content."""
        return f"{self.name}@{self.hash}"

    def to_text(self) -> str:
        """Return the whole content as a text, in which each line of the system prompt and of an example begins with
        what it belongs to.
        """
        lines = [f"system: {line}" for line in self.system.splitlines()]
        for number, example in enumerate(self.examples, 1):
            for part in ("context", "question", "answer"):
                lines += [f"example {number}, {part}: {line}" for line in getattr(example, part).splitlines()]
        return "\n".join([*lines, *self.text.splitlines()])


async def create_prompt(database: Database, actor: str, name: str, content: PromptContent) -> tuple[AnswerPrompt, bool]:
    """Store a prompt as the next version of its name; also return whether it is new.

    The content that the newest version has is not stored again.

    Raises:
        Invalid: the name or the content cannot be used.
        TooLarge: the content has more than `MOST_BYTES`.
        Conflict: a prompt that is shipped, or is a file, has this name.
    """
    made, encoded = content.to_template(), canonical.encode(content)
    if len(encoded) > MOST_BYTES:
        hint = "shorten its texts, or leave examples out"
        raise TooLarge(f"the prompt has {len(encoded)} bytes, more than {MOST_BYTES}", hint=hint)
    if check_name(name) in list_template_ids():
        raise Conflict(
            f"the name {name!r} belongs to a shipped prompt or a prompt file, which cannot be replaced",
            hint="choose another name",
        )
    async with database.transaction() as connection:
        await connection.execute(LOCK, {"name": name})
        newest = await _find(connection, name)
        if newest is not None and newest.hash == made.hash:
            return newest, False
        version = 1 if newest is None else newest.version + 1
        values = {"name": name, "version": version, "hash": bytes.fromhex(made.hash), "actor": actor}
        await connection.execute(INSERT, {**values, "content": encoded})
        await record_operation(connection, actor, "prompt", f"{name} version {version}")
        stored = await _find(connection, name)
    if stored is None:
        raise LookupError(f"prompt {name!r} was inserted but cannot be found")
    return stored, True


async def list_prompts(connection: AsyncConnection) -> list[AnswerPrompt]:
    """List the newest version of up to 1,000 stored prompts, by name, then the shipped ones and those of the folder."""
    stored = [_read(row) for row in (await connection.execute(NEWEST, {"most": MOST})).mappings()]
    others = (_convert_template(template(name)) for name in (*SHIPPED_ANSWERS, *_list_files()))
    return [*stored, *others]


async def list_versions(connection: AsyncConnection, name: str) -> list[AnswerPrompt]:
    """List every version of a prompt, the newest first.

    Raises:
        NotFound: no prompt has this name.
    """
    if found := [_read(row) for row in (await connection.execute(VERSIONS, {"name": name})).mappings()]:
        return found
    return [await load_prompt(connection, name)]


async def load_prompt(connection: AsyncConnection, reference: str) -> AnswerPrompt:
    """Load a prompt: the newest version of `NAME`, or one version by `NAME@2` or by its hash.

    Raises:
        NotFound: the prompt does not exist, or no such version of it.
    """
    name, _, which = reference.partition("@")
    found = await _find(connection, name, which)
    if found is not None:
        return found
    if not which and name in (*SHIPPED_ANSWERS, *_list_files()):
        return _convert_template(template(name))
    if which and await _find(connection, name) is not None:
        raise NotFound(f"prompt {name!r} has no version {which}", hint=f"mathrag prompt show {name}")
    names = (await connection.execute(KNOWN_NAMES["prompt"], {"most": MOST})).scalars()
    known = [*names, *SHIPPED_ANSWERS, *_list_files()]
    raise NotFound(f"no prompt {reference!r}", hint=make_hint(name, known, "mathrag prompt list"))


async def find_templates(connection: AsyncConnection, hashes: Iterable[str]) -> dict[str, Template]:
    """Load stored prompts as templates by the hash of their content.

    Unknown hashes are left out, and so is a content that was changed in the database, which has another hash.
    """
    rows = await connection.execute(OF_HASHES, {"hashes": [bytes.fromhex(hash_) for hash_ in sorted(set(hashes))]})
    found = {row["hash"]: _read_content(row).to_template() for row in rows.mappings()}
    return {hash_: made for hash_, made in found.items() if made.hash == hash_}


async def _find(connection: AsyncConnection, name: str, which: str = "") -> AnswerPrompt | None:
    by_number = which.isdecimal() and len(which) <= LONGEST_VERSION
    values = {"name": name, "version": int(which) if by_number else None, "hash": None if by_number else which or None}
    row = (await connection.execute(ONE, values)).mappings().first()
    return None if row is None else _read(row)


def _read(row: RowMapping) -> AnswerPrompt:
    content = _read_content(row)
    copied = {name: row[name] for name in ("name", "version", "hash", "created_by", "created_at", "project")}
    return AnswerPrompt(text=content.text, system=content.system, examples=content.examples, **copied)


def _read_content(row: RowMapping) -> PromptContent:
    return msgspec.json.decode(row["content"], type=PromptContent)


def _list_files() -> Sequence[str]:
    """Return the ids of the templates in the operator's folder that can ask for an answer."""
    found = [name for name in list_template_ids() if name not in list_packaged_ids()]
    return [name for name in found if set(template(name).required) <= set(ANSWER_SLOTS)]


def _convert_template(found: Template) -> AnswerPrompt:
    origin: Origin = "shipped" if found.id in list_packaged_ids() else "file"
    return AnswerPrompt(
        name=found.id, version=found.version, hash=found.hash, text=found.text, system=found.system,
        examples=found.examples, origin=origin,
    )  # fmt: skip
