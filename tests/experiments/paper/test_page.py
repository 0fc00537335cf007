import json
import re
import statistics
from dataclasses import replace

import pytest

from seqmixer.experiments.compare import paired_bootstrap
from seqmixer.experiments.paper import tables
from seqmixer.experiments.paper.beams import read_counts
from seqmixer.experiments.paper.drawings import drawings
from seqmixer.experiments.paper.page import as_json, details, headline, page, shown, write_down
from seqmixer.experiments.paper.results import Difference
from seqmixer.experiments.report.page import ReportTable
from seqmixer.rewards import ROUGE2

COMMAND = "seqmixer paper summarization --out a&b"


@pytest.fixture(scope="module")
def results(tiny):
    return tiny[1]


@pytest.fixture(scope="module")
def drawn(results):
    return drawings(results)


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    """The folder of the Markdown file, and the page."""
    folder = tmp_path_factory.mktemp("docs")
    write_down(results, folder, [COMMAND])
    return folder, (results.experiment.folder / "report.html").read_text(encoding="utf-8")


def scores(results, method, width=1, metric="rouge2"):
    """Read anew from the run folders."""
    found = []
    for seed in (1, 2):
        run = results.experiment.folder / f"tiny/seed-{seed}/{method}/result.json"
        found.append(json.loads(run.read_text())["beams"][str(width)]["paper"][metric])
    return found


def spelled(values):
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def plain(table):
    return [[cell.strip("*") for cell in row] for row in table.rows]


def test_table_of_scores_has_ours_and_the_papers(results):
    table = tables.scores(results)
    assert table.columns == ["", "XENT", "MIXER", "REINFORCE", "MIXER / XENT"]
    ours, _, theirs = plain(table)
    assert ours[1:4] == [spelled(scores(results, method)) for method in ("xent", "mixer", "reinforce")]
    ratios = [m / x for m, x in zip(scores(results, "mixer"), scores(results, "xent"), strict=True)]
    assert ours[4] == f"{statistics.mean(ratios):.3f}"
    assert theirs[1:] == ["13.01", "16.22", "–", "1.247"]


def test_p_value_is_the_largest_over_seeds_of_the_paired_bootstrap(results):
    p_values = []
    for seed in (1, 2):
        xent, mixer = (
            read_counts(results.experiment.folder / f"tiny/seed-{seed}/{method}", 1, "rouge2")
            for method in ("xent", "mixer")
        )
        p_values.append(paired_bootstrap(ROUGE2, xent, mixer).p_value)
    assert plain(tables.scores(results))[1][1:4] == ["", f"{max(p_values):.3f}", plain(tables.scores(results))[1][3]]
    last = results.tests[-1]
    assert (last.method, last.width, last.xent_width) == ("mixer", 1, 10)
    expected = [m - x for m, x in zip(scores(results, "mixer"), scores(results, "xent", 10), strict=True)]
    assert last.differences == pytest.approx(expected, abs=1e-3)


def test_a_method_is_better_if_it_is_so_with_every_seed():
    """By the intervals: sacreBLEU's p of 0.03 is that of one tail."""

    def test(*intervals):
        return Difference("mixer", 1, 1, [1.0, 2.0], intervals, [0.03, 0.03]).better

    assert test((0.1, 1.9), (1.2, 2.9))
    assert not test((0.1, 1.9), (-0.01, 4.0))
    assert not test((-1.9, -0.1), (-2.9, -1.2))


def test_table_of_beams_has_every_width(results):
    table = tables.beams(results)
    assert table.columns == ["", *(str(width) for width in range(1, 11))]
    for name, row in zip(("xent", "mixer"), table.rows, strict=False):
        assert row == [
            f"{name.upper()}, paper",
            *(f"{statistics.mean(scores(results, name, w)):.2f}" for w in range(1, 11)),
        ]
    standard = [[run["beams"][str(w)]["standard"]["rouge2"] for run in results.of("mixer")] for w in range(1, 11)]
    assert table.rows[3] == ["MIXER, standard", *(f"{statistics.mean(values):.2f}" for values in standard)]


def test_table_of_two_metrics_has_both_for_every_method(results):
    table = tables.cross(results)
    assert table.columns == [
        "trained with",
        "BLEU",
        "/ XENT",
        "BLEU, paper",
        "/ XENT",
        "ROUGE-2",
        "/ XENT",
        "ROUGE-2, paper",
        "/ XENT",
    ]
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == ["XENT", "MIXER on ROUGE-2", "MIXER on BLEU"]
    bleu, rouge = scores(results, "mixer-bleu", metric="bleu"), scores(results, "mixer-bleu")
    assert [rows["MIXER on BLEU"][i] for i in (1, 3, 5, 7)] == [spelled(bleu), "9.32", spelled(rouge), "15.10"]
    assert rows["MIXER on ROUGE-2"][3] == "5.80"


def test_the_run_on_bleu_is_paid_and_selected_by_bleu(results):
    config = (results.experiment.folder / "tiny/seed-1/mixer-bleu/config.toml").read_text()
    assert re.search(r'\[reward\]\nname = "bleu"', config)
    assert '"bleu"' in config


