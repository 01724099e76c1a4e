# The log moves to a folder of its own, in which the last @KEPT@ are kept: Slurm, which has it open, goes on writing to
# it. It stays where the folder is on another file system, or cannot be made
(
    { set +eux; } 2>/dev/null
    PATH=/usr/bin:/bin:${PATH:-}
    gpuspawner_log=@LOG@
    gpuspawner_logs=@FOLDER@
    command mkdir -p -m 700 -- "$gpuspawner_logs" && cd -- "$gpuspawner_logs" &&
        command ln -- "$gpuspawner_log" ".$SLURM_JOB_ID" && command rm -f -- ".$SLURM_JOB_ID" &&
        command mv -f -- "$gpuspawner_log" . &&
        command ls -t | command grep -x 'jupyterhub-[0-9]*\.log' | command tail -n +@MORE@ |
            while read -r gpuspawner_log; do command rm -f -- "$gpuspawner_log"; done
) </dev/null >/dev/null 2>&1 || :
