"""Configurations with one mistake each, for a hub in front of the recorded cluster."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.check.context import DEFAULTS, Options
from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.slurm.accounting import Accounting, Association, Qos
from jupyterhub_gpuspawner.slurm.messages import rejected
from jupyterhub_gpuspawner.slurm.squeue import WillRun
from tests.slurm.recorded import recorded
from tests.snapshots import recorded_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

RECORDED = recorded_snapshot("22.05")
ERROR, WARNING = Severity.ERROR, Severity.WARNING


@dataclass(frozen=True)
class Mistake:
    """A mistake, what the check says of it, and what a user would have read."""

    profiles: str
    """The profiles of the configuration, as Python."""
    says: tuple[Any, ...]
    """Severity, code, where, text and what would be right."""
    reads: str
    """The form's sentence, or that of a start that is refused; empty where users notice nothing, or the profile is
    missing from the form."""
    chosen: Mapping[str, object] = field(default_factory=dict)
    """The options that the user chooses."""
    user: str = "alice"
    settings: str = ""
    snapshot: ClusterSnapshot = RECORDED
    accounting: Accounting | None = None
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
    found = tuple(replace(each, **changed) if each.name == name else each for each in RECORDED.partitions)
    return replace(RECORDED, partitions=found)


def reservation(name: str, **changed: Any) -> ClusterSnapshot:
    """The recorded cluster with a changed reservation."""
    found = tuple(replace(each, **changed) if each.name == name else each for each in RECORDED.reservations)
    return replace(RECORDED, reservations=found)


ACCOUNTING = Accounting(
    accounts={"training": Association("training")},
    qos={"normal": Qos("normal")},
    enforced=frozenset({"associations", "limits", "qos"}),
)
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
COURSE = """name: Course
instructors: [ada]
roster: [alice]
profile: {slug: nope}
sessions: [{date: 2026-11-22, from: 9:00, to: 17:00}]
"""

LISTED = ", ".join(sorted(each.name for each in RECORDED.partitions if not each.hidden))

MISTAKES: dict[str, Mistake] = {
    "a partition that does not exist": Mistake(
        one('"partition": "gup", "gpus": 1'),
        (
            ERROR,
            "partition-missing",
            "profile g: slurm.partition",
            f"there is no partition gup (available: {LISTED}).",
            "Name a partition that exists.",
        ),
        f"there is no partition gup (available: {LISTED})",
    ),
    "a partition of the site that does not exist": Mistake(
        one('"cpus": 1'),
        (
            ERROR,
            "partition-missing",
            "c.SlurmSpawner.req_partition",
            f"there is no partition gup (available: {LISTED}).",
            "Name a partition that exists.",
        ),
        f"there is no partition gup (available: {LISTED})",
        settings="c.SlurmSpawner.req_partition = 'gup'",
    ),
    "a partition of a choice that does not exist": Mistake(
        one('"partition": "gpu"', WHERE),
        (
            ERROR,
            "partition-missing",
            "profile g: profile_options.where.choices.h100.slurm.partition",
            f"there is no partition hopper (available: {LISTED}).",
            "Name a partition that exists.",
        ),
        f"there is no partition hopper (available: {LISTED})",
        chosen={"where": "h100"},
    ),
    "a partition that is inactive": Mistake(
        one('"partition": "inactive"'),
        (
            ERROR,
            "partition-closed",
            "profile g: slurm.partition",
            "partition inactive is inactive at the moment.",
            "Open it (scontrol update partition=NAME state=UP), or name another one.",
        ),
        "partition inactive is inactive at the moment",
    ),
    "a partition for others": Mistake(
        one('"partition": "gpu"', '"allow": {"users": ["games"]}'),
        (
            ERROR,
            "partition-forbidden",
            "profile g: slurm.partition",
            "partition gpu is restricted to members of daemon: profile g cannot be used by games.",
            "Put the users into one of these groups, or name another partition.",
        ),
        "partition gpu is restricted to members of daemon",
        user="games",
        snapshot=partition("gpu", allow_groups=("daemon",)),
    ),
    "a partition that needs a reservation": Mistake(
        one('"partition": "gpu"'),
        (
            ERROR,
            "reservation-needed",
            "profile g: slurm.reservation",
            "partition gpu requires a reservation.",
            "Set slurm.reservation.",
        ),
        "partition gpu requires a reservation",
        snapshot=partition("gpu", needs_reservation=True),
    ),
    "a type of GPU that no node has": Mistake(
        one('"partition": "gpu", "gpu_type": "h100"'),
        (
            ERROR,
            "gpu-type-missing",
            "profile g: slurm.gpu_type",
            "partition gpu has no GPUs of type h100 (available: 1g.10gb, a100, k80, t4, v100).",
            "Name a type that its nodes have; `sinfo -N -o '%N %G'` lists them.",
        ),
        "partition gpu has no GPUs of type h100 (available: 1g.10gb, a100, k80, t4, v100)",
    ),
    "GPUs in a partition without any": Mistake(
        one('"partition": "batch", "gpus": 1'),
        (
            ERROR,
            "gpus-missing",
            "profile g: slurm.gpus",
            "partition batch has no GPUs.",
            "Name a partition with GPUs, or request none.",
        ),
        "partition batch has no GPUs",
    ),
    "shards in a partition without any": Mistake(
        one('"partition": "batch", "shards": 1'),
        (
            ERROR,
            "shards-missing",
            "profile g: slurm.shards",
            "partition batch has no GPU shards.",
            "Name a partition with shards, or request GPUs.",
        ),
        "partition batch has no GPU shards",
    ),
    "a feature that no node has": Mistake(
        one('"partition": "gpu", "gpus": 1, "constraint": "nvlink"'),
        (
            ERROR,
            "feature-missing",
            "profile g: slurm.constraint",
            "no node of partition gpu has the feature nvlink.",
            "Name features that its nodes have; `sinfo -N -o '%N %f'` lists them.",
        ),
        "no node of partition gpu has the feature nvlink",
    ),
    "more GPUs than a node has": Mistake(
        one('"partition": "gpu", "gpu_type": "k80"', GPUS),
        (
            ERROR,
            "gpus-too-many",
            "profile g: profile_options.gpus.range.max",
            "8 K80s are more than the 4 of a node.",
            "Set max to 4: 4 is the most that can run.",
        ),
        "8 K80s are more than the 4 of a node",
        chosen={"gpus": 8},
    ),
    "more time than the partition allows": Mistake(
        one('"partition": "gpu"', HOURS),
        (
            ERROR,
            "time-too-long",
            "profile g: profile_options.hours.range.max",
            "48 h is more than the limit of 24 h.",
            "Set max to 24: 24 hours is the most that can run.",
        ),
        "48 h is more than the limit of 24 h",
        chosen={"hours": 48},
    ),
    "no time limit where one is needed": Mistake(
        one('"partition": "gpu", "time": "UNLIMITED"'),
        (ERROR, "time-needed", "profile g: slurm.time", "a time limit is needed: at most 24 h.", "Set slurm.time."),
        "a time limit is needed: at most 24 h",
    ),
    "more memory than a node has": Mistake(
        one('"partition": "batch", "memory": "4G"', SIZES),
        (
            ERROR,
            "memory-too-much",
            "profile g: profile_options.size.choices.l.slurm.memory",
            "99 GiB of memory is more than the 62 GiB of a node.",
            "Request no more than that.",
        ),
        "99 GiB of memory is more than the 62 GiB of a node",
        chosen={"size": "l"},
    ),
    "more cores than the partition allows": Mistake(
        one('"partition": "noroot", "cpus": 12'),
        (
            ERROR,
            "cpus-too-many",
            "profile g: slurm.cpus",
            "12 cores are more than the limit of 8.",
            "Request no more than that.",
        ),
        "12 cores are more than the limit of 8",
    ),
    "more nodes than the partition has": Mistake(
        one('"partition": "gpu", "nodes": 9'),
        (
            ERROR,
            "nodes-out-of-range",
            "profile g: slurm.nodes",
            "9 nodes are more than the 6 of partition gpu with these resources.",
            "Request a number of nodes that the partition allows.",
        ),
        "9 nodes are more than the 6 of partition gpu with these resources",
    ),
    "GPUs and cores that no node has together": Mistake(
        one('"partition": "gpu", "gpus": 4, "gpu_type": "k80", "cpus": 40'),
        (
            ERROR,
            "resources-not-together",
            "profile g: slurm.cpus",
            "no node of partition gpu has all the requested resources together.",
            "Lower one of the numbers, or name a partition with larger nodes.",
        ),
        "no node of partition gpu has all the requested resources together",
    ),
    "a choice of both GPUs and shards": Mistake(
        one(
            '"partition": "gpu", "gpus": 1',
            '"profile_options": {"o": {"choices": {"a": {}, "b": {"slurm": {"shards": 1}}}}}',
        ),
        (
            ERROR,
            "request-refused",
            "profile g: profile_options.o.choices.b",
            "GPUs and shards cannot be requested together.",
            "Choose one.",
        ),
        "starts now, 8 of 22 GPUs free",
        chosen={"o": "b"},
    ),
    "an account that the partition refuses": Mistake(
        one('"partition": "gpu", "account": "other"'),
        (
            ERROR,
            "account-not-allowed",
            "profile g: slurm.account",
            "partition gpu does not allow account other.",
            "Name an account that the partition allows.",
        ),
        "partition gpu does not allow account other",
        snapshot=partition("gpu", allow_accounts=("training",)),
    ),
    "a QOS that the partition refuses": Mistake(
        one('"partition": "gpu", "qos": "long"'),
        (
            ERROR,
            "qos-not-allowed",
            "profile g: slurm.qos",
            "partition gpu does not allow QOS long.",
            "Name a QOS that the partition allows.",
        ),
        "partition gpu does not allow QOS long",
        snapshot=partition("gpu", deny_qos=("long",)),
    ),
    "an account that does not exist": Mistake(
        one('"partition": "gpu", "account": "trainig"'),
        (ERROR, "account-missing", "profile g: slurm.account", "there is no account trainig.", "Name one of training."),
        "The account does not exist, or you are not allowed to use it in this partition.",
        accounting=ACCOUNTING,
        refusal="bad_account",
    ),
    "a QOS that does not exist": Mistake(
        one('"partition": "gpu", "qos": "lesson"'),
        (ERROR, "qos-missing", "profile g: slurm.qos", "there is no QOS lesson.", "Name one of normal."),
        "The QOS does not exist, or you are not allowed to use it.",
        accounting=ACCOUNTING,
        refusal="bad_qos",
    ),
    "a reservation that does not exist": Mistake(
        one('"partition": "gpu", "reservation": "ml-hpc-9"'),
        (
            ERROR,
            "reservation-missing",
            "profile g: slurm.reservation",
            "there is no reservation ml-hpc-9.",
            "Create the reservation, or take it out of the profile.",
        ),
        "there is no reservation ml-hpc-9",
    ),
    "a reservation that is over": Mistake(
        one('"partition": "gpu", "reservation": "ml-hpc-0"'),
        (
            ERROR,
            "reservation-over",
            "profile g: slurm.reservation",
            "reservation ml-hpc-0 has ended.",
            "Name the current reservation, or take it out of the profile.",
        ),
        "reservation ml-hpc-0 has ended",
        snapshot=reservation("ml-hpc-0", end=RECORDED.taken_at - HOUR),
    ),
    "a reservation for others": Mistake(
        one('"partition": "gpu", "time": "1:00:00", "reservation": "ml-hpc-0"', '"allow": {"users": ["games"]}'),
        (
            ERROR,
            "reservation-forbidden",
            "profile g: slurm.reservation",
            "reservation ml-hpc-0 is for other users: profile g cannot be used by games.",
            "Add the users to the reservation, or restrict the profile to those that it admits.",
        ),
        "reservation ml-hpc-0 is for other users",
        user="games",
    ),
    "more time than is left of a reservation": Mistake(
        one('"partition": "gpu", "time": "9:00:00", "reservation": "ml-hpc-0"'),
        (
            ERROR,
            "time-too-long",
            "profile g: slurm.time",
            "9 h is more than the 2 h left in reservation ml-hpc-0.",
            "Request no more than that.",
        ),
        "9 h is more than the 2 h left in reservation ml-hpc-0",
    ),
    "a reservation of another day": Mistake(
        one(
            '"partition": "gpu", "time": "1:00:00", "reservation": {"2026-11-21": "ml-hpc-0", "2026-11-22": "ml-hpc-1"}'
        ),
        (
            WARNING,
            "reservation-other-day",
            "profile g: slurm.reservation.2026-11-22",
            "reservation ml-hpc-1 is not on 22 Nov 2026, for which the profile names it.",
            "Move the reservation, or correct the name.",
        ),
        "starts now, 23 of 24 cores free",
    ),
    "no reservation for tomorrow yet": Mistake(
        one(
            '"partition": "gpu", "time": "1:00:00", "reservation": {"2026-11-21": "ml-hpc-0", "2026-11-22": "ml-hpc-9"}'
        ),
        (
            WARNING,
            "reservation-missing",
            "profile g: slurm.reservation.2026-11-22",
            "there is no reservation ml-hpc-9, which is for 22 Nov 2026.",
            "Create the reservation, or correct the name.",
        ),
        "starts now, 23 of 24 cores free",
    ),
    "no reservation of a weekly pattern": Mistake(
        one('"partition": "gpu", "reservation": "course-%u"'),
        (
            ERROR,
            "reservation-missing",
            "profile g: slurm.reservation",
            "there is no reservation course-6, which is for 21 Nov 2026.",
            "Create the reservation, or correct the name.",
        ),
        "there is no reservation course-6",
    ),
    "only days that are past": Mistake(
        one('"partition": "gpu", "reservation": {"2020-01-01": "day-1"}'),
        (
            ERROR,
            "profile-no-job",
            "profile g: slurm.reservation",
            "There is no reservation for 2026-11-21; days are 2020-01-01.",
            "",
        ),
        "there is no reservation for 2026-11-21; days are 2020-01-01",
    ),
    "a group that JupyterHub does not have": Mistake(
        one('"partition": "gpu"', '"allow": {"groups": ["cuorse"]}'),
        (
            WARNING,
            "group-missing",
            "profile g: allow.groups",
            "JupyterHub has no group 'cuorse'. Its groups are course.",
            "Correct the name, or add the group to c.JupyterHub.load_groups.",
        ),
        "it is reserved for the group cuorse",
        settings="c.JupyterHub.load_groups = {'course': ['alice']}",
    ),
    "a Unix group": Mistake(
        one('"partition": "gpu"', '"allow": {"groups": ["daemon"]}'),
        (
            WARNING,
            "group-missing",
            "profile g: allow.groups",
            "'daemon' is a Unix group, and JupyterHub has no group of that name. It has none.",
            "Correct the name, or add the group to c.JupyterHub.load_groups.",
        ),
        "it is reserved for the group daemon",
    ),
    "a user who does not exist": Mistake(
        one('"partition": "gpu"', '"allow": {"users": ["alcie"]}'),
        (
            WARNING,
            "user-missing",
            "profile g: allow.users",
            "'alcie' is neither an account of this machine nor a user of JupyterHub.",
            "Correct the name, unless this user is still to sign in for the first time.",
        ),
        "it is reserved for other users",
    ),
    "a memory of megabytes meant in gigabytes": Mistake(
        one('"partition": "gpu", "memory": 24'),
        (
            WARNING,
            "value-doubtful",
            "profile g: slurm.memory",
            "24 MiB is less than a notebook server needs; did you mean 24G?",
            "Give at least 512M.",
        ),
        "starts now, 106 of 120 cores free",
    ),
    "little memory, with its unit": Mistake(
        one('"partition": "gpu", "memory": "500M"'),
        (
            WARNING,
            "value-doubtful",
            "profile g: slurm.memory",
            "500 MiB is less than a notebook server needs; did you mean 500G?",
            "Give at least 512M.",
        ),
        "starts now, 106 of 120 cores free",
    ),
    "a template that has to be mended": Mistake(
        one('"partition": "gpu"'),
        (
            WARNING,
            "template-mended",
            "c.SlurmSpawner.batch_script",
            "--uid=somebody is left out: only root may use it, and the job is submitted as its user.",
            "Correct the template.",
        ),
        "starts now, 106 of 120 cores free",
        settings=TEMPLATE,
    ),
    "a wait that is shorter than the queue": Mistake(
        one('"partition": "gpu", "gpus": 4, "gpu_type": "k80"', '"queue_timeout": "1:00"'),
        (
            WARNING,
            "queue-timeout-short",
            "profile g: queue_timeout",
            "a server of profile g would now wait about 45 min, and the hub gives up after 1 min.",
            "Allow a longer wait.",
        ),
        "full, 1 person ahead of you. Expected wait: about 45 min, but a start may wait for at most 1 min here",
    ),
    "a file with a mistake": Mistake(
        "",
        (
            ERROR,
            "profile-file",
            "a.yaml:2: slurm.memory",
            "is not a valid amount of memory: use a number of MiB, or a number with K, M, G or T, such as 32G",
            "",
        ),
        "starts now, 47 of 96 CPUs free",
        files={
            "profiles/a.yaml": "display_name: A\nslurm: {partition: gpu, memory: lots}\n",
            "profiles/b.yaml": "display_name: B\n",
        },
    ),
    "a file that claims the slug of another": Mistake(
        "",
        (
            ERROR,
            "slug-taken",
            "b.yaml",
            "'a' is already a slug in a.yaml; this profile is ignored",
            "Give this profile a slug of its own.",
        ),
        "starts now, 106 of 120 cores free",
        files={
            "profiles/a.yaml": "display_name: A\nslurm: {partition: gpu}\n",
            "profiles/b.yaml": "display_name: B\nslug: a\n",
        },
    ),
    "a partition in a file": Mistake(
        "",
        (
            ERROR,
            "partition-missing",
            "profile a (a.yaml:4): slurm.partition",
            f"there is no partition gup (available: {LISTED}).",
            "Name a partition that exists.",
        ),
        f"there is no partition gup (available: {LISTED})",
        files={"profiles/a.yaml": "- display_name: A\n  slurm:\n    gpus: 1\n    partition: gup\n"},
    ),
    "a licence that does not exist": Mistake(
        one('"partition": "gpu", "extra": ["--licenses=ansys:1"]'),
        (
            ERROR,
            "license-missing",
            "profile g: slurm.extra",
            "there is no licence ansys.",
            "Name one of matlab.",
        ),
        "There is no such licence.",
        refusal="bad_license",
    ),
    "more licences than there are": Mistake(
        one('"partition": "gpu", "extra": ["-L matlab:9"]'),
        (
            ERROR,
            "license-missing",
            "profile g: slurm.extra",
            "there are 2 licences matlab, not 9.",
            "Request no more than that.",
        ),
        "There is no such licence.",
        refusal="bad_license",
    ),
    "servers that end before they are idle": Mistake(
        one('"partition": "gpu", "gpus": 1, "time": "1:00:00"', '"idle": {"gpu": "4h", "action": "stop"}'),
        (
            WARNING,
            "idle-too-long",
            "profile g: idle.gpu",
            "servers count as idle after 4 h, and their jobs end after 1 h.",
            "Set a shorter time, or a longer slurm.time.",
        ),
        "starts now, 8 of 22 GPUs free",
    ),
    "servers that are looked at too rarely for their idle policy": Mistake(
        one('"partition": "gpu", "gpus": 1, "time": "8:00:00"', '"idle": {"action": "stop", "keep": {"by": "2min"}}'),
        (
            WARNING,
            "idle-too-fine",
            "profile g: idle",
            "a time of 2 min is shorter than the 5 min between two summaries of use: warnings and stops come late by "
            "up to that, and Keep may gain nothing.",
            "Set c.GPUSlurmSpawner.usage_interval to 12 s or less, or longer times.",
        ),
        "starts now, 8 of 18 GPUs free",
    ),
    "a site that looks too rarely for its idle policy": Mistake(
        one('"partition": "gpu", "gpus": 1, "time": "8:00:00"'),
        (
            WARNING,
            "idle-too-fine",
            "c.GPUSlurmSpawner.idle",
            "a time of 10 min is shorter than the 50 min between two summaries of use: warnings and stops come late by "
            "up to that, and Keep may gain nothing.",
            "Set c.GPUSlurmSpawner.usage_interval to 60 s or less, or longer times.",
        ),
        "starts now, 8 of 18 GPUs free",
        settings="c.GPUSlurmSpawner.usage_interval = 300; c.GPUSlurmSpawner.idle = {'action': 'stop'}",
    ),
    "servers that cannot be extended": Mistake(
        one('"partition": "gpu", "time": "1-0"', '"extend": {"by": "1h"}'),
        (
            WARNING,
            "extend-too-long",
            "profile g: extend",
            "no server can be extended: its time limit is already MaxTime of partition gpu.",
            "Set a shorter slurm.time, or take extend out of the profile.",
        ),
        "starts now, 87 of 96 cores free",
    ),
    "a time limit of minutes meant in hours": Mistake(
        one('"partition": "gpu", "time": "8:00"'),
        (
            WARNING,
            "time-doubtful",
            "profile g: slurm.time",
            "the time limit is 8 min; did you mean 8 h?",
            "Write 8:00:00 for hours.",
        ),
        "starts now, 106 of 120 cores free",
    ),
    "a range of minutes meant in hours": Mistake(
        one('"partition": "gpu"', '"profile_options": {"t": {"range": {"min": 1, "max": 8, "sets": "slurm.time"}}}'),
        (
            WARNING,
            "time-doubtful",
            "profile g: profile_options.t.range.max",
            "the time limit is 8 min; did you mean 8 h?",
            "Write 8:00:00 for hours.",
        ),
        "starts now, 106 of 120 cores free",
    ),
    "a last day before the first": Mistake(
        one('"partition": "gpu"', '"allow": {"from": "2027-01-01", "until": "2026-12-01"}'),
        (
            ERROR,
            "profile-never",
            "profile g: allow.until",
            "the profile is offered from 1 Jan 2027 until 1 Dec 2026, which is never.",
            "Correct one of the dates.",
        ),
        "it is available from 1 Jan 2027",
    ),
    "no folder of courses": Mistake(
        one('"partition": "gpu"'),
        (
            ERROR,
            "course-folder",
            "c.GPUProfilesSpawner.courses_dir",
            "/no/such/folder: the folder cannot be read: No such file or directory",
            "Create the folder, or correct the setting or the names in it.",
        ),
        "starts now, 106 of 120 cores free",
        settings="c.GPUProfilesSpawner.courses_dir = '/no/such/folder'",
    ),
    "a course with a profile that does not exist": Mistake(
        one('"partition": "gpu"'),
        (
            ERROR,
            "course-session",
            "course ml",
            "ml.yaml:4: profile.slug: there is no profile nope.",
            "`gpuspawner course check ml` tells more.",
        ),
        "starts now, 106 of 120 cores free",
        files={"courses/ml.yaml": COURSE},
    ),
    "a profile for a course that is not there": Mistake(
        one('"partition": "gpu"', '"courses": ["ml", "mn"]'),
        (WARNING, "course-unknown", "profile g: courses", "there is no course mn.", "Courses are: ml."),
        "starts now, 106 of 120 cores free",
        files={"courses/ml.yaml": COURSE.replace("nope", "g").replace("2026", "2025")},
    ),
    "a user whom Slurm refuses": Mistake(
        one('"partition": "gpu"'),
        (
            ERROR,
            "trial-refused",
            "profile g, user games",
            "Slurm refused the job: the account does not exist, or you are not allowed to use it in this partition.",
            "Check `account` in the profile.",
        ),
        "The account does not exist, or you are not allowed to use it in this partition.",
        options=Options("games"),
        trial=rejected(recorded("22.05", "sbatch", "bad_account").stderr, 1),
        refusal="bad_account",
    ),
    "sudo that refuses": Mistake(
        one('"partition": "gpu"'),
        (
            ERROR,
            "trial-fails",
            "c.GPUSlurmSpawner.exec_prefix",
            "sbatch was not run: sudo asks for a password.",
            "Allow it.",
        ),
        "starts now, 106 of 120 cores free",
        options=Options("games"),
        trial=ConfigError("sbatch was not run: sudo asks for a password.", where="exec_prefix", hint="Allow it."),
    ),
    "a partition that is closed to the user": Mistake(
        one('"partition": "gpu"'),
        (
            ERROR,
            "trial-refused",
            "profile g, user games",
            "partition gpu is closed, or you are not allowed to use it.",
            "Open the partition, or name one that admits the user.",
        ),
        "starts now, 106 of 120 cores free",
        options=Options("games"),
        trial=WillRun(RECORDED.taken_at + 1e10, ("g1",), 1, "gpu"),
    ),
    "fewer seats than people": Mistake(
        one('"partition": "gpu", "gpus": 1, "gpu_type": "v100", "cpus": 1, "memory": "2G"'),
        (
            WARNING,
            "seats-few",
            "profile g",
            "The nodes have room for 1 of 50 people at the same time. There are too few GPUs. "
            "Not counted: g2: reserved for ml-hpc-0.",
            "Request less for each, or let fewer people start at once.",
        ),
        "starts now, 1 of 8 V100 free",
        settings="c.Spawner.start_timeout = 300",
        options=Options(people=50),
    ),
}
