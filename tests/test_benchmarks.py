"""The benchmarks run: what they measure here says nothing, but they follow the code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_the_benchmark_of_steps_splits_every_algorithm_into_its_parts(tmp_path):
    page = tmp_path / "speed.md"
    small = ("--shapes", "summarization", "--batch", "2", "--repeat", "1", "--no-start", "--device", "cpu")
    labels = ("XENT", "DAD", "MIXER s=T/2", "REINFORCE k=4")
    command = [sys.executable, str(BENCHMARKS / "speed.py"), *small, "--algorithms", *labels, "--markdown", str(page)]
    subprocess.run(command, check=True, capture_output=True, timeout=250)
    rows = json.loads(page.with_suffix(".json").read_text())["rows"]

    assert [(row["algorithm"], row["way"]) for row in rows] == [
        (each, way) for each in labels for way in ("plain", "fast")
    ]
    for row in rows:
        assert (row["split"]["sample"] > 0) == (row["algorithm"] != "XENT")
        assert (row["split"]["reward"] > 0) == (row["algorithm"] in ("MIXER s=T/2", "REINFORCE k=4"))
        assert row["ms"] > 0
    assert all(f"| summarization | {each} | 2 |" in page.read_text() for each in labels)


@pytest.mark.slow
def test_the_benchmark_of_pretrained_models_has_a_row_of_ours_beside_each_other_way(tmp_path):
    page = tmp_path / "pretrained.md"
    options = ("--tiny", "--models", "GPT-2,T5", "--warm", "1", "--steps", "1", "--markdown", str(page))
    command = [sys.executable, str(BENCHMARKS / "pretrained.py"), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=250)
    rows = json.loads(page.with_suffix(".json").read_text())["rows"]

    assert [(row["model"], row["way"]) for row in rows] == [
        ("GPT-2", "TRL GRPO"),
        ("GPT-2", "seqmixer"),
        ("T5", "by hand, `generate`"),
        ("T5", "seqmixer"),
    ]
    assert len({row["parameters"] for row in rows if row["model"] == "T5"}) == 1
    assert all(row["sampling"] > 0 for row in rows)
