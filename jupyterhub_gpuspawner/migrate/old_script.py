"""The script that the classes of the old hub render themselves, from the same configuration. Nothing is submitted."""

from __future__ import annotations

import asyncio
import copy
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from batchspawner import BatchSpawnerBase, SlurmSpawner
from batchspawner.batchspawner import format_template
from jupyterhub.spawner import Spawner
from traitlets.config import Config
from wrapspawner import WrapSpawner

from jupyterhub_gpuspawner.batch.template import names_in
from jupyterhub_gpuspawner.hub.site.slurm_settings import SlurmSettings
from jupyterhub_gpuspawner.migrate.old_hub import OldHub, spawner_class_named
from jupyterhub_gpuspawner.migrate.template import in_one_spelling, sbatch_options
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, NamedHub, NamedUser
from jupyterhub_gpuspawner.slurm.job import Account
from jupyterhub_gpuspawner.slurm.submit_command import SubmitCommand

OldProfile = tuple[str, Any, Mapping[str, Any]]
"""A profile of wrapspawner's: key, class and settings."""


@dataclass(frozen=True)
class OldScript:
    """A batch script of the old hub."""

    text: str
    command: str
    """The server's command in it, with batchspawner's program before it."""
    server: str
    """The same without that program."""
    variables: Mapping[str, Any]
    """Those of the template, but for the command."""
    options: Mapping[str, str]
    """sbatch's options, in one spelling: those of the command line win over those of the script."""


def old_script(old: OldHub, profile: OldProfile | None, account: Account, command_line: SubmitCommand) -> OldScript:
    """The script for a user, with the default choice; raises whatever the site's template or classes raise.

    ``profile``: None in a hub without profiles. ``command_line`` is what ``batch_submit_cmd`` says.
    """
    spawner = _plain(old, account.name) if profile is None else _child(old, account.name, *profile)
    for name, value in (("req_homedir", account.home), ("req_keepvars", "JUPYTERHUB_API_TOKEN")):
        with suppress(AttributeError):  # of a class in which it is a property
            setattr(spawner, name, value)
    variables = spawner.get_req_subvars()
    commanded = {
        option.name: in_one_spelling(option.name, str(format_template(option.value, **variables)))
        for option in command_line.arguments
        if option.name not in ("parsable", "quiet")
    }
    options = {key: value for key, value in (spawner.user_options or {}).items() if isinstance(key, str)}
    command = str(spawner.cmd_formatted_for_batch())
    unknown = dict.fromkeys(names_in(str(spawner.batch_script)) - variables.keys(), "")
    text = str(asyncio.run(spawner._get_batch_script(**{**unknown, **variables, "cmd": command, **options})))  # noqa: SLF001
    server = command.removeprefix(f"{spawner.batchspawner_singleuser_cmd} ")
    return OldScript(text, command, server, {**variables, **options}, {**sbatch_options(text), **commanded})


def somebodys_script(old: OldHub, profile: OldProfile | None, command_line: SubmitCommand) -> OldScript | None:
    """That of a user without an account, see :func:`old_script`; None where batchspawner could make none."""
    try:
        return old_script(old, profile, SOMEBODY, command_line)
    except Exception:  # noqa: BLE001 - an admin's template and classes may raise anything, and then no job was ever submitted
        return None


def _plain(old: OldHub, user: str) -> Any:
    named, config = spawner_class_named(old.config.JupyterHub.get("spawner_class", "")), old.config
    if named is None:  # a class that is not installed here; what its sections set is known
        values = {name: setting.value for name, setting in old.settings().items()}
        config = Config({**config, "SlurmSpawner": Config(values)})
    return _of_a_batch_system(named)(config=config, user=NamedUser(user), hub=NamedHub())


def _of_a_batch_system(named: type | None) -> type[BatchSpawnerBase]:
    """The class, if it is batchspawner's or derived from one of its; else batchspawner's for Slurm."""
    spawner_class: type[BatchSpawnerBase] = SlurmSpawner
    if named is not None and issubclass(named, BatchSpawnerBase) and not issubclass(named, SlurmSettings):
        spawner_class = named
    return spawner_class


def _child(old: OldHub, user: str, key: str, spawner_class: Any, settings: Mapping[str, Any]) -> Any:
    """The spawner that wrapspawner makes for a profile: settings of the wrapper's own replace those of its class."""
    config = copy.deepcopy(old.config)
    for section in config:
        if isinstance(config[section], Config):
            for name in ("profiles", "default_profiles", "child_class", "child_config"):
                config[section].pop(name, None)
    named = spawner_class_named(config.JupyterHub.get("spawner_class", ""))
    wrapper_class = named if named is not None and issubclass(named, WrapSpawner) else WrapSpawner
    wrapper = wrapper_class(config=config, user=NamedUser(user), hub=NamedHub(), db=None)
    wrapper.child_class = _of_a_batch_system(spawner_class_named(spawner_class))
    wrapper.child_config = {
        name: value for name, value in settings.items() if name in wrapper.child_class.class_traits()
    }
    wrapper.user_options = {"profile": key}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it passes on arguments that its child does not have
        WrapSpawner.construct_child(wrapper)
    child: Spawner = wrapper.child_spawner
    return child
