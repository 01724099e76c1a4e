"""Two malicious users: a neighbour on the nodes' ports, and an author of profile files."""

from __future__ import annotations

import json
import os
import pwd
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path

MARK = "soak-session=4b1d"
"""A cookie that users send; only their own server may receive it."""
SECRET = "only-the-hub-may-read-this-9c2e"  # noqa: S105
"""The content of the file to which a profile's link points."""
SPARE = 6
ANSWERS_WITHIN = 15.0
"""Time limit of a request to the hub, in seconds."""
NEIGHBOUR = Path(__file__).with_name("neighbour.py")


class Neighbour:
    """A process of another account (if the soak runs as root) that listens on all but a few ports of a range."""

    def __init__(self, ports: tuple[int, int], count: Counter[str], wrong: list[str]) -> None:
        self.ports, self.count, self.wrong = ports, count, wrong
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Occupy the ports."""
        python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
        account: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._process = subprocess.Popen(
            [python, "-c", NEIGHBOUR.read_text(), *map(str, self.ports), str(SPARE), MARK],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd="/",
            **account,
        )

    def end(self) -> None:
        """Release the ports, and count the requests."""
        assert self._process is not None
        self._process.terminate()
        said, _ = self._process.communicate(timeout=30)
        found = json.loads(said or '{"held": 0, "taken": 0, "asked": 0, "marked": 0}')
        for name, number in found.items():
            self.count[f"neighbour: {NAMES[name]}"] += number
        if found["held"] == 0:
            self.wrong.append("The neighbour held no port: the fault was none.")
        if found["marked"]:
            self.wrong.append(f"The neighbour got the cookies of {found['marked']} requests.")


NAMES = {"held": "ports held", "taken": "ports taken later", "asked": "requests it got", "marked": "cookies it got"}


def _profile(extra: str) -> str:
    return f"- display_name: Of the author\n  slug: author\n  slurm: {{partition: batch, cpus: 1}}\n{extra}"


def _text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


REGEX = _profile(
    "  profile_options:\n    a: {unlisted_choice: {validation_regex: '([A-Za-z0-9]+_?)+', sets: slurm.account}}\n"
)
FILES: dict[str, Callable[[Path], object]] = {
    "a link to a secret": lambda path: path.symlink_to(path.parent.parent / "secret"),
    "a FIFO": os.mkfifo,
    "300 kB of [": _text("[" * 300_000),
    "64 MB": lambda path: path.write_bytes(b"- " + b"x" * (64 << 20)),
    "until: 9999-12-31": _text(_profile("  allow: {until: 9999-12-31}\n")),
    "max: 1e30": _text(
        _profile("  profile_options:\n    a: {range: {min: 1, max: 1e30, default: 1, sets: slurm.cpus}}\n")
    ),
    "a catastrophic expression": _text(REGEX),
    "a looping link": lambda path: path.symlink_to(path),
}
"""What the author writes, by name: a function that creates the file."""


class Author:
    """Writes files into the hub's ``profiles_dir``, checks that the hub still answers, and removes them again."""

    def __init__(self, hub: HubProcess, count: Counter[str], wrong: list[str], dice: random.Random) -> None:
        self.hub, self.count, self.wrong, self.dice = hub, count, wrong, dice
        secret = hub.folder / "secret"
        secret.write_text(f"{SECRET}\n")
        secret.chmod(0o600)
        self._written: list[Path] = []
        self._kinds: list[str] = []

    def begin(self) -> None:
        """Write three kinds of files, and use the hub as users do."""
        self._kinds = self.dice.sample(sorted(FILES), 3)
        for kind in self._kinds:
            path = self.hub.folder / "profiles" / f"zz-{len(self._written)}.yaml"
            FILES[kind](path)
            self._written.append(path)
            self.count[f"author: {kind}"] += 1
        time.sleep(1.0)  # the hub reads the folder again
        self._ask("the profiles", "GET", "/gpuspawner/profiles/soak00")
        choice = {"profile": "author", "a": "a" * 30 + "!"}
        self._ask("a start", "POST", server_path("soak00"), choice)

    def _ask(self, what: str, method: str, path: str, body: Any = None) -> None:
        try:
            answer = requests.request(
                method,
                f"{self.hub.url}/hub/api{path}",
                json=body,
                headers={"Authorization": f"token {self.hub.token}"},
                timeout=ANSWERS_WITHIN,
            )
        except requests.RequestException:
            self.count[f"author: {what} not answered"] += 1
            self.wrong.append(f"The hub did not answer {what} within {ANSWERS_WITHIN:g} s of {', '.join(self._kinds)}.")
            return
        self.count[f"author: {what} answered"] += 1
        if answer.status_code >= 500 and answer.status_code != 503:  # 503: Slurm does not answer yet
            self.wrong.append(f"The hub answered {what} with {answer.status_code} because of {', '.join(self._kinds)}.")
        if SECRET in answer.text:
            self.wrong.append(f"The hub's answer to {what} holds the secret.")

    def end(self) -> None:
        """Remove the files; a hub that has ended or hangs is restarted, and this is reported."""
        for path in self._written:
            path.unlink(missing_ok=True)
        self._written.clear()
        process = self.hub.process
        ended = process is None or process.poll() is not None
        if ended or not self._answers():
            self.count["author: hubs started anew by the soak"] += 1
            self.wrong.append(f"The hub {'ended' if ended else 'hung'} because of {', '.join(self._kinds)}.")
            self.hub.restart()

    def _answers(self) -> bool:
        ends_at = time.monotonic() + ANSWERS_WITHIN
        while time.monotonic() < ends_at:
            if self.hub.answers():
                return True
            time.sleep(0.3)
        return False

    def told(self) -> list[str]:
        """An error if the secret is in the hub's log."""
        return ["The hub's log holds the secret."] if SECRET in self.hub.log.read_text(errors="replace") else []


def free_range(dice: random.Random, size: int = 150) -> tuple[int, int]:
    """Some ports for the servers of a soak, below the range for outgoing connections."""
    first = dice.randrange(20000, 32000 - size)
    return first, first + size - 1


def removed(folder: Path) -> None:
    """Empty a folder."""
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
