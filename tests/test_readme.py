"""What the README and docs/python.md say is run here, in an empty folder, on files of the kind they name."""

import os
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


PYTHON = (ROOT / "docs/python.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README + PYTHON, re.DOTALL)


def test_the_readme_is_short_and_names_the_two_commands():
    assert len(README.splitlines()) <= 150
    assert re.search(r"^make demo ", README, re.MULTILINE)
    assert re.search(r"^make test ", README, re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder: parallel text, and the files that the README's blocks name in their first line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEQMIXER_DATA", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    german, english = (
        ["der", "die", "das", "ein", "hund", "katze", "sieht"],
        ["the", "a", "one", "dog", "cat", "sees", "it"],
    )
    for split, n in (("train", 40), ("valid", 8), ("test", 8)):
        lines = [[(i * k + k) % 7 for k in range(1, 4 + i % 4)] for i in range(n)]
        for suffix, words in (("de", german), ("en", english)):
            text = "\n".join(" ".join(words[word] for word in line) for line in lines)
            (tmp_path / f"{split}.{suffix}").write_text(text + "\n")
    for block in blocks("python") + blocks("toml"):
        name = block.splitlines()[0].removeprefix("# ")
        if re.fullmatch(r"\w+\.(py|toml)", name):
            (tmp_path / name).write_text(block)
    return tmp_path


@pytest.mark.slow
def test_own_text_and_own_reward_train_from_the_command_line(folder):
    (commands,) = [block for block in blocks("sh") if "seqmixer train mine.toml" in block]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-euc", commands], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "MIXER, XENT on the first s = " in done.stderr
    assert re.search(r"^runs/mine +\d", done.stdout, re.MULTILINE)  # the table of `compare`
    assert len((folder / "test.out").read_text().splitlines()) == 8
    for name in ("use.py", "look.py", "configured.py"):
        runpy.run_path(str(folder / name))
    assert (folder / "runs/again/scores.json").exists()


def test_own_text_and_own_reward_train_from_python(folder, capsys):
    (block,) = [block for block in blocks("python") if "Training(" in block]
    (folder / "block.py").write_text(block)
    runpy.run_path(str(folder / "block.py"))
    assert float(capsys.readouterr().out) > 40  # BLEU; 80 where it was written, and less than 1 untrained


def test_the_map_of_the_code_names_every_module():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    tree = page[page.index("src/seqmixer/\n") :].partition("```")[0]
    there = [path.name for path in (ROOT / "src/seqmixer").rglob("*.py") if path.name != "__init__.py"]
    assert sorted(re.findall(r"\w+\.py", tree)) == sorted(there)  # some names are there twice


def test_the_index_has_every_page():
    index = ROOT / "docs/index.md"
    links = re.findall(r"\]\(([^)#]+)\)", index.read_text(encoding="utf-8"))
    assert {*(ROOT / "docs").rglob("*.md")} - {index} <= {(index.parent / link).resolve() for link in links}


def test_the_changelog_has_every_renamed_setting():
    from seqmixer.settings import RENAMED

    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    rows = {tuple(re.findall(r"`([\w.]+)", line)) for line in lines if line.startswith("| `")}
    assert set(RENAMED.items()) <= rows


def test_every_function_in_the_table_of_the_paper_exists():
    lines = (ROOT / "docs/paper.md").read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[3] for line in lines if line.startswith("|")]
    names = [name for cell in cells for name in re.findall(r"`([a-z]\w*(?:\.\w+)+)`", cell)]
    assert len(names) > 20
    for name in names:
        pkgutil.resolve_name(f"seqmixer.{name}")


def test_every_file_that_the_documents_link_to_is_there():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)|src=\"([^\"]+)\"", text):
            link = target[0] or target[1]
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_setting_that_the_documents_name_exists():
    from seqmixer.config import Config
    from seqmixer.settings import one_of, section

    known = set()
    for table, field in Config.model_fields.items():
        several = one_of(field)
        sections = several.kinds.values() if several else filter(None, [section(field)])
        known |= {f"{table}.{name}" for each in sections for name in each.model_fields}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(
            r"(?:`|--set )((?:data|model|algorithm|reward|training|evaluation)\.\w+)", page.read_text()
        ):
            module = ROOT / "src/seqmixer" / f"{name.replace('.', '/')}.py"
            assert name in known or module.exists(), f"{page.name} names {name}"


def tiny(**algorithm):
    from seqmixer import Config

    return Config.parse(
        {
            "name": algorithm["name"],
            "data": {"limit": 20},
            "model": {"hidden": 4},
            "algorithm": algorithm,
            "training": {"epochs": 2, "threads": 1, "device": "cpu"},
        }
    )


def test_the_page_of_the_log_has_every_name_that_is_logged(tmp_path):
    from seqmixer import train
    from seqmixer.training import read_log

    page = (ROOT / "docs/log.md").read_text(encoding="utf-8")
    sampled = {"samples": 2, "baseline": "leave-one-out", "kl": 0.1}
    for algorithm in ({"name": "mixer", **sampled, "xent_epochs": 1, "delta": 6}, {"name": "dad"}, {"name": "xent"}):
        config = tiny(**algorithm)
        train(config, tmp_path)
        for event in read_log(tmp_path / config.name):
            nested = [name for value in event.values() if isinstance(value, dict) for name in value]
            for name in [*event, *nested, *(key for sample in event["samples"] for key in sample)]:
                assert f"`{name}`" in page, name
    kinds = {kind for path in (ROOT / "src").rglob("*.py")
             for kind in re.findall(r'"event": "([^"]+)"', path.read_text(encoding="utf-8"))}  # fmt: skip
    assert {"epoch", "end", "patience", "bad numbers"} <= kinds
    assert not {kind for kind in kinds if f"`{kind}`" not in page}


def test_the_page_of_the_log_has_every_column_of_its_events():
    from seqmixer.training.log import BadNumbers, Closing

    page = (ROOT / "docs/log.md").read_text(encoding="utf-8")
    for name in (*Closing.__annotations__, *BadNumbers.__annotations__, "why"):
        assert f"`{name}`" in page, name
