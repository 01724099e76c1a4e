"""Takes an admin's ``batch_script`` apart: constant options, variables, and shell lines before and after the server.

The template is rendered with a mark in place of each variable, by batchspawner's own function, so that conditions and
both of its languages are understood alike. What cannot be expressed by typed fields is said in ``reasons``; the
template is then kept. Two scripts are compared by their ``#SBATCH`` lines, as options with values.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchspawner import SlurmSpawner
from batchspawner.batchspawner import format_template
from jinja2 import Environment, nodes

from jupyterhub_gpuspawner.batch.template import is_for_jinja, names_in, option_word
from jupyterhub_gpuspawner.profiles.tuples import OPTIONS, as_variable
from jupyterhub_gpuspawner.site.configuration import SOMEBODY
from jupyterhub_gpuspawner.slurm.sbatch_options import FLAGS, Option, options_in, options_of
from jupyterhub_gpuspawner.units import format_memory, format_walltime, parse_memory, parse_walltime


def sbatch_options(script: str) -> dict[str, str]:
    """Every option by its long name, with its value in one spelling; the value of a flag is empty."""
    return {name: in_one_spelling(name, value) for name, value in options_in(script)}


def in_one_spelling(name: str, value: str) -> str:
    """The value of an option: MiB for memory, days and hours for a time."""
    try:
        if name == "mem":
            return format_memory(parse_memory(re.sub("(?i)b$", "", value)))
        if name == "time":
            return format_walltime(parse_walltime(value) or None)  # zero is no limit
    except ValueError:
        pass
    if name == "export" and value not in ("ALL", "NONE", "NIL"):
        return "(names)"  # those of the hub's variables for a server
    if name == "gres":
        return re.sub(r"^(gpu|shard)$", r"\1:1", value)
    return value


def spelled(name: str, value: str | None) -> str:
    """``--name=value``, or that it is absent; an option that has no long name as it was."""
    if value is None:
        return "(not given)"
    return str(Option(name, value))


def written(name: str, value: str) -> str:
    """An option in a line that sbatch reads as this value."""
    return option_word(name, value) if value and len(name) > 1 else str(Option(name, value))


DEFAULT_TEMPLATE: str = SlurmSpawner.batch_script.default_value
VARIABLES = frozenset(
    name.removeprefix("req_") for name in SlurmSpawner.class_trait_names() if name.startswith("req_")
) | {"cmd"}
"""batchspawner's variables."""
FORM_VARIABLES = frozenset({"gpus", "constraint", "modules", "oversubscribe", "ui", "profile", "feature"})
"""SlurmFormSpawner's further variables."""
_ALIASES = {("partition", "queue"), ("gres", "gpus"), ("oversubscribe", "oversubscribe")}
REPLACED = frozenset(
    ["chdir", "comment", "error", "export", "get-user-env", "gid", "job-name", "output", "uid", "workdir"]
)
"""Options that this package sets itself."""
_SHELL_OPTIONS = re.compile(r"set [-+][A-Za-z]+( pipefail)?")
_NOT_NEEDED = re.compile(
    rf"{_SHELL_OPTIONS.pattern}|trap ('[^']*'|\"[^\"]*\"|[\w:-]+)( (?!EXIT|0)\w+)+|"
    r'echo "?jupyterhub-singleuser ended gracefully"?'
)
_ERREXIT = re.compile(r"\s*set -(\w*e|o errexit)")
_STRICT = ["set -euo pipefail"]
"""How ``req_prologue`` is run here, as in batchspawner's own template."""
_SERVER = re.compile(r"(exec |(?P<srun>srun|@srun@)( -\S+)* )?@cmd@")
_HERE = re.compile(r"<<-?\s*[\"']?(\w+)")


