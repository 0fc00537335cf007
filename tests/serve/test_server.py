"""`seqmixer serve` as its users have it: by HTTP, and in a real browser."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy
import pytest
import torch
from PIL import Image

from seqmixer.data.prepare.images import efficientnet, features
from seqmixer.runs import load
from seqmixer.serve.limits import BODY
from seqmixer.serve.web import address, listening
from served import HOSTILE, LONG, SOURCES, trained

PATIENCE = 60_000  # milliseconds, of a busy machine


@contextmanager
def serving(*folders):
    """The URL of a server, which ends in good order when it is told to."""
    command = [sys.executable, "-m", "seqmixer", "serve", *map(str, folders), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.endswith("  Ctrl-C ends it\n"), process.communicate(timeout=60)
            yield line.split()[0]
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=120) == ("", "")
            assert process.returncode == 0
        finally:
            process.kill()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    return [trained(folder, name, model).folder for name, model in (("<b>run", "lstm"), ("other", "transformer"))]


@pytest.fixture(scope="module")
def server(folders):
    with serving(*folders) as url:
        yield url


def post(url, body, kind="application/json"):
    """-> status, the JSON of the answer"""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/generate", content, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_endpoint_gives_what_the_run_does(server, folders):
    status, found = post(server, {"sources": ["a zebra", "b c"], "beam": 3, "samples": 2, "attention": True})
    assert (status, found["run"]) == (200, "<b>run")
    first, second = found["results"]
    alone = load(folders[0]).explain("a zebra", beam=3)
    assert first["greedy"]["words"] == alone.greedy.words
    assert first["greedy"]["probabilities"] == pytest.approx(alone.greedy.probabilities, abs=1e-5)
    assert [each["words"] for each in first["beam"]] == [each.words for each in alone.beam]
    assert first["unknown"] == [False, True, False]
    assert len(second["samples"]) == 2
    assert len(second["greedy"]["attention"]) == len(second["greedy"]["words"])
    status, found = post(server, {"sources": ["a"], "run": "other", "references": ["a"]})
    assert (found["run"], found["results"][0]["greedy"]["attention"]) == ("other", None)
    assert found["results"][0]["greedy"]["reward"] is not None


def test_many_callers_at_once_each_have_their_own_answer(server, folders):
    run = load(folders[0])
    expected = {source: run.explain(source).greedy.words for source in SOURCES[:7]}

    def ask(i):
        source = SOURCES[i % 7]
        return source, post(server, {"sources": [source]})

    with ThreadPoolExecutor(20) as callers:
        for source, (status, found) in callers.map(ask, range(200)):
            assert status == 200
            assert found["results"][0]["source"] == source
            assert found["results"][0]["greedy"]["words"] == expected[source]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "request:1: not JSON (EOF while parsing an object at column 1)"),
        (b"[" * 200_000, 400, "request:1: not JSON (recursion limit exceeded"),
        (b"\xff\xfe", 400, "request:1: not JSON (expected value at column 1)"),
        (b'{"sources": ["\\ud800"]}', 400, "request:1: not JSON (unexpected end of hex escape at column 21)"),
        (b"[]", 400, "request: input should be an object"),
        ({"sources": ["a"], "beam": 21}, 400, "request: beam: input should be less than or equal to 20"),
        ({"sources": [LONG]}, 400, "the source has 100,000 characters; at most 10,000 are read"),
        ({"sources": [""]}, 400, "the source is empty; give it at least one word"),
        (b" " * (BODY + 1), 413, "the request has more than 4,194,304 bytes"),
    ],
)
def test_errors_are_json_with_a_status(server, body, status, message):
    found = post(server, body)
    assert found[0] == status
    assert found[1]["error"].startswith(message)


def test_other_requests_are_refused(server):
    assert post(server, {"sources": ["a"]}, "text/plain") == (
        415,
        {"error": "the request must have the header Content-Type: application/json"},
    )
    with pytest.raises(urllib.error.HTTPError, match="405") as refused:
        urllib.request.urlopen(f"{server}/generate", timeout=60)
    assert json.load(refused.value) == {"error": "ask by POST, with a JSON object"}


def test_hostile_text_comes_back_as_it_was(server):
    words = HOSTILE[:-1]
    status, found = post(server, {"sources": [" ".join(words)], "samples": 20, "temperature": 2.0})
    assert status == 200
    assert found["results"][0]["words"] == [*words, "</s>"]


def test_its_health(server):
    with urllib.request.urlopen(f"{server}/health", timeout=60) as answer:
        found = json.load(answer)
    assert found["status"] == "ok"
    assert found["runs"]["other"] == {"reads": "text", "length": 6}


@pytest.fixture(scope="module")
def visit(server):
    """A function that opens the page. What its console says, and what leaves the machine, is an error in the end."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("the page is not tested: there is no chromium on this machine")
    from playwright.sync_api import sync_playwright

    wrong = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def opened(url=server, width=1400, scheme="light"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.set_default_timeout(PATIENCE)
            page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("dialog", lambda dialog: wrong.append(dialog.message))
            local = (url, "data:", "blob:")
            page.on("request", lambda request: request.url.startswith(local) or wrong.append(request.url))
            page.goto(url)
            return page

        yield opened
        browser.close()
    assert wrong == []


@pytest.fixture(scope="module")
def page(visit):
    return visit()


@contextmanager
def another_answer(page):
    """Wait for what comes of the block."""
    page.evaluate("document.querySelector('#answer .sq')?.setAttribute('data-old', '')")
    yield
    page.locator("#answer .sq:not([data-old])").wait_for()


def ask(page, source, reference=""):
    """What the page shows of it."""
    with another_answer(page):
        page.get_by_label("Source").fill(source)
        page.get_by_label("Reference").fill(reference)
        page.get_by_role("button", name="Generate").click()
    return page.locator("#answer")


def test_the_page_answers_for_each_run(page, folders):
    answer = ask(page, "a zebra c", "a b")
    first, second = answer.locator("section").all()
    assert [each.locator("h2").inner_text() for each in (first, second)] == ["<b>run", "other"]
    for section, folder in ((first, folders[0]), (second, folders[1])):
        found = load(folder).explain("a zebra c", "a b", beam=5)
        hypotheses = section.locator(".hypotheses > li").all()
        assert len(hypotheses) == 1 + len(found.beam) + 3
        for shown, expected in zip(hypotheses, [found.greedy, *found.beam], strict=False):
            assert len(shown.locator(".words li").all()) == len(expected.words)
            p = [float(each.inner_text()) for each in shown.locator(".words small").all()]
            assert p == pytest.approx(expected.probabilities, abs=0.006)
            assert f"bleu {expected.reward:.3f}" in shown.inner_text()
        assert "zebra" in section.locator("mark").all_inner_texts()
    attention = first.locator("table")
    assert attention.locator("thead th").all_inner_texts() == ["a", "zebra", "c", "</s>"]
    rows = attention.locator("tbody tr").all()
    alpha = load(folders[0]).explain("a zebra c").greedy.attention
    assert len(rows) == len(alpha)
    for row, expected in zip(rows, alpha, strict=True):
        assert [int(cell.inner_text()) for cell in row.locator("td").all()] == [round(100 * each) for each in expected]
    assert second.locator("table").count() == 0


def test_the_page_shows_hostile_text_and_does_not_run_it(page):
    answer = ask(page, f"a {' '.join(HOSTILE[:-1])}", "<script>window.hacked=2</script> a")
    section = answer.locator("section").first
    text = section.inner_text()
    assert "<script>window.hacked=1</script>" in text
    assert '"><img/src=x/onerror=window.hacked=1>' in text
    assert "\\x1b[31mred" in text
    assert "😀👩‍👩‍👧" in text
    assert "{{7*7}}" in text
    assert "\\u202etfel-ot-thgir" in text  # spelled, so that it turns nothing around
    assert page.evaluate("[window.hacked, document.querySelectorAll('#answer script, #answer img, b b').length]") == [
        None,
        0,
    ]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_page_shows_errors(page):
    assert ask(page, " ").locator("[role=alert]").inner_text() == "the source is empty; give it at least one word"
    answer = ask(page, LONG)
    assert answer.locator("[role=alert]").inner_text() == "the source has 100,000 characters; at most 10,000 are read"
    assert ask(page, "a b").locator("section").count() == 2


def test_examples_are_answered_by_keyboard(page):
    with another_answer(page):
        page.get_by_role("button", name="d", exact=True).focus()
        page.keyboard.press("Enter")
    assert page.get_by_label("Source").input_value() == "d"
    assert page.get_by_label("Reference").input_value() == "d"
    assert "bleu" in page.locator("#answer section").first.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(visit, scheme):
    page = visit(width=400, scheme=scheme)
    ask(page, "a b c d e a b c d e a b c d e a b c d e")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.querySelector('{of}')).{name}.match(/[0-9.]+/)[0]")
        for of, name in ((".sq .text", "color"), (".sq section", "backgroundColor"))
    )
    assert (float(ink) < float(paper)) == (scheme == "light")
    page.close()


