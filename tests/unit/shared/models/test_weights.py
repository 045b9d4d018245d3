"""What a model is, by its bytes."""

import hashlib
import os
from pathlib import Path

import pytest

from shared.models import files
from shared.models.files import WeightsMissing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_a_file_is_its_sha256(folder: Path) -> None:
    file = folder / "model.safetensors"
    assert files.digest(file) == hashlib.sha256(b"weights").hexdigest()


def test_a_folder_is_another_model_once_any_of_its_files_is_another(folder: Path) -> None:
    seen = {files.digest(folder)}
    for name, content in (("config.json", "{}"), ("model.safetensors", "weightz"), ("chat_template.jinja", "{{ x }}")):
        (folder / name).write_text(content)
        os.utime(folder / name, ns=(1, 1))
        seen.add(files.digest(folder))
    (folder / "chat_template.jinja").rename(folder / "template.jinja")
    assert len(seen | {files.digest(folder)}) == 5


def test_what_a_download_keeps_for_itself_is_no_part_of_a_model(folder: Path) -> None:
    before = files.digest(folder)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").write_text("now")
    assert files.digest(folder) == before


def test_an_unchanged_file_is_read_once(folder: Path) -> None:
    file = folder / "model.safetensors"
    before, read = files.digest(file), files.hash_file.cache_info().misses
    assert files.digest(file) == before
    assert files.hash_file.cache_info().misses == read


def test_a_copy_that_keeps_size_and_time_is_another_file(folder: Path) -> None:
    file = folder / "model.safetensors"
    before, status = files.digest(file), file.stat()
    file.write_bytes(bytes(status.st_size))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert files.digest(file) != before


@pytest.mark.parametrize("name", ["none.gguf", "empty"])
def test_nothing_is_no_model(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsMissing, match=rf"{name}.*put .* there"):
        files.digest(tmp_path / name)
