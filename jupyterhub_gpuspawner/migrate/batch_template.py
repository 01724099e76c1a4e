"""Takes an admin's ``batch_script`` apart: constant options, variables, and shell lines before and after the server.

The template is rendered with a mark in place of each variable, by batchspawner's own function, so that conditions and
both of its languages are understood alike. What cannot be expressed by typed fields is said in ``reasons``; the
template is then kept.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field

from batchspawner import SlurmSpawner
from batchspawner.batchspawner import format_template
from jinja2 import Environment, TemplateError, meta

from jupyterhub_gpuspawner.batch.sbatch_line import LONG, options_of

DEFAULT_TEMPLATE: str = SlurmSpawner.batch_script.default_value
VARIABLES = frozenset(
    name.removeprefix("req_") for name in SlurmSpawner.class_trait_names() if name.startswith("req_")
) | {"cmd"}
"""batchspawner's variables."""
FORM_VARIABLES = frozenset({"gpus", "constraint", "modules", "oversubscribe", "ui", "profile", "feature"})
"""SlurmFormSpawner's further variables."""
OPTIONS = {
    "account": "account",
    "constraint": "constraint",
    "cpus-per-task": "nprocs",
    "gpus": "ngpus",
    "gpus-per-node": "ngpus",
    "gres": "gres",
    "mem": "memory",
    "nodes": "nnodes",
    "partition": "partition",
    "qos": "qos",
    "reservation": "reservation",
    "time": "runtime",
}
"""sbatch's option, and batchspawner's variable for it."""
_ALIASES = {("partition", "queue"), ("gres", "gpus"), ("oversubscribe", "oversubscribe")}
_REPLACED = frozenset(
    ["chdir", "comment", "error", "export", "get-user-env", "gid", "job-name", "output", "uid", "workdir"]
)
"""Options that this package sets itself."""
_SHELL_OPTIONS = re.compile(r"set [-+][A-Za-z]+( pipefail)?|trap .*|echo \"?jupyterhub-singleuser ended gracefully\"?")
_SERVER = re.compile(r"(exec |(?P<srun>srun|@srun@)( -\S+)* )?@cmd@")
_HERE = re.compile(r"<<-?\s*[\"']?(\w+)")


@dataclass(frozen=True)
class BatchTemplate:
    """A template taken apart."""

    text: str
    own: bool
    """The admin's, and not batchspawner's default."""
    constants: dict[str, str] = field(default_factory=dict)
    """batchspawner's variables whose value the template fixes."""
    used: frozenset[str] = frozenset()
    """Variables whose value becomes an option."""
    extra: tuple[str, ...] = ()
    """Constant options that no field expresses."""
    replaced: tuple[str, ...] = ()
    """Options that this package sets itself."""
    log_dir: str | None = None
    before: tuple[str, ...] = ()
    """Shell lines before the server."""
    after: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    """Shell lines that the script needs no more."""
    step: str = ""
    """The ``srun`` that started the server."""
    unknown: tuple[str, ...] = ()
    """Variables that batchspawner does not have."""
    reasons: tuple[str, ...] = ()
    """Why it cannot be expressed by typed fields; empty if it can."""

    @property
    def typed(self) -> bool:
        """Typed fields and shell lines express all of it."""
        return not self.reasons


def variables_of(text: str) -> frozenset[str]:
    """The names that a template uses; raises ValueError or jinja2's TemplateError if it is not valid."""
    if "{{" in text or "{%" in text:
        return frozenset(meta.find_undeclared_variables(Environment(autoescape=True).parse(text)))
    fields = (name for _, name, _, _ in string.Formatter().parse(text) if name is not None)
    return frozenset(re.split(r"[.\[]", name)[0] for name in fields)


def read_template(text: str, known: frozenset[str] = frozenset()) -> BatchTemplate:
    """Take a template apart; ``known`` are further variables that the hub's spawner has."""
    own = text != DEFAULT_TEMPLATE
    try:
        names = variables_of(text)
        unknown = tuple(sorted(names - VARIABLES - FORM_VARIABLES - known))
        marks: dict[str, object] = {name: "" if name in unknown else f"@{name}@" for name in names}
        marks.update({name: [f"@{name}@"] for name in names & {"modules"}})
        script = format_template(text, **marks)
    except (ValueError, TemplateError, AttributeError, KeyError, IndexError) as error:
        return BatchTemplate(text, own, reasons=(f"it cannot be rendered ({type(error).__name__})",))
    head, body = _parts(script)
    found = _Header()
    for line in head:
        found.read(line)
    shell = _Shell()
    shell.read(body)
    return BatchTemplate(
        text,
        own,
        constants=found.constants,
        used=frozenset(found.used),
        extra=tuple(found.extra),
        replaced=tuple(found.replaced),
        log_dir=found.log_dir,
        before=tuple(shell.before),
        after=tuple(shell.after),
        dropped=tuple(shell.dropped),
        step=shell.step,
        unknown=unknown,
        reasons=(*found.reasons, *shell.reasons),
    )


