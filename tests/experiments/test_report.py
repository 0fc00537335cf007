import json
import re
import shutil
import statistics
import sys
from html.parser import HTMLParser

import pytest
import torch

from seqmixer.config import Config
from seqmixer.errors import RunError, SeqmixerError
from seqmixer.experiments import report as module
from seqmixer.experiments.demo import details, headline, write_markdown, write_report
from seqmixer.experiments.figures import learning_curves, relative_gains, spread, stages
from seqmixer.experiments.summary import METRIC_LABELS, read_grid, rows
from seqmixer.rewards import BUILT_IN
from seqmixer.runs import train

METHODS = ["xent", "dad", "e2e", "mixer"]
SEEDS = [1, 2]
SCORES = {  # by task and method, for each seed: on the first MIXER's gain is steady, on the second it is not
    "toy-translation": {
        "base": [8.0, 9.0],
        "xent": [10.0, 14.0],
        "dad": [9.5, 13.5],
        "e2e": [10.25, 14.5],
        "mixer": [12.0, 16.5],
    },
    "toy-summarization": {
        "base": [18.0, 19.0],
        "xent": [20.0, 24.0],
        "dad": [19.0, 22.0],
        "e2e": [20.5, 23.0],
        "mixer": [26.0, 23.0],
    },
}
SENTENCES = ["the <b>cat</b> & the dog", "a dog saw the cat", "the cat ran", "a cat saw a dog", "the dog & a cat ran"]
COMMANDS = ["seqmixer demo --out a&b", "seqmixer report a&b"]


def configuration(data, start, name, seed, method):
    return Config.parse(
        {
            "name": name,
            "seed": seed,
            "data": {"task": "text", "folder": str(data), "train": ["src", "tgt"], "valid": ["src", "tgt"]}
            | {"test": ["src", "tgt"]},
            "model": {"hidden": 8},
            "algorithm": {"name": "xent" if method == "base" else method, "xent_epochs": 0, "mixed_epochs": 1},
            "training": {"epochs": 3, "device": "cpu"} | ({} if method == "base" else {"start": str(start)}),
        }
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A grid folder of real runs, with chosen scores and hypotheses."""
    torch.set_num_threads(1)
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("grid")
    (data / "src").write_text("\n".join(" ".join(s.split()[::-1]) for s in SENTENCES) + "\n")
    (data / "tgt").write_text("\n".join(SENTENCES) + "\n")
    for seed in SEEDS:
        for method in ("base", *METHODS):
            name = f"seed-{seed}/{method}"
            train(configuration(data, out / f"seed-{seed}" / "base", name, seed, method), out)
            written = SENTENCES if method == "xent" else ["<i>oops</i> & the", *SENTENCES[1:4], f"the {method}"]
            (out / name / "test.txt").write_text("\n".join(written) + "\n")
    results = [
        {
            "task": task,
            "method": method,
            "seed": seed,
            "score": score,
            "beam": 1,
            "valid": 3.0,
            "epoch": 2,
            "seconds": 60.0 * seed,
            "run": f"seed-{seed}/{method}",
            "signature": f"bleu|of {task}",
        }
        for task, methods in SCORES.items()
        for method, scores in methods.items()
        for seed, score in zip(SEEDS, scores, strict=True)
    ]
    grid = {
        "tasks": list(SCORES),
        "methods": METHODS,
        "seeds": SEEDS,
        "best": {"toy-translation": 31.25, "toy-summarization": None},
        "seconds": 231.0,
        "workers": 2,
        "machine": "2 cores of <some> machine",
        "results": results[::-1],  # the order of results does not matter
    }
    (out / "grid.json").write_text(json.dumps(grid))
    return out


@pytest.fixture
def folder(trained, tmp_path):
    """A copy to change."""
    return shutil.copytree(trained, tmp_path / "grid")


def change(folder, **values):
    path = folder / "grid.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def one_seed(folder):
    results = [result for result in json.loads((folder / "grid.json").read_text())["results"] if result["seed"] == 1]
    change(folder, seeds=[1], results=results)


class Page(HTMLParser):
    """The text of tables, by row and cell; all text; all attributes; what is bold."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.words, self.attributes, self.bold, self.open = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.attributes += attributes
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        self.words.append(data)
        if "strong" in self.open and "table" in self.open:
            self.bold.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] = " ".join((self.tables[-1][-1][-1] + " " + data).split())


def page(folder):
    return Page(write_report(folder, "A <title>", COMMANDS).read_text(encoding="utf-8"))


def spelled(scores):
    return f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"


def mean_ratio(scores):
    pairs = zip(scores["mixer"], scores["xent"], strict=True)
    return f"{statistics.mean(mixer / xent for mixer, xent in pairs):.2f}"


