gpuspawner_remove() {
    PATH=/usr/bin:/bin:${PATH:-}
    if [ -n "${GPUSPAWNER_FOLDER:-}" ]; then
        set -- "$GPUSPAWNER_FOLDER"
    elif [ -n "${gpuspawner_name:-}" ]; then # it was being made
        set -- "${TMPDIR:-/tmp}/$gpuspawner_name" "/tmp/$gpuspawner_name" "/dev/shm/$gpuspawner_name" \
            "${HOME:-/nonexistent}/$gpuspawner_name"
    else
        return 0
    fi
    # again, if a process that ends with the server wrote there meanwhile
    command rm -rf -- "$@" || { command sleep 1; command rm -rf -- "$@"; } || :
}
