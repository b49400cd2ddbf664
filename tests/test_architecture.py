"""The house holds: who may import whom, what is public, what each file says it is, and what is in no file."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import brain

ROOT = Path(__file__).parent.parent

FLOORS = {
    "Ground": "addresses alarm ask errors events http iterating kept logs messages page_files receiving report "
    "sampling settings spelling threads transport unicode webpage",
    "Wing": "fetching metrics models rendering traces wire store",
    "Core": "admission "
    "account asides blocks context copied discovery echo forgetting limits notices outgoing own_settings "
    "preview prompts question rates registry repetition running scanner schema sessions specialist stops syntax "
    "template_tokens tools transcript usage",
    "Rooms": "approvals calls conversation desk engine filing held inquiries journal leading library memory open_call "
    "passes thinker thought turn turns",
    "Roof": "accepting app cli commands door house process protocol response routes serving terminal watch watchdog "
    "__main__",
}
"""From the ground up. A file imports from its own floor and from those below; wings know only themselves."""

FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms.split()}
ORDER = list(FLOORS)

OWNERS = {
    "starlette": {"brain.app", "brain.door", "brain.response", "brain.routes"},
    "sse_starlette": {"brain.response"},
    "uvicorn": {"brain.protocol", "brain.serving"},
    "httpx": {
        "brain.fetching",
        "brain.receiving",
        "brain.http",
        "brain.transport",
        "brain.models.ollama",
        "brain.models.replies",
    },
    "jsonschema": {"brain.schema", "brain.specialist"},
    "prometheus_client": {"brain.metrics"},
    "opentelemetry": {"brain.traces"},
    "multiprocessing": {"brain.serving"},
    "subprocess": {"specialists._kit.isolated"},
    "markdown_it": {
        "brain.rendering",
        "brain.rendering.code",
        "brain.rendering.formulas",
        "brain.rendering.html",
        "brain.rendering.links",
        "brain.rendering.parsing",
        "brain.rendering.unfinished",
        "brain.terminal.markdown",
        "specialists._unwrapped",
    },
    "latex2mathml": {"brain.rendering.formulas"},
    "nh3": {"brain.rendering.html"},
    "pygments": {"brain.rendering.code"},
    "prompt_toolkit": {"brain.terminal.prompt"},
    "shtab": {"brain.commands.completion"},
    "rich": {
        "brain.terminal.approval",
        "brain.terminal.calls",
        "brain.terminal.drawing",
        "brain.terminal.live",
        "brain.terminal.markdown",
    },
}
"""Packages that only these modules, and the routes together, may import, so that each is a change of few files."""

PUBLIC = [
    "Attachment",
    "Citation",
    "Context",
    "Page",
    "Progress",
    "Refused",
    "RegistrationError",
    "Registry",
    "Result",
    "Specialist",
    "Thinker",
    "list_specialists",
    "mount",
    "register",
    "specialist",
    "stream_with_specialists",
]


def path_of(module: str) -> Path | None:
    """The file of a module of ours, if there is one."""
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


@cache
def modules(package: str) -> tuple[str, ...]:
    """All modules of a package, by their dotted names."""
    files = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return tuple(name for name in names if "__pycache__" not in name)


@cache
def tree(module: str) -> ast.Module:
    path = path_of(module)
    assert path is not None
    return ast.parse(path.read_text("utf-8"))


def imports(found: ast.AST) -> Iterator[str]:
    """What is imported anywhere in a tree; a name that is a module is that module."""
    for node in ast.walk(found):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if path_of(name) else str(node.module)


def floor_of(module: str) -> str:
    """The floor of a module of `brain`."""
    room = module.split(".")[1]
    assert room in FLOOR_OF, f"{module}: tests/test_architecture.py does not know on which floor it is"
    return FLOOR_OF[room]


def ours(module: str) -> list[str]:
    return [name for name in imports(tree(module)) if name.split(".")[0] in ("brain", "specialists")]


COMMAND = ("brain.commands.index", "specialists.knowledge")
"""Of the one specialist with a command of its own: `brain index` must do without a turn what only it can do."""

ROOMS = [module for module in modules("brain") if module != "brain"]


def test_a_room_imports_only_from_its_floor_and_below() -> None:
    wrong = []
    for module in ROOMS:
        floor = floor_of(module)
        for name in ours(module):
            if (module, name) == COMMAND:
                continue
            if name == "brain" or name.startswith("specialists"):
                wrong.append(f"{module} imports {name}; rooms of brain import each other's modules")
            elif ORDER.index(floor_of(name)) > ORDER.index(floor):
                wrong.append(f"{module} ({floor}) imports {name} ({floor_of(name)}), which is above it")
            elif floor == floor_of(name) == "Wing" and module.split(".")[1] != name.split(".")[1]:
                wrong.append(f"{module} imports {name}; wings never see each other")
    assert wrong == []


def test_every_room_that_has_a_floor_is_there() -> None:
    assert sorted(FLOOR_OF) == sorted({module.split(".")[1] for module in ROOMS})


def test_nobody_imports_the_roof_but_the_roof() -> None:
    under = [module for module in ROOMS if floor_of(module) != "Roof"]
    assert [module for module in under if {"brain.app", "brain.cli"} & set(ours(module))] == []
    at_import = {name for node in tree("brain").body if is_import(node) for name in imports(node)}
    assert not {"brain.app", "brain.thinker"} & at_import, "brain/__init__ reaches them only when asked"


def test_there_is_no_cycle() -> None:
    graph = {module: {name for name in ours(module) if name != module} for module in ROOMS}
    walked: set[str] = set()

    def walk(module: str, path: list[str]) -> None:
        assert module not in path, f"a cycle: {' → '.join([*path[path.index(module) :], module])}"
        if module not in walked:
            for name in sorted(graph.get(module, ())):
                walk(name, [*path, module])
            walked.add(module)

    for module in ROOMS:
        walk(module, [])


@pytest.mark.parametrize("package", OWNERS)
def test_a_package_is_imported_only_where_it_belongs(package: str) -> None:
    everybody = (*modules("brain"), *modules("specialists"))
    users = {module for module in everybody if any(name.split(".")[0] == package for name in imports(tree(module)))}
    assert {re.sub(r"^brain\.routes\..*", "brain.routes", user) for user in users} == OWNERS[package]


def test_specialists_use_public_names_and_never_each_other() -> None:
    wrong = []
    for module in modules("specialists"):
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ImportFrom) and node.module == "brain":
                private = {alias.name for alias in node.names} - set(brain.__all__)
                wrong += [f"{module} imports {name} from brain, which is not public" for name in sorted(private)]
            elif is_import(node):
                inner = [name for name in imports(node) if re.fullmatch(r"brain(\..+)?|specialists\.[a-z]\w*", name)]
                wrong += [f"{module} imports {name}" for name in inner]
    assert wrong == []


def is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


@pytest.mark.parametrize("module", ROOMS)
def test_a_file_says_on_which_floor_it_is(module: str) -> None:
    told = (ast.get_docstring(tree(module)) or "").partition(":")[0]
    assert told == floor_of(module), f"{module}: its docstring begins with {floor_of(module)}:"


def test_specialists_say_that_they_are_built_in() -> None:
    assert [m for m in modules("specialists") if not (ast.get_docstring(tree(m)) or "").startswith("Built in: ")] == []


def test_the_public_names_are_these() -> None:
    assert brain.__all__ == PUBLIC
    assert [name for name in PUBLIC if not hasattr(brain, name)] == []


def test_nothing_of_ours_is_mocked() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    users = [file.name for file in files if any(n.startswith("unittest") for n in imports(ast.parse(file.read_text())))]
    assert users == []


def tracked() -> list[Path]:
    """The files that git knows; all of them where there is no git."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [path for path in ROOT.rglob("*") if path.is_file() and ".git" not in path.parts]
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_machine_or_a_registry() -> None:
    machine = r"(?<![\w.>])/(root|home|Users|work|opt|mnt)/[\w.-]+"
    registry = r"\b(pypi\.org/simple|pythonhosted|registry\.npm|index[-_]url|find-links)\b"
    forbidden = re.compile(f"{machine}|{registry}")
    wrong = []
    for path in tracked():
        try:
            lines = path.read_text("utf-8").splitlines() if path != Path(__file__) else []
        except UnicodeDecodeError:
            continue
        wrong += [f"{path.relative_to(ROOT)}:{n}: {line}" for n, line in enumerate(lines, 1) if forbidden.search(line)]
    assert wrong == []
