"""Fields of profile files: those that the admin has not allowed, or cannot allow, are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawner_bases import LocalProcessSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.document import read_document
from jupyterhub_gpuspawner.profiles.files import (
    ALLOWANCES,
    EVERYTHING,
    NOTHING,
    TRAITS,
    Rights,
)
from jupyterhub_gpuspawner.profiles.option import ListedChoice, ProfileOption, Range, UnlistedChoice
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resources import Environment, PlacementRules, Resources
from jupyterhub_gpuspawner.profiles.schema import Frozen
from tests.standins.profile_files import read_profiles

FIELDS: dict[str, tuple[str, str]] = {
    "kind: local": ("kind", "local"),
    "command: [sh, -c, id]": ("command", "command"),
    "environment: {setup: id}": ("environment.setup", "setup"),
    "environment: {container: docker://x/y}": ("environment.container", "software"),
    "environment: {venv: ~/x}": ("environment.venv", "software"),
    "environment: {conda: /home/eve/env}": ("environment.conda", "software"),
    "environment: {conda: ~/env}": ("environment.conda", "software"),
    "environment: {conda: ..}": ("environment.conda", "software"),
    "environment: {module_use: /home/eve}": ("environment.module_use", "software"),
    "environment: {variables: {LD_PRELOAD: /home/eve/x.so}}": ("environment.variables", "variables"),
    "environment: {variables: {A: b}}": ("environment.variables", "variables"),
    "slurm: {extra: --uid=0}": ("slurm.extra", "extra"),
    "traits: {mem_limit: 1G}": ("traits.mem_limit", "traits"),
}
"""YAML of a profile: the field that is refused, and the word that allows it."""
IN_OPTIONS: dict[str, tuple[str, str]] = {
    **{
        f"choices: {{one: {{{line}}}}}": (f"choices.one.{path}", allowance)
        for line, (path, allowance) in FIELDS.items()
        if path not in ("kind", "traits.mem_limit")
    },
    **{
        f"unlisted_choice: {{validation_regex: .*, sets: {sets}}}": ("unlisted_choice.sets", allowance)
        for sets, allowance in (
            ("environment.container", "software"),
            ("environment.conda", "software"),
            ("environment.venv", "software"),
            ("environment.variables.LD_PRELOAD", "variables"),
        )
    },
}


def written(folder: Path, text: str) -> Path:
    """The file ``p.yaml`` with this text."""
    path = folder / "p.yaml"
    path.write_text(text)
    return path


def refusal(path: Path, rights: Rights) -> str:
    """The error for the file."""
    with pytest.raises(ConfigError) as caught:
        read_profiles(path, rights)
    return str(caught.value)


@pytest.mark.parametrize(("line", "field_and_word"), FIELDS.items(), ids=FIELDS)
def test_a_field_that_names_code_needs_its_word(tmp_path: Path, line: str, field_and_word: tuple[str, str]) -> None:
    """Without its word it is refused with file, line, field and the word; with that word alone it is allowed."""
    field, allowance = field_and_word
    path = written(tmp_path, f"display_name: P\n{line}\n")

    assert refusal(path, Rights(frozenset(ALLOWANCES) - {allowance})) == (
        f"p.yaml:2: {field}: this field is not allowed in a profile file. "
        f'"{allowance}" in c.GPUProfilesSpawner.profiles_dir_allows would allow it.'
    )
    assert read_profiles(path, Rights(frozenset({allowance})))


@pytest.mark.parametrize(("line", "field_and_word"), IN_OPTIONS.items(), ids=IN_OPTIONS)
def test_what_an_option_puts_over_the_profile_needs_the_same_word(
    tmp_path: Path, line: str, field_and_word: tuple[str, str]
) -> None:
    """Choices and free texts, which links can set, are held to the same rights."""
    field, allowance = field_and_word
    path = written(tmp_path, f"display_name: P\nprofile_options: {{o: {{{line}}}}}\n")

    assert refusal(path, Rights(frozenset(ALLOWANCES) - {allowance})) == (
        f"p.yaml:2: profile_options.o.{field}: this field is not allowed in a profile file. "
        f'"{allowance}" in c.GPUProfilesSpawner.profiles_dir_allows would allow it.'
    )
    assert read_profiles(path, Rights(frozenset({allowance})))


FREE = """
display_name: P
slug: p
description: text
default: true
slurm: {cluster: a, partition: a, nodes: 1, gpus: 1, gpu_type: a100, cpus: 1, memory: 1G, time: 1:00, account: a,
  qos: a, reservation: a-%u, constraint: a, nice: 1, exclusive: true}