@pytest.mark.slow
def test_a_dropped_image_is_described(visit, tmp_path):
    table = numpy.random.default_rng(0).random((3, 1280), dtype=numpy.float32)
    numpy.save(tmp_path / "features.npy", table)
    splits = enumerate(("train", "valid", "test"))
    entries = [{"id": f"<i>{i}", "row": i, "split": split, "captions": ["A cat sits"]} for i, split in splits]
    (tmp_path / "captions.json").write_text(json.dumps(entries))
    run = trained(tmp_path, "images", data={"task": "captions", "folder": str(tmp_path)})
    pixels = numpy.random.default_rng(1).integers(0, 255, (40, 50, 3), dtype=numpy.uint8)
    Image.fromarray(pixels).save(tmp_path / "some.png")
    (seen,) = features(efficientnet(), [tmp_path / "some.png"], torch.device("cpu"))
    with serving(run.folder) as url:
        page = visit(url)
        with another_answer(page):
            page.get_by_role("button", name="Generate").click()
        assert page.locator("[role=alert]").inner_text() == "no image yet: choose an example, or drop one of yours"
        for expected, reference, give in (
            (seen, None, lambda: page.locator("input[type=file]").set_input_files(tmp_path / "some.png")),
            (
                torch.from_numpy(table[2]),
                "a cat sits",
                lambda: page.get_by_role("button", name="<i>2: a cat sits").click(),
            ),
        ):
            with another_answer(page):
                give()
            alone = run.explain(expected, reference)
            chips = page.locator(".hypotheses").first.locator(".words small").all_inner_texts()
            assert [float(each) for each in chips] == pytest.approx(alone.greedy.probabilities, abs=0.006)
        page.close()


