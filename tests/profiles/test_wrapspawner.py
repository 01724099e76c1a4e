"""wrapspawner's tuples and the pairs of older hubs."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles

WORKSHOP = [
    (
        "Furiosa GPU node - 40 cores, 32 GB, 8 hours",
        {"nprocs": "40", "partition": "gpu", "runtime": "8:00:00", "memory": "32000"},
    ),
    (
        "Furiosa CPU only node - 1 core, 16 GB, 8 hours",
        {"nprocs": "1", "partition": "batch", "runtime": "8:00:00", "memory": "16000"},
    ),
    (
        "Furiosa CPU node - 12 cores, 32 GB, 8 hours",
        {"nprocs": "12", "partition": "batch", "runtime": "8:00:00", "memory": "32000"},
    ),
    ("Test server", "local", "jupyterhub.spawner.LocalProcessSpawner", {"ip": ""}),
]
"""The profiles of the workshop of 2017, as printed."""


def _set(item: object) -> dict[str, Any]:
    (profile,) = parse_profiles([item])
    return profile.model_dump(exclude_unset=True)


def test_the_workshops_profiles_are_read_as_printed() -> None:
    """Pairs become Slurm jobs with typed resources; the test server keeps its trait and key."""
    slurm = {"partition": "gpu", "cpus": 40, "memory": 32000, "time": 28800}
    assert [profile.model_dump(exclude_unset=True) for profile in parse_profiles(WORKSHOP)] == [
        {
            "slug": "furiosa-gpu-node-40-cores-32-gb-8-hours",
            "display_name": "Furiosa GPU node - 40 cores, 32 GB, 8 hours",
            "kind": "slurm",
            "traits": {},
            "slurm": slurm,
        },
        {
            "slug": "furiosa-cpu-only-node-1-core-16-gb-8-hours",
            "display_name": "Furiosa CPU only node - 1 core, 16 GB, 8 hours",
            "kind": "slurm",
            "traits": {},
            "slurm": {**slurm, "partition": "batch", "cpus": 1, "memory": 16000},
        },
        {
            "slug": "furiosa-cpu-node-12-cores-32-gb-8-hours",
            "display_name": "Furiosa CPU node - 12 cores, 32 GB, 8 hours",
            "kind": "slurm",
            "traits": {},
            "slurm": {**slurm, "partition": "batch", "cpus": 12},
        },
        {"slug": "local", "display_name": "Test server", "kind": "local", "traits": {"ip": ""}},
    ]


def test_every_req_setting_with_a_typed_field_becomes_one() -> None:
    """Settings without a typed field stay traits."""
    traits = {
        "req_partition": "gpu",
        "req_nprocs": "4",
        "req_memory": "4gb",
        "req_runtime": "1:00:00",
        "req_gres": "gpu:k80:2",
        "req_account": "acct",
        "req_qos": "high",
        "req_reservation": "ml-hpc-%u",
        "req_options": "--exclusive --mail-type=END",
        "req_nnodes": 2,
        "req_prologue": "echo hello",
        "req_queue": "",
        "start_timeout": 240,
        "queue_timeout": "2:00:00",
        "cmd": ["lab"],
    }
    document = _set(("GPU", "gpu_1", "batchspawner.SlurmSpawner", traits))
    assert document["slurm"].pop("reservation")["pattern"] == "ml-hpc-%u"
    assert document == {
        "slug": "gpu_1",
        "display_name": "GPU",
        "kind": "slurm",
        "slurm": {
            "partition": "gpu",
            "cpus": 4,
            "memory": 4096,
            "time": 3600,
            "gpus": 2,
            "gpu_type": "k80",
            "account": "acct",
            "qos": "high",
            "extra": ("--exclusive --mail-type=END",),
            "nodes": 2,
        },
        "traits": {"req_prologue": "echo hello", "req_queue": ""},
        "start_timeout": 240,
        "queue_timeout": 7200,
        "command": ("lab",),
    }


def test_an_empty_text_asks_for_nothing_whatever_the_site_asks_for() -> None:
    """As in wrapspawner, where a profile's settings replace those of the class."""
    traits = {"req_partition": "", "req_nprocs": "", "req_gres": "", "req_options": ""}
    empty = {"partition": None, "cpus": None, "gpus": None, "shards": None, "extra": None}
    assert _set(("P", "p", "batchspawner.SlurmSpawner", traits))["slurm"] == empty


