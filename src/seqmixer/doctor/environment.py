"""Where a run would take place: Python and torch, the device, what is installed, where the run folder goes."""

import os
import platform
import re
import shutil
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path

import torch

from seqmixer import __version__
from seqmixer.config import Config
from seqmixer.doctor.findings import Check, Finding
from seqmixer.errors import RunError, installation
from seqmixer.training import device

PURPOSES = {  # of each extra
    "hf": "models of Hugging Face",
    "images": "features of images",
    "report": "figures and HTML reports",
    "serve": "a page to try a run",
    "sweep": "searches for settings",
    "track": "TensorBoard and trackio",
}
GIB = 2**30


def examine_environment(config: Config | None, folder: Path | None) -> Check:
    """`config` None: it could not be read, so that only the software is looked at."""
    findings = [Finding("ok", f"seqmixer {__version__}, Python {platform.python_version()}, torch {torch.__version__}")]
    findings += extras()
    if config is not None and folder is not None:
        findings += [machine(config), place(folder)]
    values = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "memory": host_memory(),
        "free_disk": None if folder is None else shutil.disk_usage(existing(folder)).free,
        "extras": {extra: missing(packages) == [] for extra, packages in declared_extras().items()},
    }
    return Check("environment", findings, values)


def machine(config: Config) -> Finding:
    """The device that training.device names."""
    try:
        found = device(config.training.device)
    except RunError as error:
        return Finding("problem", str(error), advice="set training.device = 'auto' or 'cpu'")
    return Finding("ok", f"device {found}, {device_memory(found) / GIB:.1f} GiB of memory, {os.cpu_count()} CPU cores")


def place(folder: Path) -> Finding:
    """Whether the run folder can be written."""
    parent = existing(folder)
    if not parent.is_dir():
        return Finding("problem", f"{parent} is a file", "the run needs a folder there", "choose another with --out")
    if not os.access(parent, os.W_OK | os.X_OK):
        return Finding("problem", f"{parent} cannot be written", "the run goes there", "choose another with --out")
    return Finding("ok", f"{parent} can be written, {shutil.disk_usage(parent).free / GIB:.1f} GiB free")


def existing(folder: Path) -> Path:
    """The folder, or the nearest path above it that is there."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def device_memory(found: torch.device) -> int:
    """Bytes in all."""
    return host_memory() if found.type == "cpu" else torch.accelerator.get_memory_info(found)[1]


def host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def extras() -> list[Finding]:
    """What may be installed beside, and what for."""
    findings = []
    for extra, packages in declared_extras().items():
        lacking = missing(packages)
        purpose = f"the extra {extra}, for {PURPOSES[extra]}"
        if lacking:
            what = f"{purpose}, is not installed ({', '.join(lacking)} missing)"
            findings.append(Finding("note", what, advice=installation(extra)))
        else:
            findings.append(Finding("ok", f"{purpose}, is installed"))
    return findings


def declared_extras() -> dict[str, list[str]]:
    """The packages of each extra, as the installed seqmixer declares them."""
    try:
        lines = requires("seqmixer") or []
    except PackageNotFoundError:  # run from its source, not installed
        lines = []
    found: dict[str, list[str]] = {}
    for line in lines:
        match = re.match(r"([\w.-]+).*;.*extra == ['\"](\w+)['\"]", line)
        if match and match[2] in PURPOSES:
            found.setdefault(match[2], []).append(match[1])
    return found


def missing(packages: list[str]) -> list[str]:
    installed = {plain(distribution.name) for package in packages for distribution in distributions(name=package)}
    return [package for package in packages if plain(package) not in installed]


def plain(package: str) -> str:
    """Names of packages that differ in case, -, _ and . are one.

    >>> plain("EfficientNet_lite.pytorch")
    'efficientnet-lite-pytorch'
    """
    return re.sub(r"[-_.]+", "-", package).lower()
