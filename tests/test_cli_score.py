import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu

from seqmixer.evaluation.scoring import paper, standard

HYPOTHESES = ["the cat sat on the mat", "a dog sat on a mat", "", "the dog"]
REFERENCES = ["the cat sat on a mat", "a dog sat on the mat", "yes", "the dog"]
OTHERS = ["a cat sat on the mat", "the dog sat on a mat", "no", "a dog"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in {"hyp": HYPOTHESES, "ref": REFERENCES, "other": OTHERS, "short": REFERENCES[:3]}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "empty").write_text("")
    for name, lines in {"many.hyp": HYPOTHESES, "many.ref": REFERENCES, "many.src": ["s t"] * 4}.items():
        with gzip.open(tmp_path / f"{name}.gz", "wt") as file:
            file.write("\n".join(lines * 200) + "\n")


@pytest.fixture
def score(files, run):
    """-> exit code, standard output, standard error"""
    return lambda *arguments: run("score", *arguments)


def test_a_line_for_each_metric(score):
    code, out, err = score("hyp", "ref")
    theirs = [sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize="none", force=True).score]
    theirs += [sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score]
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert [line[:2] for line in lines] == [["bleu", f"{theirs[0]:.2f}"], ["chrf", f"{theirs[1]:.2f}"]]
    assert lines[0][2].startswith("standard|bleu|n:4|nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:")


def test_several_references_metrics_and_json(score):
    code, out, _ = score("hyp", "ref", "other", "--metrics", "ter,rouge_l", "--tokenize", "13a", "--json")
    expected = standard(HYPOTHESES, list(zip(REFERENCES, OTHERS, strict=True)), ["ter", "rouge_l"], "13a")
    assert code == 0
    assert json.loads(out) == {
        "protocol": "standard",
        "scores": [{"metric": each.metric, "score": each.value, "signature": each.signature} for each in expected],
    }


def test_the_paper_protocol_on_packed_files(score):
    code, out, _ = score(
        "many.hyp.gz", "many.ref.gz", "--source", "many.src.gz", "--protocol", "paper", "--length", "4"
    )
    (expected,) = paper(HYPOTHESES * 200, [[text] for text in REFERENCES * 200], ["s t"] * 800, length=4)
    assert (code, out) == (0, f"bleu     {expected.value:6.2f}  {expected.signature}\n")
    assert "|cut:4|bins:800|n:800/800|words:2200|" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hyp", "none"], "none: no such file"),
        (["hyp", "empty"], "empty: no sentences; the file is empty"),
        (["hyp", "ref", "short"], "hyp has 4 lines but short has 3; files are compared line by line"),
        (["hyp", "ref", "--protocol", "paper", "--source", "short"],
         "short has 3 lines but hyp has 4; files are compared line by line"),
        (["hyp", "ref", "--protocol", "paper"],
         "the paper protocol needs the source (--source FILE): it drops sentences by its length"),
        (["hyp", "ref", "--protocol", "paper", "--source", "hyp"],
         "the paper protocol scores no sentence here: no length of source has 800 target words or more; "
         "use the standard protocol"),
        (["hyp", "ref", "--protocol", "paper", "--source", "hyp", "--tokenize", "13a"],
         "the paper protocol takes words as they are; remove --tokenize 13a"),
        (["hyp", "ref", "--length", "5"],
         "--length 5 needs --protocol paper; the standard protocol scores uncropped sentences"),
        (["hyp", "ref", "--source", "hyp"],
         "--source hyp needs --protocol paper; the standard protocol scores uncropped sentences"),
        (["hyp", "ref", "--protocol", "papers"],
         "unknown protocol 'papers'. Did you mean 'paper'? Known: paper, standard."),
        (["hyp", "none", "--metrics", "chrff"],
         "unknown metric of the standard protocol 'chrff'. Did you mean 'chrf'? "
         "Known: bleu, chrf, chrf++, cider, rouge1, rouge1_f, rouge2, rouge2_f, rouge_l, ter."),
        (["hyp", "ref", "--tokenize", "13b"], "unknown tokenize '13b'. Did you mean '13a'? Known: 13a, none."),
    ],
)  # fmt: skip
def test_what_the_caller_can_mend_is_one_line_and_exit_code_2(score, arguments, message):
    assert score(*arguments) == (2, "", f"seqmixer: {message}\n")


def test_the_command_explains_itself(score):
    code, out, _ = score("--help")
    assert code == 0
    assert "seqmixer score test.out test.en --protocol paper --source test.de" in " ".join(out.split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_output_that_cannot_be_written_is_one_line(files):
    command = [sys.executable, "-m", "seqmixer", "score", "hyp", "ref"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    line = "seqmixer: the output cannot be read or written: No space left on device"
    assert (done.returncode, done.stderr.splitlines()[:1]) == (2, [line])
