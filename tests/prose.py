"""Plain German and English sentences as people write them: capitals, punctuation, numbers, quotation marks."""

from itertools import product

WHO = {"Der Hund": "The dog", "Die Katze": "The cat", "Ein Mann": "A man", "Anna": "Anna", "Das Kind": "The child"}
WHAT = {"schläft": "sleeps", "läuft": "runs", "isst": "eats", "lacht": "laughs"}
WHERE = {"im Park": "in the park", "im Haus": "in the house", "auf der Straße": "on the street", "": ""}
HOW = {".": ".", " nicht.": ", doesn't it?", ", sagt Anna.": ', "says" Anna.', " um 3.000 Euro!": " for 3,000 euros!"}


def prose(n):
    """The first n pairs, each once; in an order that mixes them."""
    each = [*product(WHO.items(), WHAT.items(), WHERE.items(), HOW.items())]
    rows = [each[i * 37 % len(each)] for i in range(n)]  # 37 and 320 have no common factor
    return [
        tuple(" ".join(part[side] for part in row[:3] if part[side]) + row[3][side] for side in (0, 1)) for row in rows
    ]


def write_prose(folder, n=60, names=("all.de", "all.en")):
    folder.mkdir(exist_ok=True)
    for side, name in enumerate(names):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in prose(n)), encoding="utf-8")
    return [folder / name for name in names]
