import json
import re
import subprocess
import sys

import pytest
import torch

from seqmixer.cli import say, warn
from seqmixer.cli.options import put
from seqmixer.storage import checkpoint

TINY = [
    "--set", "model.hidden=8", "--set", "training.batch_size=4", "--set", "training.lr=0.01",
    "--set", "algorithm.xent_epochs=2", "--set", "algorithm.mixed_epochs=1", "--set", "algorithm.delta=3",
]  # fmt: skip

REWARD = '''
def overlap(hypothesis: str, references: list[str]) -> float:
    """A reward of five lines."""
    written, wanted = set(hypothesis.split()), set(references[0].split())
    return len(written & wanted) / len(wanted)

def kept(hypothesis, references):
    with open("rewards.txt", "a") as file:
        print(overlap(hypothesis, references), file=file)
    return overlap(hypothesis, references)

def broken(hypothesis, references):
    return float("nan")

def raising(hypothesis, references):
    raise ValueError("no idea")

def shapely(hypothesis, references):
    return [1.0, 2.0]
'''


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Two files of parallel text, a reward of one's own and a config, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sources = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", "c e a"]
    (tmp_path / "text.src").write_text("\n".join(sources) + "\n")
    (tmp_path / "text.tgt").write_text("\n".join(" ".join(s.split()[::-1]) for s in sources) + "\n")
    (tmp_path / "short.tgt").write_text("a\nb\n")
    (tmp_path / "own.py").write_text(REWARD)
    files = '["text.src", "text.tgt"]'
    (tmp_path / "run.toml").write_text(
        f'name = "mine"\n[data]\ntask = "text"\nfolder = "."\ntrain = {files}\nvalid = {files}\ntest = {files}\nlength = 6\n'
    )
    return tmp_path / "run.toml"


