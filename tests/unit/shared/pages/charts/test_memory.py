"""Bars of memory against a budget."""

import re

from shared.pages.charts import draw_memory


def test_parts_are_drawn_to_the_scale_with_the_budget_as_a_line() -> None:
    drawn = draw_memory({"judge": 100, "generator": 50}, 150, 200)
    assert re.findall(r'x="([\d.]+)" y="5" width="([\d.]+)"', drawn) == [("0.0", "200.0"), ("200.0", "100.0")]
    assert 'x1="300.0"' in drawn
    assert 'class="wrong"' not in drawn


def test_what_is_beyond_the_budget_is_marked() -> None:
    assert '<rect x="200.0" y="1" width="200.0" height="3" class="wrong"/>' in draw_memory({"judge": 100}, 50, 100)


def test_it_is_told_in_words_and_names_cannot_act() -> None:
    drawn = draw_memory({'"><script>': 1}, 2, 2)
    assert 'aria-label="&#34;&gt;&lt;script&gt; 1 MiB; budget 2 MiB"' in drawn


def test_nothing_is_drawn_of_nothing() -> None:
    assert "<rect" not in draw_memory({}, 0, 0)
