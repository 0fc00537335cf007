"""SIGKILL at random moments, again and again until a run ends: it must end as the undisturbed run did, bit for bit."""

from typing import Any

from stress.cases import Site, differing, wrong
from stress.materials import result, train, truth
from stress.station import Kill

START, SAVE = 0.2, 0.002  # seconds: about what a command takes before it trains, and what writing a checkpoint takes
MOST = 40  # kills of one run


def case(site: Site) -> None:
    """Kill a run until it ends, and compare what it leaves."""
    expected = truth(site.materials, site.flavour)
    argv, kills, before = train(site.materials, site.flavour), 0, 0
    while True:
        kill = moment(site, expected, before) if kills < MOST else None
        ended = site.run(argv, watched=site.folder, kill=kill)
        before = ended.of_folders
        kills += ended.killed
        problem = wrong(ended)
        if problem or not ended.killed:
            break
    if problem is None and ended.code == 2:
        problem = "lost"
    elif problem is None and not ended.killed:
        others = differing(result(site.folder / "run"), expected["train"])
        problem = "silent" if others else None
    else:
        others = []
    site.counts["tried"] += kills
    if problem:
        what = f"{kills} kills; other than without: {', '.join(others)}" if problem == "silent" else f"{kills} kills"
        site.count(problem, ended, what)
    site.counts["recovered"] += max(0, kills - (problem is not None))


def moment(site: Site, expected: dict[str, Any], before: int) -> Kill:
    """In a save or the export, again there, at any change of the run folder, at a time, or at the start."""
    rng = site.rng
    soon = rng.choice((0.0, rng.expovariate(1 / SAVE)))
    match rng.choices(("save", "again", "change", "time", "start"), (4, 3, 2, 2, 1))[0]:
        case "save":  # the first ones more often than the later: nothing lies behind them
            return Kill(seconds=soon, changes=1 + round(rng.expovariate(5 / expected["of_folders"])), of_folders=True)
        case "again":
            return Kill(seconds=soon, changes=max(1, before + rng.randint(-1, 1)), of_folders=True)
        case "change":
            return Kill(seconds=soon, changes=rng.randint(1, expected["changes"]))
        case "time":
            return Kill(seconds=rng.uniform(0, 1.2 * expected["seconds"]))
        case _:
            return Kill(seconds=rng.uniform(0, START))
