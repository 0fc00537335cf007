"""Damage a file of a run folder, then use the folder: the answer is the undamaged one's, or is warned of, or refused."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stress.cases import Site, differing, warned, wrong
from stress.materials import evaluate, generate, result, train, truth

NUMBER = re.compile(rb"(?<![\w.\-])-?\d+(\.\d+)?(?![\w.])")
TEXTS = (".json", ".jsonl", ".toml", ".vocab")
USES = {"evaluate": ("done", 3), "generate": ("done", 4), "resume": ("half", 3), "rescore": ("done", 1)}
UNHELD = {  # a figure changed in the log is not noticed, and changes no weight; samples.txt is made of the log
    "log.jsonl": {"log.jsonl", "samples.txt"},
    "samples.txt": {"samples.txt"},
}


def case(site: Site) -> None:
    """Damage one file, seldom two."""
    use = site.rng.choices(list(USES), [weight for _, weight in USES.values()])[0]
    folder = site.copy(USES[use][0])
    done = [damage(folder, site.rng) for _ in range(1 + (site.rng.random() < 0.1))]
    what = f"{use} after {' and '.join(f'{kind} in {name}' for name, kind in done)}"
    expected = truth(site.materials, site.flavour)
    commands = {"evaluate": evaluate(), "generate": generate(site.materials)}
    ended = site.run(commands.get(use, train(site.materials, site.flavour)))
    site.counts["tried"] += 1
    problem = wrong(ended)
    if problem:
        site.count(problem, ended, what)
    elif ended.code == 2:
        site.count("refused", ended, what)
    elif use in commands:
        same = ended.out.decode(errors="replace") == expected[use]
        site.count("recovered" if warned(ended) else "harmless" if same else "silent", ended, what)
    else:
        unheld = set().union(*(UNHELD.get(name, set()) for name, _ in done))
        if "log.jsonl" in unheld and warned(ended):  # of the epochs that the log lacks
            unheld.add("epochs")
        others = set(differing(result(folder), expected["train"])) - unheld
        verdict = "silent" if others else "recovered" if warned(ended) else "harmless"
        site.count(verdict, ended, f"{what}: {', '.join(sorted(others))}" if others else what)


def damage(folder: Path, rng: random.Random) -> tuple[str, str]:
    """Damage some file of a folder.  -> its name and the kind of damage"""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    weights = [3 if path.parent.name == "pretrained" else 2 if path.parent == folder else 1 for path in paths]
    path = rng.choices(paths, weights)[0]
    content = path.read_bytes()
    while True:
        kind = rng.choice([*DAMAGES, *(EDITS if path.suffix in TEXTS else ())])
        if kind == "deletion":
            path.unlink()
            break
        try:
            changed = {**DAMAGES, **EDITS}[kind](content, rng)
        except (ValueError, IndexError):  # there is nothing of the kind
            continue
        if changed != content:
            path.write_bytes(changed)
            break
    return str(path.relative_to(folder)), kind


def flips(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def beheaded(content: bytes, rng: random.Random) -> bytes:
    return content[rng.randrange(len(content)) :]


def zeros(content: bytes, rng: random.Random) -> bytes:
    begin, end = part(content, rng)
    return content[:begin] + bytes(end - begin) + content[end:]


def noise(content: bytes, rng: random.Random) -> bytes:
    begin, end = part(content, rng)
    return content[:begin] + rng.randbytes(end - begin) + content[end:]


def hole(content: bytes, rng: random.Random) -> bytes:
    begin, end = part(content, rng)
    return content[:begin] + content[end:]


def doubled(content: bytes, rng: random.Random) -> bytes:
    return content + content


def part(content: bytes, rng: random.Random) -> tuple[int, int]:
    begin = rng.randrange(len(content))
    return begin, rng.randint(begin + 1, min(len(content), begin + rng.choice((4, 64, 4096))))


def number(content: bytes, rng: random.Random) -> bytes:
    """Another number in place of one."""
    found = rng.choice(list(NUMBER.finditer(content)))
    value = float(found[0]) if b"." in found[0] else int(found[0])
    other = rng.choice((value + 1, value - 1, 2 * value, -value, 0, value + 0.5, 10**6))
    return content[: found.start()] + str(other).encode() + content[found.end() :]


def line_swap(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    i, j = rng.sample(range(len(lines)), 2)
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def id_swap(content: bytes, rng: random.Random) -> bytes:
    """Two values of one table of a JSON file, such as the ids of two words."""
    values = json.loads(content)
    tables = [table for table in tables_of(values) if len(table) > 1]
    table = rng.choice([max(tables, key=len), rng.choice(tables)])
    one, other = rng.sample(list(table), 2)
    table[one], table[other] = table[other], table[one]
    return json.dumps(values, indent=2, ensure_ascii=False).encode()


def tables_of(value: Any) -> list[dict[str, Any]]:
    """All tables in a JSON value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*([value] if isinstance(value, dict) else []), *(table for each in inner for table in tables_of(each))]


Change = Callable[[bytes, random.Random], bytes]
DAMAGES: dict[str, Change] = {
    "flips": flips,
    "cut": cut,
    "lost beginning": beheaded,
    "zeros": zeros,
    "noise": noise,
    "hole": hole,
    "doubled": doubled,
    "deletion": lambda content, rng: b"",
}
EDITS: dict[str, Change] = {"number": number, "line swap": line_swap, "id swap": id_swap}
