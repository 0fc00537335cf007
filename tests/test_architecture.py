"""The rules of the code that can be read off it."""

import ast
import re
import sys
from pathlib import Path

import pytest

import seqmixer
from seqmixer import rewards
from seqmixer.algorithms import ALGORITHMS
from seqmixer.config.models import KINDS
from seqmixer.rewards import BUILT_IN

SOURCE = Path(seqmixer.__file__).parent
PAPER = Path(__file__).parents[1] / "docs" / "paper.md"
FILES = sorted(SOURCE.rglob("*.py"))
LAYERS = [  # a module imports only from its own part and from rows above
    {"errors", "losses", "kernels", "configs"},
    {"files", "bars"},
    {"types", "settings"},
    {"parallel"},
    {"functions"},
    {"schedules", "data", "models", "rewards"},
    {"decoding"},
    {"algorithms"},
    {"config"},
    {"evaluation"},
    {"storage"},
    {"training"},
    {"build"},
    {"runs"},
    {"experiments", "doctor", "serve"},
    {"init"},
    {"cli"},
]
RANK = {name: i for i, row in enumerate(LAYERS) for name in row}
LOOPS = {"decoding/generate.py", "decoding/beam.py", "algorithms/e2e.py", "kernels/recurrence.py"}
DEVICE = {"training/step.py"}  # and the kernels
NAMES = {  # by kind: the names that only its own files, config/ and build/ may have; elsewhere a class or data tells them
    "an algorithm": {name for key, kind in ALGORITHMS.items() for name in (key, kind.__name__, kind.label)},
    "a model": {name for key, kind in KINDS.items() for name in (key, kind.__name__)},
    "a metric": {
        word
        for text in (
            *BUILT_IN,
            *(metric.label for metric in BUILT_IN.values()),
            *(name for name, value in vars(rewards).items() if isinstance(value, rewards.Metric)),
        )
        for word in re.findall(r"\w+", text)[:1]
    }
    - {"edit", "exact", "length", "DEFAULT"},  # these have other meanings, too
}
OWN_PLACES = {"config/", "build/", "__init__.py"}  # the last one is the public API
OWN_PLACES_OF = {
    "an algorithm": {"algorithms/"},
    "a model": {"models/"},
    "a metric": {"rewards/", "evaluation/scoring.py"},  # the latter: those of sacreBLEU
}
ALLOWED = {
    "kernels/triton_steps.py": {"lstm"},  # whether a cell has a memory, in a language of its own
    "storage/pretrained.py": {"huggingface", "HuggingFaceSettings"},  # what is kept of such a model, at the call of:
    "runs/run.py": {"HuggingFaceSettings"},
    "doctor/examination.py": {"HuggingFaceSettings"},
    "training/progress.py": {"xent"},  # a column of the log
    "models/huggingface/adapter.py": {"E2E"},  # which algorithm an error is about
    "cli/scoring.py": {"bleu", "chrf", "cider", "rouge1", "rouge1_f", "rouge2", "rouge2_f", "rouge_l"},  # its --help
}
EQUATION = re.compile(r"\bEqs?\.\s*(\d+)(?:\s*[-–]\s*(\d+))?")


def place(path):
    return path.relative_to(SOURCE).as_posix()


def part(path):
    """The first name below the package: `losses`, `data`, ..."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    """Every module a file names, anywhere in it: `from a import b` as a and as a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path)}:{node.lineno} imports relatively"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "seqmixer")


