"""What the page shows, read back by another parser of HTML."""

from html.parser import HTMLParser

import pytest

from seqmixer.errors import printable
from seqmixer.rewards.metric import METRICS
from seqmixer.runs.explain import Explanation, Hypothesis
from seqmixer.serve.render import CLIPPED, DRAWN, brief, rendered
from seqmixer.serve.service import Served
from served import HOSTILE, LONG


class Read(HTMLParser):
    """The text within <bdi>, and the names of all elements and attributes."""

    def __init__(self, page):
        super().__init__()
        self.texts, self.elements, self.attributes, self.inside = [], set(), set(), False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attributes}
        if tag == "bdi":
            self.inside = True
            self.texts.append("")

    def handle_endtag(self, tag):
        self.inside &= tag != "bdi"

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data


def answer(words, source=("a",), name="run"):
    hypothesis = Hypothesis(
        text=" ".join(words),
        words=[*words, "</s>"],
        probabilities=[0.5] * (len(words) + 1),
        log_prob=-1.5,
        attention=[[1 / len(source)] * len(source)] * (len(words) + 1),
        reward=0.25,
    )
    found = Explanation(" ".join(source), list(source), [True] * len(source), hypothesis, [hypothesis], [hypothesis])
    return rendered("answer.html", found=[(Served(name, None, metric=METRICS["edit"]), found)])


def shortened(text):
    return printable(text if len(text) <= CLIPPED else text[:CLIPPED] + "…")


def test_hostile_words_are_text():
    benign = Read(answer(["a", "b"], ["c", "d"]))
    read = Read(answer(HOSTILE, HOSTILE, HOSTILE[0]))
    assert read.elements == benign.elements
    assert read.attributes == benign.attributes
    shown = [shortened(word) for word in HOSTILE]
    chips = [*shown, "</s>"]
    expected = [
        shortened(HOSTILE[0]), *shown,  # the name of the run, its source
        shortened(" ".join(HOSTILE)), *chips, *chips, *chips,  # greedy search, a beam of one, a sample
        *shown, *chips,  # attention: columns, rows
    ]  # fmt: skip
    assert read.texts == expected
    assert len(answer([LONG], [LONG])) < 10_000


def test_hostile_errors_are_text():
    for text in HOSTILE:
        page = rendered("answer.html", error=f"no {text}")
        assert Read(page).elements == {"div", "p"}
        assert LONG not in page
    assert "no &lt;script&gt;" in rendered("answer.html", error=f"no {HOSTILE[0]}")


def test_probabilities_scores_and_attention_are_shown():
    page = answer(["x"], ["a", "b", "c"])
    assert page.count("<small>0.50</small>") == 6
    assert page.count("edit 0.250") == page.count("log p -1.50") == 3
    assert page.count("--p: 33.3%") == 6
    assert page.count("<td") == 7


def test_the_attention_of_a_long_source_is_not_drawn():
    assert "<table>" in answer(["x"], ["a"] * DRAWN)
    page = answer(["x"], ["a"] * (DRAWN + 1))
    assert "<table>" not in page
    assert f"The source has {DRAWN + 1} words; the attention of up to {DRAWN} is drawn." in page


@pytest.mark.parametrize("text", HOSTILE)
def test_examples_are_one_short_line(text):
    assert len(brief(f"a\n{text}")) < 100
    assert "\x1b" not in brief(text)
