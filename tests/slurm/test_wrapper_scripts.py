"""With ``wrapper_dir`` scripts replace sbatch and scancel, and read their input from stdin."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import ConfigError, SubmitRejected
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation, submission

RECORD = """#!/bin/sh
{{ echo "$0 $*"; cat; env | grep -c JUPYTERHUB; }} > {folder}/$(basename "$0").seen
{then}
"""
PREFIX = ("env", "-u", "NOTHING")
"""A prefix that changes nothing."""


@pytest.fixture
def client(tmp_path: Path) -> SlurmClient:
    """A client whose wrapper scripts record their input."""
    scripts = {"submit": "echo 4711", "cancel": ":", "log": "echo the last words"}
    for name, then in scripts.items():
        script = tmp_path / name
        script.write_text(RECORD.format(folder=tmp_path, then=then))
        script.chmod(0o755)
    return SlurmClient(Installation(wrapper_dir=str(tmp_path)))


async def test_all_goes_by_standard_input(client: SlurmClient, tmp_path: Path) -> None:
    """The scripts get no arguments, and none of the job's variables are in their own environment."""
    job = await client.submit("#!/bin/sh\n", prefix=PREFIX, environment={"JUPYTERHUB_API_TOKEN": "0123", "A": "é\n"})
    await client.cancel("4711", prefix=PREFIX, environment={"JUPYTERHUB_USER": "ada"})
    lines = await client.log_end("4711", prefix=PREFIX)
    records = {name: (tmp_path / f"{name}.seen").read_text() for name in ("submit", "cancel", "log")}

    assert (job, lines) == ("4711", "the last words\n")
    assert records == {
        "submit": f"{tmp_path}/submit \nenvironment 32\nJUPYTERHUB_API_TOKEN=0123\0A=é\n\0#!/bin/sh\n0\n",
        "cancel": f"{tmp_path}/cancel \n47110\n",
        "log": f"{tmp_path}/log \n47110\n",
    }


async def test_the_scripts_of_another_cluster_take_no_argument_either(client: SlurmClient, tmp_path: Path) -> None:
    """Its name is in their own environment; without scripts it is an option."""
    for name in ("submit", "sbatch", "scancel"):
        (tmp_path / name).write_text(RECORD.format(folder=tmp_path, then="echo '4711;cedar'"))
        (tmp_path / name).chmod(0o755)
    for wrapper_dir in (str(tmp_path), ""):
        cedar = SlurmClient(Installation(bin_dir=str(tmp_path), cluster="cedar", wrapper_dir=wrapper_dir))
        await cedar.submit("#!/bin/sh\n", prefix=PREFIX)
        await cedar.cancel("4711", prefix=PREFIX)
    names = ("submit", "cancel", "sbatch", "scancel")

    assert {name: (tmp_path / f"{name}.seen").read_text().splitlines()[0] for name in names} == {
        "submit": f"{tmp_path}/submit ",
        "cancel": f"{tmp_path}/cancel ",
        "sbatch": f"{tmp_path}/sbatch --clusters=cedar --parsable",
        "scancel": f"{tmp_path}/scancel --clusters=cedar 4711",
    }


async def test_a_script_that_submits_to_another_cluster_is_wrong(client: SlurmClient) -> None:
    """Where SLURM_CLUSTERS is missing from it, sbatch names no cluster: the number is not that of a job there."""
    cedar = SlurmClient(Installation(cluster="cedar", wrapper_dir=client.installation.wrapper_dir))

    with pytest.raises(ConfigError, match=r"Job 4711 was submitted to the cluster of slurm.conf instead of cedar\."):
        await cedar.submit("#!/bin/sh\n", prefix=PREFIX)


async def test_without_a_prefix_there_is_nobody_to_become(client: SlurmClient, tmp_path: Path) -> None:
    """Jobs of the hub's own account need no wrapper."""
    assert await client.log_end("1", prefix=()) == ""
    assert not (tmp_path / "log.seen").exists()


async def test_a_wrappers_refusal_is_told(client: SlurmClient, tmp_path: Path) -> None:
    """A wrapper's refusal is reported with its own message."""
    (tmp_path / "submit").write_text("#!/bin/sh\necho 'submit: not as root' >&2; exit 1\n")

    with pytest.raises(SubmitRejected, match="Slurm refused the job: submit: not as root"):
        await client.submit("#!/bin/sh\n", prefix=PREFIX)


async def test_a_wrapper_that_is_not_there_is_named(client: SlurmClient, tmp_path: Path) -> None:
    """The error names the wrapper and the prefix, where an admin looks first."""
    (tmp_path / "submit").unlink()

    with pytest.raises((ConfigError, SubmitRejected), match="submit"):
        await client.submit("#!/bin/sh\n", prefix=PREFIX)


@pytest.mark.parametrize("name", ["", "A=B", "1A", "A B", "é", "BASH_FUNC_x%%"])
def test_what_cannot_be_a_variable_is_refused(name: str) -> None:
    """An invalid variable name is refused in an error that quotes it."""
    with pytest.raises(ConfigError, match="is not a valid environment variable"):
        submission("#!/bin/sh\n", {name: "x"})


def test_a_value_cannot_hold_another_variable() -> None:
    """NUL separates variables, so a value must not contain it."""
    with pytest.raises(ConfigError, match="is not a valid environment variable"):
        submission("#!/bin/sh\n", {"A": "x\0LD_PRELOAD=/x"})
