"""The Dockerfile without a container engine: its steps are carried out in a clean Debian, one overlay a stage.

The official images that it begins with cannot be had here. A Debian of the same release stands for them, with a Python
where they have theirs; of a ``COPY --from`` of such an image nothing comes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

STANDS_FOR = {
    "python:3.11-slim-bookworm": "python3 -m venv /usr/local",
    "apache/airflow:3.3.2-python3.11": (
        "useradd --create-home --uid 50000 --gid 0 airflow && python3 -m venv ~airflow/.local"
    ),
}
"""What a clean Debian lacks of the official images."""

PATHS = {"apache/airflow:3.3.2-python3.11": "/home/airflow/.local/bin:"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# How this machine reaches the indexes that pip, uv and apt ask.
MACHINE = re.compile(r"PIP_.*|UV_.*|SSL_.*|.*_proxy|.*_PROXY")


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments of each line of the Dockerfile, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line]  # type: ignore[misc]


def ignored(directory: str, names: list[str]) -> set[str]:
    """Names in a directory of the checkout that the build does not see (``.dockerignore``)."""
    patterns = [line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().splitlines()]
    return {name for name in names if any(fnmatch(name, pattern) for pattern in patterns)}


def caches() -> Path:
    """The directory of uv's cache on this machine: what a cache mount of the Dockerfile holds."""
    uv = Path(sys.executable).with_name("uv")
    return Path(subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip())


@dataclass
class Stage:
    """A stage of the Dockerfile: layers of files, the lowest first, and how its commands run."""

    place: Path
    layers: list[Path]
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    directory: str = "/"
    user: str = "0"
    entry_point: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("files", "work", "root"):
            (self.place / name).mkdir(parents=True)

    @property
    def files(self) -> Path:
        """What this stage adds."""
        return self.place / "files"

    def _mounted(self, source: Path | Stage, at: str) -> list[str]:
        """Commands of a shell that show a place of this machine, or another stage, at a place of this one."""
        if isinstance(source, Stage):
            lower = ":".join(map(str, [source.files, *reversed(source.layers)]))
            return [f"mkdir -p {at}", f"mount -t overlay overlay -o lowerdir={lower} {at}"]
        return [f"mkdir -p {at}" if source.is_dir() else f"touch {at}", f"mount --bind {source} {at}"]

    def run(
        self, command: str, *, mounts: Mapping[str, Path | Stage] | None = None, sealed: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """A shell command in this stage; ``sealed``: as its user, without capabilities, only /tmp can be written."""
        root = self.place / "root"
        lower = ":".join(map(str, reversed(self.layers)))
        options = f"lowerdir={lower},upperdir={self.files},workdir={self.place / 'work'}"
        setup = ["set -e", f"mount -t overlay overlay -o {options} {root}"]
        setup += [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        network = {name: Path(name) for name in ("/etc/resolv.conf", "/etc/hosts")}
        for target, source in {**network, **(mounts or {})}.items():
            setup += self._mounted(source, f"{root}{target}")
        words = ["sh", "-c", f"cd {self.directory} && {command}"]
        if sealed:
            setup += [f"mount -t tmpfs tmpfs {root}/tmp", f"mount -o remount,ro {root}"]
            drop = ["--reuid", self.user, "--regid", "0", "--clear-groups", "--no-new-privs"]
            words = ["setpriv", *drop, "--inh-caps=-all", "--bounding-set=-all", *words]
        given = {name: value for name, value in os.environ.items() if MACHINE.fullmatch(name)}
        words = ["env", "-i", *(f"{name}={value}" for name, value in (given | self.environment).items()), *words]
        setup.append(f"exec chroot {root} {shlex.join(words)}")
        command_line = ["unshare", "--mount", "sh", "-c", "\n".join(setup)]
        return subprocess.run(command_line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


class Images:
    """All stages of the Dockerfile, by name."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.stages: dict[str, Stage] = {}
        self.from_elsewhere: list[str] = []
        """Files that an official image would have given."""
        self.debian = place / "debian"
        packages = "ca-certificates,python3,python3-venv"
        command = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={packages}", "bookworm", str(self.debian)]
        subprocess.run(command, check=True, capture_output=True)
        # Packages are fetched once for all stages.
        self.archives = place / "archives"
        self.archives.mkdir()
        certificates = Path("/etc/ssl/certs/ca-certificates.crt")
        shutil.copy(certificates, self.debian / certificates.relative_to("/"))
        for instruction, arguments in instructions():
            self._carry_out(instruction, arguments)

    def _carry_out(self, instruction: str, arguments: str) -> None:
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            self.stages[name] = self.current = self._begin(base, name)
        elif instruction == "RUN":
            self._run(arguments)
        elif instruction == "COPY":
            self._copy(arguments)
        elif instruction == "ENV":
            for name, value in re.findall(r"(\w+)=(\S+)", arguments):
                self.current.environment[name] = value.replace("$PATH", self.current.environment["PATH"])
        elif instruction == "WORKDIR":
            self._checked(f"mkdir -p {arguments}")
            self.current.directory = arguments
        elif instruction == "USER":
            self.current.user = arguments
        elif instruction == "ENTRYPOINT":
            self.current.entry_point = json.loads(arguments)

    def _begin(self, base: str, name: str) -> Stage:
        place = self.place / name
        if base in self.stages:
            below = self.stages[base]
            return Stage(place, [*below.layers, below.files], dict(below.environment), below.directory)
        stage = Stage(place, [self.debian], {"PATH": PATHS.get(base, "") + PATH})
        done = stage.run(STANDS_FOR[base])
        assert done.returncode == 0, done.stderr
        return stage

    def _run(self, arguments: str) -> None:
        mounts: dict[str, Path | Stage] = {"/var/cache/apt/archives": self.archives}
        while match := re.match(r"--mount=(\S+)\s+", arguments):
            arguments = arguments[match.end() :]
            about = dict(word.split("=") for word in match[1].split(","))
            mounts[about["target"]] = self._source(about)
        self._checked(arguments, mounts)

    def _source(self, about: dict[str, str]) -> Path | Stage:
        """What a mount shows: the cache of this machine, a stage, or a part of the checkout."""
        if about["type"] == "cache":
            return caches()
        return self.stages[about["from"]] if "from" in about else ROOT / about["source"]

    def _copy(self, arguments: str) -> None:
        words = arguments.split()
        *sources, target = [word for word in words if not word.startswith("--")]
        origin = next((word.removeprefix("--from=") for word in words if word.startswith("--from=")), None)
        if origin is not None and origin not in self.stages:
            self.from_elsewhere += sources
            return
        top = ROOT if origin is None else self.stages[origin].files
        for source in sources:
            inside = Path(self.current.directory, target, *([Path(source).name] if target.endswith("/") else []))
            destination = self.current.files / inside.relative_to("/")
            destination.parent.mkdir(parents=True, exist_ok=True)
            path = top / source.lstrip("/")
            if path.is_dir():
                shutil.copytree(path, destination, symlinks=True, ignore=ignored if origin is None else None)
            else:
                shutil.copy2(path, destination)

    def _checked(self, command: str, mounts: Mapping[str, Path | Stage] | None = None) -> None:
        done = self.current.run(command, mounts=mounts)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
