"""Prompts and rubrics are files of folders that the configuration names: what is wrong with one is its state."""

from pathlib import Path

import pytest

from shared.plugins.loading import LONGEST, find_in_folder
from shared.shapes import Kind, State

PROMPT = 'id = "{name}"\nversion = 1\nrequired = ["question"]\noptional = ["context"]\ntext = "{{{{context}}}}{text}"\n'


def prompt(name: str, text: str = "Q: {{question}}") -> str:
    return PROMPT.format(name=name, text=text)


BAD_PROMPTS = {
    "unknown": (prompt("unknown", "{{question}} {{answr}}"), "its text uses ['answr', 'context', 'question']"),
    "other": (prompt("another"), "says `id = 'another'`: use the name of the file"),
    "binary": (b"\xff\xfe\x00", "is not UTF-8: save it as UTF-8"),
    "huge": (b"#" * (LONGEST + 1), "has more than 65536 bytes: shorten it"),
    "broken": ("id = ", "is not a template: "),
    "odd": (prompt("odd") + 'colour = "red"\n', "unknown field `colour`"),
    "Upper": (prompt("Upper"), "its name is not valid"),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_a_prompt_that_is_none_is_refused_in_words_and_hides_no_other(tmp_path: Path, name: str) -> None:
    content, said = BAD_PROMPTS[name]
    (tmp_path / f"{name}.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "well.toml").write_text(prompt("well"))
    found = {each.name: each for each in find_in_folder(Kind.TEMPLATE, tmp_path, ["cot"])}
    assert found["well"].state is State.READY
    assert found[name].state is State.REFUSED
    assert said in found[name].detail
    assert str(tmp_path / f"{name}.toml") in found[name].detail


def test_a_file_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("do not tell")
    (folder / "away.txt").symlink_to("../secret.txt")
    (folder / "gone.txt").symlink_to("nowhere")
    (folder / "real.txt").write_text("right")
    (folder / "same.txt").symlink_to("real.txt")
    (folder / "deep.txt").mkdir()
    found = {each.name: (each.state, each.detail) for each in find_in_folder(Kind.RUBRIC, folder, ())}
    assert {name for name, (state, _) in found.items() if state is State.READY} == {"real", "same"}
    assert "outside its folder: copy the file into it" in found["away"][1]
    assert "do not tell" not in str(found)


def test_a_shipped_name_and_a_folder_that_is_not_there_are_said(tmp_path: Path) -> None:
    (tmp_path / "cot.toml").write_text(prompt("cot"))
    [taken] = find_in_folder(Kind.TEMPLATE, tmp_path, ["cot"])
    assert taken.state is State.SHIPPED
    [gone] = find_in_folder(Kind.TEMPLATE, tmp_path / "gone", [])
    assert (gone.state, "correct `plugins.templates` in mathrag.yaml" in gone.detail) == (State.REFUSED, True)
    assert find_in_folder(Kind.TEMPLATE, None, []) == []
