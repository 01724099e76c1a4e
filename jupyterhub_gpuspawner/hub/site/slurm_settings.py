"""What an admin may set of the servers that are Slurm jobs, beside batchspawner's own settings."""

from __future__ import annotations

import socket

from batchspawner import SlurmSpawner
from traitlets import Enum, Unicode, default

from jupyterhub_gpuspawner.hub.site.bounded import Count, Folder, PortRange, Seconds
from jupyterhub_gpuspawner.placement.policies import MEMORY_POLICIES, POLICIES
from jupyterhub_gpuspawner.profiles.placement_rules import CLAIM_FOLDER
from jupyterhub_gpuspawner.slurm.watcher import ACTIVE_INTERVAL, REST_INTERVAL
from jupyterhub_gpuspawner.wire.documents import DEADLINE_LIMIT

JUPYTERHUB_PORT = 8081
"""Where a hub listens unless told otherwise."""
SHORTEST_LOOK = 0.05
"""Seconds that looking at a node's hardware gets at least."""


class SlurmSettings(SlurmSpawner):
    """batchspawner's Slurm spawner with the settings of ours; set them as ``c.GPUSlurmSpawner.NAME``."""

    batch_script = Unicode(
        "",
        config=True,
        help="""A template of your own, as batchspawner has it: `req_*` values by name, and `{cmd}`.
        Empty (the default): the script is built from typed values; `gpuspawner show` prints it.""",
    )
    exec_prefix = Unicode(
        "sudo -n -E -u {username}",
        config=True,
        help="""What runs a command as the server's user: words, never a shell; empty where jobs belong to the hub's own
        account. Run so are `sbatch --parsable`, `sbatch --test-only` and `scancel`; by a hub that is root `tail` for
        logs, too. With `wrapper_dir` it is `sudo -n -u {username}`, and config/sudoers is the file to copy.
        Without, it must let the environment through, in which the job gets its token: `-E` of sudo, and SETENV in the
        sudoers file. A hub that runs as root may use `runuser -u {username} --`.""",
    )
    wrapper_dir = Unicode(
        "",
        config=True,
        help="""Folder of the scripts of config/wrappers: `submit`, `trial`, `cancel` and `log`. They are run as the
        server's user in the place of sbatch and scancel, and read the end of a log. They take nothing but standard
        input, so that sudo may allow exactly them, without `-E`. Empty: sbatch and scancel themselves.""",
    )
    req_homedir = Unicode(
        "",
        config=True,
        help="Home of the job's user, `{username}` is replaced; empty: as the account database says.",
    )
    req_nnodes = Unicode(
        "", config=True, help="Nodes of a job, where its profile says nothing; the server runs on the first."
    )
    req_constraint = Unicode(
        "", config=True, help="Node features, in Slurm's words, where a job's profile says nothing: `a100&nvlink`."
    )
    hub_name = Unicode(config=True, help="This hub's name in the tag of its jobs; the same after each restart.")
    job_name = Unicode(
        "jupyterhub-{start}",
        config=True,
        help="""Slurm's job name. `{start}` is replaced by the start's own id, by which the hub finds a job again where
        a plugin of the site replaces comments; a name without it finds none there. An own `batch_script` names its
        jobs itself.""",
    )
    log_dir = Unicode(
        "{homedir}",
        config=True,
        help="Folder of the jobs' logs, as the node sees it; `{homedir}` and `{username}` are replaced.",
    )
    slurm_bin_dir = Unicode("", config=True, help="Folder of Slurm's commands; empty: found by PATH.")
    slurm_timeout = Seconds(10.0, low=0.5, high=600, config=True, help="Seconds that a Slurm command may take.")
    slurm_limit = Count(8, low=1, high=256, config=True, help="Slurm commands that run at once, at most.")
    waiting_interval = Seconds(
        ACTIVE_INTERVAL, low=0.2, high=60, config=True, help="Seconds between two squeue while someone waits."
    )
    resting_interval = Seconds(
        REST_INTERVAL, low=1, high=600, config=True, help="Seconds between two squeue while nobody waits."
    )
    reconcile_interval = Seconds(
        600.0,
        low=0.2,
        high=7 * 86400,
        or_zero=True,
        config=True,
        help="""Seconds between two looks for jobs of this hub that no server belongs to, which are cancelled; 0: only
        when the hub starts.""",
    )
    stop_wait = Seconds(10.0, low=0, high=600, config=True, help="Seconds that stopping waits for the job to end.")
    placement_policy = Enum(POLICIES, "best-effort", config=True, help="Policy where the profile names none.")
    memory_policy = Enum(MEMORY_POLICIES, "preferred", config=True, help="Memory policy where the profile names none.")
    port_range = PortRange("", config=True, help="Ports for servers on the nodes, such as `20000-20999`; empty: any.")
    topology_file = Unicode(
        "",
        config=True,
        help="A topology file that stands in for discovery on the nodes; `{node}` in it is the node's name.",
    )
    claim_folder = Folder("/var/tmp", config=True, help=CLAIM_FOLDER)  # noqa: S108 - what is in it is guarded
    observe_timeout = Seconds(
        3.0,
        low=SHORTEST_LOOK,
        high=DEADLINE_LIMIT,
        config=True,
        help="Seconds that looking at a node's hardware may take.",
    )

    @default("hub_name")
    def _hub_name_default(self) -> str:
        port = self.hub.port if self.hub is not None else JUPYTERHUB_PORT
        return socket.gethostname() if port == JUPYTERHUB_PORT else f"{socket.gethostname()}-{port}"
