if [ "$GPUSPAWNER_PYTHON" = none ]; then
    echo "gpuspawner: no Python 3.9 or newer on $(hostname); load a module that has one, or set GPUSPAWNER_PYTHON" >&2
    exit 1
fi
