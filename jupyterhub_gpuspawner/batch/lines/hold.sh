# No folder can hold the launcher: a process keeps it in memory while this script runs
if [ -z "$GPUSPAWNER_FOLDER" ]; then
    GPUSPAWNER_PLAN=$(gpuspawner_plan)
    GPUSPAWNER_LAUNCHER=$(gpuspawner_launcher | "$GPUSPAWNER_PYTHON" -I -c '
import base64, os, sys, time
archive = base64.b64decode(sys.stdin.buffer.read())
with os.fdopen(os.memfd_create("launch.pyz"), "wb") as file:
    file.write(archive)
    file.flush()
    holder = os.fork()
    if holder:
        print(f"/proc/{holder}/fd/{file.fileno()}")
        os._exit(sys.stdout.flush() or 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in 0, 1, 2:
        os.dup2(nothing, standard)
    while os.path.exists(f"/proc/{sys.argv[1]}"):
        time.sleep(1)
' "$$") || {
        echo "gpuspawner: neither a folder nor the memory of $(hostname) can hold the launcher: no server" >&2
        exit 1
    }
    echo "gpuspawner: no folder could hold the launcher; it is kept in memory" >&2
fi