def _parts(script: str) -> tuple[list[str], list[str]]:
    """The lines before the first command, and the rest."""
    lines = script.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), 0)
    return lines[:first], lines[first:]


class _Header:
    """The options of a rendered template."""

    def __init__(self) -> None:
        self.constants: dict[str, str] = {}
        self.used: set[str] = set()
        self.extra: list[str] = []
        self.replaced: list[str] = []
        self.reasons: list[str] = []
        self.log_dir: str | None = None

    def read(self, line: str) -> None:
        if not line.startswith("#SBATCH"):
            return
        text = line.removeprefix("#SBATCH").strip()
        if text == "@options@":
            self.used.add("options")
            return
        for name, value in options_of(text):
            self._option(name, value)

    def _option(self, name: str, value: str) -> None:
        if name == "output":
            folder, _, _ = value.rpartition("/")
            self.log_dir = re.sub("@(homedir|username)@", r"{\1}", folder) if "@output@" not in value else None
        if name in _REPLACED or (not value and name in OPTIONS):
            self.replaced.append(name)
            return
        variable = OPTIONS.get(name)
        marked = re.fullmatch(r"@(\w+)@", value)
        counted = re.fullmatch(r"gpu:(?:([\w.-]+):)?@ngpus@", value) if name == "gres" else None
        if marked and (marked[1] == variable or (name, marked[1]) in _ALIASES):
            self.used.add(marked[1])
        elif counted:
            self.used.add("ngpus")
            if counted[1]:
                self.constants["gpu_type"] = counted[1]
        elif "@" in value:
            spelled = re.sub("@([a-z_]+)@", r"{\1}", value)
            self.reasons.append(f"--{name}={spelled} combines a variable with text")
        elif name == "oversubscribe":
            self.used.add(name)
        elif variable:
            self.constants[variable] = value
        elif name == "ntasks" and value == "1":
            return
        else:
            short = {long: letter for letter, long in LONG.items()}
            spelled = f"--{name}={value}" if value else f"--{name}"
            self.extra.append(spelled if len(name) > 1 else f"-{short.get(name, name)}{value}")


class _Shell:
    """The commands of a rendered template."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.after: list[str] = []
        self.dropped: list[str] = []
        self.reasons: list[str] = []
        self.step = ""

    def read(self, body: list[str]) -> None:
        servers = [at for at, line in enumerate(body) if "@cmd@" in line and not line.lstrip().startswith("#")]
        if len(servers) != 1:
            self.reasons.append("it has no line, or more than one, that starts the server")
            return
        (at,) = servers
        match = _SERVER.fullmatch(body[at].strip())
        if match is None:
            self.reasons.append("its last command is more than {cmd}")
            return
        if match["srun"] == "srun":
            self.step = body[at].strip().removesuffix("@cmd@").strip()
        if any("\\" in line[-1:] for line in body[max(at - 1, 0) : at]):
            self.reasons.append("its last command is more than {cmd}")
        self.before = self._lines(body[:at], "@prologue@")
        self.after = self._lines(body[at + 1 :], "@epilogue@")
        fault = swallows_the_script("\n".join(self.before))
        if fault:
            self.reasons.append(fault)

    def _lines(self, lines: list[str], own: str) -> list[str]:
        found: list[str] = []
        for line in lines:
            plain = line.strip()
            if plain == own or (not plain and not found):
                continue
            if _SHELL_OPTIONS.fullmatch(plain):
                self.dropped.append(plain)
                continue
            text = line.replace("@homedir@", "$HOME").replace("@username@", "$USER")
            if "@modules@" in text and "module load" in text:
                continue
            if re.search(r"@\w+@", text):
                self.reasons.append("its shell lines use variables")
            found.append(text.rstrip())
        while found and not found[-1]:
            found.pop()
        return found


def swallows_the_script(lines: str) -> str:
    """Why shell lines cannot be in front of other lines; empty if they can."""
    for match in _HERE.finditer(lines):
        if not re.search(rf"^\s*{match[1]}$", lines[match.end() :], re.MULTILINE):
            return f"its lines open a here document ({match[1]}) that they do not end"
    if re.search(r"^\s*exec (?![0-9]*[<>&])", lines, re.MULTILINE):
        return "its lines replace the shell (exec)"
    return ""