@dataclass
class BatchTemplate:
    """A template taken apart."""

    text: str
    constants: dict[str, str] = field(default_factory=dict)
    """batchspawner's variables whose value the template fixes."""
    used: set[str] = field(default_factory=set)
    """Variables whose value becomes an option."""
    extra: list[str] = field(default_factory=list)
    """Constant options that no field expresses."""
    of_command: frozenset[str] = frozenset()
    """Those of :attr:`constants` that sbatch's command line fixes."""
    commanded: Mapping[str, str] = field(default_factory=dict)
    """The options of that command line, which win over those of the script."""
    log_dir: str | None = None
    before: list[str] = field(default_factory=list)
    """Shell lines before the server."""
    after: list[str] = field(default_factory=list)
    prologue_at: int | None = None
    """After how many lines of :attr:`before` the value of ``{prologue}`` comes; None where it is not run."""
    epilogue_at: int | None = None
    """The same of :attr:`after` and ``{epilogue}``."""
    dropped: list[str] = field(default_factory=list)
    """Shell lines that the script needs no more."""
    shell_options: list[str] = field(default_factory=list)
    """The shell's options that it sets before the server."""
    step: str = ""
    """The ``srun`` that started the server."""
    unknown: tuple[str, ...] = ()
    """Variables that batchspawner does not have."""
    reasons: list[str] = field(default_factory=list)
    """Why it cannot be expressed by typed fields; empty if it can."""

    @property
    def own(self) -> bool:
        """The admin's, and not batchspawner's default."""
        return self.text != DEFAULT_TEMPLATE

    def under_its_options(self, prologue: str) -> str:
        """Lines of a ``req_prologue``, run under the shell's options that the template sets."""
        if not prologue or not self.typed or self.shell_options == _STRICT:
            return prologue
        return "\n".join(["set +euo pipefail", *self.shell_options, prologue])

    @property
    def typed(self) -> bool:
        """Typed fields and shell lines express all of it."""
        return not self.reasons


def old_options(template: BatchTemplate, values: Mapping[str, Any]) -> dict[str, str] | None:
    """The options of the script that batchspawner renders for these variables; None if it could not."""
    defaults = {
        name.removeprefix("req_"): trait.default_value if isinstance(trait.default_value, str) else ""
        for name, trait in SlurmSpawner.class_traits().items()
        if name.startswith("req_")
    }
    variables = {**dict.fromkeys(template.unknown, ""), **defaults, **values}
    variables |= {"username": SOMEBODY.name, "homedir": SOMEBODY.home, "cmd": "jupyterhub-singleuser"}
    names = ["JUPYTERHUB_API_TOKEN", str(variables.get("keepvars_extra") or "")]
    variables["keepvars"] = ",".join(filter(None, names))
    try:
        return {**sbatch_options(format_template(template.text, **variables)), **template.commanded}
    except Exception:  # noqa: BLE001 - an admin's template may raise anything, and then no job was ever submitted
        return None


def read_template(text: str, variables: frozenset[str] = frozenset()) -> BatchTemplate:
    """Take a template apart; ``variables`` are further ones that the hub's spawner has."""
    try:
        names = names_in(text)
        unknown = tuple(sorted(names - VARIABLES - variables))
        marks: dict[str, object] = {name: "" if name in unknown else f"@{name}@" for name in names}
        marks.update({name: [f"@{name}@"] for name in names & {"modules"}})
        script = format_template(text, **marks)
        reasons = _of_values(text) or [
            f"more than the option or line with {{{name}}} depends on whether that is set"
            for name in sorted(names - {*unknown, *FORM_VARIABLES, "cmd", "homedir", "username"})
            if not _is_only_named(name, script, format_template(text, **{**marks, name: ""}))
        ]
    except Exception as error:  # noqa: BLE001 - an admin's template may raise anything
        return BatchTemplate(text, reasons=[f"it cannot be rendered ({type(error).__name__})"])
    template = BatchTemplate(text, unknown=unknown, reasons=reasons)
    lines = script.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), 0)
    for line in lines[:first]:
        options = line.removeprefix("#SBATCH").strip()
        if options == "@options@":
            template.used.add("options")
        elif line.startswith("#SBATCH"):
            for name, value in options_of(options):
                _read_option(template, name, value)
    _read_commands(template, lines[first:])
    return template


def _of_values(text: str) -> list[str]:
    """Why marks in place of its variables do not show what a template makes of them."""
    if is_for_jinja(text):
        computes = _computes(Environment(autoescape=True).parse(text), names_in(text) - FORM_VARIABLES)
    else:
        fields = string.Formatter().parse(text)
        computes = any(re.search(r"[.\[]", name) or form or conversion for _, name, form, conversion in fields if name)
    return ["it computes with the values of variables, or compares them"] if computes else []


def _computes(node: nodes.Node, names: frozenset[str]) -> bool:
    """Whether a part of a template does more with these variables than to name them and to ask whether they are set."""
    if isinstance(node, _NAMING):
        return any(_computes(child, names) for child in node.iter_child_nodes())
    is_defined = isinstance(node, nodes.Test) and node.name == "defined"
    return not is_defined and any(name.name in names for name in node.find_all(nodes.Name))


_NAMING = (nodes.Template, nodes.Output, nodes.If, nodes.CondExpr, nodes.And, nodes.Or, nodes.Not)


