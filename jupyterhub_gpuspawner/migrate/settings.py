"""Converts the settings of a Slurm spawner of batchspawner's family: what is moved, dropped, or to be decided.

That includes how the new hub runs commands as its users, and asks Slurm: ``exec_prefix``, ``wrapper_dir`` and
``query_prefix``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from batchspawner import SlurmSpawner
from batchspawner.batchspawner import format_template
from jupyterhub.spawner import Spawner

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.inherited_settings import BATCHSPAWNER, Effect
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.migrate.draft import SOMEBODY, Draft, Kind
from jupyterhub_gpuspawner.migrate.old_hub import OldHub, OldSetting, System
from jupyterhub_gpuspawner.migrate.template import BatchTemplate, sbatch_options, swallows_the_script
from jupyterhub_gpuspawner.profiles.wrapspawner import TYPED
from jupyterhub_gpuspawner.slurm.login_node import Program, destination, is_remote, programs

WRAPPERS = "/usr/local/libexec/gpuspawner"
"""Where the wrapper scripts are, unless the admin has them elsewhere."""
QUERY = "c.GPUSlurmSpawner.query_prefix"
_SUDOERS = "Install config/wrappers and config/sudoers as docs/howto/sudo.md describes."
_LOGIN_NODE = (
    "Install config/wrappers, config/sudoers and config/ssh on the login node as docs/howto/hub-without-slurm.md "
    "describes."
)
_SUDO = ("sudo", "-n", "-u", "{username}")
"""What the login node's gate admits (config/ssh/gate)."""


def convert_rights(system: System, setting: OldSetting | None, draft: Draft) -> None:
    """Decide about the old hub's ``exec_prefix``; None if it has none."""
    if system is System.SLURMFORMSPAWNER:
        draft.settings |= {"exec_prefix": "sudo -n -u {username}", "wrapper_dir": WRAPPERS}
        draft.decide(
            "c.GPUSlurmSpawner.exec_prefix",
            "sudo --preserve-env=... -u {username} sbatch, scancel",
            f"sudo -n -u {{username}}, wrapper_dir = {WRAPPERS}",
            "SlurmFormSpawner had these commands in its class; sudo needs to allow fixed scripts only",
            _SUDOERS,
        )
        return
    if setting is None:
        draft.note(
            Kind.CHANGED,
            "exec_prefix",
            "sudo -E -u {username}",
            "sudo -n -E -u {username}",
            "the default never asks for a password",
            "Without -E, and with fixed scripts: docs/howto/sudo.md.",
        )
        return
    text = str(setting.value)
    draft.settings["exec_prefix"] = text
    words = _words(text)
    by_ssh = is_remote(words)
    if not words or any(_keeps_environment(program) for program in programs(words) if not by_ssh):
        draft.moved(setting, text, "c.GPUSlurmSpawner.exec_prefix")
        return
    draft.settings["wrapper_dir"] = WRAPPERS
    draft.decide(
        setting,
        text,
        f"the same, with wrapper_dir = {WRAPPERS}",
        "the prefix does not pass on the environment, which has the job's token; the scripts read it from their "
        "standard input",
        _LOGIN_NODE if by_ssh else _SUDOERS,
    )
    if by_ssh:
        _by_ssh(setting, text, words, draft)


def _keeps_environment(program: Program) -> bool:
    """Whether a program passes all variables on: runuser does, and sudo with ``-E``."""
    return program.name == "runuser" or not {"-E", "--preserve-env"}.isdisjoint(program.options)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # the new hub says so when it starts, as the old one did at each start of a server
        return text.split()


def _by_ssh(setting: OldSetting, text: str, words: Sequence[str], draft: Draft) -> None:
    """What the login node is asked, and how it is reached, where jobs are submitted by ssh."""
    try:
        login = destination(words)
    except ConfigError as error:
        draft.decide(setting, text, "the same", error.message.rstrip("."), error.hint)
        return
    there = tuple(words[len(login) :])
    if there and there != _SUDO:
        draft.decide(
            setting,
            " ".join(there),
            "the same",
            "the login node's gate admits nothing but sudo -n -u {username}; variables do not pass sudo, and the "
            "scripts have their own",
            "Write sudo -n -u {username} after the login node, and set variables such as SLURM_CONF in the scripts.",
        )
    was = "squeue, by ssh as exec_prefix says"
    if any("{" in word for word in login):
        draft.decide(
            QUERY,
            was,
            "squeue, scontrol and sinfo on the hub's machine",
            "one question is for the servers of all users, and this ssh signs in as one of them",
            "Set query_prefix to an ssh that signs in as an account of the hub's own (docs/howto/hub-without-slurm.md) "
            "or install Slurm's commands on the hub's machine.",
        )
        return
    draft.settings["query_prefix"] = shlex.join(login)
    draft.decide(
        QUERY,
        was,
        shlex.join(login),
        "squeue, scontrol and sinfo run on the login node, as the account that ssh signs in as: one question is for "
        "the servers of all users",
        "Install the script query beside the others. On a hub's machine with Slurm's commands and configuration, "
        "remove query_prefix.",
    )


