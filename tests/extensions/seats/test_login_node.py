"""A twin for a hub whose machine has no Slurm: what it asks, and where it runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.seats import twin
from jupyterhub_gpuspawner.extensions.seats.accounting import Accounting
from jupyterhub_gpuspawner.extensions.seats.held import WaitingJob
from jupyterhub_gpuspawner.extensions.seats.site import Request, question_of
from jupyterhub_gpuspawner.extensions.seats.twin import read_site
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.process import Answer
from tests.extensions.seats.site_answers import NOW, config, job, node, partition, site
from tests.fixtures.login_node import LoginNode, login_node, missing
from tests.slurm.test_query import LoginNode as StandIn

RECORDED = Path(__file__).parents[2] / "data" / "assoc_mgr"
LIMITED = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageEnforce": "associations,limits",
    "ClusterName": "acct",
}


async def test_all_that_a_site_is_asked_for_is_permitted(tmp_path: Path) -> None:
    """By the script `query`, which refuses every other question."""
    login, asked = StandIn(tmp_path), list[tuple[str, int | None]]()
    answers = f"""
*config*) echo '{config(**LIMITED)}' ;;
*assoc_mgr*) /bin/cat {RECORDED}/22.05.assoc_mgr.txt ;;
*node*) echo '{node("g1").strip()}' ;;
*partition*) echo '{partition("gpu", "g1").strip()}' ;;
"""
    login.add("scontrol", f'#!/bin/sh\ncase "$*" in{answers}esac\n')
    login.add("squeue", "#!/bin/sh\n")
    login.add("sacctmgr", f"#!/bin/sh\n/bin/cat {RECORDED}/22.05.$4.txt\n")
    slurm = Installation(
        wrapper_dir=str(login.folder),
        query_prefix=login.installation.query_prefix,
        observe=lambda command, _seconds, code: asked.append((command, code)),
    )
    of = await read_site(slurm)

    assert sorted(asked) == [*[("sacctmgr", 0)] * 2, *[("scontrol", 0)] * 6, ("squeue", 0)]
    assert isinstance(of.accounting, Accounting)
    assert ([one.name for one in of.nodes], of.jobs) == (["g1"], ())


@pytest.mark.parametrize(("most", "asked"), [(9, ["-a"]), (2, ["8"])])
async def test_of_very_many_jobs_only_those_on_several_nodes_are_asked_for_in_detail(
    most: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any other, squeue says what it has on its node; scontrol prints a kilobyte for each job that waits."""
    questions = list[tuple[str, ...]]()

    class Silent(Installation):
        """Answers nothing."""

        async def run(self, command: str, *arguments: str, **_how: Any) -> Answer:
            questions.append(arguments)
            return Answer(command, 0, "", "")

    one, several = job(7, "g1", "0"), job(8, "g1", "1")
    several = (replace(several[0], job=several[0].job._replace(nodes=("g1", "g2"))),)
    monkeypatch.setattr(twin, "DETAILED_AT_MOST", most)
    of = replace(site([node("g1")], [partition("gpu", "g1")]), jobs=one + several, waiting=(WaitingJob(one[0].job),))
    await twin._details(Silent(), of)

    assert [next(word for word in words if word in ("-a", "8")) for words in questions] == asked


@pytest.fixture(scope="module")
def machines(two_users: tuple[str, str], slurm_cluster: PrivateSlurm, site_folder: Path) -> Iterator[LoginNode]:
    """The login node, and the hub's machine."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with login_node(site_folder / "login", slurm_cluster, two_users) as node:
        yield node


@pytest.mark.slurm
@pytest.mark.users
def test_the_login_node_answers_which_jobs_would_start(machines: LoginNode) -> None:
    """A slurmctld without nodes, as the hub's account there, which is neither root nor Slurm's."""
    of = site([node("g1", "gpu:t4:4")], [partition("gpu", "g1")])
    requests_ = [Request("ada", ("--gres=gpu:1", "--mem=100"))] * 3
    question = json.dumps(question_of(of, requests_, at=NOW).document)
    answer = machines.run(*shlex.split(machines.query_prefix), f"{machines.wrappers}/twin", stdin=question)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["jobs"].count("JobState=CONFIGURING") == 3
