"""Settings with bounds: a value outside is refused when the hub starts, and nodes accept every plan within."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traitlets import Enum, Float, Integer, TraitError
from traitlets.config import Config

from jupyterhub_gpuspawner.batch.job import launch_plan
from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.hub.site.slurm_settings import Count, PortRange, Seconds, SlurmSettings
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import resolve
from jupyterhub_gpuspawner.wire.documents import recover_plan
from tests.cli.runner import cli_runner

SPAWNERS = (GPUSlurmSpawner, GPUProfilesSpawner)


def ours(cls: type[Any]) -> dict[str, Any]:
    """Return the settings that a spawner of ours declares."""
    base = next(base for base in cls.__mro__ if not base.__module__.startswith("jupyterhub_gpuspawner"))
    return {n: trait for n, trait in cls.class_traits(config=True).items() if getattr(base, n, None) is not trait}


def test_every_number_that_can_be_set_has_bounds() -> None:
    """So that no later setting is forgotten."""
    numbers = {
        f"{cls.__name__}.{name}": type(trait)
        for cls in SPAWNERS
        for name, trait in ours(cls).items()
        if isinstance(trait, (Float, Integer))
    }
    assert {name for name, kind in numbers.items() if kind not in (Seconds, Count)} == set()
    assert numbers


WRONG: dict[str, tuple[Any, str]] = {
    "slurm_timeout": (-1, "-1 must be from 0.5 to 600 seconds."),
    "queue_timeout": (600, "600 could be seconds or minutes: write a time such as 4:00:00, or UNLIMITED."),
    "job_name": (
        'lab "A"',
        """'lab "A"' must be one printable line without double quotes and backslashes: it becomes """
        "part of an sbatch option.",
    ),
    "log_dir": (
        "a\\b",
        "'a\\\\b' must be one printable line without double quotes and backslashes: it becomes part of "
        "an sbatch option.",
    ),
    "req_homedir": (
        "/home\n",
        "'/home\\n' must be one printable line without double quotes and backslashes: it becomes "
        "part of an sbatch option.",
    ),
    "port_range": ("80-90", "'80-90' must be FIRST-LAST within 1024-65535, such as 20000-20999"),
}


@pytest.mark.parametrize(
    ("name", "value", "message"), [(name, *wrong) for name, wrong in WRONG.items()], ids=WRONG.keys()
)
def test_a_value_out_of_bounds_is_refused_with_the_bounds(name: str, value: object, message: str) -> None:
    """Whichever class the configuration names."""
    for section in ("GPUSlurmSpawner", "SlurmSpawner", "BatchSpawnerBase"):
        with pytest.raises(TraitError) as refused:
            GPUSlurmSpawner(config=Config({section: {name: value}}))
        assert str(refused.value) == f"{name}: {message}"


def test_nan_is_out_of_bounds() -> None:
    """Comparisons with NaN are always false."""
    with pytest.raises(TraitError, match=r"slurm_timeout: nan must be from 0\.5 to 600 seconds\."):
        GPUSlurmSpawner(slurm_timeout=float("nan"))


def test_the_bounds_themselves_are_allowed() -> None:
    for name, trait in ours(SlurmSettings).items():
        for value in (trait.low, trait.high) if isinstance(trait, (Seconds, Count)) else ():
            assert getattr(GPUSlurmSpawner(**{name: value}), name) == value


def test_check_names_the_setting_and_its_bounds(tmp_path: Path) -> None:
    """The hub exits with this sentence."""
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        "c.JupyterHub.spawner_class = 'gpu-profiles'\n"
        "c.SlurmSpawner.slurm_timeout = 0\n"
        "c.GPUProfilesSpawner.profiles = [('A', {})]\n"
    )
    checked = cli_runner().invoke(main, ["check", "--config", str(config)])

    assert checked.exit_code == 1
    assert checked.stderr == (
        "gpuspawner: c.SlurmSpawner.slurm_timeout: slurm_timeout: 0 must be from 0.5 to 600 seconds.\n"
    )


def _values(trait: Any) -> st.SearchStrategy[Any]:
    if isinstance(trait, Seconds):
        return st.sampled_from([trait.low, trait.high]) | st.floats(trait.low, trait.high)
    if isinstance(trait, Enum):
        return st.sampled_from(trait.values or ())
    assert isinstance(trait, PortRange)
    return st.sampled_from(["", "1024-65535", "20000-20000"])


OF_THE_PLAN = ("placement_policy", "memory_policy", "port_range")
SETTINGS = st.fixed_dictionaries(
    {}, optional={name: _values(GPUSlurmSpawner.class_traits()[name]) for name in OF_THE_PLAN}
)
PROFILES = st.fixed_dictionaries(
    {
        "slurm": st.fixed_dictionaries(
            {}, optional={"gpus": st.sampled_from([0, 1024]), "cpus": st.sampled_from([1, 65536])}
        )
    },
    optional={
        "placement": st.fixed_dictionaries(
            {}, optional={"claim": st.sampled_from([1, 1024]), "policy": st.sampled_from(["none", "restricted"])}
        ),
        "port_range": st.sampled_from(["1024-65535", [30000, 30001]]),
    },
)


@settings(deadline=None, max_examples=80)
@given(site=SETTINGS, fields=PROFILES)
def test_every_plan_that_the_hub_can_send_is_one_that_a_node_takes(
    site: dict[str, Any], fields: dict[str, Any]
) -> None:
    """Also at the bounds of each setting and each field."""
    profiles = parse_profiles([{"display_name": "P", **fields}])
    request = resolve(profiles, {}, username="ada", groups=(), server_name="", now=datetime(2026, 3, 3))
    plan = launch_plan(GPUSlurmSpawner(**site).job_settings(), request)

    assert recover_plan(plan.dumps()) == (plan, "")
