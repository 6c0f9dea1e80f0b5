"""The modules that use each stored format, from the imports of the code."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

FORMATS = "kafscale.formats"


def format_users(root: Path, packages: Iterable[str]) -> dict[str, list[str]]:
    """Module of a format -> the other modules that import it, as paths below `root`, sorted."""
    users: dict[str, set[str]] = defaultdict(set)
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            name, source = path.relative_to(root).as_posix(), path.read_text()
            if FORMATS not in source:  # most modules: their syntax need not be looked at
                continue
            for module in _imported(ast.parse(source)):
                if module.startswith(f"{FORMATS}."):
                    users[module.removeprefix(f"{FORMATS}.").partition(".")[0]].add(name)
    return {module: sorted(users[module]) for module in sorted(users)}


def _imported(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == FORMATS:
                yield from (f"{FORMATS}.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