def test_help_answers_at_once():
    """What would take seconds is not imported."""
    command = [sys.executable, "-X", "importtime", "-m", "seqmixer", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Train text generators on the score they are judged by" in done.stdout
    assert "typer" in done.stderr
    assert "torch" not in done.stderr


@pytest.mark.parametrize(
    "command", ["train", "evaluate", "generate", "compare", "report", "watch", "demo", "doctor", "paper", "settings"]
)
def test_every_command_explains_itself(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"seqmixer {command} " in out or command == "settings"


def test_train_evaluate_generate_and_compare_on_own_text(run, config, tmp_path):
    code, out, err = run("train", config, *TINY)
    assert code == 0
    assert out.startswith("runs/mine  bleu ")
    assert "epoch 3: MIXER, XENT on the first s = 3 words, REINFORCE on the rest" in err
    assert run("train", config, *TINY, "--set", "name=plain", "--set", "algorithm.name=xent")[0] == 0

    code, out, _ = run("evaluate", "runs/mine", "--beam", 3, "--json")
    scored = json.loads(out)
    assert (code, scored["split"]) == (0, "test")
    assert "|cut:6|beam:3|n:8|" in scored["scores"][0]["signature"]
    _, out, _ = run("evaluate", "runs/mine", "--standard")
    *scores, effects = out.splitlines()
    assert [line.split()[1].split("|")[0] for line in scores] == ["bleu", "standard", "standard"]
    logged = json.loads((tmp_path / "runs/mine/scores.json").read_text())["effects"]
    assert json.loads((tmp_path / "runs/mine/log.jsonl").read_text().splitlines()[0])["effects"].keys() == logged.keys()
    assert effects == "  ".join(f"{name} {value:.3f}" for name, value in logged.items())

    (tmp_path / "in.txt").write_text("a b\n\nunheard of\n")
    code, out, _ = run("generate", "runs/mine", "in.txt")
    assert code == 0
    assert len(out.splitlines()) == 3
    assert out.splitlines()[1] == ""  # lines stay aligned

    code, out, _ = run("generate", "runs/mine", "in.txt", "--beam", 4, "--nbest", 3, "--json")
    hypotheses = json.loads(out.splitlines()[0])["hypotheses"]
    assert [len(hypotheses), sorted(hypotheses[0])] == [3, ["log_prob", "text"]]
    assert hypotheses[0]["log_prob"] >= hypotheses[1]["log_prob"] >= hypotheses[2]["log_prob"]

    code, out, _ = run("compare", "runs/plain", "runs/mine", "--json")
    rows = json.loads(out)["runs"]
    assert code == 0
    assert [row["run"] for row in rows] == ["runs/plain", "runs/mine"]
    assert 0 < rows[1]["p_value"] <= 1


def test_samples_differ_by_seed_and_repeat_with_it(run, config):
    run("train", config, *TINY)
    (config.parent / "in.txt").write_text("a b c\n" * 20)
    draws = [run("generate", "runs/mine", "in.txt", "--sample", "--seed", seed)[1] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_generate_reads_standard_input(config, run):
    run("train", config, *TINY)
    command = [sys.executable, "-m", "seqmixer", "generate", "runs/mine"]
    done = subprocess.run(command, input="a b\nb c\n", capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 2
    marked = subprocess.run([*command, "--json"], input=b"\xef\xbb\xbfa b\n", capture_output=True, check=True)
    assert json.loads(marked.stdout)["source"] == "a b"
    done = subprocess.run(command, input=b"a\n\xff\n", capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.decode() == "seqmixer: standard input:2: not UTF-8 (invalid start byte)\n"


def test_a_function_of_strings_is_a_reward(run, config):
    only = ["--set", "reward.name=own:kept", "--set", 'evaluation.metrics=["bleu"]']
    code, _, err = run("train", config, *TINY, *only)
    assert code == 0, err
    events = [json.loads(line) for line in (config.parent / "runs/mine/log.jsonl").read_text().splitlines()]
    assert "s = 0" in events[-1]["stage"]
    of_last_epoch = [float(line) for line in (config.parent / "rewards.txt").read_text().splitlines()][-8:]
    assert events[-1]["train"]["reward"] == pytest.approx(sum(of_last_epoch) / 8)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.hiden=3"], r"run.toml: unknown setting 'model.hiden'. Did you mean 'model.hidden'\? Known: .*"),
        (['data.train=["no.src", "text.tgt"]', 'data.test=["text.src", "no.tgt"]'],
         r"no such files: .*/no.src, .*/no.tgt; fix the names, or data.folder: its default is the variable SEQMIXER_DATA, which is .*"),
        (['data.train=["text.src", "short.tgt"]'],
         r".*/text.src has 8 lines but .*/short.tgt has 2; parallel files need equal counts"),
        (["reward.name=own:broken"], r"reward '.*broken' returned nan for sequence \d+, '.*'; a reward is one finite number"),
        (["reward.name=own:shapely"], r"reward '.*shapely' returned \[1.0, 2.0\] for sequence \d+, '.*'; a reward is one .*"),
        (["reward.name=own:raising"], r"reward '.*raising' raised ValueError for sequence \d+, '.*': no idea \(.*own.py:\d+\)"),
        (["reward.name=own:overlop"], r"reward 'own:overlop': module 'own' has no 'overlop'. Did you mean 'overlap'\?"),
        (["reward.name=blue"], r"unknown reward 'blue'. Did you mean 'bleu'\? Known: bleu, bleu_best, bleu_mean, .*, rouge_l, .*\."),
        (["model.hidden=1000000"], r"out of memory \(\d+ bytes were asked for\); take a smaller model .*"),
        (["training.start=nowhere"], r"training.start = '.*/nowhere': no model there; name the folder of a run"),
    ],
)  # fmt: skip
def test_what_the_caller_can_mend_is_one_line_and_exit_code_2(run, config, overrides, message):
    sets = [argument for override in overrides for argument in ("--set", override)]
    code, out, err = run("train", config.name, *TINY, *sets)
    assert (code, out) == (2, "")
    assert re.fullmatch(f"seqmixer: ({message})", err.splitlines()[-1]), err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "nowhere"], "nowhere: not a run folder (no config.toml); `seqmixer train` makes one"),
        (["evaluate", "runs/mine", "--split", "tset"], "unknown split 'tset'. Did you mean 'test'? Known: test, train, valid."),
        (["generate", "runs/mine", "--nbest", "2"], "--nbest 2 needs --json: a line of text has room for one hypothesis"),
        (["generate", "runs/mine", "--temperature", "0.2"],
         "--temperature 0.2 needs --sample or --mbr: without it the most likely words are taken"),
        (["generate", "runs/mine", "--length-penalty", "1"], "--length-penalty 1 needs --beam: greedy search has one sentence to rank"),
        (["evaluate", "runs/mine", "--length-penalty", "-1"], "--length-penalty -1 needs --beam: greedy search has one sentence to rank"),
        (["compare", "runs/mine", "runs/mine", "--length-penalty", "2"], "--length-penalty 2 needs --beam: greedy search has one sentence to rank"),
        (["generate", "runs/mine", "--top-k", "3"], "--top-k 3 needs --sample or --mbr: without it the most likely words are taken"),
        (["generate", "runs/mine", "--seed", "0"], "--seed 0 needs --sample or --mbr: without it the most likely words are taken"),
        (["generate", "runs/mine", "in.txt", "--nbest", "2", "--json"],
         "asked for the best 2 of a beam of 1; raise --beam to 2"),
        (["generate", "runs/mine", "in.txt", "--beam", "2", "--sample"],
         "asked for samples and for a beam of 2; choose one of the two"),
        (["generate", "runs/mine", "image.npy"], "runs/mine is a model of lines of text, but was given image features, 3 a row"),
        (["compare", "runs/mine"], "a comparison needs at least two runs, got 1"),
        (["train", "run.toml", "--set", "model.hidden=9"],
         "runs/mine holds a run with model.hidden = 8, not 9; choose another name (--set name=...), or delete the folder"),
    ],
)  # fmt: skip
def test_wrong_use_of_a_run(run, config, arguments, message):
    import numpy

    run("train", config, *TINY)
    (config.parent / "in.txt").write_text("a\n")
    numpy.save(config.parent / "image.npy", numpy.zeros((2, 3), dtype=numpy.float32))
    extra = TINY[2:] if arguments[0] == "train" else []
    code, _, err = run(*arguments, *extra)
    assert (code, err.splitlines()[-1]) == (2, f"seqmixer: {message}")


