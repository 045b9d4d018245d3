"""Conversations to learn from."""

import json
from pathlib import Path

import pytest

from tools.world.samples import Exchange, MessagesError, read_messages


def line(*roles: str) -> str:
    return json.dumps({"messages": [{"role": role, "content": f"from {role}"} for role in roles]})


def write(folder: Path, *lines: str) -> Path:
    file = folder / "messages.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_prompt_and_a_reply_are_read_from_each_line(tmp_path: Path) -> None:
    file = write(tmp_path, line("user", "assistant"), "", line("user", "assistant"))
    assert read_messages(file) == [Exchange("from user", "from assistant")] * 2


@pytest.mark.parametrize("wrong", ["{", "[]", '{"messages": [1]}', line("user"), line("assistant", "user")])
def test_a_line_that_is_no_exchange_is_named(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(MessagesError, match=r"messages\.jsonl, line 2"):
        read_messages(write(tmp_path, line("user", "assistant"), wrong))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MessagesError, match="training-data"):
        read_messages(write(tmp_path))