environment: {login_shell: false, modules: [CUDA], conda: jupyter}
placement: {policy: restricted, claim: 1}
allow: {groups: [a], users: [a], from: 2024-01-01, until: 2024-01-01}
start_timeout: 1
queue_timeout: 4:00:00
lab: false
default_url: /lab
port_range: 20000-20999
alternatives: [b]
rescue: true
profile_options:
  a: {range: {min: 1, max: 2, step: 1, default: 1, sets: slurm.cpus, unit: cores}}
  b:
    display_name: B
    description: text
    choices: {one: {display_name: One, description: text, default: true, slurm: {gpus: 1}, environment: {modules: a},
      placement: {policy: none}, default_url: /tree}}
    unlisted_choice: {enabled: true, display_name: a, validation_regex: a,
      validation_message: a, sets: slurm.account}
"""
"""Every field that needs no word, in one profile."""


def test_a_plain_request_of_slurm_with_the_sites_modules_needs_no_word(tmp_path: Path) -> None:
    """Texts, times, options, and ``allow``."""
    assert read_profiles(written(tmp_path, FREE), NOTHING)


def test_every_field_is_free_or_needs_a_word() -> None:
    """A new profile field must be classified: this test fails until it is."""
    (free,) = parse_profiles([_loaded(FREE)])
    guarded: dict[type[Frozen], set[str]] = {
        Profile: {"kind", "spawner_class", "traits", "command"},
        Resources: {"extra", "shards"},  # shards exclude GPUs, and are no more than those
        Environment: {"module_use", "venv", "container", "variables", "setup"},
        PlacementRules: set(),
        ListedChoice: {"command"},
        ProfileOption: {"range"},  # there is one in another option
        UnlistedChoice: set(),
        Range: set(),
    }
    options = free.profile_options
    parts: dict[type[Frozen], Frozen | None] = {
        Profile: free,
        Resources: free.slurm,
        Environment: free.environment,
        PlacementRules: free.placement,
        ListedChoice: options["b"].choices["one"],
        ProfileOption: options["b"],
        UnlistedChoice: options["b"].unlisted_choice,
        Range: options["a"].range,
    }

    for model, part in parts.items():
        assert part is not None
        assert set(model.model_fields) - part.model_fields_set == guarded[model], model.__name__


def _loaded(text: str) -> object:
    return read_document(text).value


SETTINGS = sorted({*GPUSlurmSpawner.class_trait_names(), *LocalProcessSpawner.class_trait_names()} - {*TRAITS})


@pytest.mark.parametrize("name", SETTINGS)
def test_no_other_setting_of_a_spawner_can_be_given_by_a_file(tmp_path: Path, name: str) -> None:
    """Whatever is allowed, and whatever releases of JupyterHub and batchspawner bring."""
    path = written(tmp_path, f"display_name: P\ntraits: {{{name}: x}}\n")

    assert refusal(path, EVERYTHING) == (
        f"p.yaml:2: traits.{name}: this field is not allowed in a profile file. Files may set {', '.join(TRAITS)}; "
        "a profile in jupyterhub_config.py may set any."
    )


@pytest.mark.parametrize(
    "item",
    [
        "[P, p, batchspawner.SlurmSpawner, {exec_prefix: sh}]",
        "[P, {slurm_bin_dir: /home/eve}]",
        "[P, {prologue: id, req_prologue: id}]",
        "[P, p, jupyterhub.spawner.LocalProcessSpawner, {cmd: [sh]}]",
        "[P, p, jupyterhub.spawner.SimpleLocalProcessSpawner, {}]",
        "[P, p, os.system, {}]",
    ],
)
def test_wrapspawners_form_of_a_profile_is_no_way_around(tmp_path: Path, item: str) -> None:
    """It is held to the same rights, whatever is allowed except ``local``."""
    path = written(tmp_path, f"- {item}\n")
    assert "this field is not allowed in a profile file" in refusal(path, Rights(frozenset(ALLOWANCES) - {"local"}))


def test_a_class_is_named_by_the_admin_one_by_one(tmp_path: Path) -> None:
    """There is no word for all classes, since a class may run servers as the hub's account."""
    path = written(tmp_path, "display_name: P\nkind: other\nspawner_class: a.B\n")

    assert refusal(path, Rights(frozenset(ALLOWANCES), frozenset({"a.C"}))) == (
        "p.yaml:3: spawner_class: this field is not allowed in a profile file. "
        "The class in c.GPUProfilesSpawner.profiles_dir_classes would allow it."
    )
    assert read_profiles(path, Rights(classes=frozenset({"a.B"})))


def test_a_module_is_no_way_out_of_the_sites_folders() -> None:
    """``module load a/../../home/eve`` would leave them."""
    with pytest.raises(ConfigError, match=r"without blanks and without \.\."):
        parse_profiles([{"display_name": "P", "environment": {"modules": ["a/../../home/eve"]}}])
