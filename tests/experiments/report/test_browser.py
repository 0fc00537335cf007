"""The pages in a real browser: what a reader does there works, and hostile text is shown, not run."""

import random
import re

import pytest

from reported import HOSTILE, SOURCES, TARGETS, write
from seqmixer.evaluation import read_sentences
from seqmixer.experiments.report.runs import page, read
from seqmixer.experiments.report.sentences import Outputs, System
from seqmixer.rewards import METRICS
from seqmixer.training import epochs, read_log

WINDOW = 25


def written(folder, *names):
    path = folder / "report.html"
    path.write_text(page(read([folder / name for name in names], trust=False), "seqmixer report").html())
    return path.as_uri()


@pytest.fixture(scope="module")
def address(trained):
    return written(trained, "plain", "mixer")


def cards(shown):
    """The numbers of the sentences that are shown, from 0."""
    found = shown.locator("#sentences .card header").all_inner_texts()
    return [int(re.match(r"Sentence ([\d,]+)", text)[1].replace(",", "")) - 1 for text in found]


def sentence_scores(folder, metric):
    kept = next(scored for scored in read_sentences(folder).scored if scored.metric == metric)
    return METRICS[metric].corpus(kept.statistics.unsqueeze(1)).tolist()


def wait_for(shown, order):
    shown.wait_for_function("n => document.querySelectorAll('#sentences .card').length === n", arg=len(order[:WINDOW]))
    assert cards(shown) == order[:WINDOW]


def test_sentences_are_searched_sorted_and_filtered(visit, trained, address):
    shown = visit(address)
    everything = list(range(len(TARGETS)))
    assert cards(shown) == everything[:WINDOW]

    a, b = (read_sentences(trained / name).hypotheses for name in ("plain", "mixer"))
    lines = [" ".join(parts).lower() for parts in zip(SOURCES, TARGETS, a, b, strict=True)]
    shown.get_by_label("search").fill("DOG red")
    found = [i for i in everything if "dog red" in lines[i]]
    assert 0 < len(found) < len(everything)
    shown.get_by_text(f"{len(found)} of 60 sentences").wait_for()
    assert cards(shown) == found[:WINDOW]
    shown.get_by_label("search").fill("no such words")
    shown.get_by_text("No sentence has these words.").wait_for()
    shown.get_by_label("search").fill("")
    shown.get_by_text("60 of 60 sentences").wait_for()

    for metric in ("edit", "rouge_l"):
        shown.get_by_label("metric").select_option(metric)
        first, second = (sentence_scores(trained / name, metric) for name in ("plain", "mixer"))
        gain = [round(y, 3) - round(x, 3) for x, y in zip(first, second, strict=True)]
        for name, key in (("gain", lambda i: -gain[i]), ("loss", lambda i: gain[i]), ("score", lambda i: -second[i])):  # noqa: B023
            shown.get_by_label("sort by").select_option(name)
            assert cards(shown) == sorted(everything, key=lambda i: (round(key(i), 2), i))[:WINDOW], (metric, name)
    more, less = (sum(x > 1e-3 for x in sign) for sign in (gain, [-x for x in gain]))
    status = f"mixer is better than plain on {more}, worse on {less}, equal on {60 - more - less}"
    assert status in shown.get_by_role("status").inner_text()

    shown.get_by_label("sort by").select_option("length of the source")
    assert cards(shown) == sorted(everything, key=lambda i: (-len(SOURCES[i].split()), i))[:WINDOW]
    shown.get_by_label("sort by").select_option("place in the file")
    shown.get_by_label("only where they differ").check()
    differing = [i for i in everything if a[i] != b[i]]
    assert 0 < len(differing) < 60
    assert cards(shown) == differing[:WINDOW]


def test_a_keyboard_is_enough(visit, address):
    shown = visit(address)

    def at():
        return shown.evaluate("document.activeElement.getAttribute('aria-label')")

    shown.keyboard.press("j")
    assert at() == "sentence 1"
    for _ in range(WINDOW):
        shown.keyboard.press("j")
    assert at() == "sentence 26"  # of the next window
    assert cards(shown)[0] == WINDOW
    shown.keyboard.press("k")
    assert at() == "sentence 25"
    shown.keyboard.press("ArrowUp")
    assert at() == "sentence 24"
    shown.keyboard.press("/")
    assert at() is None
    shown.keyboard.type("j/k")  # as text
    shown.get_by_text("No sentence has these words.").wait_for()
    shown.keyboard.press("Escape")
    assert shown.evaluate("document.activeElement.tagName") == "BODY"
    shown.get_by_text("60 of 60 sentences").wait_for()
    shown.get_by_role("button", name="next", exact=True).press("Enter")
    assert cards(shown)[0] == WINDOW


def test_words_that_differ_are_marked_and_those_of_no_reference_underlined(visit, folder):
    a, b = (list(TARGETS) for _ in range(2))
    assert TARGETS[0] == "the a red"
    a[0], b[0] = "the dog red", "the old cow red"
    for name, texts in (("plain", a), ("mixer", b)):
        write(folder / name, texts)
    shown = visit(written(folder, "plain", "mixer"))
    first = shown.locator("#sentences .card").first
    assert first.locator("mark").all_text_contents() == ["dog", "old cow"]
    assert first.locator("u").all_text_contents() == ["dog", "old cow"]


