"""Configurations with one mistake each, for a hub in front of the recorded cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import DEFAULTS, Options
from jupyterhub_gpuspawner.check.questions import AccountingNames
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from tests.snapshots import recorded_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

RECORDED = recorded_snapshot("22.05")


@dataclass(frozen=True)
class Mistake:
    """A mistake, what the check says of it, and what a user would have read."""

    profiles: str
    """The profiles of the configuration, as Python."""
    finding: str
    """The line of the check; ``LISTED`` stands for the cluster's partitions, here and in what a user reads."""
    sentence: str = "starts now, 106 of 120 cores free"
    """The form's sentence, or that of a start that is refused; empty where users notice nothing, or the profile is
    missing from the form."""
    chosen: Mapping[str, object] = field(default_factory=dict)
    """The options that the user chooses."""
    user: str = "alice"
    settings: str = ""
    snapshot: ClusterSnapshot = RECORDED
    accounting: AccountingNames | None = None
    trial: str | GPUSpawnerError | None = None
    """What ``sbatch --test-only`` prints."""
    refusal: str = ""
    """The recorded answer with which sbatch refuses the start."""
    options: Options = DEFAULTS
    files: Mapping[str, str] = field(default_factory=dict)
    """Files in ``profiles``, which is then the folder of profiles, and in ``courses`` likewise."""


def one(slurm: str, more: str = "") -> str:
    """One profile that requests this."""
    return f'{{"display_name": "G", "slurm": {{{slurm}}}, {more}}}'


ACCOUNTING = AccountingNames(frozenset({"training"}), {"normal": {}})
TEMPLATE = (
    "c.SlurmSpawner.batch_script = '#!/bin/bash\\n#SBATCH --partition={partition}\\n#SBATCH --uid={username}\\n{cmd}'"
)

LISTED = ", ".join(sorted(record.name for record in RECORDED.partitions if not record.hidden))

