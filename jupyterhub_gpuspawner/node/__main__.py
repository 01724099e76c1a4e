"""Runs the launcher as a script, in its archive and on the hub's own machine; whatever fails, the server starts."""

# ruff: noqa: BLE001, S606, SIM105, SIM115 - whatever fails, and with few imports

import gc
import sys
import zipimport


def _filename(importer: zipimport.zipimporter, name: str) -> str:
    """The file of a module: zipimport's own compiles the module for it, which then is compiled again to be run."""
    end = "/__init__.py" if importer.is_package(name) else ".py"
    return f"{importer.archive}/{importer.prefix}{name.rpartition('.')[2]}{end}"


gc.disable()
try:
    zipimport.zipimporter.get_filename = _filename  # type: ignore[assignment]
    from jupyterhub_gpuspawner.node.main import main

    main(sys.argv[1:])
except Exception as error:
    import os

    if sys.argv[1:2] == ["--entry"] or "GPUSPAWNER_ASKS_TURN" in os.environ:
        raise  # no server, or one that another job may run
    try:
        os.write(2, b"gpuspawner: the launcher failed, the server starts without it: %a\n" % (error,))
    except OSError:
        pass
    own = sys.argv[1 : sys.argv.index("--")]
    if "--plan" in own:
        plan = own[own.index("--plan") + 1]
        try:
            plan = plan if plan.startswith("{") else open(plan).read()
        except Exception:
            plan = ""
        if '"choose": null' not in plan:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # GPUs among which something would have had to choose
    command = sys.argv[sys.argv.index("--") + 1 :]
    os.execvp(command[0], command)
