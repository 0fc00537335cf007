"""The server that the Python of another environment runs: it loads a function and answers batches. Needs no library.

A line of standard input is a JSON list of rows; a line of standard output is {"scores": [...]} or {"error": "..."}.
"""

import json
import os
import sys
from pathlib import Path
from types import ModuleType


def main(path: str) -> None:
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what the function prints is no answer
    own = Path(__file__).parent
    sys.path[0] = os.getcwd()  # in place of this folder
    for name, folder in (("seqmixer", own.parent), ("seqmixer.functions", own)):
        package = ModuleType(name)  # these files and no others: the libraries beside them are of another environment
        package.__path__ = [str(folder)]
        sys.modules[name] = package

    def answer(message: dict[str, object]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    from seqmixer.errors import SeqmixerError
    from seqmixer.functions.kinds import read, scores
    from seqmixer.functions.paths import from_path

    try:
        scorer = read(from_path(path))
        answer({"ready": path})
        for line in requests:
            rows = json.loads(line)
            columns = scorer.columns(list(rows[0]))
            chosen = [{column: row[column] for column in columns if column in row} for row in rows]
            answer({"scores": list(scores(scorer, chosen))})
    except SeqmixerError as error:
        answer({"error": str(error)})
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1])