def test_page_has_the_table_of_the_grid(trained):
    header, *body = page(trained).tables[0]
    assert header == ["task", "XENT", "DAD", "E2E", "MIXER", "best grammatical", "MIXER / XENT"]
    assert body == [
        [f"{task} BLEU", *(spelled(scores[method]) for method in METHODS), best, mean_ratio(scores)]
        for (task, scores), best in zip(SCORES.items(), ("31.25", "–"), strict=True)
    ]


def test_best_is_bold_only_where_its_gain_is_larger_than_its_spread(trained):
    assert page(trained).bold == ["14.25"]  # gains 2.0 and 2.5; on the other task they are 6 and -1


def test_a_bold_score_is_better_than_xent(folder):
    results = json.loads((folder / "grid.json").read_text())["results"]
    worse = [r | ({"score": 30.0 + r["seed"]} if r["method"] == "xent" else {}) for r in results]
    change(folder, results=worse)
    assert page(folder).bold == []


def test_one_seed_has_neither_deviation_nor_bold(folder):
    one_seed(folder)
    found = page(folder)
    assert found.tables[0][1] == ["toy-translation BLEU", "10.00", "9.50", "10.25", "12.00", "31.25", "1.20"]
    assert found.bold == []
    assert "One seed: how far chance reaches is not known." in " ".join(found.words)


def test_xent_of_score_zero_has_no_ratio(folder):
    results = json.loads((folder / "grid.json").read_text())["results"]
    change(folder, results=[r | ({"score": 0.0} if r["method"] == "xent" else {}) for r in results])
    assert [row[-1] for row in page(folder).tables[0][1:]] == ["–", "–"]
    assert details(rows(read_grid(folder)), 2).startswith("toy-translation: BLEU 14.25 against 0.00; ")


def test_headline_and_details_say_what_the_table_says(trained):
    table = rows(read_grid(trained))
    assert headline(table) == "MIXER scores higher than XENT on 2 of 2 tasks."
    assert details(table, 2).replace("\N{NO-BREAK SPACE}", " ") == (
        "toy-translation: BLEU 14.25 against 12.00 (+18.9 %); toy-summarization: BLEU 24.50 against 22.00 (+12.9 %). "
        "The difference is larger than its deviation over 2 seeds on toy-translation."
    )
    words = page(trained).words
    assert headline(table) in words
    assert details(table, 2) in words


def test_page_has_times_signatures_commands_and_machine(trained):
    found = page(trained)
    assert found.tables[1][1] == ["toy-translation", *["1 min 30 s"] * 5]
    for text in ("bleu|of toy-translation", "2 cores of <some> machine", "3 min 51 s", "A <title>"):
        assert text in found.words
    assert "seqmixer demo --out a&b\nseqmixer report a&b\n" in found.words


def test_page_needs_nothing_from_elsewhere(trained):
    text = write_report(trained, "title", []).read_text(encoding="utf-8")
    links = [value for name, value in Page(text).attributes if name in ("src", "href", "xlink:href", "srcset", "data")]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"url\((?!#)|@import|<script|<link", text)