def test_settings_with_a_typed_field_are_that_field_in_a_table_too() -> None:
    """Fields that ``slurm`` sets itself take precedence."""
    traits = {"req_partition": "gpu", "req_gres": "gpu:2", "req_prologue": "date"}
    document = _set({"display_name": "P", "slurm": {"partition": "batch", "cpus": 2}, "traits": traits})
    assert (document["slurm"], document["traits"]) == (
        {"partition": "batch", "gpus": 2, "cpus": 2},
        {"req_prologue": "date"},
    )


@pytest.mark.parametrize(
    ("gres", "slurm"),
    [
        ("", {"gpus": None, "shards": None}),
        ("gpu:2", {"gpus": 2}),
        ("gpu", {"gpus": 1}),
        ("gpu:1g.10gb:1", {"gpus": 1, "gpu_type": "1g.10gb"}),
        ("shard:3", {"shards": 3}),
        ("gpu:a100:1,nvme:1", {"gpus": 1, "gpu_type": "a100", "extra": ("--gres=nvme:1",)}),
        ("gpu:a100:1,gpu:k80:1", {"extra": ("--gres=gpu:a100:1,gpu:k80:1",)}),
        ("gpu:1,mps:50", {"extra": ("--gres=gpu:1,mps:50",)}),
        ("craynetwork:4", {"extra": ("--gres=craynetwork:4",)}),
    ],
)
def test_a_gres_text_becomes_gpus_or_shards_or_goes_to_slurm_as_it_is(gres: str, slurm: dict[str, object]) -> None:
    """One type of GPU becomes fields; other resources become an sbatch option."""
    assert _set(("P", {"req_gres": gres}))["slurm"] == slurm


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("batchspawner.SlurmSpawner", "slurm"),
        ("jupyterhub_gpuspawner.GPUSlurmSpawner", "slurm"),
        ("mysite.spawners.SlurmSpawner", "other"),
        ("jupyterhub.spawner.SimpleLocalProcessSpawner", "local"),
        ("dockerspawner.DockerSpawner", "other"),
    ],
)
def test_the_class_of_a_tuple_decides_what_starts_the_server(name: str, kind: str) -> None:
    """By its whole name, without importing it; a hub looks at what the classes of others are derived from."""
    (profile,) = parse_profiles([("P", "p", name, {})])
    assert (profile.kind, profile.spawner_class) == (kind, name if kind == "other" else None)


def test_a_class_itself_is_named_by_its_module() -> None:
    """wrapspawner accepts classes and names."""

    class DockerSpawner:
        pass

    (profile,) = parse_profiles([("P", "p", DockerSpawner, {"image": "x"})])
    assert profile.spawner_class == f"{__name__}.test_a_class_itself_is_named_by_its_module.<locals>.DockerSpawner"
    assert profile.traits == {"image": "x"}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (("P", {"memory": "lots"}), "profiles[0].slurm.memory: 'lots' is not a valid amount of memory"),
        (("P", {"gres": "::"}), "profiles[0]: '::' is not a generic resource"),
        (("P", {"slurm": {}}), "profiles[0]: 'slurm' is not a trait: write the whole profile as a dict"),
        (("P", "p", 3, {}), "profiles[0]: 3 is not a spawner class"),
        ((3, {}), "profiles[0]: a profile's tuple begins with its display name"),
        (("P", "p"), "profiles[0]: a profile's tuple begins with its display name"),
    ],
)
def test_a_tuple_that_is_no_profile_is_refused_with_its_place(item: object, message: str) -> None:
    """The error names the tuple and what it must contain."""
    with pytest.raises(ConfigError) as caught:
        parse_profiles([item])
    assert str(caught.value).startswith(message)
