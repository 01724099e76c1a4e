"""Takes an admin's ``batch_script`` apart: constant options, variables, and shell lines before and after the server.

The template is rendered with a mark in place of each variable, by batchspawner's own function, so that conditions and
both of its languages are understood alike. What cannot be expressed by typed fields is said in ``reasons``; the
template is then kept. Two scripts are compared by their ``#SBATCH`` lines, as options with values.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from batchspawner import SlurmSpawner
from batchspawner.batchspawner import format_template
from jinja2 import Environment, TemplateError, meta

from jupyterhub_gpuspawner.batch.script import FLAGS, LONG, options_of
from jupyterhub_gpuspawner.units import format_memory, format_walltime, parse_memory, parse_walltime

_DIRECTIVE = re.compile(r"#SBATCH\s*(?P<options>.*)")
WHY = {
    "chdir": "the job starts in the home folder of its user's account",
    "comment": "the hub finds its jobs again by their comment",
    "error": "errors are in the same log as the output",
    "exclusive": "a profile says itself whether it takes whole nodes (slurm.exclusive)",
    "export": "the environment of sbatch is made for the job, so all of it is passed on, and nothing else of the hub's",
    "get-user-env": "a login shell runs the script, and Slurm need not start one for each job",
    "gid": "the job is submitted as its user, and only root may name another",
    "gres": "GPUs are requested as the profile's typed fields say",
    "gpus": "GPUs are requested for each node, by --gres",
    "gpus-per-node": "GPUs are requested by --gres",
    "gres-flags": "the placement policy requires it",
    "job-name": "each start has a name of its own, by which its job can be found",
    "no-requeue": "a server that lost its node has lost its work, and its user decides what comes next",
    "nodes": "a server runs on one node, and without the option its GPUs could be on several",
    "ntasks": "a job on one node has one task without it, and with it Slurm may spread the cores over the sockets",
    "output": "logs have one name, and their folder is c.GPUSlurmSpawner.log_dir",
    "uid": "the job is submitted as its user, and only root may name another",
    "workdir": "the option has been called --chdir since Slurm 17.11",
}
"""Why the scripts of this package differ in an option, whatever the configuration."""


_ADDED = frozenset(["chdir", "comment", "export", "job-name", "nodes", "no-requeue", "output", "gres-flags"])
"""Options that this package adds."""


@dataclass(frozen=True)
class OptionChange:
    """An option in which two scripts differ."""

    option: str
    was: str | None
    """None: the option was not given; empty: without a value."""
    now: str | None
    why: str


def sbatch_options(script: str) -> dict[str, str]:
    """Every option by its long name, with its value in one spelling; the value of a flag is empty."""
    options: dict[str, str] = {}
    for line in script.split("\n"):
        if line.strip() and not line.startswith("#"):
            break
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is not None:
            for name, value in options_of(match["options"]):
                options[name] = _normal(name, value)
    return options


def _normal(name: str, value: str) -> str:
    """One spelling: MiB for memory, days and hours for a time."""
    try:
        if name == "mem":
            return format_memory(parse_memory(re.sub("(?i)b$", "", value)))
        if name == "time":
            return format_walltime(parse_walltime(value))
    except ValueError:
        pass
    if name == "export" and value not in ("ALL", "NONE", "NIL"):
        return "(names)"  # those of the hub's variables for a server
    if name == "gres":
        return re.sub(r"(?<=:)1$|^(gpu|shard)$", lambda match: match[0] if match[0] == "1" else f"{match[0]}:1", value)
    return value


def option_changes(was: Mapping[str, str], now: Mapping[str, str]) -> tuple[OptionChange, ...]:
    """The options in which two scripts differ, by name."""
    return tuple(
        OptionChange(name, was.get(name), now.get(name), _why(name, was))
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    )


def _why(name: str, was: Mapping[str, str]) -> str:
    if name == "gres" and not {"gpus", "gpus-per-node"}.isdisjoint(was):
        return WHY["gpus"]
    if name not in was:
        return WHY[name] if name in _ADDED else f"the value of --{name} was set, but the template did not pass it on"
    if not was[name] and name not in FLAGS:
        return "sbatch refuses the option without a value"
    return WHY.get(name, "")


def spelled(name: str, value: str | None) -> str:
    """``--name=value``, or that it is absent."""
    if value is None:
        return "(not given)"
    return f"--{name}={value}" if value else f"--{name}"


def option_of_time(minutes: str) -> str:
    """``--time`` of this many minutes, as hours."""
    return format_walltime(int(minutes) * 60)


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


def read_template(text: str, variables: frozenset[str] = frozenset()) -> BatchTemplate:
    """Take a template apart; ``known`` are further variables that the hub's spawner has."""
    own = text != DEFAULT_TEMPLATE
    try:
        names = variables_of(text)
        unknown = tuple(sorted(names - VARIABLES - FORM_VARIABLES - variables))
        marks: dict[str, object] = {name: "" if name in unknown else f"@{name}@" for name in names}
        marks.update({name: [f"@{name}@"] for name in names & {"modules"}})
        script = format_template(text, **marks)
    except (ValueError, TemplateError, AttributeError, KeyError, IndexError) as error:
        return BatchTemplate(text, own, reasons=(f"it cannot be rendered ({type(error).__name__})",))
    head, body = _parts(script)
    header = _Header()
    for line in head:
        header.read(line)
    shell = _Shell()
    shell.read(body)
    return BatchTemplate(
        text,
        own,
        constants=header.constants,
        used=frozenset(header.used),
        extra=tuple(header.extra),
        replaced=tuple(header.replaced),
        log_dir=header.log_dir,
        before=tuple(shell.before),
        after=tuple(shell.after),
        dropped=tuple(shell.dropped),
        step=shell.step,
        unknown=unknown,
        reasons=(*header.reasons, *shell.reasons),
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
        body: list[str] = []
        for line in lines:
            plain = line.strip()
            if plain == own or (not plain and not body):
                continue
            if _SHELL_OPTIONS.fullmatch(plain):
                self.dropped.append(plain)
                continue
            text = line.replace("@homedir@", "$HOME").replace("@username@", "$USER")
            if "@modules@" in text and "module load" in text:
                continue
            if re.search(r"@\w+@", text):
                self.reasons.append("its shell lines use variables")
            body.append(text.rstrip())
        while body and not body[-1]:
            body.pop()
        return body


def swallows_the_script(lines: str) -> str:
    """Why shell lines cannot be in front of other lines; empty if they can."""
    for match in _HERE.finditer(lines):
        if not re.search(rf"^\s*{match[1]}$", lines[match.end() :], re.MULTILINE):
            return f"its lines open a here document ({match[1]}) that they do not end"
    if re.search(r"^\s*exec (?![0-9]*[<>&])", lines, re.MULTILINE):
        return "its lines replace the shell (exec)"
    return ""
