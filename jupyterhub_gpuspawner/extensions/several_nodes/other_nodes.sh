# The job's other nodes: a launcher on each reports what the job has there. The server does not wait for them
gpuspawner_other_nodes() (
    trap - EXIT TERM INT HUP
    { set +eux; } 2>/dev/null
    unset -f srun
    export GPUSPAWNER_ARCHIVE_0 GPUSPAWNER_ARCHIVE_1 GPUSPAWNER_PYTHON GPUSPAWNER_BESIDE
    GPUSPAWNER_BESIDE=${gpuspawner_server%/*}
    # Let the server's own launcher finish first: it writes this file when it has chosen the port
    gpuspawner_left=25
    while [ ! -e "${GPUSPAWNER_FOLDER:-}/port" ] && [ "$gpuspawner_left" -gt 0 ]; do
        command sleep 0.2
        gpuspawner_left=$((gpuspawner_left - 1))
    done
    GPUSPAWNER_ARCHIVE_0=$(gpuspawner_launcher | command head -c @PIECE@) || exit 1
    GPUSPAWNER_ARCHIVE_1=$(gpuspawner_launcher | command tail -c +@REST@) || exit 1
    exec srun --overlap --relative=1 --nodes="$((SLURM_JOB_NUM_NODES - 1))" --ntasks="$((SLURM_JOB_NUM_NODES - 1))" \
        --ntasks-per-node=1 --job-name=gpuspawner-nodes --export=ALL --mpi=none --no-kill --kill-on-bad-exit=0 \
        --input=none -- nice -n 10 /bin/sh -c @BOOT@ 'gpuspawner: this node is not reported' @MAIN@ "$(gpuspawner_plan)" \
        </dev/null
)
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    gpuspawner_other_nodes &
fi
