gpuspawner_stopped=
gpuspawner_serve() {
    [ -z "$gpuspawner_stopped" ] || return 143 # by a signal that came before there was a server to get it
    @CALL@
}
gpuspawner_fault=server
trap 'gpuspawner_fault= gpuspawner_stopped=yes' TERM INT HUP
status=0
gpuspawner_serve || status=$?
# If another program took the port before the server had it, start again with another port
if [ "$status" != 0 ] && "$GPUSPAWNER_PYTHON" -I "$GPUSPAWNER_LAUNCHER" --port-taken; then
    status=0
    gpuspawner_serve || status=$?
fi
[ "$status" = 0 ] || gpuspawner_report || :
gpuspawner_fault=
