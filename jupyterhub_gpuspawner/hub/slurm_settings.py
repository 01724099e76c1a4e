"""What an admin may set of the servers that are Slurm jobs, beside batchspawner's own settings."""

from __future__ import annotations

import re
import socket
from typing import Any

from batchspawner import SlurmSpawner
from traitlets import Enum, Float, Integer, TraitError, Unicode, default, validate

from jupyterhub_gpuspawner.placement_rules import CLAIM_FOLDER
from jupyterhub_gpuspawner.slurm.watcher import ACTIVE_INTERVAL, REST_INTERVAL
from jupyterhub_gpuspawner.wire import MEMORY_POLICIES, POLICIES

JUPYTERHUB_PORT = 8081
"""Where a hub listens unless told otherwise."""
_PORT_RANGE = re.compile(r"([0-9]+)-([0-9]+)")


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
    hub_name = Unicode(config=True, help="This hub's name in the tag of its jobs; the same after each restart.")
    job_name = Unicode("jupyterhub", config=True, help="Slurm's job name.")
    log_dir = Unicode(
        "{homedir}",
        config=True,
        help="Folder of the jobs' logs, as the node sees it; `{homedir}` and `{username}` are replaced.",
    )
    slurm_bin_dir = Unicode("", config=True, help="Folder of Slurm's commands; empty: found by PATH.")
    slurm_timeout = Float(10.0, config=True, help="Seconds that a Slurm command may take.")
    slurm_limit = Integer(8, config=True, help="Slurm commands that run at once, at most.")
    waiting_interval = Float(ACTIVE_INTERVAL, config=True, help="Seconds between two squeue while someone waits.")
    resting_interval = Float(REST_INTERVAL, config=True, help="Seconds between two squeue while nobody waits.")
    reconcile_interval = Float(
        600.0,
        min=0.0,
        config=True,
        help="""Seconds between two looks for jobs of this hub that no server belongs to, which are cancelled; 0: only
        when the hub starts.""",
    )
    stop_wait = Float(10.0, config=True, help="Seconds that stopping waits for the job to end.")
    placement_policy = Enum(POLICIES, "best-effort", config=True, help="Policy where the profile names none.")
    memory_policy = Enum(MEMORY_POLICIES, "preferred", config=True, help="Memory policy where the profile names none.")
    port_range = Unicode("", config=True, help="Ports for servers on the nodes, such as `20000-20999`; empty: any.")
    topology_file = Unicode(
        "",
        config=True,
        help="A topology file that stands in for discovery on the nodes; `{node}` in it is the node's name.",
    )
    claim_folder = Unicode("/var/tmp", config=True, help=CLAIM_FOLDER)  # noqa: S108 - what is in it is guarded
    observe_timeout = Float(3.0, config=True, help="Seconds that looking at a node's hardware may take.")

    @default("hub_name")
    def _hub_name_default(self) -> str:
        port = self.hub.port if self.hub is not None else JUPYTERHUB_PORT
        return socket.gethostname() if port == JUPYTERHUB_PORT else f"{socket.gethostname()}-{port}"

    @validate("port_range")
    def _valid_port_range(self, proposal: Any) -> str:
        value = str(proposal["value"])
        found = _PORT_RANGE.fullmatch(value)
        if value and not (found and 1024 <= int(found[1]) <= int(found[2]) <= 65535):
            raise TraitError(f"port_range: {value!r} must be FIRST-LAST within 1024-65535, such as 20000-20999")
        return value
