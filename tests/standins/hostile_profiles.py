"""Files that a hostile or careless author could put into the folder of profiles."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

SECRET = "s3cr3t-of-the-hub-0123456789abcdef"
SECRETS = {
    "text": f"{SECRET}\n",
    "a table": f"password: {SECRET}\n{SECRET}: password\n",
    "a profile's table": f"display_name: x\nslurm: {{{SECRET}: 1}}\n",
    "a value of a field": f"display_name: x\nslurm: {{memory: {SECRET}, gpus: {SECRET}, time: {SECRET}}}\n",
    "values of all kinds of fields": (
        f"display_name: x\nkind: {SECRET}\ndefault: {SECRET}\nallow: {{until: {SECRET}, from: {SECRET}}}\n"
        f"port_range: {SECRET}\nslurm: {SECRET}\nplacement: {{policy: {SECRET}}}\n"
    ),
    "a key": f"-----BEGIN KEY-----\n{SECRET}: '\n-----END KEY-----\n",
    "a quoted text": f'"{SECRET}\n',
    "a tag": f"display_name: !{SECRET} x\n",
    "an anchor": f"display_name: *{SECRET}\n",
    "a number that is none": f"display_name: !!int {SECRET}\n",
    "a list": f"[{SECRET}, {SECRET}]\n",
    "a tuple": f"[[{SECRET}, {SECRET}, {SECRET}, {{slurm: 1, {SECRET}: 2}}]]\n",
    "a command's quote": f'display_name: x\ncommand: "x \'{SECRET}"\n',
    "an expression": (
        "display_name: x\nprofile_options: {a: {unlisted_choice: "
        f"{{validation_regex: '({SECRET}', sets: slurm.account}}}}}}\n"
    ),
    "a reservation": f"display_name: x\nslurm: {{reservation: '%{SECRET}'}}\n",
    "a day": f"display_name: x\nslurm: {{reservation: {{{SECRET}: x}}}}\n",
    "a variable": f"display_name: x\nenvironment: {{variables: {{'{SECRET}': x}}}}\n",
    "a variable of the hub's": f"display_name: x\nenvironment: {{variables: {{JUPYTERHUB_{SECRET}: x}}}}\n",
    "an option": (
        f"display_name: x\nprofile_options: {{'{SECRET}--': {{range: {{min: 1, max: 2, sets: slurm.cpus}}}}}}\n"
    ),
    "a unit": (
        f"display_name: x\nprofile_options: {{a: {{range: {{min: 1, max: 2, sets: slurm.memory, unit: {SECRET}}}}}}}\n"
    ),
}
"""Files whose content is secret; none of them is a valid profile."""

BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
)
DEEP_ALIASES = (
    "- &a0 ["
    + "[" * 40
    + "]" * 41
    + "\n"
    + "".join(f"- &a{n + 1} " + "[" * 40 + f"*a{n}" + "]" * 40 + "\n" for n in range(60))
)
"""Nested aliases: more than two thousand levels in sixty short lines."""


def _option(document: str) -> str:
    return f"display_name: Odd\nslug: odd\nprofile_options:\n  a: {document}\n"


TEXTS: dict[str, str | bytes] = {
    "brackets": "[" * 300_000,
    "braces": "{a: " * 100_000,
    "nested keys": "? " * 300_000,
    "nested lists": "- " * 300_000,
    "aliases of aliases": BOMB,
    "aliases deep in aliases": DEEP_ALIASES,
    "an alias of itself": "a: &a [*a]\n",
    "directives": "".join(f"%TAG !a{n}! b\n" for n in range(60_000)) + "---\ndisplay_name: x\n",
    "many profiles": "".join(f"- display_name: P{n}\n" for n in range(3000)),
    "many values": "[" + "1," * 200_000 + "]",
    "a megabyte too much": b"#" * (1024 * 1024 + 1),
    "no UTF-8": b"display_name: \xff\xfe\n",
    "a NUL": "display_name: \0\n",
    "two documents": "display_name: x\n---\ndisplay_name: y\n",
    "a number of 5,000 digits": _option("{range: {min: 1, max: " + "9" * 5000 + ", sets: slurm.cpus}}"),
    "a huge maximum": _option("{range: {min: 1, max: 1e30, sets: slurm.memory}}"),
    "a tiny step": _option("{range: {min: 1, max: 4, step: 1e-300, sets: slurm.cpus}}"),
    "an endless maximum": _option("{range: {min: 1, max: 1e999, sets: slurm.cpus}}"),
    "infinity": _option("{range: {min: 1, max: .inf, sets: slurm.cpus}}"),
    "no number": _option("{range: {min: .nan, max: 4, sets: slurm.cpus}}"),
    "a number as a date": "display_name: x\nallow: {until: 99999999999999}\n",
    "look-around": _option('{unlisted_choice: {validation_regex: "(?=a)*b", sets: slurm.account}}'),
    "an expression of a megabyte": _option(
        f"{{unlisted_choice: {{validation_regex: '{'(a' * 200_000}', sets: slurm.qos}}}}"
    ),
    "a program of an expression": _option(
        '{unlisted_choice: {validation_regex: "(a{1,900}){1,900}", sets: slurm.qos}}'
    ),
    "a long pattern of a reservation": f"display_name: x\nslurm: {{reservation: {'%A' * 100_000}}}\n",
    "65 options": "display_name: x\nprofile_options:\n"
    + "".join(f"  o{n}: {{range: {{min: 1, max: 2, sets: slurm.cpus}}}}\n" for n in range(65)),
}
"""Content that is refused."""

HARMLESS: dict[str, str] = {
    "the last day that there is": "allow: {until: 9999-12-31}",
    "the last moment that there is": 'allow: {until: "9999-12-31 23:59"}',
    "the last moment, in the west": 'allow: {until: "9999-12-31T23:59:59-12:00"}',
    "the first day that there was": "allow: {from: 0001-01-01, until: 9999-12-31}",
    "the first moment, in the east": 'allow: {from: "0001-01-01T00:00:00+14:00"}',
    "a reservation of the last day": "slurm: {reservation: {9999-12-31: x, default: y}}",
    "an expression that goes back": (
        'profile_options: {a: {unlisted_choice: {validation_regex: "([A-Za-z0-9]+_?)+", sets: slurm.account}}}'
    ),
    "a range of a million millions": "profile_options: {a: {range: {min: 1, max: 999999999999, sets: slurm.memory}}}",
}
"""Fields of a valid profile."""


@dataclass(frozen=True)
class Link:
    """A symbolic link to the secret, or to ``target``, which may be next to it."""

    target: str = ""

    def __call__(self, path: Path, secret: Path) -> None:
        """Create the entry."""
        path.symlink_to(self.target or secret)


def _pipe(path: Path, _secret: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, _secret: Path) -> None:
    path.mkdir()


def _socket(path: Path, _secret: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{here}/{path.name}")  # a path of a socket is at most 107 bytes long
    finally:
        os.close(here)


def _lines_in_its_name(path: Path, _secret: Path) -> None:
    path.with_name("odd\n[E 2026] \x1b[31mb.yaml").write_text("x")


def _no_text_in_its_name(path: Path, _secret: Path) -> None:
    os.close(os.open(os.fsencode(path.parent) + b"/odd\xff\xfe.yaml", os.O_CREAT | os.O_WRONLY))


ENTRIES: dict[str, Callable[[Path, Path], None]] = {
    "a link to a secret": Link(),
    "a link to a good file": Link("own.yaml"),
    "a link to itself": Link("odd.yaml"),
    "a link to nothing": Link("nowhere"),
    "a link to a device without end": Link("/dev/zero"),
    "a link to a terminal": Link("/dev/ptmx"),
    "a named pipe": _pipe,
    "a socket": _socket,
    "a folder": _folder,
    "a name with lines in it": _lines_in_its_name,
    "a name that is no text": _no_text_in_its_name,
}
"""Entries that are not readable files: ``ENTRIES[name](folder / "odd.yaml", secret)`` creates one."""

whole_profiles = st.builds(
    lambda start, end, low, high, step, default, regex: (
        f"display_name: P\nallow: {{from: '{start}', until: '{end}'}}\nprofile_options:\n"
        f"  r: {{range: {{min: {low}, max: {high}, step: {step}, default: {default}, sets: slurm.cpus}}}}\n"
        f"  t: {{unlisted_choice: {{validation_regex: '{regex}', sets: slurm.account}}}}\n"
    ),
    st.dates().map(str) | st.datetimes(timezones=st.timezones() | st.none()).map(str),
    st.dates().map(str) | st.datetimes(timezones=st.timezones() | st.none()).map(str),
    st.integers(1, 5) | st.floats(),
    st.integers(1, 10**6) | st.floats(),
    st.sampled_from([1, 0.5, 1e-300, 3, "~"]) | st.floats(),
    st.sampled_from(["~", 1, 2]) | st.floats(),
    st.sampled_from(["[a-z]+", "(a+)+b", "(?=a)", "x{1000}", r"\d*", "é"]),
)
"""Documents of one profile with dates, numbers and expressions of all kinds."""
