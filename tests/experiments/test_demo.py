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
from seqmixer.experiments.demo import details, headline, page
from seqmixer.experiments.figures import learning_curves, relative_gains, spread, stages
from seqmixer.experiments.report.page import require_extra
from seqmixer.experiments.report.sentences import of_grid
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


def rewrite(run, hypotheses):
    """Have a run say that it wrote this for the test split."""
    path = run / "test.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    changed = [{**line, "hypothesis": text} for line, text in zip(lines, hypotheses, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in changed))


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
            rewrite(out / name, written)
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


def written(folder, title="A <title>", commands=COMMANDS):
    return page(read_grid(folder), title, commands)


def shown(folder):
    return Page(written(folder).html())


def spelled(scores):
    return f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"


def mean_ratio(scores):
    pairs = zip(scores["mixer"], scores["xent"], strict=True)
    return f"{statistics.mean(mixer / xent for mixer, xent in pairs):.2f}"


def test_page_has_the_table_of_the_grid(trained):
    header, *body = shown(trained).tables[0]
    assert header == ["task", "XENT", "DAD", "E2E", "MIXER", "best grammatical", "MIXER / XENT"]
    assert body == [
        [f"{task} BLEU", *(spelled(scores[method]) for method in METHODS), best, mean_ratio(scores)]
        for (task, scores), best in zip(SCORES.items(), ("31.25", "–"), strict=True)
    ]


def test_best_is_bold_only_where_its_gain_is_larger_than_its_spread(trained):
    assert shown(trained).bold == ["14.25"]  # gains 2.0 and 2.5; on the other task they are 6 and -1


def test_a_bold_score_is_better_than_xent(folder):
    results = json.loads((folder / "grid.json").read_text())["results"]
    worse = [r | ({"score": 30.0 + r["seed"]} if r["method"] == "xent" else {}) for r in results]
    change(folder, results=worse)
    assert shown(folder).bold == []


def test_one_seed_has_neither_deviation_nor_bold(folder):
    one_seed(folder)
    found = shown(folder)
    assert found.tables[0][1] == ["toy-translation BLEU", "10.00", "9.50", "10.25", "12.00", "31.25", "1.20"]
    assert found.bold == []
    assert "One seed: how far chance reaches is not known." in " ".join(found.words)


def test_xent_of_score_zero_has_no_ratio(folder):
    results = json.loads((folder / "grid.json").read_text())["results"]
    change(folder, results=[r | ({"score": 0.0} if r["method"] == "xent" else {}) for r in results])
    assert [row[-1] for row in shown(folder).tables[0][1:]] == ["–", "–"]
    assert details(rows(read_grid(folder)), 2).startswith("toy-translation: BLEU 14.25 against 0.00; ")


def test_headline_and_details_say_what_the_table_says(trained):
    table = rows(read_grid(trained))
    assert headline(table) == "MIXER scores higher than XENT on 2 of 2 tasks."
    assert details(table, 2).replace("\N{NO-BREAK SPACE}", " ") == (
        "toy-translation: BLEU 14.25 against 12.00 (+18.9 %); toy-summarization: BLEU 24.50 against 22.00 (+12.9 %). "
        "The difference is larger than its deviation over 2 seeds on toy-translation."
    )
    words = shown(trained).words
    assert headline(table) in words
    assert details(table, 2) in words


def test_page_has_times_signatures_commands_and_machine(trained):
    found = shown(trained)
    assert found.tables[2][1] == ["toy-translation", *["1 min 30 s"] * 5]
    for text in ("bleu|of toy-translation", "2 cores of <some> machine", "3 min 51 s", "A <title>"):
        assert text in found.words
    assert "seqmixer demo --out a&b\nseqmixer report a&b\n" in found.words


def test_page_needs_nothing_from_elsewhere(trained):
    text = written(trained).html()
    links = [value for name, value in Page(text).attributes if name in ("src", "href", "xlink:href", "srcset")]
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)
    style, _, rest = text.partition("</style>")
    assert not re.search(r"url\((?!#)|@import", style + rest.partition("<script")[0])


def test_drawings_of_one_page_share_no_id(trained):
    ids = [value for name, value in shown(trained).attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', written(trained).html())) <= set(ids)


def test_the_same_grid_gives_the_same_page(trained):
    assert written(trained).html() == written(trained).html()


def test_page_has_every_test_sentence_with_what_the_first_seed_wrote(trained):
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', written(trained).html())[1]
    assert "<" not in embedded
    first, second = json.loads(embedded)["tests"]
    assert (first["name"], second["name"]) == tuple(SCORES)
    assert first["references"] == [[sentence] for sentence in SENTENCES]
    assert first["sources"][0] == "dog the & <b>cat</b> the"
    assert [system["label"] for system in first["systems"]] == ["XENT", "DAD", "E2E", "MIXER"]
    assert first["systems"][3]["outputs"] == ["<i>oops</i> & the", *SENTENCES[1:4], "the mixer"]
    assert first["compared"] == [0, 3]


def test_examples_are_the_first_where_xent_and_mixer_differ(trained):
    first, second = of_grid(read_grid(trained), "xent", "mixer")[0].differing()
    assert first[:3] == [("source", "dog the & <b>cat</b> the"), ("reference", SENTENCES[0]), ("XENT", SENTENCES[0])]
    assert dict(first)["MIXER"] == "<i>oops</i> & the"
    assert dict(second)["reference"] == SENTENCES[4]


def test_text_is_escaped(trained):
    text = written(trained).html()
    assert "\\u003ci>oops\\u003c/i>" in text
    assert "a&amp;b" in text
    assert "of &lt;some&gt; machine" in text
    assert not re.search(r"<i>oops|<b>cat|<some>|A <title>", text)


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
    path = written(trained, "Toy results").markdown(tmp_path / "results", "toy")
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
    assert lines[-4:] == ["```", *COMMANDS, "```"]
    assert "- machine: 2 cores of <some> machine" in lines
    assert "- wall time: 3 min 51 s" in lines
    links = re.findall(r"\]\(([^)]+)\)", "\n".join(lines))
    assert links == ["toy-gains.svg", "toy-translation.svg", "toy-summarization.svg"]
    assert all((path.parent / link).read_text().startswith("<svg") for link in links)


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_missing_extra_is_named(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    message = "a report needs matplotlib and jinja2; install it with: pip install 'seqmixer[report]'"
    with pytest.raises(SeqmixerError, match=f"^{re.escape(message)}$"):
        require_extra()


def refused(folder, message):
    with pytest.raises(RunError, match=f"^{re.escape(message)}$"):
        written(folder).html()


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
    (run / "test.jsonl").unlink()
    for best in run.glob("best*"):
        shutil.rmtree(best)
    (run / "log.jsonl").unlink()
    shutil.rmtree(run / "last")
    refused(folder, f"{run / 'test.jsonl'}: no such file; it holds what the run wrote for the test split")
    (run / "scores.json").unlink()
    refused(folder, f"{run / 'scores.json'}: no such file, though grid.json names the run")


def test_what_was_not_kept_is_decoded_again(folder):
    kept = of_grid(read_grid(folder), "xent", "mixer")[0].systems[3].test
    (folder / "seed-1/mixer/test.jsonl").unlink()
    again = of_grid(read_grid(folder), "xent", "mixer")[0].systems[3].test
    assert again.scored[0].statistics.tolist() == kept.scored[0].statistics.tolist()
    assert again.hypotheses != kept.hypotheses  # those were made up


def test_every_metric_has_a_label():
    assert METRIC_LABELS.keys() == set(BUILT_IN)
