"""A parser for Dockerfiles: stages and their instructions. Knows those that ours use, and refuses others."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

_OF_BUILDS = frozenset({"ARG", "COPY", "ENV", "LABEL", "RUN", "USER", "VOLUME", "WORKDIR"})
_OF_CONTAINERS = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK"})
KNOWN = _OF_BUILDS | _OF_CONTAINERS
_FLAG = re.compile(r"--([a-z-]+)=(\S+)\s+")
_PAIR = re.compile(r'([\w.-]+)=("[^"]*"|\S*)')
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One, with its flags apart. `text` is on one line, but for what stands between quotes in a RUN."""

    line: int
    name: str
    text: str
    flags: Mapping[str, str]

    def words(self) -> list[str]:
        """The arguments of an exec form (a JSON list), or those between blanks."""
        if self.text.startswith("["):
            words: list[str] = json.loads(self.text)
            return words
        return self.text.split()

    def pairs(self) -> dict[str, str]:
        """Of ENV, LABEL and ARG."""
        return {name: value.strip('"') for name, value in _PAIR.findall(self.text)}


@dataclass(slots=True)
class Stage:
    """From one FROM to the next."""

    base: str
    name: str | None
    instructions: list[Instruction] = field(default_factory=list)

    def last(self, name: str) -> Instruction:
        """The instruction that is in effect: the last one."""
        return [one for one in self.instructions if one.name == name][-1]

    def all(self, name: str) -> list[Instruction]:
        return [one for one in self.instructions if one.name == name]


def parse(text: str) -> list[Stage]:
    """The stages. Raises AssertionError with the line of an unknown instruction."""
    stages: list[Stage] = []
    for one in _instructions(text):
        if one.name == "FROM":
            base, *alias = one.text.split()
            assert not alias or (alias[0].upper(), len(alias)) == ("AS", 2), f"line {one.line}: {one.text}"
            stages.append(Stage(base, alias[1] if alias else None))
        else:
            assert one.name in KNOWN and stages, f"line {one.line}: {one.name} is not known here"
            stages[-1].instructions.append(one)
    return stages


def expand(text: str, variables: Mapping[str, str]) -> str:
    """With variables replaced, as in ENV, COPY and WORKDIR."""
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), text)


def _instructions(text: str) -> Iterator[Instruction]:
    parts: list[str] = []
    began = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#") or (not parts and not line.strip()):
            continue
        began = began if parts else number
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield _instruction(began, "".join(parts))
            parts = []
    assert not parts, f"line {began}: it goes on after the end"


def _instruction(line: int, text: str) -> Instruction:
    name, _, rest = text.strip().partition(" ")
    rest, flags = rest.strip(), {}
    while name.upper() in ("COPY", "HEALTHCHECK") and (found := _FLAG.match(rest)):
        flags[found[1]] = found[2]
        rest = rest[found.end() :]
    return Instruction(line, name.upper(), rest, flags)


def context_files(folder: Path) -> list[Path]:
    """The context of a build in that folder: relative paths of files that `.dockerignore` includes."""
    patterns = [line.strip() for line in (folder / ".dockerignore").read_text().splitlines()]
    rules = [line for line in patterns if line and not line.startswith("#")]
    # An excluded folder is searched if a rule includes a part of it again.
    parts = {Path(rule.removeprefix("!")).parts[0] for rule in rules if rule.startswith("!")}
    tops = [top for top in sorted(folder.iterdir()) if _is_in(Path(top.name), rules) or top.name in parts]
    found: list[Path] = []
    for top in tops:
        files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
        found += [path.relative_to(folder) for path in files]
    return [path for path in found if _is_in(path, rules)]


def _is_in(path: Path, rules: list[str]) -> bool:
    """The last rule that matches the path, or a folder above it, decides."""
    lines = [path, *path.parents][:-1]
    is_in = True
    for rule in rules:
        pattern = rule.removeprefix("!").removesuffix("/")
        if any(_matches(line, pattern) for line in lines):
            is_in = rule.startswith("!")
    return is_in


def _matches(path: Path, pattern: str) -> bool:
    """`**/` stands for any folders, `*` for anything but a slash."""
    if pattern.startswith("**/"):
        return fnmatchcase(path.name, pattern.removeprefix("**/"))
    parts = pattern.split("/")
    return len(parts) == len(path.parts) and all(map(fnmatchcase, path.parts, parts))
