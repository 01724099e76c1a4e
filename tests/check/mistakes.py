"""Configurations with one mistake each, for a hub in front of the recorded cluster."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.check.finding import DEFAULTS, Options
from jupyterhub_gpuspawner.check.questions import AccountingNames, QosLimits
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.slurm.messages import rejected
from jupyterhub_gpuspawner.slurm.squeue import WillRun
from tests.slurm.recorded import recorded
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
    trial: WillRun | GPUSpawnerError | None = None
    refusal: str = ""
    """The recorded answer with which sbatch refuses the start."""
    options: Options = DEFAULTS
    files: Mapping[str, str] = field(default_factory=dict)
    """Files in ``profiles``, which is then the folder of profiles, and in ``courses`` likewise."""


def one(slurm: str, more: str = "") -> str:
    """One profile that requests this."""
    return f'{{"display_name": "G", "slurm": {{{slurm}}}, {more}}}'


def partition(name: str, **changed: Any) -> ClusterSnapshot:
    """The recorded cluster with a changed partition."""
    partitions = tuple(replace(record, **changed) if record.name == name else record for record in RECORDED.partitions)
    return replace(RECORDED, partitions=partitions)


def reservation(name: str, **changed: Any) -> ClusterSnapshot:
    """The recorded cluster with a changed reservation."""
    reservations = tuple(
        replace(record, **changed) if record.name == name else record for record in RECORDED.reservations
    )
    return replace(RECORDED, reservations=reservations)


ACCOUNTING = AccountingNames(frozenset({"training"}), {"normal": QosLimits()})
HOUR = 3600
SIZES = (
    '"profile_options": {"size": {"choices": {"s": {"slurm": {"memory": "4G"}}, "l": {"slurm": {"memory": "99G"}}}}}'
)
GPUS = '"profile_options": {"gpus": {"range": {"min": 1, "max": 8, "sets": "slurm.gpus"}}}'
HOURS = '"profile_options": {"hours": {"range": {"min": 1, "max": 48, "unit": "hours", "sets": "slurm.time"}}}'
WHERE = (
    '"profile_options": {"where": {"choices": {"k80": {"slurm": {"partition": "gpu"}}, '
    '"h100": {"slurm": {"partition": "hopper"}}}}}'
)
TEMPLATE = (
    "c.SlurmSpawner.batch_script = '#!/bin/bash\\n#SBATCH --partition={partition}\\n#SBATCH --uid={username}\\n{cmd}'"
)

LISTED = ", ".join(sorted(record.name for record in RECORDED.partitions if not record.hidden))

MISTAKES: dict[str, Mistake] = {
    "a partition that does not exist": Mistake(
        one('"partition": "gup", "gpus": 1'),
        "WRONG profile g: slurm.partition: there is no partition gup (available: LISTED). Name a partition that "
        "exists. [partition-missing]",
        "there is no partition gup (available: LISTED)",
    ),
    "a partition of the site that does not exist": Mistake(
        one('"cpus": 1'),
        "WRONG c.SlurmSpawner.req_partition: there is no partition gup (available: LISTED). Name a partition that "
        "exists. [partition-missing]",
        "there is no partition gup (available: LISTED)",
        settings="c.SlurmSpawner.req_partition = 'gup'",
    ),
    "a partition of a choice that does not exist": Mistake(
        one('"partition": "gpu"', WHERE),
        "WRONG profile g: profile_options.where.choices.h100.slurm.partition: there is no partition hopper "
        "(available: LISTED). Name a partition that exists. [partition-missing]",
        "there is no partition hopper (available: LISTED)",
        chosen={"where": "h100"},
    ),
    "a partition that is inactive": Mistake(
        one('"partition": "inactive"'),
        "WRONG profile g: slurm.partition: partition inactive is inactive at the moment. Open it (scontrol update "
        "partition=NAME state=UP), or name another one. [partition-closed]",
        "partition inactive is inactive at the moment",
    ),
    "a partition for others": Mistake(
        one('"partition": "gpu"', '"allow": {"users": ["games"]}'),
        "WRONG profile g: slurm.partition: partition gpu is restricted to members of daemon: profile g cannot be "
        "used by games. Put the users into one of these groups, or name another partition. [partition-forbidden]",
        "partition gpu is restricted to members of daemon",
        user="games",
        snapshot=partition("gpu", allow_groups=("daemon",)),
    ),
    "a partition that needs a reservation": Mistake(
        one('"partition": "gpu"'),
        "WRONG profile g: slurm.reservation: partition gpu requires a reservation. Set slurm.reservation. "
        "[reservation-needed]",
        "partition gpu requires a reservation",
        snapshot=partition("gpu", needs_reservation=True),
    ),
    "a type of GPU that no node has": Mistake(
        one('"partition": "gpu", "gpu_type": "h100"'),
        "WRONG profile g: slurm.gpu_type: partition gpu has no GPUs of type h100 (available: 1g.10gb, a100, k80, t4, "
        "v100). Name a type that its nodes have; `sinfo -N -o '%N %G'` lists them. [gpu-type-missing]",
        "partition gpu has no GPUs of type h100 (available: 1g.10gb, a100, k80, t4, v100)",
    ),
    "GPUs in a partition without any": Mistake(
        one('"partition": "batch", "gpus": 1'),
        "WRONG profile g: slurm.gpus: partition batch has no GPUs. Name a partition with GPUs, or request none. "
        "[gpus-missing]",
        "partition batch has no GPUs",
    ),
    "shards in a partition without any": Mistake(
        one('"partition": "batch", "shards": 1'),
        "WRONG profile g: slurm.shards: partition batch has no GPU shards. Name a partition with shards, or request "
        "GPUs. [shards-missing]",
        "partition batch has no GPU shards",
    ),
    "a feature that no node has": Mistake(
        one('"partition": "gpu", "gpus": 1, "constraint": "nvlink"'),
        "WRONG profile g: slurm.constraint: no node of partition gpu has the feature nvlink. Name features that its "
        "nodes have; `sinfo -N -o '%N %f'` lists them. [feature-missing]",
        "no node of partition gpu has the feature nvlink",
    ),
    "more GPUs than a node has": Mistake(
        one('"partition": "gpu", "gpu_type": "k80"', GPUS),
        "WRONG profile g: profile_options.gpus.range.max: 8 K80s are more than the 4 of a node. Set max to 4: 4 is "
        "the most that can run. [gpus-too-many]",
        "8 K80s are more than the 4 of a node",
        chosen={"gpus": 8},
    ),
    "more time than the partition allows": Mistake(
        one('"partition": "gpu"', HOURS),
        "WRONG profile g: profile_options.hours.range.max: 48 h is more than the limit of 24 h. Set max to 24: 24 "
        "hours is the most that can run. [time-too-long]",
        "48 h is more than the limit of 24 h",
        chosen={"hours": 48},
    ),
    "no time limit where one is needed": Mistake(
        one('"partition": "gpu", "time": "UNLIMITED"'),
        "WRONG profile g: slurm.time: a time limit is needed: at most 24 h. Set slurm.time. [time-needed]",
        "a time limit is needed: at most 24 h",
    ),
    "more memory than a node has": Mistake(
        one('"partition": "batch", "memory": "4G"', SIZES),
        "WRONG profile g: profile_options.size.choices.l.slurm.memory: 99 GiB of memory is more than the 62.5 GiB of a "
        "node. Request no more than that. [memory-too-much]",
        "99 GiB of memory is more than the 62.5 GiB of a node",
        chosen={"size": "l"},
    ),
    "more cores than the partition allows": Mistake(
        one('"partition": "noroot", "cpus": 12'),
        "WRONG profile g: slurm.cpus: 12 cores are more than the limit of 8. Request no more than that. "
        "[cpus-too-many]",
        "12 cores are more than the limit of 8",
    ),
    "more nodes than the partition has": Mistake(
        one('"partition": "gpu", "nodes": 9'),
        "WRONG profile g: slurm.nodes: 9 nodes are more than the 6 of partition gpu with these resources. Request a "
        "number of nodes that the partition allows. [nodes-out-of-range]",
        "9 nodes are more than the 6 of partition gpu with these resources",
    ),
    "GPUs and cores that no node has together": Mistake(
        one('"partition": "gpu", "gpus": 4, "gpu_type": "k80", "cpus": 40'),
        "WRONG profile g: slurm.cpus: no node of partition gpu has all the requested resources together. Lower one "
        "of the numbers, or name a partition with larger nodes. [resources-not-together]",
        "no node of partition gpu has all the requested resources together",
    ),
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
    "an account that the partition refuses": Mistake(
        one('"partition": "gpu", "account": "other"'),
        "WRONG profile g: slurm.account: partition gpu does not allow account other. Name an account that the "
        "partition allows. [account-not-allowed]",
        "partition gpu does not allow account other",
        snapshot=partition("gpu", deny_accounts=("other",)),
    ),
    "a QOS that the partition refuses": Mistake(
        one('"partition": "gpu", "qos": "long"'),
        "WRONG profile g: slurm.qos: partition gpu does not allow QOS long. Name a QOS that the partition allows. "
        "[qos-not-allowed]",
        "partition gpu does not allow QOS long",
        snapshot=partition("gpu", deny_qos=("long",)),
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
    "a reservation that does not exist": Mistake(
        one('"partition": "gpu", "reservation": "ml-hpc-9"'),
        "WRONG profile g: slurm.reservation: there is no reservation ml-hpc-9. Create the reservation, or take it "
        "out of the profile. [reservation-missing]",
        "there is no reservation ml-hpc-9",
    ),
    "a reservation that is over": Mistake(
        one('"partition": "gpu", "reservation": "ml-hpc-0"'),
        "WRONG profile g: slurm.reservation: reservation ml-hpc-0 has ended. Name the current reservation, or take "
        "it out of the profile. [reservation-over]",
        "reservation ml-hpc-0 has ended",
        snapshot=reservation("ml-hpc-0", end=RECORDED.taken_at - HOUR),
    ),
    "a reservation for others": Mistake(
        one('"partition": "gpu", "time": "1:00:00", "reservation": "ml-hpc-0"', '"allow": {"users": ["games"]}'),
        "WRONG profile g: slurm.reservation: reservation ml-hpc-0 is for other users: profile g cannot be used by "
        "games. Add the users to the reservation, or restrict the profile to those that it admits. "
        "[reservation-forbidden]",
        "reservation ml-hpc-0 is for other users",
        user="games",
    ),
    "more time than is left of a reservation": Mistake(
        one('"partition": "gpu", "time": "9:00:00", "reservation": "ml-hpc-0"'),
        "WRONG profile g: slurm.time: 9 h is more than the 1 h 59 min left in reservation ml-hpc-0. Request no more "
        "than that. [time-too-long]",
        "9 h is more than the 1 h 59 min left in reservation ml-hpc-0",
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
    "a wait that is shorter than the queue": Mistake(
        one('"partition": "gpu", "gpus": 4, "gpu_type": "k80"', '"queue_timeout": "1:00"'),
        "warn  profile g: queue_timeout: a server of profile g would now wait about 59 min, and the hub gives up "
        "after 1 min. Allow a longer wait. [queue-timeout-short]",
        "full, 1 person ahead of you. Expected start: within 1 h, if nobody with a higher priority comes, but a start "
        "may wait for at most 1 min here",
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
    "a partition in a file": Mistake(
        "",
        "WRONG profile a (a.yaml:4): slurm.partition: there is no partition gup (available: LISTED). Name a "
        "partition that exists. [partition-missing]",
        "there is no partition gup (available: LISTED)",
        files={"profiles/a.yaml": "- display_name: A\n  slurm:\n    gpus: 1\n    partition: gup\n"},
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
    "a user whom Slurm refuses": Mistake(
        one('"partition": "gpu"'),
        "WRONG profile g, user games: Slurm refused the job: the account does not exist, or you are not allowed to "
        "use it in this partition. Check `account` in the profile. [trial-refused]",
        "The account does not exist, or you are not allowed to use it in this partition.",
        options=Options("games"),
        trial=rejected(recorded("22.05", "sbatch", "bad_account").stderr),
        refusal="bad_account",
    ),
    "sudo that refuses": Mistake(
        one('"partition": "gpu"'),
        "WRONG c.GPUSlurmSpawner.exec_prefix: sbatch was not run: sudo asks for a password. Allow it. [trial-fails]",
        options=Options("games"),
        trial=ConfigError("sbatch was not run: sudo asks for a password.", where="exec_prefix", hint="Allow it."),
    ),
    "a partition that is closed to the user": Mistake(
        one('"partition": "gpu"'),
        "WRONG profile g, user games: partition gpu is closed, or you are not allowed to use it. Open the partition, "
        "or name one that admits the user. [trial-refused]",
        options=Options("games"),
        trial=WillRun(RECORDED.taken_at + 1e10, ("g1",), 1, "gpu"),
    ),
}
