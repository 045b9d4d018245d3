"""Chinese is cut into words where jieba is installed, and into characters and pairs where it is not."""

import json
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retriever import index as index_module
from services.retriever.backends import make_backends
from services.retriever.index import PAIRS, Bm25, TermCutter
from shared.errors import Unavailable
from shared.extras import install_command
from shared.settings import REPOSITORY, Retrieval, Sparse
from tests.unit.retrieval import HashedWords

DATA = REPOSITORY.parent / "shared" / "data" / "zh" / "cmath-test.jsonl"
JIEBA = TermCutter("jieba")
HAN = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FD5), max_size=20)


def test_words_are_those_of_the_search_mode() -> None:
    assert JIEBA.of("三角形的面积") == ["三角", "角形", "三角形", "的", "面积"]
    assert PAIRS.of("面积") == ["面", "积", "面积"]


def test_formulas_and_numbers_stay_whole_inside_chinese() -> None:
    text = r"已知$x^{2}+\frac{1}{2}=40{,}000$，求x的值"
    formula = ["x^2", "x", "2", r"\frac", "1", "2", "40000"]
    assert JIEBA.of(text) == ["已知", *formula, "求", "x", "的", "值"]
    assert [token for token in PAIRS.of(text) if token.isascii()] == [*formula, "x"]


def test_what_the_dictionary_does_not_know_is_cut_into_pairs() -> None:
    assert JIEBA.of("カナ") == PAIRS.of("カナ")
    assert JIEBA.of("한글") == PAIRS.of("한글")
    assert JIEBA.of("面积カナ") == ["面积", "カ", "ナ", "カナ"]
    assert JIEBA.of("㐀㐁") == ["㐀", "㐁", "㐀㐁"]


@given(HAN)
def test_no_character_is_lost_and_no_token_holds_a_blank(run: str) -> None:
    found = JIEBA.of(run)
    assert set("".join(found)) == set(index_module.tokenise(run)) & set(run)
    assert all(token and token == "".join(token.split()) for token in found)


def test_the_setting_chooses_and_the_recipe_tells() -> None:
    assert TermCutter("bigrams").recipe() == {"tokens": index_module.VERSION}
    assert TermCutter("jieba").recipe() == {"tokens": index_module.VERSION, "chinese": f"jieba {version('jieba')}"}
    assert TermCutter("auto").recipe() == TermCutter("jieba").recipe()
    _, sparse = make_backends(Retrieval(sparse=Sparse(chinese="bigrams", k1=0.5, b=0.1)), HashedWords())
    assert sparse.recipe() | {"backend": ""} == Bm25(PAIRS, k1=0.5, b=0.1).recipe() | {"backend": ""}


@pytest.fixture
def _without_jieba(monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec
    monkeypatch.setattr(index_module, "find_spec", lambda name: None if name == "jieba" else found(name))
    monkeypatch.setitem(sys.modules, "jieba", None)
    monkeypatch.setattr(index_module, "_import_jieba", index_module._import_jieba.__wrapped__)


@pytest.mark.usefixtures("_without_jieba")
def test_without_jieba_it_is_pairs_or_a_clear_refusal() -> None:
    assert TermCutter("auto").recipe() == PAIRS.recipe()
    assert TermCutter("auto").of("面积") == PAIRS.of("面积")
    with pytest.raises(Unavailable, match="`jieba` of the extra `zh` is not installed") as caught:
        TermCutter("jieba")
    assert caught.value.hint == install_command("zh")


FRESH = """
import sys, tempfile, warnings
from pathlib import Path
warnings.simplefilter("error")
tempfile.tempdir = sys.argv[1]
(Path(sys.argv[1]) / "jieba.cache").write_bytes(b"poisoned")
from services.retriever.index import TermCutter
assert "jieba" not in sys.modules
words = TermCutter("jieba")
print(words.of("三角形面积"), sorted(file.name for file in Path(sys.argv[1]).iterdir()))
"""


def test_it_is_silent_and_neither_reads_nor_writes_a_cache(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", FRESH, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "['三角', '角形', '三角形', '面积'] ['jieba.cache']\n"
    assert (tmp_path / "jieba.cache").read_bytes() == b"poisoned"


def test_its_log_has_no_handlers_of_its_own() -> None:
    JIEBA.of("面积")
    assert logging.getLogger("jieba").handlers == []
    assert logging.getLogger("jieba").getEffectiveLevel() == logging.WARNING


def test_several_threads_load_it_once() -> None:
    index_module._load_tokenizer.cache_clear()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(JIEBA.of, ["三角形的面积"] * 16))
    assert all(each == found[0] for each in found)
    assert index_module._load_tokenizer.cache_info().misses == 1


@pytest.mark.skipif(not DATA.is_file(), reason=f"{DATA} is absent")
@pytest.mark.parametrize("words", [PAIRS, JIEBA], ids=["pairs", "words"])
def test_half_of_a_problem_finds_it_among_a_thousand(words: TermCutter) -> None:
    lines = DATA.read_text(encoding="utf-8").splitlines()
    texts = list(dict.fromkeys(json.loads(line)["question"] for line in lines))
    index = Bm25(words).build([[(f"{at:064x}", text) for at, text in enumerate(texts)]])
    found = index.search([text[: len(text) // 2] for text in texts], 1)
    first = sum(bool(matches) and int(matches[0].document, 16) == at for at, matches in enumerate(found))
    assert first > 0.97 * len(texts)
