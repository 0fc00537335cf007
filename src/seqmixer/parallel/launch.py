"""The environment that torchrun sets, read without importing torch."""

import os


def processes() -> int:
    """The number of ranks; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1


def here() -> int:
    """The number of ranks on this node."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1


def place() -> int:
    """The rank among those on this node, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def number() -> int:
    """The rank, from 0."""
    return int(os.environ["RANK"]) if "LOCAL_RANK" in os.environ else 0


def launcher() -> list[str]:
    """The beginning of the command that started this process, without what differs between nodes."""
    if processes() == 1:
        return ["seqmixer"]
    nodes = processes() // here()
    several = [f"--nnodes={nodes}", "..."] if nodes > 1 else []
    return ["torchrun", *several, f"--nproc-per-node={here()}", "-m", "seqmixer"]
