"""Finds specialists: entry points of installed packages, and files in the operator's directory."""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from brain.errors import RegistrationError
from brain.plugins.specialist import Specialist

ENTRY_POINTS = "brain.specialists"
Package = importlib.metadata.Distribution | None


@dataclass(frozen=True, slots=True)
class SpecialistSource:
    """An entry point or file with specialists."""

    name: str
    origin: str
    load: Callable[[], Any]
    package: Package = None

    def load_specialists(self) -> list[Specialist[..., Any]]:
        """Import the source and return its specialists, each once."""
        try:
            loaded = self.load()
        except RegistrationError:
            raise
        except (Exception, SystemExit) as error:
            raise RegistrationError(f"it cannot be imported: {type(error).__name__}: {error}") from error
        if isinstance(loaded, Specialist):
            return [loaded]
        values = vars(loaded).values() if isinstance(loaded, ModuleType) else loaded
        values = values if isinstance(values, Iterable) else ()
        specialists = list(dict.fromkeys(value for value in values if isinstance(value, Specialist)))
        if not specialists:
            raise RegistrationError("it contains no specialist; decorate a function with @specialist")
        return specialists


def find_sources(folder: Path | None) -> Iterator[SpecialistSource]:
    """Yield the entry points of installed packages, then the files of a directory, each sorted by name."""
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    names: dict[Package, str] = {}  # each use of a name or version parses all metadata of the package
    for point in sorted(points, key=lambda point: (point.name, str(point.value))):
        if point.dist is not None and point.dist not in names:
            names[point.dist] = f"{point.dist.name} {point.dist.version}"
        yield SpecialistSource(point.name, names.get(point.dist, point.value), point.load, point.dist)
    for path in sorted(folder.glob("*.py")) if folder else ():
        if not path.name.startswith("_"):
            yield SpecialistSource(path.stem, path.name, partial(_import_file, path))


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"brain_specialists_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up the names in their annotations there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module
