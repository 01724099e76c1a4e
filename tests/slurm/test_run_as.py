"""As whom the words of a prefix run a command, and whose a job turns out to be."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase
from jupyterhub_gpuspawner.slurm.run_as import foreign_owner, runs_as, runs_as_root

ACCOUNTS = {
    "": "",
    "sudo": "root",
    "sudo -n -E -u ada": "ada",
    "sudo -nEu ada": "ada",
    "sudo -uada X=1": "ada",
    "sudo --user=ada": "ada",
    "sudo -g staff --user ada -n --": "ada",
    "sudo -p -u": "root",
    "runuser -u ada --": "ada",
    "setpriv --reuid=65534 --regid=65534 --clear-groups --": "65534",
    "doas -u ada": "ada",
    "sudo -u '#0'": "0",
    "sudo -u ada env X=1 nice -n 5": "ada",
    "sudo -u hub sudo -u ada": "ada",
    "env USER=ada LOGNAME=ada": "",
    "timeout -k 5 10 stdbuf -oL env -u X": "",
    "ssh login sudo -u ada": None,
    "/opt/site/as ada": None,
    "sudo -u ada /opt/site/as": None,
}


@pytest.mark.parametrize(("prefix", "account"), ACCOUNTS.items(), ids=ACCOUNTS.keys())
def test_as_whom_a_prefix_runs_a_command(prefix: str, account: str | None) -> None:
    """As far as its words tell."""
    words = shlex.split(prefix)
    assert (runs_as(words), runs_as_root(words)) == (account, account in ("root", "0") or (account == "" and IS_ROOT))


IS_ROOT = os.geteuid() == 0
ADA = JobIdentity(owner="ada", uid=1001)
JOB = Job("118", Phase.RUNNING, user="ada", uid=1001)
OWNERS = {
    "hers": (JOB, ADA, "sudo -u ada", ""),
    "root's": (replace(JOB, user="root", uid=0), ADA, "sudo -u ada", "root"),
    "root's, through a site's program": (replace(JOB, user="root", uid=0), ADA, "/opt/as ada", "root"),
    "root's, by name alone": (replace(JOB, user="root", uid=None), ADA, "/opt/as ada", "root"),
    "a neighbour's": (replace(JOB, user="bob", uid=1002), ADA, "sudo -u ada", "bob"),
    "that of an account without a name": (replace(JOB, user="", uid=1002), ADA, "sudo -u ada", "1002"),
    "that of an account with a name of the site's": (replace(JOB, user="a0017", uid=1002), ADA, "/opt/as ada", ""),
    "hers, with another uid on the cluster": (replace(JOB, uid=2001), ADA, "sudo -u ada", ""),
    "another's, of an account that is not known": (replace(JOB, user="bob"), JobIdentity("ada"), "sudo -u ada", ""),
    "the one for all": (replace(JOB, user="labs", uid=1003), JobIdentity("labs", 1003), "sudo -u labs", ""),
    "that of the login node": (replace(JOB, user="bob", uid=1002), ADA, "ssh login sudo -u ada", ""),
}


@pytest.mark.parametrize(("job", "identity", "prefix", "owner"), OWNERS.values(), ids=OWNERS.keys())
def test_whose_a_job_turns_out_to_be(job: Job, identity: JobIdentity, prefix: str, owner: str) -> None:
    """Named where it must be another's; where that is not certain, nothing is said."""
    assert foreign_owner(job, identity, shlex.split(prefix), "ada") == owner
