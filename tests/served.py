"""A run whose data is hostile."""

from seqmixer.config import Config
from seqmixer.runs import train

LONG = "w" * 100_000
HOSTILE = [
    "<script>window.hacked=1</script>",
    '"><img/src=x/onerror=window.hacked=1>',
    "\x1b[31mred",
    "\u202etfel-ot-thgir",
    "שלום",
    "😀👩‍👩‍👧",
    "{{7*7}}",
    LONG,
]
SOURCES = ["a b c", "b c", "c d e a", "d", "e a b", "a c", "b d", f"c {' '.join(HOSTILE)}"]


def trained(folder, name="run", model="lstm", **more):
    """A run that reads a, b, c, d, e and hostile words, and writes their upper case."""
    folder.mkdir(exist_ok=True)
    (folder / "a").write_text("\n".join(SOURCES) + "\n")
    (folder / "b").write_text("\n".join(source.replace(LONG, LONG.upper()) for source in SOURCES) + "\n")
    data = {
        "task": "text",
        "folder": str(folder),
        "length": 6,
        "max_words": 10_000,
        **{s: ["a", "b"] for s in ("train", "valid", "test")},
    }
    training = {"epochs": 1, "batch_size": 4, "lr": 0.05, "threads": 1}
    values = {"name": name, "data": data, "model": {"name": model, "hidden": 8}, "algorithm": {"name": "xent"}}
    return train(Config.parse(values | {"training": training} | more), folder, callbacks=[])