def test_drawings_of_one_page_share_no_id(trained):
    ids = [value for name, value in page(trained).attributes if name == "id"]
    assert len(ids) == len(set(ids))
    text = (trained / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', text)) <= set(ids)


def test_the_same_grid_gives_the_same_page(trained):
    first = write_report(trained, "title", COMMANDS).read_bytes()
    assert write_report(trained, "title", COMMANDS).read_bytes() == first


def test_examples_are_the_first_where_xent_and_mixer_differ(trained):
    first, second = module.examples(read_grid(trained), "toy-translation")
    assert (first.number, second.number) == (1, 5)
    assert first.source == "dog the & <b>cat</b> the"
    assert first.references == [SENTENCES[0]]
    assert [method for method, _ in first.hypotheses] == METHODS
    assert dict(first.hypotheses)["mixer"] == [("<i>oops</i>", False), ("&", True), ("the", True)]


def test_text_is_escaped(trained):
    text = write_report(trained, "A <title>", COMMANDS).read_text(encoding="utf-8")
    assert "&lt;i&gt;oops&lt;/i&gt;" in text
    assert "dog the &amp; &lt;b&gt;cat&lt;/b&gt; the" in text
    assert "a&amp;b" in text
    assert not re.search(r"<i>|<b>|<some>|A <title>", text)


def test_page_says_when_there_is_nothing_to_show(folder):
    for seed in SEEDS:
        shutil.copy(folder / f"seed-{seed}/xent/test.txt", folder / f"seed-{seed}/mixer/test.txt")
    assert page(folder).words.count("XENT and MIXER write the same for every test sentence.") == 2


def test_bars_carry_the_ratios(trained):
    table = rows(read_grid(trained))
    text = relative_gains(table, "gains")
    for row in table:
        for method in METHODS[1:]:
            ratio = row.cells[method].ratio
            pairs = zip(SCORES[row.task][method], SCORES[row.task]["xent"], strict=True)
            assert ratio == pytest.approx(statistics.mean(score / xent for score, xent in pairs))
            assert f">{ratio:.2f}</text>" in text
    assert "var(--mixer)" in text


def test_curves_name_every_method_and_the_stages_of_mixer(trained):
    text = learning_curves(read_grid(trained), "toy-translation", "curves")
    for label in ("XENT", "DAD", "E2E", "MIXER", "best grammatical", "training reward", "s ="):
        assert f">{label}</text>" in text
    assert "best grammatical" not in learning_curves(read_grid(trained), "toy-summarization", "curves")


def test_stages_begin_where_s_changes():
    log = [{"epoch": i + 1, "stage": label} for i, label in enumerate(["XENT", "s = 6 words", "s = 6 words", "s = 3"])]
    assert list(stages(log)) == [(2, 6), (4, 3)]


def test_labels_are_moved_apart_in_order():
    placed = spread([5.0, 5.1, 1.0, 5.05], gap=1.0)
    assert placed == [5.0, 7.0, 1.0, 6.0]


def test_markdown_has_the_same_numbers_and_those_of_every_seed(trained, tmp_path):
    path = write_markdown(trained, tmp_path / "results" / "toy.md", "Toy results", COMMANDS)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Toy results"
    assert "| task | XENT | DAD | E2E | MIXER | best grammatical | MIXER / XENT |" in lines
    first, second = SCORES.values()
    cells = [spelled(first[method]) for method in METHODS[:3]]
    winner = f"**{spelled(first['mixer'])}**"
    assert f"| toy-translation, BLEU | {' | '.join(cells)} | {winner} | 31.25 | {mean_ratio(first)} |" in lines
    cells = [spelled(second[method]) for method in METHODS]
    assert f"| toy-summarization, BLEU | {' | '.join(cells)} | – | {mean_ratio(second)} |" in lines
    for task, methods in SCORES.items():
        for method, scores in methods.items():
            name = method if method == "base" else method.upper()
            values = [*scores, statistics.mean(scores), statistics.stdev(scores)]
            assert f"| {task} | {name} | {' | '.join(f'{value:.2f}' for value in values)} |" in lines
    assert "- toy-summarization: `bleu|of toy-summarization`" in lines
    assert lines[lines.index("```") + 1 :] == [*COMMANDS, "```"]
    assert any(line.startswith("- 2 cores of <some> machine; seqmixer ") for line in lines)


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_missing_extra_is_named(trained, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    message = "a report needs matplotlib and jinja2; install it with: pip install 'seqmixer[report]'"
    with pytest.raises(SeqmixerError, match=f"^{re.escape(message)}$"):
        write_report(trained, "title", [])


def refused(folder, message):
    with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
        write_report(folder, "title", [])


def test_a_folder_without_grid_is_refused(tmp_path):
    refused(tmp_path, f"{tmp_path}: not a grid folder (no grid.json)")


def test_a_damaged_grid_is_refused(folder):
    path = folder / "grid.json"
    path.write_text('{\n"tasks": [')
    refused(folder, f"{path}:2: not JSON (EOF while parsing a list at column 10)")
    path.write_text('{"results": []}')
    refused(folder, f"{path}: tasks: field required")


def test_a_grid_without_mixer_is_refused(folder):
    change(folder, methods=["xent", "dad"])
    refused(folder, f"{folder / 'grid.json'}: methods are xent, dad; a report needs xent and mixer among them")


def test_an_unfinished_grid_is_refused(folder):
    change(folder, seeds=[1, 2, 3])
    path = folder / "grid.json"
    refused(folder, f"{path}: toy-translation with base has results for seeds 1, 2, not for 1, 2, 3")
    change(folder, seeds=SEEDS, tasks=["toy-captioning"])
    refused(folder, f"{path}: toy-captioning with base has results for seeds none, not for 1, 2")


def test_runs_without_their_files_are_refused(folder):
    run = folder / "seed-1" / "mixer"
    path = run / "test.txt"
    path.write_text("the cat\n")
    refused(folder, f"{path}: 1 lines, but the test split has 5 sentences")
    path.unlink()
    refused(folder, f"{path}: no such file; it holds what the run wrote for the test split")
    (run / "scores.json").unlink()
    refused(folder, f"{run / 'scores.json'}: no such file, though grid.json names the run")


def test_every_metric_has_a_label():
    assert METRIC_LABELS.keys() == set(BUILT_IN)
