"""Run the demo's Slurm in a folder, which must not exist, until SIGTERM or Ctrl-C: ``serve_slurm.py FOLDER``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm, SlurmFailed


def serve(folder: Path) -> None:
    """Run it; raises SlurmFailed."""
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with PrivateSlurm(DEMO_CLUSTER, folder) as slurm:
        print(f"Slurm is running: export SLURM_CONF={slurm.conf}", flush=True)
        signal.sigwait(signals)


if __name__ == "__main__":
    try:
        serve(Path(sys.argv[1]))
    except SlurmFailed as error:
        sys.exit(str(error))
