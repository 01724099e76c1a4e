"""Why starts failed, in words for whoever mends the cause: what happened, and what to do. Pure.

What the participant reads is another text: that of an ending, in :mod:`jupyterhub_gpuspawner.hub.job.ending`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jupyterhub_gpuspawner.slurm.commands import COMMAND


class Explanation(NamedTuple):
    """A cause in words. What stands in braces is filled in by :func:`explanation`."""

    sentence: str
    fix: str
    """The command or line that mends it, or shows more."""


_LOG_OF_HUB = "Look for `The start of` in the hub's log."
_JOB = "`{scontrol} show job {job}`, and slurmd's log on {node}."
_FOLDER = "on {node}: `ls -ld`, `df` and `df -i` of the folder; its mount; the file server."
_EXPLANATIONS: Mapping[str, Explanation] = {
    # what a job reports of its start
    "module_command": Explanation(
        "There is no module command.", "Install Lmod on {node}, or remove `environment.modules` of profile {profile}."
    ),
    "module_path": Explanation(
        "A folder of modules cannot be used.", "Correct `environment.module_use` of profile {profile}, or mount it."
    ),
    "module": Explanation(
        "{module} cannot be loaded.", "Correct `environment.modules` of profile {profile}; on {node}: `module avail`."
    ),
    "conda_command": Explanation(
        "There is no conda command.",
        "Install conda on {node}, name its module in profile {profile}, or remove `environment.conda`.",
    ),
    "conda": Explanation(
        "{conda} cannot be activated.",
        "Correct `environment.conda` of profile {profile}; on {node}: `conda env list`.",
    ),
    "venv": Explanation(
        "A virtual environment cannot be activated.", "Correct `environment.venv` of profile {profile}, or mount it."
    ),
    "setup": Explanation("A line of the profile's setup failed.", "Correct `environment.setup` of profile {profile}."),
    "prologue": Explanation("The site's own lines failed.", "Correct c.GPUSlurmSpawner.req_prologue."),
    "script": Explanation("The site's own batch script failed.", "Correct c.GPUSlurmSpawner.batch_script."),
    "launcher": Explanation(
        "No folder could hold what starts the server.",
        "Make room in /tmp and /dev/shm of {node}: `df -h /tmp /dev/shm`.",
    ),
    "command": Explanation(
        "The server's command does not exist.",
        "Install jupyterhub-singleuser where profile {profile} finds it, or correct `command` and the environment.",
    ),
    "command_refused": Explanation(
        "The server's command cannot be run.", "Correct its mode, or `command` of profile {profile}."
    ),
    "server": Explanation("The server ended at once.", "The last lines of its log say why."),
    "home_full": Explanation("The home folder is full.", "Tell them what to delete, or raise the quota."),
    "home_unwritable": Explanation("The home folder cannot be written.", f"As the user {_FOLDER}"),
    "home_silent": Explanation("The home folder does not answer.", f"As root {_FOLDER}"),
    "log_full": Explanation("The folder of logs is full.", f"See c.GPUSlurmSpawner.log_dir; {_FOLDER}"),
    "log_unwritable": Explanation("The folder of logs cannot be written.", f"See c.GPUSlurmSpawner.log_dir; {_FOLDER}"),
    "log_silent": Explanation("The folder of logs does not answer.", f"See c.GPUSlurmSpawner.log_dir; {_FOLDER}"),
    "tmp_full": Explanation("The folder for temporary files is full.", "Remove what is left in /tmp of {node}."),
    "tmp_unwritable": Explanation("The folder for temporary files cannot be written.", f"As root {_FOLDER}"),
    "tmp_silent": Explanation("The folder for temporary files does not answer.", f"As root {_FOLDER}"),
    # what the hub found
    "hook": Explanation("A hook of the hub's configuration failed.", _LOG_OF_HUB),
    "configuration": Explanation("The hub or the profile is not set up correctly.", "Run `gpuspawner check`."),
    "user_options": Explanation("The choice is not allowed.", "Nothing, unless the profile's limits are wrong."),
    "submit_rejected": Explanation(
        "Slurm refused the job.", "`gpuspawner check --user USER --submit` tries profile {profile} as that user."
    ),
    "slurm_unavailable": Explanation("Slurm did not respond.", "`{scontrol} ping`, `munge -n | unmunge`."),
    "slurm_output": Explanation("Slurm's answer was not understood.", _LOG_OF_HUB),
    "gpuspawner_error": Explanation("The hub could not start the server.", _LOG_OF_HUB),
    "timeout": Explanation(
        "The server did not respond in time.",
        "See the end of its log. A slow file system needs a longer start_timeout or http_timeout.",
    ),
    "queue_timeout": Explanation(
        "It waited in the queue longer than is allowed.", "See `queue_timeout`, and `{squeue}`."
    ),
    "unreachable": Explanation(
        "The hub cannot reach the server.",
        "From the hub's machine: `nc -vz {node} PORT`; see the firewall, port_range.",
    ),
    "hub_restarted": Explanation("The hub was restarted during the start.", "Nothing: they start again."),
    "database": Explanation("The hub's database did not respond.", "`df`, and `gpuspawner check`, which writes to it."),
    # how a job ended before its server was ready
    "job_finished": Explanation("The job ended without a word of its server.", _JOB),
    "job_failed": Explanation("The job failed.", f"The last lines of its log say why; {_JOB}"),
    "job_cancelled": Explanation("Somebody cancelled the job in Slurm.", "`{sacct} -j {job} -o user,state,end`."),
    "job_time_limit": Explanation("The job reached its time limit.", "Give profile {profile} more `slurm.time`."),
    "job_out_of_memory": Explanation("The job exceeded its memory.", "Give profile {profile} more `slurm.memory`."),
    "job_killed": Explanation(
        "The job was killed, most often for its memory.", "Give profile {profile} more `slurm.memory`."
    ),
    "job_silent": Explanation(
        "The job ended before anything of its server ran.",
        f"Look for exec and exit in ~/.bash_profile and ~/.profile, and for a prolog: {_JOB}",
    ),
    "job_node_failed": Explanation("The node failed.", "`{scontrol} show node {node}`, and slurmctld's log."),
    "job_preempted": Explanation("A job with a higher priority took its place.", "Nothing: they start again."),
    "job_revoked": Explanation(
        "Another cluster of the federation started the job.",
        "Set c.GPUSlurmSpawner.req_cluster to this cluster's name: see `gpuspawner check`.",
    ),
    "job_vanished": Explanation("Slurm has no record of the job.", "slurmctld's log; MinJobAge."),
    "job_replaced": Explanation("Slurm lost the job.", "slurmctld's log; StateSaveLocation, MaxJobId."),
    "job_ended": Explanation("The job ended.", _JOB),
}
_UNKNOWN = Explanation("The start failed.", _LOG_OF_HUB)


def explanation(
    fault: str, *, subject: str = "", node: str = "", profile: str = "", job: str = "", slurm: str = COMMAND
) -> Explanation:
    """A start's fault in words, with what mends it; ``subject`` is the module or environment that it is about.

    ``slurm`` is how a command of Slurm's is typed for the start's cluster, as :data:`COMMAND`.
    """
    facts = {"node": node or "the node", "profile": profile or "(none)", "job": job or "JOB"}
    facts |= {name: slurm.replace(COMMAND, name) for name in ("scontrol", "squeue", "sacct")}
    facts["module"] = f"The module {subject}" if subject else "A module"
    facts["conda"] = f"The conda environment {subject}" if subject else "A conda environment"
    return Explanation(*(text.format(**facts) for text in _EXPLANATIONS.get(fault, _UNKNOWN)))