def equations(text):
    """The numbers of all equations that a text names."""
    found = set()
    for first, last in EQUATION.findall(text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize("path", [path for path in FILES if not part(path).startswith("__")], ids=place)
def test_imports_point_one_way(path):
    mine = part(path)
    for name in imports(path):
        if name.startswith("seqmixer."):
            other = name.split(".")[1]
            if other.startswith("__"):
                continue
            assert other == mine or RANK[other] < RANK[mine], f"{place(path)} imports {name}"


def test_every_part_has_a_layer():
    assert {part(path) for path in FILES if not part(path).startswith("__")} <= set(RANK)


@pytest.mark.parametrize("path", [*SOURCE.glob("losses/*.py"), SOURCE / "schedules.py"], ids=place)
def test_the_equations_need_only_torch(path):
    for module in imports(path):
        top = module.split(".")[0]
        assert top == "torch" or top in sys.stdlib_module_names or module.startswith("seqmixer.losses"), module


def test_only_searches_e2e_and_models_loop_over_steps():
    looping = {place(path) for path in FILES if re.search(r"\bfor t in range\b", path.read_text())}

    assert {path for path in looping if not path.startswith("models/")} <= LOOPS


@pytest.mark.parametrize("path", FILES, ids=place)
def test_no_file_is_longer_than_300_lines(path):
    assert len(path.read_text().splitlines()) <= 300


def test_the_training_loop_names_no_algorithm():
    classes = {kind.__name__ for kind in ALGORITHMS.values()} | {kind.Settings.__name__ for kind in ALGORITHMS.values()}
    assert {"Xent", "Dad", "E2E", "Reinforce", "Mixer"} <= classes

    for path in (SOURCE / "training").glob("**/*.py"):
        named = set(re.findall(r"\w+", path.read_text())) & classes
        assert not named, f"{place(path)} names {sorted(named)}"


def test_only_the_fast_path_knows_the_device():
    knowing = {place(path) for path in FILES if "cuda" in path.read_text()}

    assert {path for path in knowing if not path.startswith("kernels/")} <= DEVICE


def test_models_know_nothing_of_training():
    """No losses, rewards or modes there: a model is six methods."""
    for path in (SOURCE / "models").rglob("*.py"):
        names = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
        assert not {name for name in names if "loss" in name or "reward" in name}, place(path)


def test_every_equation_named_in_the_code_is_in_the_table_of_the_paper():
    """docs/paper.md has a table: the first cell of a row names equations as the code does, `Eq. 6` or `Eqs. 3-5`."""
    rows = [line for line in PAPER.read_text().splitlines() if line.startswith("|")]
    listed = equations(" ".join(row.split("|")[1] for row in rows))

    for path in FILES:
        missing = equations(path.read_text()) - listed
        assert not missing, f"{place(path)} names equations {sorted(missing)}, which docs/paper.md does not list"


def test_the_code_names_every_equation_of_the_paper():
    named = set().union(*(equations(path.read_text()) for path in FILES))

    assert named == set(range(1, 15))


def words(path):
    """The words of identifiers and strings of a file, those of docstrings aside."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.findall(r"\w+", node.value)
        for name in ("id", "attr", "arg", "name", "asname"):
            if isinstance(value := getattr(node, name, None), str):
                yield from re.findall(r"\w+", value)


@pytest.mark.parametrize("kind", NAMES)
def test_no_name_outside_its_own_place(kind):
    named = {}
    for path in FILES:
        if not place(path).startswith((*OWN_PLACES, *OWN_PLACES_OF[kind])):
            found = NAMES[kind] & set(words(path)) - ALLOWED.get(place(path), set())
            if found:
                named[place(path)] = sorted(found)
    assert not named, f"{kind} is named in {named}"


def test_no_class_has_the_name_of_another():
    classes = [
        node.name for path in FILES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    ]

    assert not {name for name in classes if classes.count(name) > 1}


DIALECT = r"(is|are) paid|mend(s|ed)?|stands? still|(goes|gone) on with|speaks? to the others|asks? the device|its own words|given words|memory does not hold"


def test_no_phrase_of_the_old_dialect_is_left():
    """The words of the field: reward, fix, plateau, resume, rank, synchronise, forced words, out of memory."""
    root = SOURCE.parents[1]
    texts = [*FILES, root / "README.md", *(root / "docs").rglob("*.md")]
    found = {f"{path}: {match[0]}" for path in texts for match in re.finditer(rf"\b({DIALECT})\b", path.read_text())}

    assert not found
