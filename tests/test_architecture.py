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

LAYERS = (
    "dates",
    "recurrence",
    "errors events text words concurrency installation",
    "messages validation strict_json",
    "task",
    "settings markers store",
    "net turn_request",
    "plugins",
    "assist",
    "models protocols",
    "prompts telemetry",
    "turn memory tasks",
    "strategies",
    "runtime",
    "server library",
    "cli",
)
"""From the bottom up. A module imports only from its own folder and from lower layers."""

LAYER_OF = {folder: number for number, folders in enumerate(LAYERS) for folder in folders.split()}

OWNERS = {
    "starlette": {
        "brain.server.app",
        "brain.server.event_stream",
        "brain.server.forwarding",
        "brain.server.middleware",
        "brain.server.responses",
        "brain.server.routes",
    },
    "sse_starlette": {"brain.server.event_stream"},
    "uvicorn": {"brain.server.uvicorn_protocol", "brain.cli.serve"},
    "httpx": {
        "brain.net.fetch",
        "brain.net.client",
        "brain.net.transport",
        "brain.models.ollama",
        "brain.models.failures",
        "brain.models.reply",
    },
    "ollama": {"brain.models.ollama"},
    "psycopg": {"brain.store.postgresql.database"},
    "jsonschema": {"brain.plugins.schema", "brain.plugins.specialist"},
    "prometheus_client": {"brain.telemetry.metrics"},
    "opentelemetry": {"brain.telemetry.tracing"},
    "markdown_it": {
        "brain.cli.terminal.formulas",
        "brain.cli.terminal.markdown",
        "specialists._kit.passages",
    },
    "prompt_toolkit": {"brain.cli.terminal.prompt"},
    "shtab": {"brain.cli.commands.specialists"},
    "rich": {
        "brain.cli.terminal.approval",
        "brain.cli.terminal.live",
        "brain.cli.terminal.markdown",
        "brain.cli.terminal.streamed_markdown",
    },
}
"""Packages that only these modules, and the routes together, may import, so that each is a change of few files."""

PUBLIC = [
    "AssistContext",
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
    "dates",
    "install_command",
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


def folder_of(module: str) -> str:
    """The folder, or the file, of `brain` that a module is in."""
    return module.split(".")[1]


@cache
def imported(module: str) -> frozenset[str]:
    return frozenset(imports(tree(module)))


def ours(module: str) -> list[str]:
    return [name for name in imported(module) if name.split(".")[0] in ("brain", "specialists")]


INDEX_COMMAND = ("brain.cli.commands.index", "specialists.knowledge")
"""`brain index` belongs to one specialist, and does without a turn what only that one can do."""

MODULES = [module for module in modules("brain") if module not in ("brain", "brain.__main__")]


def test_a_module_imports_only_from_its_folder_and_lower_layers() -> None:
    wrong = []
    for module in MODULES:
        folder = folder_of(module)
        for name in ours(module):
            if (module, name) == INDEX_COMMAND:
                continue
            if name == "brain" or name.startswith("specialists"):
                wrong.append(f"{module} imports {name}")
            elif folder_of(name) != folder and LAYER_OF[folder_of(name)] >= LAYER_OF[folder]:
                wrong.append(f"{module} imports {name}, which is not below it")
    assert wrong == []


def test_every_folder_has_a_layer() -> None:
    assert sorted(LAYER_OF) == sorted({folder_of(module) for module in MODULES})


def test_the_heavy_public_names_are_loaded_only_when_asked_for() -> None:
    at_import = {name for node in tree("brain").body if is_import(node) for name in imports(node)}
    assert not {"brain.server.app", "brain.library.thinker"} & at_import


def test_there_is_no_cycle() -> None:
    graph = {module: {name for name in ours(module) if name != module} for module in MODULES}
    walked: set[str] = set()

    def walk(module: str, path: list[str]) -> None:
        assert module not in path, f"a cycle: {' → '.join([*path[path.index(module) :], module])}"
        if module not in walked:
            for name in sorted(graph.get(module, ())):
                walk(name, [*path, module])
            walked.add(module)

    for module in MODULES:
        walk(module, [])


@pytest.mark.parametrize("package", OWNERS)
def test_a_package_is_imported_only_where_it_belongs(package: str) -> None:
    everybody = (*modules("brain"), *modules("specialists"))
    users = {module for module in everybody if any(name.split(".")[0] == package for name in imported(module))}
    assert {re.sub(r"^brain\.server\.routes\..*", "brain.server.routes", user) for user in users} == OWNERS[package]


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


def test_a_module_says_what_it_is() -> None:
    everybody = [*MODULES, *modules("specialists")]
    assert [module for module in everybody if not ast.get_docstring(tree(module))] == []


def test_the_public_names_are_these() -> None:
    assert brain.__all__ == PUBLIC
    assert [name for name in PUBLIC if not hasattr(brain, name)] == []


def test_nothing_of_ours_is_mocked() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    users = [file.name for file in files if re.search(r"^\s*(import|from) unittest", file.read_text("utf-8"), re.M)]
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