def longest_common(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def test_the_words_that_are_not_marked_are_a_longest_common_subsequence(visit, address):
    shown, draw = visit(address), random.Random(1)
    for _ in range(60):
        a, b = (draw.choices("abcd", k=draw.randrange(12)) for _ in range(2))
        marks = [shown.evaluate("([a, b]) => [...changed(a, b)]", pair) for pair in ([a, b], [b, a])]
        assert [len(text) - len(marked) for text, marked in zip((a, b), marks, strict=True)] == [
            longest_common(a, b)
        ] * 2
        rest = [
            [word for i, word in enumerate(text) if i not in marked] for text, marked in zip((a, b), marks, strict=True)
        ]
        assert longest_common(rest[0], b) == len(rest[0])


def test_hostile_text_is_shown_and_not_run(visit, folder):
    texts = [HOSTILE.get(i, text) for i, text in enumerate(TARGETS)]
    write(folder / "mixer", texts)
    shown = visit(written(folder, "plain", "mixer"))
    assert shown.title() == "Runs: plain, mixer"
    said = [shown.locator("#sentences .card").nth(i).locator(".said dd").last for i in range(10)]
    assert said[3].inner_text() == HOSTILE[3]
    assert said[4].inner_text() == "red [U+001B][31m [U+0000] [U+202E] the [U+2066] [U+2028] end"
    assert said[7].inner_text() == HOSTILE[7]
    assert said[7].evaluate("e => getComputedStyle(e).direction") == "rtl"
    assert said[8].inner_text() == "nothing"
    for i in (5, 6):
        assert len(said[i].inner_text()) < 2000
        said[i].get_by_role("button").click()
        assert said[i].text_content() == HOSTILE[i]
    assert shown.evaluate("document.querySelectorAll('img, #sentences script').length") == 0
    assert shown.evaluate("document.documentElement.scrollWidth") <= 1400


def test_curves_say_what_the_log_says(visit, trained, address):
    shown = visit(address)
    logs = {name: epochs(read_log(trained / name)) for name in ("plain", "mixer")}
    panel = shown.get_by_role("slider", name="valid edit")
    score = {name: [f"{event['valid']['edit']:.2f}" for event in log] for name, log in logs.items()}
    assert panel.get_attribute("aria-valuetext") == f"last: plain {score['plain'][-1]}, mixer {score['mixer'][-1]}"
    panel.press("Home")
    assert panel.get_attribute("aria-valuetext") == f"epoch 1: plain {score['plain'][0]}, mixer {score['mixer'][0]}"
    panel.press("ArrowRight")
    assert panel.get_attribute("aria-valuetext") == f"epoch 2: plain {score['plain'][1]}, mixer {score['mixer'][1]}"
    panel.hover(position={"x": 50, "y": 90})
    assert "epoch 1" in panel.get_attribute("aria-valuetext")

    shown.mouse.move(0, 0)
    reward = shown.get_by_role("slider", name="train reward").get_attribute("aria-valuetext")
    assert float(reward.removeprefix("last: mixer ")) == pytest.approx(logs["mixer"][-1]["train"]["reward"], rel=0.01)
    assert panel.locator("text.stage").all_text_contents() == ["XENT", "s = 5", "s = 0"]
    shown.get_by_role("checkbox", name="plain").uncheck()
    assert panel.get_attribute("aria-valuetext") == f"last: mixer {score['mixer'][-1]}"
    shown.get_by_label("x axis").select_option("update")
    panel.press("End")
    assert panel.get_attribute("aria-valuetext") == f"update 9: mixer {score['mixer'][-1]}"


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_wider_than_the_screen(visit, address, width):
    for scheme in ("light", "dark"):
        shown = visit(address, width, scheme)
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        shown.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        shown.wait_for_function("document.querySelectorAll('.panel svg .line').length > 10")
        assert shown.evaluate("document.documentElement.scrollWidth") <= width


def test_of_many_sentences_few_are_rendered(visit, trained, monkeypatch, tmp_path):
    """30,000: a page that makes an element for each of them takes minutes to search."""
    from dataclasses import replace

    from seqmixer.experiments.report.page import Chapter, Page, Sentences

    kept = read_sentences(trained / "mixer")
    scored = [replace(each, statistics=each.statistics.repeat(500, 1)) for each in kept.scored]
    many = {name: getattr(kept, name) * 500 for name in ("hypotheses", "references", "sources")}
    many["sources"] = [f"{text} {i}" for i, text in enumerate(many["sources"])]
    test = replace(kept, scored=scored, **many)
    pair = [System(name, test, f"var(--run-{i})") for i, name in enumerate("ab")]
    path = tmp_path / "many.html"
    path.write_text(Page("many", "", [Chapter("", [Sentences([Outputs("many", pair, (0, 1))])])]).html())
    shown = visit(path.as_uri())
    shown.get_by_label("sort by").select_option("length of the output")
    shown.get_by_label("search").fill(" 29999")
    shown.get_by_text("1 of 30,000 sentences").wait_for()
    assert cards(shown) == [29_999]
    shown.get_by_label("search").fill("")
    shown.get_by_text("30,000 of 30,000 sentences").wait_for()
    assert len(cards(shown)) == WINDOW
