"""Rows of what a conversion can only name: forms, hooks and classes of the site's own, and a hub without GPUs."""

from __future__ import annotations

from jupyterhub_gpuspawner.check.inherited_settings import unused_methods
from jupyterhub_gpuspawner.hub.spawners.classes import is_own, set_by
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.migrate.classes import ClassValues, new_name, setting_of
from jupyterhub_gpuspawner.migrate.old_hub import CODE, FORMS, HOOKS, PACKAGES, System
from jupyterhub_gpuspawner.migrate.result import Migration

_SPAWNERS = (
    "SlurmSpawner",
    "MultiSlurmSpawner",
    "ProfilesSpawner",
    "DockerProfilesSpawner",
    "WrapSpawner",
    "MOSlurmSpawner",
    "SlurmFormSpawner",
)


def note_code(migration: Migration) -> None:
    """Forms and hooks of the site's own, wherever they are set: in a section, or by a class itself."""
    read = {"Spawner"}
    if migration.old.own_form:
        read = {base.__name__ for base in (*GPUSlurmSpawner.__mro__, *getattr(migration.site_class, "__mro__", ()))}
    for section in ("Spawner", *sorted(migration.old.old_sections)):
        new = "" if section in read else "c.GPUSlurmSpawner"
        for name, value in migration.old.section(section).items():
            _note_code_of(migration, f"c.{section}.{name}", value, new)
            if migration.old.own_form and not new and name in (*FORMS, *HOOKS):
                migration.stays.append(f"c.{section}.{name}")
            if name == "group_overrides" and section == "Spawner":
                migration.add("hook_as_it_is", f"c.{section}.{name}", value, "as it is")
    for cls in migration.old.own_classes:
        for name in sorted(CODE & set_by(cls)):
            new = "" if migration.site_class is not None else "c.GPUSlurmSpawner"
            _note_code_of(migration, f"{cls.__name__}.{name}", vars(cls).get(name), new)


def _note_code_of(migration: Migration, where: str, value: object, new: str) -> None:
    """The row of a form or hook; ``new`` is where it belongs, empty if it may stay."""
    name, old = where.rpartition(".")[2].removeprefix("run_"), migration.old
    configured = where.startswith("c.")
    if old.own_form and name in (*FORMS, "get_options_form") and (configured or not new):
        of_new = f"c.GPUSlurmSpawner.{name}"
        migration.add("form_moved" if new else "form_stays", where, value, of_new if new else "as it is", new=of_new)
    elif name in (*FORMS, "get_options_form"):
        unseen = old.system is System.BATCHSPAWNER and configured
        code = "form_unseen" if unseen else "own_form" if configured else "form_of_class"
        migration.add(code, where, value, "left out" if new else "as it is")
    elif name in HOOKS:
        new = new and f"{new}.{name}"
        code = "hook_before" if name in _BEFORE and not old.own_form else "hook_moved" if new else "hook_as_it_is"
        migration.add(code, where, value, new or "as it is", move=f"Write it as {new}. " if new else "", new=new)


_BEFORE = ("apply_user_options", "auth_state_hook", "pre_spawn_hook")
"""Hooks of a start that read the user's options, or set what its job requests."""


def note_gpus(migration: Migration) -> None:
    """A hub whose jobs never asked for a GPU."""
    if migration.old.own_form:  # or a hook, may ask for them
        return
    text = repr([profile.document for profile in migration.profiles]) + repr(migration.settings)
    if not any(word in text for word in ("gpus", "gres", "gpu_type", "shards")):
        migration.add("no_gpus", "slurm.gpus")


def note_spawner(migration: Migration) -> None:
    """The spawner itself, which may be a class of the site's own."""
    spawner, kept = migration.old.spawner, migration.site_class
    if kept is not None:
        migration.add("class_derived", "c.JupyterHub.spawner_class", spawner, new_name(kept), site=kept.__name__)
        for method in unused_methods(kept, GPUSlurmSpawner):
            migration.add("own_method", method)
        return
    code = "spawner_class_of_form" if migration.old.own_form else "spawner_class"
    migration.add(code, "c.JupyterHub.spawner_class", spawner)
    cls = migration.old.spawner_class
    if cls is not None:
        note_class(migration, cls, migration.old.own)
    elif spawner not in _SPAWNERS:
        migration.add("own_class", spawner)


def note_class(migration: Migration, cls: type, own: ClassValues) -> None:
    """What cannot be taken over from a class of the site's own: its methods, and values of each user."""
    if own.fault:
        migration.add("class_not_made", cls.__name__, fault=own.fault)
    for name in own.of_each_user:
        if (name in GPUSlurmSpawner.class_traits() and name not in CODE) or is_own(name):
            code = "other_account" if name == "req_username" else "value_of_each_user"
            migration.add(code, setting_of(cls, name, migration.old.config))
    theirs = {base.__name__ for base in cls.__mro__ if base.__module__.partition(".")[0] in PACKAGES}
    for method in unused_methods(cls):
        of_class, _, name = method.rpartition(".")
        has_row = cls is migration.old.hub_class and name in CODE
        if not has_row and of_class not in theirs:
            migration.add("own_method", method)
