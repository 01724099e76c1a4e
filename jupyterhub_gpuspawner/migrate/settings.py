"""Converts the settings of a Slurm spawner of batchspawner's family: what is moved, dropped, or to be decided.

That includes how the new hub runs commands as its users, and asks Slurm: ``exec_prefix``, ``wrapper_dir`` and
``query_prefix``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePath

from batchspawner import SlurmSpawner
from jinja2 import TemplateError
from jupyterhub.spawner import Spawner

from jupyterhub_gpuspawner.batch.job import with_lines
from jupyterhub_gpuspawner.batch.template import is_for_jinja, names_in
from jupyterhub_gpuspawner.check.inherited_settings import BATCHSPAWNER, Effect, InheritedSetting
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.classes import is_own
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.migrate.old_hub import FORMS, HOOKS, OldSetting, System
from jupyterhub_gpuspawner.migrate.result import Migration
from jupyterhub_gpuspawner.migrate.template import BatchTemplate, sbatch_options, swallows_the_script, written
from jupyterhub_gpuspawner.migrate.values import REQUESTS, valid_requests
from jupyterhub_gpuspawner.profiles.tuples import as_requests, as_variable
from jupyterhub_gpuspawner.slurm.login_node import destination, is_remote
from jupyterhub_gpuspawner.slurm.run_as import needs_shell, runs_as
from jupyterhub_gpuspawner.slurm.sbatch_options import option_lines, options_of
from jupyterhub_gpuspawner.slurm.submit_command import SUBMIT, SubmitCommand, submit_command

INHERITED = {setting.name: setting for setting in BATCHSPAWNER}
_SHELL = ("req_prologue", "req_epilogue")
_ONE_NODE = re.compile(r"(?<!\S)(--nodes=1|-N ?1|--ntasks=1|-n ?1)(?!\S)")
_PRESERVES = re.compile(r"(^|[ /])sudo( -\S*[CDRTUghprtu] \S+| -\S+)*? (-(?!-)[^u ]*E|--preserve-env(?= |$))")
"""sudo with its option that passes all variables on."""
_WRAPPERS = "/etc/jupyterhub/wrappers"
"""Where the wrapper scripts are, unless the admin has them elsewhere."""
_SUDO = ("sudo", "-n", "-u", "{username}")
"""What the login node's gate admits."""


