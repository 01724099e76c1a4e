"""The shell lines that have each of a job's other nodes report what the job has there.

One ``srun`` in the background starts the launcher on every node but the first, for the second that it takes. ``srun``
creates one job step and so asks slurmctld the same few questions for two nodes as for sixteen. The launcher travels in
two environment variables of the step: if a node does not answer, ``srun`` sends no standard input to the others either.
Nothing is installed or left on the nodes.

``srun`` starts once the server's own launcher is done, and the launchers on the nodes have a low priority, so that the
server starts as soon as without them.
"""

from __future__ import annotations

import shlex

from jupyterhub_gpuspawner.batch.shell import PYTHONS

LONGEST = 131072
"""Bytes of an environment variable, with its name, that Linux accepts (``MAX_ARG_STRLEN``)."""
PIECE = 120000
"""Bytes of the launcher in the first of the two."""

_ON_A_NODE = """\
for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" @PYTHONS@ \\
        "${GPUSPAWNER_BESIDE:-}/python3" /usr/bin/python3 /usr/libexec/platform-python; do
    gpuspawner_try=$(command -v -- "$gpuspawner_try") || continue
    "$gpuspawner_try" -I -c "@BOOTSTRAP@" "$1"
    gpuspawner_status=$?
    case $gpuspawner_status in 99 | 126 | 127) ;; *) exit "$gpuspawner_status" ;; esac
done
echo "gpuspawner: no Python 3.9 or newer on ${SLURMD_NODENAME:-$(hostname)}: the node is not reported" >&2
exit 1
"""
_BOOTSTRAP = """\
import sys
if sys.version_info < (3, 9):
    sys.exit(99)
import base64, os, tempfile
file = open(os.memfd_create('launch.pyz'), 'wb', 0) if hasattr(os, 'memfd_create') else tempfile.TemporaryFile('wb', 0)
file.write(base64.b64decode(os.environ.pop('GPUSPAWNER_ARCHIVE') + os.environ.pop('GPUSPAWNER_ARCHIVE_REST')))
sys.path.insert(0, '/proc/self/fd/%d' % file.fileno())
from jupyterhub_gpuspawner.extensions.several_nodes.node.other_node import main
main(sys.argv[1])"""

_OTHER_NODES = """\
# The job's other nodes: a launcher on each reports what the job has there. The server does not wait for them
gpuspawner_other_nodes() (
    trap - EXIT TERM INT HUP
    { set +eux; } 2>/dev/null
    unset -f srun
    export GPUSPAWNER_ARCHIVE GPUSPAWNER_ARCHIVE_REST GPUSPAWNER_PYTHON GPUSPAWNER_BESIDE
    GPUSPAWNER_BESIDE=${gpuspawner_server%/*}
    # Let the server's own launcher finish first: it writes this file when it has chosen the port
    gpuspawner_left=25
    while [ ! -e "${GPUSPAWNER_FOLDER:-}/port" ] && [ "$gpuspawner_left" -gt 0 ]; do
        command sleep 0.2
        gpuspawner_left=$((gpuspawner_left - 1))
    done
    GPUSPAWNER_ARCHIVE=$(gpuspawner_launcher | command head -c @PIECE@) || exit 1
    GPUSPAWNER_ARCHIVE_REST=$(gpuspawner_launcher | command tail -c +@REST@) || exit 1
    exec srun --overlap --relative=1 --nodes="$((SLURM_JOB_NUM_NODES - 1))" --ntasks="$((SLURM_JOB_NUM_NODES - 1))" \\
        --ntasks-per-node=1 --job-name=gpuspawner-nodes --export=ALL --mpi=none --no-kill --kill-on-bad-exit=0 \\
        --input=none -- nice -n 10 /bin/sh -c @ON_A_NODE@ sh "$(gpuspawner_plan)" </dev/null
)
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    gpuspawner_other_nodes &
fi"""


def other_nodes() -> str:
    """Lines for a job on several nodes; they follow those of :mod:`.shell` that find Python."""
    there = _ON_A_NODE.replace("@PYTHONS@", PYTHONS).replace("@BOOTSTRAP@", _BOOTSTRAP)
    script = _OTHER_NODES.replace("@PIECE@", str(PIECE)).replace("@REST@", str(PIECE + 1))
    return script.replace("@ON_A_NODE@", shlex.quote(there))
