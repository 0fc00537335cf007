"""Train a run, score it, write with it, and put it beside others."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqmixer.cli.options import (
    Beam,
    ConfigFile,
    Json,
    LengthPenalty,
    Mbr,
    MetricNames,
    Out,
    RunFolder,
    Settings,
    Trust,
    Unk,
    Utility,
    app,
    finite,
    put,
    search_of,
    seed_option,
    show,
    show_table,
    split_names,
)
from seqmixer.errors import ConfigError, DataError, printable

if TYPE_CHECKING:
    from seqmixer.runs import Run


@app.command()
def train(
    config: ConfigFile,
    settings: Settings = None,
    out: Out = Path("runs"),
    track: Annotated[
        list[str] | None, typer.Option(help="Also for its viewer: tensorboard, trackio. May be given several times.")
    ] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Train a model and score it. Stopped with Ctrl-C, it is resumed by the same command.

    Leaves OUT/NAME with the best model, log.jsonl, samples.txt and scores.json.

    Under torchrun, several processes share each batch, on one or several nodes. All other commands use one process.

    \b
    seqmixer train toy/translation
    seqmixer train toy/translation --set algorithm.name=xent --set name=plain
    torchrun --nproc-per-node=2 -m seqmixer train toy/translation
    """
    from seqmixer.config import Config
    from seqmixer.evaluation import described, read_scores
    from seqmixer.parallel.ranks import first, leave
    from seqmixer.runs import train as train_run
    from seqmixer.storage.identity import require_own_code
    from seqmixer.training import Terminal, trackers

    chosen = Config.load(config, settings or [])
    require_own_code(config, chosen, trust)
    run = train_run(chosen, out, [Terminal(), *trackers(track or [])])
    if first():
        scores = read_scores(run.folder)
        lines = [
            f"{run.folder}  {scores.metric} {scores.test:.2f} (test)  {scores.valid:.2f} (valid)",
            scores.signature,
        ]
        lines += [f"{name} {other.test:.2f} (test)  {other.signature}" for name, other in scores.others.items()]
        lines += [described(scores.effects)]
        show(asdict(scores) | {"run": str(run.folder)}, "\n".join(lines), as_json)
    leave()