def _plain(markdown: str) -> str:
    """Text of a table of the guide, without its Markdown."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")


def source_of(migration: Migration, name: str) -> str:
    """The setting that has the value of a request, as the admin wrote it."""
    settings, template = migration.old.settings(), migration.template
    if name in migration.in_options:
        return str(settings["req_options"])
    fixed = template.typed and name.removeprefix("req_") in template.constants
    source = settings.get("batch_script") if fixed or name not in settings else settings[name]
    if name.removeprefix("req_") in template.of_command:
        source = settings["batch_submit_cmd"]
    return str(source or "batch_script")


def requests_as_defaults(migration: Migration) -> None:
    """Make what the hub requested the default of all profiles."""
    for name, value in sorted(migration.requests.items()):
        migration.settings[name] = value
        migration.moved(source_of(migration, name), f"{name[4:]} = {value}", f"c.GPUSlurmSpawner.{name}")


def convert_settings(migration: Migration, converted: Collection[str] = ()) -> None:
    """Decide about every setting of the Slurm spawner but those ``converted`` already."""
    settings = migration.old.settings()
    for name, setting in sorted(settings.items()):
        if name not in (*converted, *_SHELL, *FORMS, *HOOKS, "batch_script", "exec_prefix"):
            if not migration.of_kept_class(setting):
                _convert(migration, name, setting)
            elif name == "start_timeout":
                migration.add("start_timeout", setting, setting.value)
    for setting in migration.old.all_settings():
        winner = settings.get(setting.name) if setting.name not in (*FORMS, *HOOKS) else None
        if setting.section in migration.old.sections and winner is not None and winner.section != setting.section:
            migration.add("replaced", setting, setting.value, winner=winner)
    if "start_timeout" not in settings:
        of_all = migration.old.section("Spawner").get("start_timeout")
        where = "start_timeout" if of_all is None else "c.Spawner.start_timeout"
        migration.add("start_timeout", where, of_all or "(the default)")
    _convert_template(migration)
    _convert_shell_lines(migration)
    _convert_lines_of_command(migration)
    if migration.settings.get("req_prologue") and migration.template.own:
        migration.settings["req_prologue"] = migration.template.under_its_options(migration.settings["req_prologue"])
    _convert_exec_prefix(migration)


def _convert(migration: Migration, name: str, setting: OldSetting) -> None:
    row, site_class = INHERITED.get(name), migration.site_class
    if site_class is not None and name not in GPUSlurmSpawner.class_traits() and hasattr(site_class, name):
        migration.stay("setting_stays", str(setting), setting.value)
    elif name in REQUESTS:
        (_keep_request if migration.old.own_form else _convert_request)(migration, name, setting)
    elif name == "batch_submit_cmd":
        _convert_submit_command(migration, setting)
    elif row is not None and row.effect is not Effect.KEPT:
        _convert_ineffective(migration, name, setting)
    elif is_own(name) and name[4:] in migration.old.variables() & variables_in(migration.template):
        migration.settings.setdefault("template_variables", {})[name[4:]] = setting.value
        migration.moved(setting, setting.value, f"{name[4:]} in c.GPUSlurmSpawner.template_variables")
    elif name in GPUSlurmSpawner.class_traits(config=True):
        migration.keep(setting, "start_timeout" if name == "start_timeout" else "moved")
        if migration.old.system is System.WRAPSPAWNER and name in Spawner.class_traits(config=True):
            migration.add("takes_effect", setting, setting.value)
    else:
        own = migration.old.sections[0] not in ("SlurmSpawner", "MOSlurmSpawner", "SlurmFormSpawner")
        migration.add("own_setting" if own else "unknown_setting", setting, setting.value)


def variables_in(template: BatchTemplate) -> frozenset[str]:
    """The variables of a template that is kept, which a class of the site's own may give their values."""
    try:
        return names_in(template.text) if not template.typed else frozenset()
    except (ValueError, TemplateError):
        return frozenset()


def _keep_request(migration: Migration, name: str, setting: OldSetting) -> None:
    """A request as it is written, in whose place a form of the site's own or a hook may have another one."""
    value = valid_requests(migration, {name: setting.value}, str(setting).removesuffix(name)).get(name, "")
    if name == "req_options" and value == "\n".join(option_lines(str(setting.value))):
        value = setting.value
    if value not in ("", None):
        migration.requests[name] = value


def _convert_request(migration: Migration, name: str, setting: OldSetting) -> None:
    if migration.template.typed and name.removeprefix("req_") in migration.template.constants:
        of_command = name.removeprefix("req_") in migration.template.of_command
        migration.add("fixed_by_command" if of_command else "fixed_by_template", setting, setting.value)
        return
    if name == "req_options" and profiles_have_options(migration):
        migration.moved(setting, setting.value, "slurm of each profile that has no options of its own")
        return
    value = valid_requests(migration, {name: setting.value}, str(setting).removesuffix(name)).get(name, "")
    if name == "req_options" and isinstance(value, str):
        without = _ONE_NODE.sub("", value).strip()
        if without != value:
            migration.add("one_node", setting, setting.value, without)
        existing = {*migration.old.settings(), *(f"req_{name}" for name in migration.template.constants)}
        fields, value = fields_in_options(without, existing)
        migration.requests |= fields
        migration.in_options |= fields.keys()
    if value not in ("", None):
        migration.requests[name] = value


def profiles_have_options(migration: Migration) -> bool:
    """Whether a profile of wrapspawner has ``req_options``, which replace those of the site."""
    traits = (item[-1] for item in migration.old.profiles.items if isinstance(item, (tuple, list)) and item)
    return any(isinstance(own, dict) and not {"req_options", "options"}.isdisjoint(own) for own in traits)


def fields_in_options(text: str, existing: Collection[str]) -> tuple[dict[str, str], str]:
    """The settings ``req_*`` that express options of a line, and the rest of the line.

    An option whose setting is ``existing``, which has another value perhaps, stays where it is; so do all options of a
    line that sbatch would not understand.
    """
    try:
        options = [*options_of(text)]
    except ValueError:
        return {}, text
    fields: dict[str, str] = {}
    rest = []
    for name, value in options:
        own = {f"req_{variable}": text for variable, text in as_variable(name, value).items()}
        if own and own.keys().isdisjoint((*existing, *fields)):
            fields |= own
        else:
            rest.append(written(name, value))
    return (fields, " ".join(rest)) if fields else ({}, "\n".join(option_lines(text)))