REQUESTS = frozenset({*(f"req_{name}" for name in TYPED), "req_gres"})
"""Settings that request something of Slurm."""
_TABLE = {setting.name: setting for setting in BATCHSPAWNER}
_SHELL = ("req_prologue", "req_epilogue")
_ONE_NODE = re.compile(r"(?<!\S)(--nodes=1|-N ?1|--ntasks=1|-n ?1)(?!\S)")


def plain(markdown: str) -> str:
    """Text of a table of the guide, without its Markdown."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")


def old_script(template: BatchTemplate, values: Mapping[str, Any]) -> str:
    """The script that batchspawner renders for these ``req_*`` values; raises what its template raises."""
    defaults = {
        name: trait.default_value if isinstance(trait.default_value, str) else ""
        for name, trait in SlurmSpawner.class_traits().items()
        if name.startswith("req_")
    }
    named = {name.removeprefix("req_"): value for name, value in {**defaults, **values}.items()}
    variables = dict.fromkeys(template.unknown, "") | named
    name, home = SOMEBODY
    keepvars = ",".join(filter(None, ["JUPYTERHUB_API_TOKEN", str(variables.get("keepvars_extra") or "")]))
    variables |= {"username": name, "homedir": home, "keepvars": keepvars, "cmd": "jupyterhub-singleuser"}
    return str(format_template(template.text, **variables))


def old_options(template: BatchTemplate, values: Mapping[str, Any]) -> dict[str, str] | None:
    """Its options; None if batchspawner could not render it."""
    try:
        return sbatch_options(old_script(template, values))
    except Exception:  # noqa: BLE001 - an admin's template may raise anything, and then no job was ever submitted
        return None


class SiteSettings:
    """Converts the settings of one hub; the converters of profiles read what it leaves in ``requests``."""

    def __init__(self, hub: OldHub, template: BatchTemplate, draft: Draft) -> None:
        self._hub, self._template, self._draft = hub, template, draft
        self._settings = hub.settings()
        self.requests: dict[str, Any] = {}
        """``req_*`` values that request something of Slurm."""

    def where(self, name: str) -> str:
        """The setting that has the value of a request, as the admin wrote it."""
        setting = self._settings.get(name)
        fixed = self._template.typed and name.removeprefix("req_") in self._template.constants
        source = self._settings.get("batch_script") if fixed or setting is None else setting
        return str(source or "batch_script")

    def as_defaults(self) -> None:
        """Make what the hub requested the default of all profiles."""
        for name, value in sorted(self.requests.items()):
            self._draft.settings[name] = value
            self._draft.moved(self.where(name), f"{name[4:]} = {value}", f"c.GPUSlurmSpawner.{name}")

    def convert(self, theirs: frozenset[str] = frozenset()) -> None:
        """Decide about every setting; ``theirs`` are those that another converter has read."""
        for name, setting in sorted(self._settings.items()):
            if name not in theirs:
                self._one(name, setting)
        for setting in self._hub.all_settings():
            winner = self._settings.get(setting.name)
            if setting.section in self._hub.sections and winner is not None and winner.section != setting.section:
                self._draft.note(Kind.DROPPED, setting, setting.value, "", f"{winner} replaced it, and still does", "")
        self._of_template()
        self._shell_lines()
        convert_rights(self._hub.system, self._settings.get("exec_prefix"), self._draft)

    def _one(self, name: str, setting: OldSetting) -> None:
        row = _TABLE.get(name)
        if name in ("batch_script", "exec_prefix", *_SHELL):
            return
        if name in REQUESTS:
            self._request(name, setting)
        elif row is not None and row.effect is not Effect.KEPT:
            self._without_effect(name, setting)
        elif name in GPUSlurmSpawner.class_traits(config=True):
            self._draft.keep(setting)
            if self._hub.system is System.WRAPSPAWNER and name in Spawner.class_traits(config=True):
                self._draft.note(
                    Kind.CHANGED,
                    setting,
                    setting.value,
                    "has an effect",
                    "wrapspawner replaced it by the value of c.Spawner, or by JupyterHub's default",
                    "Remove the line if the servers shall keep the value that they had.",
                )
        else:
            self._draft.decide(
                setting,
                setting.value,
                "left out",
                "it is a setting of the site's own spawner class" if _own(self._hub) else "no spawner has it",
                "Look whether anything depends on it.",
            )

    def _request(self, name: str, setting: OldSetting) -> None:
        variable = name.removeprefix("req_")
        if self._template.typed and variable in self._template.constants:
            self._draft.note(
                Kind.DROPPED, setting, setting.value, "", "the template fixes the option, so it had no effect"
            )
            return
        value = setting.value
        if name == "req_options" and isinstance(value, str):
            value = _ONE_NODE.sub("", value).strip()
            if value != setting.value:
                self._draft.note(Kind.DROPPED, setting, setting.value, value, "one node and one task are the default")
        if value not in ("", None):
            self.requests[name] = value

    def _without_effect(self, name: str, setting: OldSetting) -> None:
        row = _TABLE[name]
        if row.effect is Effect.TEMPLATE and not self._template.typed and f"{name[4:]}" in self._template.text:
            self._draft.keep(setting)
        elif name == "req_queue" and "queue" in self._template.used:
            self.requests["req_partition"] = setting.value
            self._draft.moved(setting, setting.value, "slurm.partition")
        elif name == "batch_submit_cmd" and str(setting.value).split()[:1] != ["sbatch"]:
            self._draft.decide(
                setting,
                setting.value,
                "left out",
                "the command is fixed, and what is before it belongs to exec_prefix, which is no shell command",
                "Set c.GPUSlurmSpawner.exec_prefix, and wrapper_dir if it does not pass on the environment: "
                "docs/howto/sudo.md.",
            )
        else:
            todo = row.instead if row.instead.startswith("Set ") else ""
            self._draft.note(Kind.DROPPED, setting, setting.value, "", plain(row.remark), todo)

    def _of_template(self) -> None:
        template, draft = self._template, self._draft
        setting = self._settings.get("batch_script")
        where = setting or "batch_script"
        if template.unknown:
            draft.decide(
                where,
                ", ".join(f"{{{name}}}" for name in template.unknown),
                "left out",
                "batchspawner has no such variable: the site's own spawner class or form gave its value",
                "Look what it was; most of it can be a field or an option of the profiles.",
            )
        if not template.typed:
            draft.settings["batch_script"] = with_variables(template)
            reasons = "; ".join(dict.fromkeys(template.reasons))
            draft.note(
                Kind.MOVED,
                where,
                template.text,
                "c.GPUSlurmSpawner.batch_script",
                f"it cannot be expressed by typed fields: {reasons}",
                "Read in docs/howto/migrate-from-batchspawner.md what becomes of a template.",
            )
            return
        for variable, value in template.constants.items():
            if variable != "gpu_type" and (variable, value) != ("nnodes", "1"):
                self.requests[f"req_{variable}"] = value
        if template.extra:
            mine = [str(self.requests.get("req_options", "")), *template.extra]
            self.requests["req_options"] = "\n".join(filter(None, mine))
        if template.own and template.log_dir not in (None, "", "{homedir}"):
            draft.settings["log_dir"] = template.log_dir
            draft.moved(where, f"--output in {template.log_dir}", "c.GPUSlurmSpawner.log_dir")
        if template.own and template.dropped:
            draft.note(
                Kind.DROPPED,
                where,
                "; ".join(dict.fromkeys(template.dropped)),
                "",
                "the script handles signals and the server's exit status itself",
            )
        if template.own and template.step:
            draft.note(
                Kind.CHANGED,
                where,
                template.step,
                "the batch step",
                "the launcher binds the server in the batch step, without another job step",
            )

    def _shell_lines(self) -> None:
        """Prologue, epilogue, and the lines around the server in a template that became typed."""
        draft, template = self._draft, self._template
        parts = {"req_prologue": template.before, "req_epilogue": template.after} if template.typed else {}
        values = {name: self._settings[name] for name in _SHELL if name in self._settings}
        fault = swallows_the_script(str(values["req_prologue"].value)) if "req_prologue" in values else ""
        if fault:
            for setting in values.values():
                draft.decide(
                    setting,
                    setting.value,
                    "left out",
                    f"{fault}, so nothing of the script after them would run",
                    "The job's environment is made for it and has nothing of the hub's. If users' startup files shall "
                    "not be read either, set login_shell: false in the profiles' environment.",
                )
            values = {}
        for name in _SHELL:
            lines = parts.get(name, ()) if template.own else ()
            own_setting = values.get(name)
            if lines:
                own = str(own_setting.value).strip("\n") if own_setting is not None else ""
                draft.settings[name] = "\n".join(filter(None, [*lines, own]))
                where = "before" if name == "req_prologue" else "after"
                was = f"{len(lines)} shell lines {where} the server"
                draft.moved(self._settings.get("batch_script", "batch_script"), was, f"c.GPUSlurmSpawner.{name}")
                if own:
                    draft.moved(own_setting, own, f"c.GPUSlurmSpawner.{name}")
            elif own_setting is not None and str(own_setting.value).strip():
                draft.keep(own_setting)


def _own(hub: OldHub) -> bool:
    return hub.sections[0] not in ("SlurmSpawner", "MOSlurmSpawner", "SlurmFormSpawner")


def with_variables(template: BatchTemplate) -> str:
    """The template, with a value for those variables that this package does not have."""
    if "{{" not in template.text and "{%" not in template.text:
        text = template.text
        for name in template.unknown:
            text = text.replace(f"{{{name}}}", "")
        return text
    first, newline, rest = template.text.partition("\n")
    sets = "".join(f'{{%- set {name} = "" %}}' for name in template.unknown)
    sets += "{%- set gpus = gres %}" if re.search(r"\bgpus\b", template.text) else ""
    for name, value in (("modules", "[]"), ("oversubscribe", "false")):
        sets += f"{{%- set {name} = {value} %}}" if re.search(rf"\b{name}\b", template.text) else ""
    return f"{first}{sets}{newline}{rest}"
