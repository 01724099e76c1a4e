# --- gpuspawner: if the job ends before its server has run, it reports why. The launcher is read from this script
gpuspawner_fault=setup
gpuspawner_report() (
    [ -n "${gpuspawner_fault:-}" ] || exit 0
    { set +eux; } 2>/dev/null
    PATH=${PATH:-}:/usr/bin:/bin
    for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" @PYTHONS@ \
            /usr/bin/python3 /usr/libexec/platform-python; do
        gpuspawner_try=$(unset -f python3; unalias python3 2>/dev/null; command -v -- "$gpuspawner_try") || continue
        "$gpuspawner_try" -I -c '
import sys
sys.excepthook = lambda *_: None
if sys.version_info < (3, 9):
    sys.exit(99)
import base64, os, re, tempfile
lines = re.search(rb"\n((?:[A-Za-z0-9+/=]{120}\n){9,}[A-Za-z0-9+/=]+)\n", open(sys.argv[1], "rb").read())
try:
    memory = getattr(os, "memfd_create", None)  # conda builds its Pythons for a libc that lacks it
    file = open(memory("launch.pyz"), "wb", 0) if memory else tempfile.TemporaryFile("wb", 0)
except OSError:
    sys.exit(99)
file.write(base64.b64decode(lines[1]))
sys.path.insert(0, "/proc/self/fd/%d" % file.fileno())
from jupyterhub_gpuspawner.node.failure import main
main(sys.argv[2:])
' \
            "$0" "$gpuspawner_fault" "${gpuspawner_subject:-}" "${GPUSPAWNER_FOLDER:-}" </dev/null
        case $? in 99 | 126 | 127) ;; *) break ;; esac
    done
)
@REMOVE@
gpuspawner_end() {
    gpuspawner_status=$?
    trap : TERM INT HUP # a signal ends the report, and not what follows it
    case $gpuspawner_status:${gpuspawner_fault:-} in
        *: | 0:script | 129:* | 130:* | 143:*) ;;
        *) gpuspawner_report || : ;;
    esac
    gpuspawner_remove
}
trap gpuspawner_end EXIT
# Other shells than bash do nothing at their end where a signal is their end
[ -n "${BASH_VERSION:-}" ] || { trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM; }