def _convert_ineffective(migration: Migration, name: str, setting: OldSetting) -> None:
    row, template = INHERITED[name], migration.template
    if row.effect is Effect.TEMPLATE and not template.typed and name[4:] in template.text:
        migration.keep(setting)
    elif name == "req_queue" and "queue" in template.used:
        migration.requests["req_partition"] = setting.value
        migration.moved(setting, setting.value, "slurm.partition")
    else:
        add_ineffective(migration, setting, setting.value, row)


def add_ineffective(migration: Migration, where: object, value: object, row: InheritedSetting) -> None:
    """Add the difference of a setting that has no effect any more, as the guide's table says it."""
    instead = row.instead if row.instead.startswith("Set ") else ""
    migration.add("ineffective", where, value, remark=_plain(row.remark), instead=instead)


def _convert_template(migration: Migration) -> None:
    template = migration.template
    where = migration.old.settings().get("batch_script", "batch_script")
    if template.unknown:
        code = "form_variables" if migration.old.own_form else "unknown_variables"
        migration.add(code, where, ", ".join(f"{{{name}}}" for name in template.unknown))
    if not template.typed and migration.old.own_form:
        setting = migration.old.settings().get("batch_script")
        if setting is not None and not migration.of_kept_class(setting):
            migration.settings["batch_script"] = template.text
            migration.moved(where, template.text, "c.GPUSlurmSpawner.batch_script")
        return
    if not template.typed:
        migration.settings["batch_script"] = with_lines(
            _with_variables(template, migration.old.variables()), migration.command.options
        )
        migration.requests |= {f"req_{name}": template.constants[name] for name in template.of_command}
        migration.add("template_kept", where, template.text, reasons="; ".join(dict.fromkeys(template.reasons)))
        return
    for variable, value in template.constants.items():
        if variable != "gpu_type" and (variable, value) != ("nnodes", "1"):
            migration.requests[f"req_{variable}"] = value
    if template.extra:
        options = [str(migration.requests.get("req_options", "")), *template.extra]
        migration.requests["req_options"] = "\n".join(filter(None, options))
    if not template.own:
        return
    if template.log_dir not in (None, "", "{homedir}"):
        migration.settings["log_dir"] = template.log_dir
        migration.moved(where, f"--output in {template.log_dir}", "c.GPUSlurmSpawner.log_dir")
    if template.dropped:
        migration.add("shell_options", where, "; ".join(dict.fromkeys(template.dropped)))
    if template.step:
        migration.add("job_step", where, template.step)


def _with_variables(template: BatchTemplate, own: frozenset[str]) -> str:
    """The template, with a value for those variables that this package and the site's ``own`` classes do not have.

    For jinja2 those that nobody has are empty by themselves.
    """
    text = template.text
    values = [(name, '""') for name in template.unknown if not is_for_jinja(text)]
    further = (("gpus", "gres"), ("modules", "[]"), ("oversubscribe", "false"))
    known = own.union(template.unknown)
    values += [(name, value) for name, value in further if name not in known and re.search(rf"\b{name}\b", text)]
    return with_values(text, values)


def with_values(text: str, values: Iterable[tuple[str, str]]) -> str:
    """A template in which variables have these values, as jinja2 writes them; in ``str.format`` they are empty."""
    if not is_for_jinja(text):
        for name, _ in values:
            text = text.replace(f"{{{name}}}", "")
        return text
    first, newline, rest = text.partition("\n")
    return first + "".join(f"{{%- set {name} = {value} %}}" for name, value in values) + newline + rest


def command_of(value: object) -> tuple[list[str], object]:
    """The shell lines before a command that is a text of several lines, and the command as words.

    batchspawner's script had it as it is written, and the shell split it.
    """
    if isinstance(value, str):
        text = value
    elif isinstance(value, (list, tuple)) and any("\n" in str(word) for word in value):
        text = " ".join(map(str, value))
    else:
        return [], value
    *lines, last = text.strip().splitlines() or [""]
    try:
        words = shlex.split(last.strip().removeprefix("exec "))
    except ValueError:
        return [], value
    return lines, words


