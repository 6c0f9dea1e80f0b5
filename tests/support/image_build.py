"""Builds a Dockerfile without a container engine, and runs the result: layers are overlays over a small Debian.

A stage's root has that Debian (`tests.support.debian_base`) below it and this machine's Python in /usr/local, where
the images that ours are based on have theirs. Mounts belong to a namespace of each process's own, and end with it.
Needs root and a kernel with overlays.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.debian_base import BASE, SUITE, debian_base_missing
from tests.support.dockerfile import Instruction, Stage, context_files, expand, parse

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = "3.11"
STEP_SECONDS = 1800.0
# The machine's access to package registries is not the image's.
_MACHINE = (
    "PIP_",
    "SSL_CERT_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
# What engines add to every container.
_NETWORK = ("/etc/hosts", "/etc/resolv.conf")
# Maven's settings, and its earlier downloads.
_MAVEN = {"/root/.m2": Path.home() / ".m2"}


@dataclass(slots=True)
class Image:
    """The root of a stage, and how its processes are started."""

    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    working_folder: str = "/"
    user: str = "0:0"
    volumes: list[str] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)

    @property
    def laid(self) -> Path:
        """The build's layer over the base."""
        return self.folder / "upper"

    def where(self, path: str) -> Path:
        """The path of a file of the image here, if the build put it there."""
        return self.laid.joinpath(*Path(path).parts[1:])

    def command(
        self, command: Sequence[str], *, writable: bool, mounts: Mapping[str, Path] | None = None
    ) -> list[str]:
        """A command in the image as its user; the file system is `writable` only if that is set."""
        return ["unshare", "--mount", "sh", "-euc", self._script(command, writable, mounts or {})]

    def _script(self, command: Sequence[str], writable: bool, mounts: Mapping[str, Path]) -> str:
        root = shlex.quote(str(self.folder / "root"))
        layers = f"lowerdir={BASE},upperdir={self.laid},workdir={self.folder / 'work'}"
        # An engine creates mount points that the image does not have.
        made = [f"{root}{path}" for path in mounts]
        lines = [
            f"mount -t overlay overlay -o {shlex.quote(layers)} {root}",
            *(f"mkdir -p {path}" for path in made),
            f"mount --bind {shlex.quote(sys.base_prefix)} {root}/usr/local",
            f"mount -o remount,bind,ro {root}/usr/local",
            *(f"mount --bind {path} {root}{path}" for path in _NETWORK),
            *(f"mount --rbind /{name} {root}/{name}" for name in ("proc", "dev")),
        ]
        if not writable:
            lines += [f"mount -o remount,ro {root}", f"mount -t tmpfs tmpfs {root}/tmp"]
            lines += [f"mkdir -p {path}" for path in made]
        lines += [f"mount --bind {shlex.quote(str(source))} {root}{path}" for path, source in mounts.items()]
        user, _, group = self.user.partition(":")
        inside = ["setpriv", f"--reuid={user}", f"--regid={group or user}", "--clear-groups"]
        if user != "0":
            inside += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        inside += ["env", f"--chdir={self.working_folder}", *command]
        lines.append(f"exec chroot {root} {shlex.join(inside)}")
        return "\n".join(lines)

    def run(
        self,
        *command: str,
        writable: bool = False,
        mounts: Mapping[str, Path] | None = None,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end. The file system is read-only but for /tmp, which is empty, unless it is `writable`."""
        return subprocess.run(
            self.command(command, writable=writable, mounts=mounts),
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )

    def files(self) -> Iterator[Path]:
        """Every file and link that the build put into it, at its path here."""
        for folder, _, names in os.walk(self.laid):
            found = (Path(folder) / name for name in names)
            # An overlay has a device in place of a removed file of the base.
            yield from (path for path in found if not path.is_char_device())


def why_not() -> str | None:
    """The reason why no image can be built here; None if it can."""
    if os.geteuid() != 0:
        return "building the image's steps needs root (chroot and mounts)"
    missing = [tool for tool in ("unshare", "setpriv", "chroot", "mount") if shutil.which(tool) is None]
    if missing:
        return f"building the image's steps needs {', '.join(missing)}"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "building the image's steps needs a kernel with overlay file systems"
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here != PYTHON:
        return f"the images have Python {PYTHON}, and the one here, which is laid into them, is {here}"
    return debian_base_missing()


def build(dockerfile: Path, context: Path, folder: Path) -> dict[str, Image]:
    """Run every step; the images by stage, the last as "". Raises AssertionError with a step's output."""
    images: dict[str, Image] = {}
    stages = parse(dockerfile.read_text())
    for number, stage in enumerate(stages):
        image = _base(folder / f"stage-{number}", stage)
        for instruction in stage.instructions:
            _carry_out(instruction, image, images, context)
        images[stage.name or str(number)] = image
        if stage is stages[-1]:
            images[""] = image
    return images


def _base(folder: Path, stage: Stage) -> Image:
    """The base of our images: a small Debian with Python in /usr/local."""
    tag, _, _ = stage.base.partition("@")
    assert tag.endswith(f"library/python:{PYTHON}-slim-{SUITE}"), f"{stage.base} is not known here"
    image = Image(folder)
    for name in ("root", "upper", "work"):
        (folder / name).mkdir(parents=True)
    image.laid.chmod(0o755)
    told = image.run("sh", "-c", f"ldconfig && python{PYTHON} --version", writable=True)
    assert told.returncode == 0, told.stderr
    return image


def _carry_out(step: Instruction, image: Image, images: Mapping[str, Image], context: Path) -> None:
    variables = image.arguments | image.environment
    match step.name:
        case "RUN":
            _run(step, image)
        case "COPY":
            _copy(step, image, images, context)
        case "ENV":
            image.environment |= {name: expand(value, variables) for name, value in step.pairs().items()}
        case "ARG":
            image.arguments |= step.pairs()
        case "WORKDIR":
            image.working_folder = os.path.join(image.working_folder, expand(step.text, variables))
            image.where(image.working_folder).mkdir(parents=True, exist_ok=True)
        case "USER":
            image.user = step.text
        case "VOLUME":
            image.volumes += step.words()
        case "CMD" | "ENTRYPOINT" | "EXPOSE" | "HEALTHCHECK" | "LABEL":
            pass  # these configure a container's start: the tests read them
        case other:
            raise AssertionError(f"line {step.line}: {other} is not known here")


def _run(step: Instruction, image: Image) -> None:
    machine = {name: value for name, value in os.environ.items() if name.startswith(_MACHINE)}
    mounts = {path: folder for path, folder in _MAVEN.items() if "mvn" in step.text and folder.is_dir()}
    ended = image.run("sh", "-c", step.text, writable=True, mounts=mounts, **machine, **image.arguments)
    assert ended.returncode == 0, (
        f"line {step.line}: {ended.returncode}\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}"
    )


def _copy(step: Instruction, image: Image, images: Mapping[str, Image], context: Path) -> None:
    *sources, target = (expand(word, image.arguments | image.environment) for word in step.words())
    to = image.where(os.path.join(image.working_folder, target))
    into_folder = target.endswith("/") or len(sources) > 1
    for source in sources:
        if "from" in step.flags:
            origin = images[step.flags["from"]].where(source)
            assert origin.exists(), f"line {step.line}: {source} is not in {step.flags['from']}"
            _lay(origin, to / origin.name if into_folder and origin.is_file() else to)
        else:
            _copy_from_context(step, context, source, to, into_folder)


def _copy_from_context(step: Instruction, context: Path, source: str, to: Path, into_folder: bool) -> None:
    """A folder's content goes into the target; what `.dockerignore` leaves out does not exist."""
    wanted = Path(source)
    files = [path for path in context_files(context) if path == wanted or wanted in path.parents]
    assert files, f"line {step.line}: {source} is not in the build's context"
    for path in files:
        if path == wanted:
            _lay(context / path, to / path.name if into_folder else to)
        else:
            _lay(context / path, to / path.relative_to(wanted))


def _lay(origin: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if origin.is_dir():
        shutil.copytree(origin, to, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(origin, to, follow_symlinks=False)


@contextmanager
def built(dockerfile: Path, context: Path, folder: Path) -> Iterator[dict[str, Image]]:
    """The images for the block; they take some hundred megabytes until then."""
    try:
        yield build(dockerfile, context, folder)
    finally:
        shutil.rmtree(folder)
