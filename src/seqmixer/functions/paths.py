"""Import the function that a setting names."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from seqmixer.errors import ConfigError
from seqmixer.functions.kinds import short


def is_path(name: str) -> bool:
    """Whether a name is the path of a Python function.

    >>> is_path("my_rewards:overlap"), is_path("bleu")
    (True, False)
    """
    return ":" in name or "." in name


def from_path(path: str) -> Callable[..., Any]:
    """The function at `package.module:function` or `package.module.function`; the current folder is searched first.

    >>> from_path("math:sqrt")(9)
    3.0
    """
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    if not module_name or not name:
        raise ConfigError(f"reward {path!r} is not the path of a function; write 'module:function'.")
    module = _import(module_name, path)
    try:
        function: object = getattr(module, name)
    except AttributeError:
        near = get_close_matches(name, dir(module), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"reward {path!r}: module {module_name!r} has no {name!r}.{hint}") from None
    if not callable(function):
        kind = type(function).__name__
        raise ConfigError(f"reward {path!r} is not a function but of type {kind}; name a function.")
    return function


def _import(name: str, path: str) -> ModuleType:
    """Import as `python -m` would, with the current folder first. It stays, for what the module imports when called."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()  # the user may have written the file a moment ago
    try:
        with undisturbed():
            return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            where = f"neither in {folder} nor among the installed packages"
            raise ConfigError(f"reward {path!r}: there is no module {name!r}, {where}.") from None
        raise ConfigError(
            f"reward {path!r}: importing {name!r} raised {type(error).__name__}: {short(error)}"
        ) from error


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run a user's code in this process, and restore what belongs to the program: its folder and standard streams.

    What the code prints goes to standard error. A process that it forks without end ends here.
    """
    process, folder, output, errors = os.getpid(), os.getcwd(), sys.stdout, sys.stderr
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)
        os.chdir(folder)
        sys.stdout, sys.stderr = output, errors