def _convert_shell_lines(migration: Migration) -> None:
    """Prologue, epilogue, and the lines around the server in a template that became typed."""
    template, settings = migration.template, migration.old.settings()
    values = {name: settings[name] for name in _SHELL if name in settings}
    fault = swallows_the_script(str(values["req_prologue"].value)) if "req_prologue" in values else ""
    if fault:
        for setting in values.values():
            migration.add("swallows_the_script", setting, setting.value, fault=fault)
        values = {}
    for name, where in zip(_SHELL, ("before", "after"), strict=True):
        own_setting = values.get(name)
        own = str(own_setting.value).strip("\n") if own_setting is not None else ""
        lines, at = shell_lines(template, name)
        if own_setting is not None and own and template.typed and at is None:
            migration.add("never_ran", own_setting, own, variable=name.removeprefix("req_"))
            own_setting, own = None, ""
        if lines:
            now = f"c.GPUSlurmSpawner.{name}"
            migration.settings[name] = between(lines, at, own)
            source = settings.get("batch_script", "batch_script")
            migration.moved(source, f"{len(lines)} shell lines {where} the server", now)
            if own:
                migration.moved(own_setting, own, now)
        elif own_setting is not None and own.strip() and not migration.of_kept_class(own_setting):
            migration.keep(own_setting)


def _convert_lines_of_command(migration: Migration) -> None:
    """A command of several lines: those before the last are run before the server, after the prologue."""
    setting = migration.old.settings().get("cmd")
    if setting is None or "cmd" not in migration.settings:
        return
    lines, migration.settings["cmd"] = command_of(setting.value)
    if not lines:
        return
    if not migration.template.typed:
        migration.add("value_refused", setting, setting.value, str(migration.settings["cmd"]), fault="it is one line")
        return
    before = str(migration.settings.get("req_prologue", ""))
    migration.settings["req_prologue"] = "\n".join(filter(None, [before, *lines]))
    migration.add("command_lines", setting, setting.value, "c.GPUSlurmSpawner.req_prologue, and cmd")


def shell_lines(template: BatchTemplate, name: str) -> tuple[list[str], int | None]:
    """The template's lines beside which ``req_prologue`` or ``req_epilogue`` is run, and after how many of them.

    None where it is not run. A template that is kept has its lines itself.
    """
    before = name == "req_prologue"
    lines, at = (template.before, template.prologue_at) if before else (template.after, template.epilogue_at)
    return (lines, at) if template.typed and template.own else ([], at)


def between(lines: Sequence[str], at: int | None, own: str) -> str:
    """Lines of a template with the value of its variable after so many of them; without those that are empty."""
    before = len(lines) if at is None else at
    parts = [*lines[:before], *([own] if own else []), *lines[before:]]
    has_document = any("<<" in line for line in lines)  # in which an empty line is text
    return "\n".join(parts if has_document else filter(None, parts))


def take_submit_command(migration: Migration) -> None:
    """Read ``batch_submit_cmd`` as the new hub would: its options are what the template of the script fixes."""
    settings, template = migration.old.settings(), migration.template
    setting, prefix = settings.get("batch_submit_cmd"), settings.get("exec_prefix")
    before = str(prefix.value) if prefix is not None else SlurmSpawner.exec_prefix.default_value
    if migration.old.system is System.SLURMFORMSPAWNER or (setting is None and not needs_shell(before)):
        return
    where, command = ("exec_prefix", SUBMIT) if setting is None else (str(setting), setting.value)
    try:
        migration.command = submit_command(before, command, where=where)
    except ConfigError as error:
        migration.add("submit_command", where, command, fault=error.fault.rpartition(": ")[2].rstrip("."))
        return
    template.commanded = sbatch_options("\n".join(f"#SBATCH {option}" for option in migration.command.options))
    if migration.old.own_form:  # whose form could choose other values than fields with these
        return
    requests = {name.removeprefix("req_"): value for name, value in as_requests(migration.command.options).items()}
    lines = requests.pop("options", "").splitlines()
    if "gres" in requests:
        template.constants.pop("gpu_type", None)
    template.constants |= requests
    template.extra += lines
    template.of_command = frozenset(requests)


