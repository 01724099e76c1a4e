gpuspawner_fault=launcher
# Find a Python for the launcher: 3.9 or newer; GPUSPAWNER_PYTHON may name one. PYTHONHOME and similar variables are
# ignored (-I), and so are functions and aliases called python3
gpuspawner_server=$(command -v -- @SERVER@ || :)
gpuspawner_found=none
for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" @PYTHONS@ \
        "${gpuspawner_server%/*}/python3" /usr/bin/python3 /usr/libexec/platform-python; do
    gpuspawner_try=$(unset -f python3 || :; unalias python3 2>/dev/null || :; command -v -- "$gpuspawner_try") ||
        continue
    [ "$("$gpuspawner_try" -I -S -c 'import sys, zlib; print(sys.version_info >= (3, 9))' \
        2>/dev/null </dev/null)" = True ] || continue
    gpuspawner_found=$gpuspawner_try
    break
done
GPUSPAWNER_PYTHON=$gpuspawner_found
if [ -n "${PYTHONHOME:-}" ]; then
    gpuspawner_try=${gpuspawner_server%/*}/python3
    [ -x "$gpuspawner_try" ] || gpuspawner_try=$GPUSPAWNER_PYTHON
    if ! "$gpuspawner_try" -S -c '' 2>/dev/null && "$gpuspawner_try" -I -S -c '' 2>/dev/null; then
        echo "gpuspawner: with PYTHONHOME=$PYTHONHOME $gpuspawner_try does not start: it is unset for the server" >&2
        unset PYTHONHOME
    fi
fi
