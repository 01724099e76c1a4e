"""Configurations with one mistake each, which the model of the cluster or a dry run finds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.check.finding import Options
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.messages import rejected
from tests.check.mistakes import RECORDED, Mistake, one
from tests.slurm.recorded import recorded, would_start

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot


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


_DRAINED = frozenset({"IDLE", "DRAIN"})
DRAINED = replace(
    RECORDED,
    nodes=tuple(
        node._replace(states=_DRAINED, reason="maint, xid=79 [root@1795905516]") if "gpu" in node.partitions else node
        for node in RECORDED.nodes
    ),
)
"""The recorded cluster with all nodes of a partition drained."""
RESERVED_LATER = replace(
    RECORDED,
    reservations=tuple(replace(reservation, start=RECORDED.taken_at + 3540) for reservation in RECORDED.reservations),
)
"""The same with reservations that begin in an hour."""
MAINTAINED = "d1, g[1-2], m1, s1 and u1 (maint, xid=79, since 28 Nov 2026, 22:38 UTC, by root) are out of service"
BACK = "`scontrol update NodeName=NODE State=RESUME` puts a drained node back into service."
HOUR = 3600


def out_of_service(**states: tuple[str, ...]) -> ClusterSnapshot:
    """The recorded cluster with nodes in these states."""
    nodes = (
        node._replace(states=frozenset(states.get(node.name, node.states)), reason="no power" * (node.name == "m1"))
        for node in RECORDED.nodes
    )
    return replace(RECORDED, nodes=tuple(nodes))


SIZES = (
    '"profile_options": {"size": {"choices": {"s": {"slurm": {"memory": "4G"}}, "l": {"slurm": {"memory": "99G"}}}}}'
)
GPUS = '"profile_options": {"gpus": {"range": {"min": 1, "max": 8, "sets": "slurm.gpus"}}}'
HOURS = '"profile_options": {"hours": {"range": {"min": 1, "max": 48, "unit": "hours", "sets": "slurm.time"}}}'
WHERE = (
    '"profile_options": {"where": {"choices": {"k80": {"slurm": {"partition": "gpu"}}, '
    '"h100": {"slurm": {"partition": "hopper"}}}}}'
)

MISTAKES: dict[str, Mistake] = {
    "a reservation that does not exist": Mistake(
        one('"partition": "gpu", "reservation": "ml-hpc-9"'),
        "WRONG profile g: slurm.reservation: there is no reservation ml-hpc-9. Create the reservation, or take it "
        "out of the profile. [reservation-missing]",
        "there is no reservation ml-hpc-9",
    ),
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
        "warn  profile g: slurm.time: Slurm would end a server of profile g after 1 h 59 min, with reservation "
        "ml-hpc-0. Request no more time than that, or extend the reservation. [ends-early]",
        "starts now, 23 of 24 cores free; ends after 1 h 59 min, with reservation ml-hpc-0",
    ),
    "nodes that are all drained": Mistake(
        one('"partition": "gpu"'),
        f"warn  Slurm: {MAINTAINED}, so servers of profile g wait. {BACK} [nodes-out]",
        f"not available now: {MAINTAINED}",
        snapshot=DRAINED,
    ),
    "nodes that are out of service for several reasons": Mistake(
        one('"partition": "gpu"'),
        "warn  Slurm: d1 (it does not respond), g[1-2] (in maintenance), m1 (no power) and s1 and u1 are out of "
        "service, so servers of profile g wait. Start slurmd on a node that is down or does not respond; `scontrol "
        "update NodeName=NODE State=RESUME` puts it back unless ReturnToService does. Maintenance ends with its "
        "reservation; `scontrol show reservation` lists them. `scontrol update NodeName=NODE State=POWER_UP` runs "
        "ResumeProgram for a node without power. `slurmd -C` on a node prints its hardware, which slurm.conf must not "
        "exceed. [nodes-out]",
        "not available now: d1 (it does not respond), g[1-2] (in maintenance), m1 (no power) and s1 and u1 are out of "
        "service",
        snapshot=out_of_service(
            d1=("DOWN", "NOT_RESPONDING"),
            g1=("IDLE", "MAINTENANCE"),
            g2=("IDLE", "MAINTENANCE"),
            m1=("DOWN", "POWERED_DOWN"),
            s1=("IDLE", "INVALID_REG"),
            u1=("IDLE", "INVALID_REG"),
        ),
    ),
    "a wait that is shorter than the time until its reservation": Mistake(
        one('"partition": "gpu", "time": "1:00:00", "reservation": "ml-hpc-0"', '"queue_timeout": "1:00"'),
        "warn  profile g: queue_timeout: a server of profile g would now wait about 59 min, and the hub gives up "
        "after 1 min. Allow a longer wait. [queue-timeout-short]",
        "not yet: reservation ml-hpc-0 starts {time}, but a start may wait for at most 1 min here",
        snapshot=RESERVED_LATER,
    ),
    "a partition in a file": Mistake(
        "",
        "WRONG profile a (a.yaml:4): slurm.partition: there is no partition gup (available: LISTED). Name a "
        "partition that exists. [partition-missing]",
        "there is no partition gup (available: LISTED)",
        files={"profiles/a.yaml": "- display_name: A\n  slurm:\n    gpus: 1\n    partition: gup\n"},
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
    "nodes that are all drained, for a user": Mistake(
        one('"partition": "gpu"'),
        f"warn  Slurm: {MAINTAINED}, so servers of profile g wait. {BACK} [nodes-out]",
        f"not available now: {MAINTAINED}",
        snapshot=DRAINED,
        options=Options("games"),
        trial=rejected(recorded("22.05", "sbatch", "bad_account").stderr),
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
        trial=would_start(RECORDED.taken_at + 1e10, "g1", "gpu"),
    ),
}