def _convert_submit_command(migration: Migration, setting: OldSetting) -> None:
    command = migration.command
    if migration.old.own_form and command != SubmitCommand():
        migration.keep(setting)
        return
    if command.bin_dir and "slurm_bin_dir" not in migration.settings:
        migration.settings["slurm_bin_dir"] = command.bin_dir
    parts = [f"exec_prefix = {command.prefix}"] if command.prefix else []
    parts += [f"slurm_bin_dir = {command.bin_dir}"] if command.bin_dir else []
    parts += map(str, command.options)
    if command != SubmitCommand():
        migration.add("submit_command_taken", setting, setting.value, ", ".join(parts))
    elif not any(row.code == "submit_command" for row in migration.differences):
        migration.add("submit_command_usual", setting, setting.value)


def _convert_exec_prefix(migration: Migration) -> None:
    settings = migration.old.settings()
    setting = settings.get("exec_prefix")
    if setting is None and migration.command.prefix not in ("", SlurmSpawner.exec_prefix.default_value):
        setting = settings["batch_submit_cmd"]
    if migration.old.system is System.SLURMFORMSPAWNER:
        migration.settings |= {"exec_prefix": "sudo -n -u {username}", "wrapper_dir": _WRAPPERS}
        migration.add("prefix_of_form", "c.GPUSlurmSpawner.exec_prefix", wrappers=_WRAPPERS)
        return
    if setting is None:
        migration.add("prefix_default", "exec_prefix")
        return
    text = migration.command.prefix or str(setting.value)
    if needs_shell(text):  # the row of batch_submit_cmd says it
        return
    migration.settings["exec_prefix"] = text
    if migration.of_kept_class(setting) or (migration.old.own_form and setting.name == "batch_submit_cmd"):
        del migration.settings["exec_prefix"]
    elif "batch_submit_cmd" in migration.settings:
        migration.settings["exec_prefix"] = setting.value
    try:
        words = shlex.split(text)
    except ValueError:  # the new hub says so when it starts, as the old one did at each start of a server
        words = text.split()
    by_ssh = is_remote(words)
    if runs_as(words) == "":
        migration.add("prefix_of_one", setting, text)
        return
    if needs_shell(str(setting.value)):
        migration.add("prefix_with_shell", setting, setting.value, text)
        return
    if not words or (not by_ssh and _keeps_environment(words)):
        # else the row of batch_submit_cmd says it
        if setting.name == "exec_prefix" and not migration.of_kept_class(setting):
            also = "" if migration.settings["exec_prefix"] == setting.value else ", with the words of batch_submit_cmd"
            migration.moved(setting, setting.value, f"c.GPUSlurmSpawner.exec_prefix{also}")
        return
    migration.settings["wrapper_dir"] = _WRAPPERS
    migration.add("prefix_by_ssh" if by_ssh else "prefix_without_environment", setting, text, wrappers=_WRAPPERS)
    if by_ssh:
        _convert_ssh(migration, setting, words)


def _keeps_environment(words: Sequence[str]) -> bool:
    """Whether a program of the prefix passes all variables on: runuser does, and sudo with ``-E``."""
    runuser = any(PurePath(word).name == "runuser" for word in words)
    return runuser or _PRESERVES.search(" ".join(words)) is not None


def _convert_ssh(migration: Migration, setting: OldSetting, words: Sequence[str]) -> None:
    """What the login node is asked, and how it is reached, where jobs are submitted by ssh."""
    try:
        login = destination(words)
    except ConfigError as error:
        migration.add("ssh_destination", setting, setting.value, fault=error.message.rstrip("."), hint=error.hint)
        return
    command = tuple(words[len(login) :])
    if command and command != _SUDO:
        migration.add("ssh_command", setting, " ".join(command))
    where = "c.GPUSlurmSpawner.query_prefix"
    if any("{" in word for word in login):
        migration.add("query_prefix_of_user", where)
    else:
        migration.settings["query_prefix"] = shlex.join(login)
        migration.add("query_prefix", where, now=shlex.join(login))
