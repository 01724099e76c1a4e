# A line that ends the script, since `set -e` is in force, is named; and a trap of the site's own for EXIT is run after
# that of the launcher, and does not replace it
# shellcheck disable=SC2154
[ -z "${BASH_VERSION:-}" ] || trap 'case $- in *e*) [ -z "${BASH_COMMAND##*GPUSPAWNER_LAUNCHER*}" ] ||
    echo "gpuspawner: line $LINENO of the script failed, which ends the job: $BASH_COMMAND" >&2 ;; esac' ERR
gpuspawner_exit() (
    gpuspawner_end
    exit "$gpuspawner_status"
)
[ -z "${BASH_VERSION:-}" ] || case :${SHELLOPTS:-}: in *:posix:*) ;; *) eval '
trap() {
    [ "${1:-}" != gpuspawner_end ] || return 0
    builtin trap "$@" || return
    [ "$BASHPID:${gpuspawner_status:-}" = "$$:" ] || return 0
    eval "set -- $(builtin trap -p EXIT)"
    case ${3:-} in
        gpuspawner_*) ;;
        "") builtin trap gpuspawner_end EXIT ;;
        *) builtin trap "gpuspawner_exit && :
$3" EXIT ;;
    esac
}' ;; esac
