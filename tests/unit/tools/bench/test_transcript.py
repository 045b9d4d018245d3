"""The demonstration's transcript is kept without what only tells that it goes on."""

from shared.pages.pages import find_block_names
from tools.reproduction import demo_transcript as transcript


def test_of_lines_of_progress_the_first_and_the_last_are_kept() -> None:
    told = [
        "== 3. Answering",
        "all jobs  10 running  0/9",
        "all jobs  4 running  5/9",
        "all jobs  0 running  9/9",
        "== 4.",
    ]
    assert list(transcript.shortened(told)) == [told[0], told[1], "...", told[3], told[4]]


def test_the_page_has_a_place_for_the_transcript() -> None:
    assert find_block_names(transcript.PAGE.read_text("utf-8")) == ["transcript"]