@app.command()
def evaluate(
    run: RunFolder,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    beam: Beam = 1,
    length_penalty: LengthPenalty = 0.0,
    mbr: Mbr = 0,
    metric: Utility = None,
    unk: Unk = None,
    metrics: MetricNames = None,
    standard: Annotated[
        bool, typer.Option("--standard", help="Also sacreBLEU's scores of the uncropped text.")
    ] = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Score a run on a split, with greedy search, a beam or minimum Bayes risk.

    The scores are those of the run's metrics on references cropped at T; of a run on raw text ([text] in its config),
    also sacreBLEU's scores of what a person reads. With --standard, BLEU and chrF by sacreBLEU on the text as it was,
    uncropped, follow. The last line has the side effects, such as repetition (docs/log.md).

    \b
    seqmixer evaluate runs/toy-translation --beam 5 --standard
    seqmixer evaluate runs/toy-translation --mbr 32 --metric chrf
    seqmixer evaluate runs/toy-translation --metrics "rouge_l, 0.5*bleu + 0.5*my_reward:overlap"
    """
    from seqmixer.evaluation import described
    from seqmixer.runs import load

    search = search_of(beam, length_penalty, mbr, metric, unk)
    opened = load(run, trust)
    result = opened.evaluate(split, split_names(metrics), **search)
    values: list[dict[str, object]] = [
        {"metric": each.metric, "score": each.score, "signature": each.signature} for each in result.scored
    ]
    if standard:
        from seqmixer.evaluation.scoring import standard as standard_scores

        tokenize = "13a" if opened.config.text.raw else "none"
        scores = standard_scores(result.hypotheses, result.references, tokenize=tokenize)
        values += [{"metric": each.metric, "score": each.value, "signature": each.signature} for each in scores]
    lines = [f"{value['score']:6.2f}  {value['signature']}" for value in values]
    found: dict[str, object] = {"run": str(run), "split": split, "scores": values, "effects": result.effects}
    show(found, "\n".join([*lines, described(result.effects)]), as_json)


@app.command()
def generate(
    run: RunFolder,
    source: Annotated[
        Path | None, typer.Argument(help="Lines of text, or .npy/.npz image features. Default: standard input.")
    ] = None,
    beam: Beam = 1,
    nbest: Annotated[int, typer.Option(min=1, help="Hypotheses to give for each source; needs --json.")] = 1,
    length_penalty: LengthPenalty = 0.0,
    mbr: Mbr = 0,
    metric: Utility = None,
    unk: Unk = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw words instead of taking the most likely.")] = False,
    temperature: Annotated[
        float | None, typer.Option(min=0.01, callback=finite, help="Of samples: below 1 sharpens. Default: 1.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Of samples: only the so many best words.")] = None,
    seed: Annotated[int | None, seed_option("Of the draws. Default: 1.")] = None,
    as_json: Json = False,
) -> None:
    """Write a sentence for each source: one line in, one line out.

    With --json, each line is an object with the source, the hypotheses and their log-probabilities. On a terminal it
    asks for one line after the other, and says which of its words the model does not know.

    \b
    echo "barne brua rodarn domern tagre" | seqmixer generate runs/toy-translation
    seqmixer generate runs/toy-translation source.txt --beam 5 --nbest 5 --json
    seqmixer generate runs/toy-translation source.txt --mbr 32 --metric chrf
    """
    import torch

    from seqmixer.data import read_features
    from seqmixer.decoding import greedy, sampler
    from seqmixer.runs import load
    from seqmixer.runs.inference import BATCH, write

    search = search_of(beam, length_penalty, mbr, metric, unk)
    if nbest > 1 and not as_json:
        raise ConfigError(f"--nbest {nbest} needs --json: a line of text has room for one hypothesis")
    for option, value in {"--temperature": temperature, "--top-k": top_k, "--seed": seed}.items():
        if value is not None and not (sample or mbr):
            raise ConfigError(f"{option} {value} needs --sample or --mbr: without it the most likely words are taken")
    seed = 1 if seed is None else seed
    torch.manual_seed(seed)
    choose = sampler(temperature or 1.0, top_k) if sample or mbr else greedy
    opened = load(run)
    searched = opened.search(**search, nbest=nbest, choose=choose, seed=seed)
    asked = source is None and sys.stdin.isatty()
    sources = read_features(source) if source and source.suffix in (".npy", ".npz") else lines(source)
    if asked and not isinstance(sources, torch.Tensor):
        sources = prompted(opened, sources)
    at_once = 1 if asked else BATCH  # a person waits for each line
    for written in write(opened, sources, searched, at_once):
        if as_json:
            pairs = zip(written.hypotheses, written.log_probs, strict=True)
            found = [{"text": text, "log_prob": round(log_prob, 4)} for text, log_prob in pairs]
            put(json.dumps({"source": written.source, "hypotheses": found}, ensure_ascii=False))
        else:
            put(written.hypotheses[0])


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; each is compared with the first.")],
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    beam: Beam = 1,
    length_penalty: LengthPenalty = 0.0,
    mbr: Mbr = 0,
    metric: Utility = None,
    unk: Unk = None,
    metrics: MetricNames = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Put runs side by side by each of their metrics, with paired-bootstrap significance against the first.

    The p-value is sacreBLEU's; of a clear difference it counts one tail only, so ask for p < 0.025 where 5 % is meant
    for both sides, or look at the 95 % interval.

    \b
    seqmixer compare runs/xent runs/mixer
    """

    from seqmixer.experiments.compare import as_rows, as_table
    from seqmixer.experiments.compare import compare as compare_runs
    from seqmixer.experiments.report.effects import side_effects
    from seqmixer.runs import load

    search = search_of(beam, length_penalty, mbr, metric, unk)
    main = compare_runs([load(run, trust) for run in runs], split, split_names(metrics), **search)
    each = [main, *main.others]
    if as_json:
        found = [{"metric": one.metric, "signature": one.signature, "runs": as_rows(one)} for one in each]
        put(json.dumps(found[0] | {"others": found[1:], "effects": [effects for _, effects in main.effects]}))
        return
    for comparison in each:
        show_table(as_table(comparison).terminal())
        put(comparison.signature)
    show_table(side_effects(main.effects).terminal())


@app.command()
def settings() -> None:
    """List every setting with its default and what it means."""
    from seqmixer.config import documentation

    put(documentation())


@app.command("configs")
def list_configs(as_json: Json = False) -> None:
    """List the configs that come with seqmixer: `seqmixer train NAME` takes them from anywhere."""
    from seqmixer.configs import about, names

    if as_json:
        put(json.dumps({name: str(path) for name, path in names().items()}))
        return
    width = max(map(len, names()))
    for name, path in names().items():
        put(f"{name:<{width}}  {about(path)}")


def prompted(run: "Run", lines: Iterator[str]) -> Iterator[str]:
    """Lines that a person types. Prompts and remarks are on standard error: the output may go to a file."""
    from seqmixer.runs.explain import unknown_words

    end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
    print(f"One source a line; {end} ends.", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        if (line := next(lines, None)) is None:
            print(file=sys.stderr)
            return
        if words := unknown_words(run, line):
            print(printable(f"unknown to the model: {', '.join(words)}"), file=sys.stderr)
        yield line


def lines(path: Path | None) -> Iterator[str]:
    """The lines of a file, plain or .gz, or of standard input."""
    from seqmixer.data import read_lines

    if path is not None:
        yield from read_lines(path, max_words=sys.maxsize, allow_empty=True)
        return
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"standard input:{number}: not UTF-8 ({error.reason})") from None
