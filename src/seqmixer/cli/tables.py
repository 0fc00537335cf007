"""Commands that train many runs for one table: demo, paper, study."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seqmixer.cli.options import Json, RunFolder, Settings, Trust, app, put, show_table, this_command


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the runs and the report go.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; more than one gives deviations.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, one core each.")] = 2,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the table to this file, and the figures beside it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train XENT, DAD, E2E and MIXER on the three built-in tasks: the paper's Fig. 5 in minutes, with a report.

    Stopped, the same command resumes it: finished runs are not run again.
    """

    from seqmixer.experiments.demo import run_demo, table

    page = run_demo(out, list(range(1, seeds + 1)), workers, markdown, this_command())
    if as_json:
        put((out / "grid.json").read_text(encoding="utf-8"))
    else:
        show_table(table(out))
        put(f"Report: {page}")


@app.command()
def paper(
    task: Annotated[str, typer.Argument(help="summarization, translation, captioning, or all.")],
    recipe: Annotated[
        str, typer.Option(help="tuned; literal: the paper's values; quick: a small data set; or a TOML file.")
    ] = "tuned",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; more than one gives deviations.")] = 3,
    out: Annotated[Path, typer.Option(help="Where the runs and the reports go.")] = Path("paper"),
    methods: Annotated[
        str | None,
        typer.Option(help="Some of the methods, with commas. Default: all the task has."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time; 1 on a GPU.")] = 1,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the tables, figures and numbers into this folder.")
    ] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Reproduce the paper on one of its tasks: every method and seed, Figs. 5-8, both protocols, one report.

    The methods are xent, dad, e2e, mixer, mixer-bleu (for summarization) and reinforce.

    The data is looked for in the folder that the variable SEQMIXER_DATA names. Stopped, the same command
    resumes: finished runs are not run again.

    \b
    seqmixer paper translation
    seqmixer paper summarization --recipe quick --seeds 1
    seqmixer paper all --markdown docs/results
    """

    from seqmixer.experiments.paper.page import as_json as numbers
    from seqmixer.experiments.paper.page import run_paper, shown
    from seqmixer.experiments.paper.recipes import experiments

    wanted = experiments(task, recipe, methods, tuple(settings or ()), out)
    found = run_paper(wanted, list(range(1, seeds + 1)), workers, markdown, this_command())
    if as_json:
        put(json.dumps([numbers(results, [this_command()]) for results in found]))
        return
    for results in found:
        show_table(shown(results))
        put(f"Report: {results.experiment.folder / 'report.html'}")


@app.command()
def study(
    task: Annotated[str, typer.Argument(help="toy, another config that `seqmixer configs` lists, or a TOML file.")],
    methods: Annotated[str | None, typer.Option(help="Some of the methods, with commas. Default: all.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; more than one gives deviations.")] = 3,
    out: Annotated[Path, typer.Option(help="Where the runs and the tables go, in a folder of the task's.")] = Path(
        "study"
    ),
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the tables, the figure and the numbers into this folder.")
    ] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Compare algorithms from one XENT model: equal numbers of sampled sentences, several seeds, one table.

    Every method trains for the epochs of the config (training.epochs); one that samples fewer sentences has more.
    Scores come with intervals of the paired bootstrap over XENT. Stopped, the command resumes: finished runs are kept.

    \b
    seqmixer study toy
    seqmixer study mine.toml --methods xent,mixer,leave-one-out --seeds 1
    """

    from seqmixer.experiments.study.page import as_json as numbers
    from seqmixer.experiments.study.page import run_study, shown
    from seqmixer.experiments.study.runs import studied

    recipe = studied(task, methods, settings or [], out)
    found = run_study(recipe, list(range(1, seeds + 1)), workers, markdown, this_command())
    if as_json:
        put(json.dumps(numbers(found, [this_command()])))
    else:
        show_table(shown(found))
        put(f"Tables: {recipe.path.with_name(f'study-{recipe.task}.md')}")
        put(f"Report: {recipe.path.with_name('report.html')}")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; the scores of each are compared with the first's.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    trust: Trust = False,
) -> None:
    """Put runs on one page: what differs, curves, scores with intervals, time, side effects, every test sentence.

    The page is one file that needs no network. Runs may be finished or not, of one task or of several. What a finished
    run wrote for the test split is kept in its folder; of another, the best model so far decodes it now.

    \b
    seqmixer report runs/xent runs/mixer
    """
    from seqmixer.experiments.report.runs import write_report

    put(f"Report: {write_report(runs, out, trust, this_command())}")


@app.command()
def watch(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where it is served; 0: any port that is free.")] = 0,
) -> None:
    """Show the curves of a run in the browser while it trains. Ctrl-C ends it, not the run.

    The run may begin later, stop and resume. The page is for this machine alone: it is served at 127.0.0.1.

    \b
    seqmixer watch runs/toy-translation
    """
    from seqmixer.experiments.report.live import server

    with server(run, port) as serving:
        put(f"http://127.0.0.1:{serving.server_port}/")
        serving.serve_forever()