def test_what_stands_in_the_way_of_a_server_is_one_line(run, tmp_path, monkeypatch, folders):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run("serve", folders[0], "--port", port) == (
            2,
            "",
            f"seqmixer: cannot listen at 127.0.0.1, port {port} (Address already in use); choose another port: "
            "--port 0 takes a free one\n",
        )
    code, _, said = run("serve", folders[0], "--host", "no.such.host.invalid", "--port", 0)
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("seqmixer: --host no.such.host.invalid: no address of this machine (")
    code, _, said = run("serve", tmp_path / "gone", "--port", 0)
    assert (code, said.count("\n")) == (2, 1)
    assert str(tmp_path / "gone") in said
    shutil.copytree(folders[0], tmp_path / "damaged")
    (tmp_path / "damaged" / "target.vocab").write_text("changed\n")
    code, _, said = run("serve", tmp_path / "damaged", "--port", 0)
    assert (code, said.count("\n")) == (2, 1)
    assert str(tmp_path / "damaged") in said
    monkeypatch.setitem(sys.modules, "gradio", None)
    message = "seqmixer: a server needs gradio; install it with: pip install 'seqmixer[serve]'\n"
    assert run("serve", folders[0], "--port", 0) == (2, "", message)


def test_the_address_says_whether_others_can_ask():
    for host, local in (("127.0.0.1", True), ("0.0.0.0", False)):
        with listening(host, 0) as listener:
            port = listener.getsockname()[1]
            assert address(listener) == (f"http://{host}:{port}", local)