def test_schedule_and_times_are_those_of_the_runs(results):
    schedule = tables.schedule(results)
    assert schedule.rows == [["this run", "1", "1", "4"], ["the paper", "20", "5", "2"]]
    assert "Epochs of this run: 1 with s = 7, 2 with s = 3." in schedule.note
    config, of = results.experiment.config, {"samples": 4, "baseline": "leave-one-out"}
    compared = config.model_copy(update={"algorithm": config.algorithm.model_copy(update=of)})
    note = tables.schedule(replace(results, experiment=replace(results.experiment, config=compared))).note
    assert note == schedule.note + " MIXER samples 4 sentences for each source; baseline: leave-one-out."
    assert [row[0] for row in tables.times(results).rows] == ["base", "XENT", "MIXER", "MIXER on BLEU", "REINFORCE"]
    assert tables.times(results).note.endswith(", 3 runs at a time on one machine; the table took 12.5 s.")
    alone = replace(results, grid=replace(results.grid, workers=1))
    assert "at a time on" not in tables.times(alone).note + tables.decoding(alone).note
    assert len(results.runs) == 10
    greedy, beam = (
        statistics.mean(1000 * r["beams"][k]["seconds"] / 130 for r in results.of("xent")) for k in ("1", "10")
    )
    assert tables.decoding(results).rows[0] == ["XENT", f"{greedy:.2f} s", f"{beam:.2f} s", f"{beam / greedy:.1f}"]


def test_headline_and_details_say_what_the_tables_say(results):
    ours = plain(tables.scores(results))[0]
    ratio = results.main.cells["mixer"].ratio
    assert ours[4] == f"{ratio:.3f}"
    assert headline(results) == f"MIXER scores {ratio:.2f} times what XENT scores; in the paper 1.25 times."
    mixer, xent, wide = (
        statistics.mean(s) for s in (scores(results, "mixer"), scores(results, "xent"), scores(results, "xent", 10))
    )
    text = details(results)
    assert text.startswith(f"ROUGE-2 {mixer:.2f} against {xent:.2f}, greedy search, 2 seeds; ")
    assert f"XENT's beam of 10 ({wide:.2f})" in text
    assert ("above" in text) == (mixer > wide)


def test_page_has_every_table_figure_signature_and_command(results, drawn, written):
    _, text = written
    tables_of_page = page(results, [COMMAND]).parts(ReportTable)
    assert len(tables_of_page) == 10
    for table in tables_of_page:
        for row in table.rows:
            for cell in row:
                for part in re.split(" ± | \\[|, ", cell.strip("*").replace("&", "&amp;").replace("'", "&#39;")):
                    assert part in text, (table.title, cell)
    assert text.count("<svg") == len(drawn) == 4
    for _, signature in tables.signatures(results):
        assert signature in text
    assert "seqmixer paper summarization --out a&amp;b" in text


def test_page_needs_nothing_from_elsewhere_and_shares_no_id(written):
    _, page = written
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL).replace('<link rel="icon" href="data:,">', "")
    assert not re.search(r'(?:src|href|srcset)="(?!#)|url\((?!#)|@import|<script|<link', markup)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "prefers-color-scheme: dark" in page


def test_signatures_of_one_score_agree_over_runs(results):
    names = [name for name, _ in tables.signatures(results)]
    assert len(names) == len(set(names))
    assert {"paper rouge2", "paper bleu", "standard rouge2", "standard bleu"} <= set(names)


def test_markdown_links_its_figures_and_has_the_tables(results, written):
    folder, _ = written
    text = (folder / "paper-summarization-tiny.md").read_text()
    assert text.startswith("# Sequence-level training: summarization, tiny recipe\n")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert sorted(links) == [f"paper-summarization-tiny-{name}.svg" for name in ("beams", "cross", "curves", "gains")]
    assert all((folder / link).read_text().startswith("<svg") for link in links)
    assert f"| {' | '.join(tables.scores(results).rows[0])} |" in text.splitlines()
    assert COMMAND in text.splitlines()


def test_json_has_every_run_and_the_papers_numbers(results, written):
    folder, _ = written
    values = json.loads((folder / "paper-summarization-tiny.json").read_text())
    assert values == json.loads(json.dumps(as_json(results, [COMMAND])))
    assert len(values["runs"]) == 10
    assert values["scores"]["mixer"]["scores"] == scores(results, "mixer")
    assert values["published"]["scores"]["mixer"] == 16.22
    assert "folder" not in values["settings"]["data"]


def test_terminal_shows_the_table_of_scores(results):
    table = shown(results)
    assert [column.header for column in table.columns] == tables.scores(results).columns
    assert table.row_count == 3


def test_figures_name_what_they_show(drawn):
    assert list(drawn) == ["gains", "beams", "curves", "cross"]
    assert ">1.25</text>" in drawn["gains"]  # the paper's ratio
    for name, labels in (
        ("gains", ["this run", "the paper", "MIXER"]),
        ("beams", ["MIXER, greedy", "MIXER, beam 10", "XENT", "MIXER", "test ROUGE-2"]),
        ("curves", ["MIXER's training reward", "validation ROUGE-2", "validation perplexity", "s =", "MIXER", "XENT"]),
        ("cross", ["BLEU", "BLEU, paper", "ROUGE-2", "ROUGE-2, paper", "MIXER on BLEU"]),
    ):
        for label in labels:
            assert f">{label}</text>" in drawn[name], label
    assert "var(--reinforce)" in drawn["curves"]


def test_xent_of_score_zero_has_no_ratio(results):
    silent = {key: run if key[0] != "xent" else {**run, "beams": {width: {**beam, "paper": {"rouge2": 0.0, "bleu": 0.0}} for width, beam in run["beams"].items()}}
              for key, run in results.runs.items()}  # fmt: skip
    changed = replace(results, runs=silent)
    assert headline(changed) == "XENT scores 0, so that MIXER's gain has no ratio; in the paper 1.25 times."
    assert plain(tables.scores(changed))[0][-1] == "–"