MISTAKES: dict[str, Mistake] = {
    "a choice of both GPUs and shards": Mistake(
        one(
            '"partition": "gpu", "gpus": 1',
            '"profile_options": {"o": {"choices": {"a": {}, "b": {"slurm": {"shards": 1}}}}}',
        ),
        "WRONG profile g: profile_options.o.choices.b: GPUs and shards cannot be requested together. Choose one. "
        "[request-refused]",
        "starts now, 8 of 22 GPUs free",
        chosen={"o": "b"},
    ),
    "an account that does not exist": Mistake(
        one('"partition": "gpu", "account": "trainig"'),
        "WRONG profile g: slurm.account: there is no account trainig. Name one of training. [account-missing]",
        "The account does not exist, or you are not allowed to use it in this partition.",
        accounting=ACCOUNTING,
        refusal="bad_account",
    ),
    "a QOS that does not exist": Mistake(
        one('"partition": "gpu", "qos": "lesson"'),
        "WRONG profile g: slurm.qos: there is no QOS lesson. Name one of normal. [qos-missing]",
        "The QOS does not exist, or you are not allowed to use it.",
        accounting=ACCOUNTING,
        refusal="bad_qos",
    ),
    "a reservation of another day": Mistake(
        one(
            '"partition": "gpu", "time": "1:00:00", "reservation": {"2026-11-21": "ml-hpc-0", "2026-11-22": "ml-hpc-1"}'
        ),
        "warn  profile g: slurm.reservation.2026-11-22: reservation ml-hpc-1 is not on 22 Nov 2026, for which the "
        "profile names it. Move the reservation, or correct the name. [reservation-other-day]",
        "starts now, 23 of 24 cores free",
    ),
    "no reservation for tomorrow yet": Mistake(
        one(
            '"partition": "gpu", "time": "1:00:00", "reservation": {"2026-11-21": "ml-hpc-0", "2026-11-22": "ml-hpc-9"}'
        ),
        "warn  profile g: slurm.reservation.2026-11-22: there is no reservation ml-hpc-9, which is for 22 Nov 2026. "
        "Create the reservation, or correct the name. [reservation-missing]",
        "starts now, 23 of 24 cores free",
    ),
    "no reservation of a weekly pattern": Mistake(
        one('"partition": "gpu", "reservation": "course-%u"'),
        "WRONG profile g: slurm.reservation: there is no reservation course-6, which is for 21 Nov 2026. Create the "
        "reservation, or correct the name. [reservation-missing]",
        "there is no reservation course-6",
    ),
    "only days that are past": Mistake(
        one('"partition": "gpu", "reservation": {"2020-01-01": "day-1"}'),
        "WRONG profile g: slurm.reservation: There is no reservation for 2026-11-21; days are 2020-01-01. "
        "[profile-no-job]",
        "there is no reservation for 2026-11-21; days are 2020-01-01",
    ),
    "a group that JupyterHub does not have": Mistake(
        one('"partition": "gpu"', '"allow": {"groups": ["cuorse"]}'),
        "warn  profile g: allow.groups: JupyterHub has no group 'cuorse'. Its groups are course. Correct the name, "
        "or add the group to c.JupyterHub.load_groups. [group-missing]",
        "it is reserved for the group cuorse",
        settings="c.JupyterHub.load_groups = {'course': ['alice']}",
    ),
    "a Unix group": Mistake(
        one('"partition": "gpu"', '"allow": {"groups": ["daemon"]}'),
        "warn  profile g: allow.groups: 'daemon' is a Unix group, and JupyterHub has no group of that name. It has "
        "none. Correct the name, or add the group to c.JupyterHub.load_groups. [group-missing]",
        "it is reserved for the group daemon",
    ),
    "a user who does not exist": Mistake(
        one('"partition": "gpu"', '"allow": {"users": ["alcie"]}'),
        "warn  profile g: allow.users: 'alcie' is neither an account of this machine nor a user of JupyterHub. "
        "Correct the name, unless this user is still to sign in for the first time. [user-missing]",
        "it is reserved for other users",
    ),
    "a memory of megabytes meant in gigabytes": Mistake(
        one('"partition": "gpu", "memory": 24'),
        "warn  profile g: slurm.memory: 24 MiB is less than a notebook server needs; did you mean 24G? Give at least "
        "512M. [value-doubtful]",
    ),
    "little memory, with its unit": Mistake(
        one('"partition": "gpu", "memory": "500M"'),
        "warn  profile g: slurm.memory: 500 MiB is less than a notebook server needs; did you mean 500G? Give at "
        "least 512M. [value-doubtful]",
    ),
    "little memory in a choice whose name has a colon and a dot": Mistake(
        "",
        "warn  profile a (a.yaml:7): profile_options.size.choices.small: 8.5.slurm.memory: 24 MiB is less than a "
        "notebook server needs; did you mean 24G? Give at least 512M. [value-doubtful]",
        files={
            "profiles/a.yaml": "- display_name: A\n  slurm: {partition: gpu}\n  profile_options:\n    size:\n"
            "      choices:\n        'small: 8.5':\n          slurm: {memory: 24}\n        large: {}\n"
        },
    ),
    "a template without the server": Mistake(
        one('"partition": "gpu"'),
        "WRONG profile g: batch_script: the template has no {cmd} outside of its comments. Put {cmd} on the line where "
        "jupyterhub-singleuser is to start. [profile-no-job]",
        settings="c.SlurmSpawner.batch_script = '#!/bin/bash\\n#SBATCH --partition={partition}\\n'",
    ),
    "a template that has to be mended": Mistake(
        one('"partition": "gpu"'),
        "warn  c.SlurmSpawner.batch_script: --uid=somebody is left out: only root may use it, and the job is "
        "submitted as its user. Correct the template. [template-mended]",
        settings=TEMPLATE,
    ),
    "a file with a mistake": Mistake(
        "",
        "WRONG a.yaml:2: slurm.memory: is not a valid amount of memory: use a number of MiB, or a number with K, M, "
        "G or T, such as 32G [profile-file]",
        "starts now, 47 of 96 CPUs free",
        files={
            "profiles/a.yaml": "display_name: A\nslurm: {partition: gpu, memory: lots}\n",
            "profiles/b.yaml": "display_name: B\n",
        },
    ),
    "a file that claims the slug of another": Mistake(
        "",
        "WRONG b.yaml: 'a' is already a slug in a.yaml; this profile is ignored. Give this profile a slug of its "
        "own. [slug-taken]",
        files={
            "profiles/a.yaml": "display_name: A\nslurm: {partition: gpu}\n",
            "profiles/b.yaml": "display_name: B\nslug: a\n",
        },
    ),
    "a licence that does not exist": Mistake(
        one('"partition": "gpu", "extra": ["--licenses=ansys:1"]'),
        "WRONG profile g: slurm.extra: there is no licence ansys. Name one of matlab. [license-missing]",
        "There is no such licence.",
        refusal="bad_license",
    ),
    "more licences than there are": Mistake(
        one('"partition": "gpu", "extra": ["-L matlab:9"]'),
        "WRONG profile g: slurm.extra: there are 2 licences matlab, not 9. Request no more than that. "
        "[license-missing]",
        "There is no such licence.",
        refusal="bad_license",
    ),
    "a time limit of minutes meant in hours": Mistake(
        one('"partition": "gpu", "time": "8:00"'),
        "warn  profile g: slurm.time: the time limit is 8 min; did you mean 8 h? Write 8:00:00 for hours. "
        "[time-doubtful]",
    ),
    "a range of minutes meant in hours": Mistake(
        one('"partition": "gpu"', '"profile_options": {"t": {"range": {"min": 1, "max": 8, "sets": "slurm.time"}}}'),
        "warn  profile g: profile_options.t.range.max: the time limit is 8 min; did you mean 8 h? Write 8:00:00 for "
        "hours. [time-doubtful]",
    ),
    "a last day before the first": Mistake(
        one('"partition": "gpu"', '"allow": {"from": "2027-01-01", "until": "2026-12-01"}'),
        "WRONG profile g: allow.until: the profile is offered from 1 Jan 2027 until 1 Dec 2026, which is never. "
        "Correct one of the dates. [profile-never]",
        "it is available from 1 Jan 2027",
    ),
    "something accepted that is not there": Mistake(
        one('"partition": "gpu"', '"alternatives": ["h"]'),
        "warn  profile g: alternatives: no profile of a Slurm job has the slug h. Name some of g. "
        "[alternative-missing]",
    ),
}