@pytest.mark.parametrize(("beam", "allowed"), [(0, "1"), (1001, "1000")])
@pytest.mark.parametrize("command", [["evaluate", "runs/mine"], ["generate", "runs/mine"], ["compare", "a", "b"]])
def test_a_beam_out_of_bounds_is_refused_with_the_bound(run, command, beam, allowed):
    code, out, err = run(*command, "--beam", beam)
    assert (code, out) == (2, "")
    assert re.search(rf"'--beam'.*\b{allowed}\b", err), err


def test_a_run_that_the_memory_did_not_hold_leaves_its_name_free(run, config):
    assert run("train", config.name, *TINY, "--set", "model.hidden=1000000")[0] == 2
    assert run("train", config.name, *TINY, "--set", "training.epochs=1")[0] == 0


def test_a_run_that_runs_out_of_memory_goes_on_from_what_was_saved(run, config, monkeypatch):
    from seqmixer.training.step import Step

    update, left = Step.update, iter(range(5))

    def fails_once(step, batch, epoch):
        if next(left, None) == 4:  # in the third epoch of two batches
            torch.empty(10**14)
        update(step, batch, epoch)

    monkeypatch.setattr(Step, "update", fails_once)
    code, out, err = run("train", config.name, *TINY)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("seqmixer: out of memory (400000000000000 bytes were asked ")
    assert run("train", config.name, *TINY)[0] == 0
    assert run("train", config.name, *TINY, "--set", "name=whole")[0] == 0
    broken, whole = (checkpoint.load(config.parent / "runs" / name / "last")[0] for name in ("mine", "whole"))
    assert all(torch.equal(broken[name], weight) for name, weight in whole.items())


@pytest.mark.parametrize("command", ["evaluate", "generate", "compare"])
@pytest.mark.parametrize("penalty", ["nan", "inf", "-inf", "1000"])
def test_a_length_penalty_that_ranks_nothing_is_refused(run, command, penalty):
    code, _, err = run(command, "runs/mine", f"--length-penalty={penalty}")
    assert code == 2
    assert "Invalid value for '--length-penalty': " in err


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--temperature", ["generate", "runs/mine", "--sample"]),
        ("--ratio", ["data", "prepare", "pairs", "a", "b", "--out", "c"]),
    ],
)
def test_options_that_are_not_finite_are_refused(run, option, arguments):
    code, _, err = run(*arguments, option, "inf")
    assert (code, err.splitlines()[-1]) == (2, f"Error: Invalid value for '{option}': inf is not a finite number.")


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "runs/mine", "--sample"],
        ["sweep", "run.toml", "--search", "space.toml"],
        ["data", "prepare", "pairs", "a", "b", "--out", "c"],
    ],
)
def test_seeds_that_torch_cannot_take_are_refused(run, arguments):
    code, _, err = run(*arguments, "--seed", 2**63)
    assert code == 2
    assert re.search(r"Invalid value for '--seed': .*9223372036854775807", err), err


def test_ctrl_c_says_how_to_go_on(run, config, monkeypatch):
    import os
    import signal

    from seqmixer.training import Terminal

    monkeypatch.setattr(Terminal, "step", lambda self, run: os.kill(os.getpid(), signal.SIGINT))
    code, _, err = run("train", "run.toml", *TINY)
    assert code == 130
    last = err.splitlines()[-1]
    assert last.startswith(
        "seqmixer: stopped in epoch 1 after 1 of 2 batches; saved in runs/mine/last; resume with: seqmixer train run.toml --set"
    )
    monkeypatch.undo()
    monkeypatch.chdir(config.parent)
    assert run("train", "run.toml", *TINY)[0] == 0


def test_no_control_character_of_an_error_or_a_warning_reaches_the_terminal(monkeypatch, capsys, tmp_path):
    say("sent \x1b[31m\x07, a\nb")
    warn("read \x9b31m, a\nb")
    assert capsys.readouterr().err == "seqmixer: sent \\x1b[31m\\x07, a\\nb\nseqmixer: warning: read \\x9b31m, a\\nb\n"


@pytest.mark.parametrize(("terminal", "shown"), [(True, "a \\x1b[31m\n"), (False, "a \x1b[31m\n")])
def test_results_on_a_terminal_have_no_control_characters_and_elsewhere_are_as_they_are(
    monkeypatch, capsys, terminal, shown
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    put("a \x1b[31m")
    assert capsys.readouterr().out == shown