def _is_only_named(name: str, script: str, without: str) -> bool:
    """Whether a variable that is empty removes no more of a script than its mark, or the one option with it."""
    mark = f"@{name}@"
    lines, left = ({" ".join(line.split()) for line in text.split("\n")} | {""} for text in (script, without))
    bare = {" ".join(line.replace(mark, "").split()): line for line in lines if mark in line}
    gone = lines - left - {line for short, line in bare.items() if short in left}
    one_option = re.compile(rf"(#SBATCH )?(\S+ )?\S*{mark}\S*")
    return left - lines <= bare.keys() and all(one_option.fullmatch(line) for line in gone)


def _read_option(template: BatchTemplate, name: str, value: str) -> None:
    if name == "output" and value != "/dev/null":
        folder, _, _ = value.rpartition("/")
        template.log_dir = re.sub("@(homedir|username)@", r"{\1}", folder) if "@output@" not in value else None
    if name in REPLACED or (not value and name in OPTIONS and name not in FLAGS) or (name, value) == ("ntasks", "1"):
        return
    variable = OPTIONS.get(name)
    marked = re.fullmatch(r"@(\w+)@", value)
    counted = re.fullmatch(r"gpu:(?:([\w.-]+):)?@ngpus@", value) if name == "gres" else None
    if marked and (marked[1] == variable or (name, marked[1]) in _ALIASES):
        template.used.add(marked[1])
    elif counted:
        template.used.add("ngpus")
        if counted[1]:
            template.constants["gpu_type"] = counted[1]
    elif "@" in value:
        text = re.sub("@([a-z_]+)@", r"{\1}", value)
        template.reasons.append(f"--{name}={text} combines a variable with text")
    elif name == "oversubscribe" and name in names_in(template.text):  # SlurmFormSpawner's
        template.used.add(name)
    elif own := as_variable(name, value):
        template.constants |= own
    else:
        template.extra.append(written(name, value))


def _read_commands(template: BatchTemplate, body: Sequence[str]) -> None:
    servers = [at for at, line in enumerate(body) if "@cmd@" in line and not line.lstrip().startswith("#")]
    if len(servers) != 1:
        template.reasons.append("it has no line, or more than one, that starts the server")
        return
    (at,) = servers
    match = _SERVER.fullmatch(body[at].strip())
    if match is None:
        template.reasons.append("its last command is more than {cmd}")
        return
    if match["srun"] == "srun":
        template.step = body[at].strip().removesuffix("@cmd@").strip()
    if at and body[at - 1].endswith("\\"):
        template.reasons.append("its last command is more than {cmd}")
    template.before, template.prologue_at = _shell_lines(template, body[:at], "prologue")
    template.after, template.epilogue_at = _shell_lines(template, body[at + 1 :], "epilogue")
    if any("$?" in line for line in template.after):
        template.reasons.append("its lines after {cmd} use the server's exit status")
    if template.after and any(_ERREXIT.match(line) for line in [*template.shell_options, *template.before]):
        template.reasons.append("its lines after {cmd} run under set -e")  # teardown lines do not
    fault = swallows_the_script("\n".join(template.before))
    if fault:
        template.reasons.append(fault)


def _shell_lines(template: BatchTemplate, lines: Sequence[str], variable: str) -> tuple[list[str], int | None]:
    """The lines, and after how many of them the value of a variable comes."""
    body: list[str] = []
    at: int | None = None
    for line in lines:
        text = line.rstrip().replace("@homedir@", "$HOME").replace("@username@", "$USER")
        if _NOT_NEEDED.fullmatch(line.strip()):
            if variable == "prologue" and _SHELL_OPTIONS.fullmatch(line.strip()):
                template.shell_options.append(line.strip())
            template.dropped.append(line.strip())
        elif line.strip() == f"@{variable}@":
            if at is not None:
                template.reasons.append(f"it has {{{variable}}} more than once")
            at = len(body)
        elif (not line.strip() and not body) or ("@modules@" in text and "module load" in text):
            continue
        else:
            if re.search(r"@\w+@", text):
                template.reasons.append("its shell lines use variables")
            body.append(text)
    while body and not body[-1]:
        body.pop()
    return body, at if at is None else min(at, len(body))


def swallows_the_script(lines: str) -> str:
    """Why shell lines cannot be in front of other lines; empty if they can."""
    for match in _HERE.finditer(lines):
        if not re.search(rf"^\s*{match[1]}$", lines[match.end() :], re.MULTILINE):
            return f"its lines open a here document ({match[1]}) that they do not end"
    if re.search(r"^\s*exec (?![0-9]*[<>&])", lines, re.MULTILINE):
        return "its lines replace the shell (exec)"
    return ""
