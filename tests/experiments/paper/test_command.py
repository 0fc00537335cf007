import json
import re
import shutil

import numpy as np
import pytest

RECIPE = """
name = "small"
[data]
task = "captions"
length = 7
[model]
name = "lstm"
hidden = 8
[algorithm]
xent_epochs = 1
mixed_epochs = 1
delta = 4
to_zero = false
[training]
batch_size = 32
lr = 0.02
rl_lr = 0.01
threads = 1
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Images with random features and five captions each, and a recipe for them."""
    monkeypatch.setenv("SEQMIXER_DATA", str(tmp_path))
    splits = ["train"] * 40 + ["val"] * 8 + ["test"] * 60
    captions = [[f"a {a}{i % 7} dog on {b}{i % 5}" for a, b in zip("vwxyz", "lmnop", strict=True)] for i in range(108)]
    entries = [{"id": i, "row": i, "split": split, "captions": captions[i]} for i, split in enumerate(splits)]
    (tmp_path / "captions.json").write_text(json.dumps(entries))
    np.save(tmp_path / "features.npy", np.random.default_rng(1).normal(size=(108, 6)).astype(np.float32))
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return path


def test_mistakes_are_one_line(run, tmp_path, monkeypatch):
    monkeypatch.delenv("SEQMIXER_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    code, _, err = run("paper", "poetry")
    assert (code, err) == (2, "seqmixer: unknown task 'poetry'. Known: all, captioning, summarization, translation.\n")
    code, _, err = run("paper", "captioning")
    assert code == 2
    assert err.startswith(
        f"seqmixer: no such files: {tmp_path}/coco/captions.json.gz, {tmp_path}/coco/features_u8.npz; "
    )
    assert err.count("\n") == 1


@pytest.mark.slow
def test_one_command_trains_measures_and_reports_and_then_has_nothing_left_to_do(run, recipe, tmp_path):
    arguments = ("paper", "captioning", "--recipe", recipe, "--seeds", 1, "--out", tmp_path / "out", "--methods", "xent,mixer", "--markdown", tmp_path / "docs")  # fmt: skip
    code, out, err = run(*arguments)
    folder = tmp_path / "out/captioning-mine"
    assert code == 0, err
    assert out.endswith(f"Report: {folder / 'report.html'}\n")
    assert "  3/3  small seed 1 MIXER" in err
    page = (folder / "report.html").read_text()
    assert "the paper <small>BLEU, maximum over five captions</small>" in page
    values = json.loads((tmp_path / "docs/paper-captioning-mine.json").read_text())
    assert values["metric"] == "bleu_best"
    mixer = next(result for result in values["runs"] if result["method"] == "mixer")
    assert set(mixer["beams"]["1"]["standard"]) == {"bleu", "cider", "rouge_l"}
    assert values["published"]["scores"]["mixer"] == 29.16

    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    (again,) = json.loads(out)
    assert again["runs"] == values["runs"]


@pytest.mark.slow
def test_a_page_is_written_anew_without_the_models_and_on_another_machine(run, recipe, tmp_path, monkeypatch):
    out = tmp_path / "out"
    arguments = ("paper", "captioning", "--recipe", recipe, "--seeds", 1, "--methods", "xent,mixer", "--out")
    assert run(*arguments, out)[0] == 0
    folder = out / "captioning-mine"
    first, grid = (folder / "report.html").read_text(), json.loads((folder / "grid.json").read_text())

    for kept in ("best", "last"):
        for path in folder.glob(f"small/*/*/{kept}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    monkeypatch.setattr("seqmixer.experiments.grid.machine", lambda: "the machine of the second call")
    code, _, err = run(*arguments, out)
    assert code == 0, err
    again = json.loads((folder / "grid.json").read_text())
    assert again["machine"] == grid["machine"]  # that of the runs
    assert grid["seconds"] <= again["seconds"] < grid["seconds"] + 60  # of both calls
    assert sentences_of((folder / "report.html").read_text()) == sentences_of(first)


def sentences_of(page):
    (test,) = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["tests"]
    assert len(test["sources"]) == 60
    return test
