"""Score any text."""

from pathlib import Path
from typing import Annotated

import typer

from seqmixer.cli.options import Json, app, show, split_names


@app.command()
def score(
    hypotheses: Annotated[Path, typer.Argument(help="What was written, one sentence a line; plain or .gz.")],
    references: Annotated[list[Path], typer.Argument(help="One or more files of references, line by line the same.")],
    source: Annotated[
        Path | None,
        typer.Option(help="paper: the source, which decides what is scored. Also for functions that read it."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="standard: uncropped sentences. paper: as the released evaluator.")
    ] = "standard",
    tokenize: Annotated[str, typer.Option(help="none: words are separated by spaces. 13a: raw text.")] = "none",
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Separated by commas: bleu, chrf, chrf++, ter (lower is better, slow), cider, rouge1, rouge2 "
            "(recall), rouge1_f, rouge2_f, rouge_l (F1), module:function, weighted sums of these; paper: bleu, rouge2. "
            "Default: bleu,chrf; paper: bleu."
        ),
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=1, help="paper: T, the words after which sentences are cut. Default: 25.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Score any text against references: a line for each metric, its score and the signature that says how it was made.

    Scores compare only where signatures are equal. The standard protocol is sacreBLEU's; the paper protocol cuts
    sentences at 25 words and drops those whose source has a rare length, as the released code does.

    \b
    seqmixer score test.out test.en
    seqmixer score test.out test.en --metrics ter,rouge_l,my_reward:overlap --tokenize 13a
    seqmixer score test.out test.en --protocol paper --source test.de
    """
    from seqmixer.evaluation.scoring import score_files

    chosen = split_names(metrics)
    scores = score_files(
        hypotheses, references, protocol=protocol, metrics=chosen, tokenize=tokenize, source=source, length=length
    )
    values = [{"metric": each.metric, "score": each.value, "signature": each.signature} for each in scores]
    text = "\n".join(
        f"{each.metric:<8} {each.value:6.{2 if each.highest > 1 else 4}f}  {each.signature}" for each in scores
    )
    show({"protocol": protocol, "scores": values}, text, as_json)
