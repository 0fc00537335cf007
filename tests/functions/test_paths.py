import os
import re
import sys

import pytest
import torch

from seqmixer.errors import ConfigError
from seqmixer.functions import from_path
from seqmixer.rewards import on_words
from seqmixer.types import Rollout


def message(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("path", ["my_reward:score", "my_reward.score"])
def test_a_path_finds_a_function_in_the_current_folder(folder, path):
    (folder / "my_reward.py").write_text("def score(hypothesis, references):\n    return 0.25\n")
    assert from_path(path)("a", ["b"]) == 0.25


def test_a_path_finds_a_function_in_a_package(folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "scores.py").write_text("def score():\n    return 1\n")
    assert from_path("mine.scores:score")() == from_path("mine.scores.score")() == 1


@pytest.mark.parametrize("path", ["score", "", "my_reward:", ":score", ".score"])
def test_what_is_no_path_is_refused(path):
    with message(ConfigError, f"reward {path!r} is not the path of a function; write 'module:function'."):
        from_path(path)


@pytest.mark.parametrize("path", ["my_rewards:score", "my_rewards.scores:score"])
def test_a_module_that_is_not_there_is_named_with_where_it_was_sought(folder, path):
    module = path.split(":")[0]
    where = f"neither in {folder} nor among the installed packages"
    with message(ConfigError, f"reward {path!r}: there is no module {module!r}, {where}."):
        from_path(path)


def test_a_module_that_cannot_be_imported_says_why(folder):
    (folder / "my_reward.py").write_text("import no_such_package\n")
    text = "importing 'my_reward' raised ModuleNotFoundError: No module named 'no_such_package'"
    with message(ConfigError, f"reward 'my_reward:score': {text}"):
        from_path("my_reward:score")
    (folder / "broken.py").write_text("1 / 0\n")
    with message(ConfigError, "reward 'broken:score': importing 'broken' raised ZeroDivisionError: division by zero"):
        from_path("broken:score")
    (folder / "ending.py").write_text("import sys\nsys.exit(5)\n")
    with message(ConfigError, "reward 'ending:score': importing 'ending' raised SystemExit: 5"):
        from_path("ending:score")


def test_a_name_that_is_not_there_is_mended(folder):
    (folder / "my_reward.py").write_text("def score():\n    return 1\n\nweight = 3\n")
    with message(ConfigError, "reward 'my_reward:scor': module 'my_reward' has no 'scor'. Did you mean 'score'?"):
        from_path("my_reward:scor")
    with message(ConfigError, "reward 'my_reward:xyz': module 'my_reward' has no 'xyz'."):
        from_path("my_reward:xyz")
    with message(ConfigError, "reward 'my_reward:weight' is not a function but of type int; name a function."):
        from_path("my_reward:weight")


def test_a_module_may_import_its_sibling_when_it_is_called(folder):
    (folder / "my_reward.py").write_text("def score():\n    from my_sibling import weight\n    return weight\n")
    (folder / "my_sibling.py").write_text("weight = 3\n")
    assert from_path("my_reward:score")() == 3


@pytest.mark.parametrize("when", ["imported", "called"])
def test_code_of_a_user_changes_neither_the_folder_nor_the_streams(folder, capsys, when):
    """Nor does it leave a second process of this program, when it forks and both return."""
    lines = ["import os, sys", "os.chdir('/')", "print('said')", "sys.stdout = sys.stderr = None", "os.fork()"]
    (folder / "moves.py").write_text("\n".join([*lines, "def score(hypothesis, references):", "    return 1.0"]))
    indented = [f"    {line}" for line in lines]
    (folder / "moves_later.py").write_text(
        "\n".join(["def score(hypothesis, references):", *indented, "    return 1.0"])
    )
    streams = sys.stdout, sys.stderr
    reward = on_words(from_path("moves:score" if when == "imported" else "moves_later:score"))
    words = torch.tensor([[4, 5, 2]])
    assert reward(Rollout(words, words.unsqueeze(1))).tolist() == [1.0]
    assert (sys.stdout, sys.stderr) == streams
    assert os.getcwd() == str(folder)
    assert capsys.readouterr() == ("", "said\n")
    assert os.waitpid(-1, 0)[1] == 0  # the process that it forked
