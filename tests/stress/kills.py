"""SIGKILL at random moments, again and again until a run ends: it must end as the undisturbed run did, bit for bit."""

from stress.cases import Site, differing, wrong
from stress.materials import result, train, truth
from stress.station import Kill

SOON = 0.2  # seconds, about what a command takes before it trains
MOST = 40  # kills of one run


def case(site: Site) -> None:
    """Kill a run until it ends, and compare what it leaves."""
    expected = truth(site.materials, site.flavour)
    argv, kills = train(site.materials, site.flavour), 0
    while True:
        kill = moment(site, expected["seconds"], expected["events"]) if kills < MOST else None
        ended = site.run(argv, watched=site.folder, kill=kill)
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


def moment(site: Site, seconds: float, events: int) -> Kill:
    """At a change of the run folder, which hits saves, renames and the export; or at a time; or at the start."""
    rng = site.rng
    match rng.choices(("event", "time", "start"), (6, 3, 1))[0]:
        case "event":
            return Kill(rng.choice((0.0, 0.0, rng.expovariate(500))), rng.randint(1, events))
        case "time":
            return Kill(rng.uniform(0, 1.2 * seconds))
        case _:
            return Kill(rng.uniform(0, SOON))
