# --- gpuspawner: the launcher (a Python zipapp in base64) and its plan, in a private folder of the job
gpuspawner_plan() { command printf '%s\n' \
@PLAN@
}
gpuspawner_launcher() ( { set +x; } 2>/dev/null; command printf '%s\n' '
@LAUNCHER@
' )
# Use the first folder that can hold both. No here-documents: the shell would write them to TMPDIR. The name is known
# before there is such a folder: who ends this shell meanwhile leaves none behind
gpuspawner_name=$(
    { set +eux; } 2>/dev/null
    PATH=/usr/bin:/bin:${PATH:-}
    gpuspawner_name=$(command uname -n) || exit 1
    case $gpuspawner_name in *[!A-Za-z0-9._-]*) gpuspawner_name=node ;; esac
    command mktemp -u "gpuspawner.$gpuspawner_name.XXXXXXXXXX"
) || gpuspawner_name=
gpuspawner_unpack() (
    { set +eux; } 2>/dev/null
    set +C
    umask 077
    PATH=/usr/bin:/bin:${PATH:-}
    gpuspawner_folder=
    trap '[ -z "$gpuspawner_folder" ] || command rm -rf -- "$gpuspawner_folder"; exit 143' TERM INT HUP PIPE
    [ -n "$gpuspawner_name" ] || exit 1
    gpuspawner_last=
    for gpuspawner_try in "${TMPDIR:-/tmp}" /tmp /dev/shm "${HOME:-/nonexistent}"; do
        gpuspawner_try=$gpuspawner_try/$gpuspawner_name
        [ "$gpuspawner_try" != "$gpuspawner_last" ] || continue
        gpuspawner_last=$gpuspawner_try
        gpuspawner_folder=$gpuspawner_try
        case $gpuspawner_try in
            /*) gpuspawner_why=$(command mkdir -m 700 -- "$gpuspawner_try" 2>&1) ;;
            *) gpuspawner_why="not a full path"; false ;;
        esac || gpuspawner_folder=
        [ -n "$gpuspawner_folder" ] && gpuspawner_why=$(
            { command printf '%s %s\n' "$$" "${SLURM_JOB_ID:-}" > "$gpuspawner_folder/shell" &&
                gpuspawner_plan > "$gpuspawner_folder/plan.json" &&
                gpuspawner_launcher | command base64 -d > "$gpuspawner_folder/launch.pyz"; } 2>&1
        ) && command printf '%s\n' "$gpuspawner_folder" && exit 0
        command printf 'gpuspawner: %s cannot be used for the launcher: %s\n' \
            "${gpuspawner_try%/*}" "${gpuspawner_why:-it cannot be written}" >&2
        [ -z "$gpuspawner_folder" ] || command rm -rf -- "$gpuspawner_folder"
        gpuspawner_folder=
    done
    exit 1
)
trap @AT_EXIT@ EXIT
GPUSPAWNER_FOLDER=$(gpuspawner_unpack) || GPUSPAWNER_FOLDER=
gpuspawner_name=
GPUSPAWNER_LAUNCHER=$GPUSPAWNER_FOLDER/launch.pyz
GPUSPAWNER_PLAN=$GPUSPAWNER_FOLDER/plan.json
# --- gpuspawner: end of the launcher
