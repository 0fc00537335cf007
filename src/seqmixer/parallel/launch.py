"""What torchrun tells the processes that it starts. The command line reads it without torch."""

import os


def processes() -> int:
    """How many processes were started together; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1


def here() -> int:
    """How many of them are on this node."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1


def place() -> int:
    """Which of those on this node this one is, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def number() -> int:
    """Which of all of them this one is, from 0."""
    return int(os.environ["RANK"]) if "LOCAL_RANK" in os.environ else 0


def launcher() -> list[str]:
    """The beginning of the command that started this process; what depends on the node is left open."""
    if processes() == 1:
        return ["seqmixer"]
    nodes = processes() // here()
    several = [f"--nnodes={nodes}", "..."] if nodes > 1 else []
    return ["torchrun", *several, f"--nproc-per-node={here()}", "-m", "seqmixer"]
