"""batchspawner's script of each profile beside the new one: options by their names, then the site's lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.migrate.new_hub import new_spawner, site_of_result
from jupyterhub_gpuspawner.migrate.old_hub import System
from jupyterhub_gpuspawner.migrate.old_script import OldScript, old_script
from jupyterhub_gpuspawner.migrate.result import ConvertedProfile, Migration
from jupyterhub_gpuspawner.migrate.template import REPLACED, sbatch_options, spelled
from jupyterhub_gpuspawner.slurm.job import Account

SAME, OURS, DIFFERS = " ", "~", "!"
"""What a line is in both scripts: the same, different in every job of this package, or different in this one."""
_OURS = REPLACED - {"chdir"} | {"no-requeue"}
_DROPPED = re.compile(
    r"set [-+][A-Za-z]+( pipefail)?|trap 'echo SIGTERM received' TERM|echo \"?jupyterhub-singleuser ended gracefully\"?"
)
"""Lines of batchspawner's own script in whose place the new one has others."""
_STEP = re.compile("^(srun|exec) ")
"""What stood before the server's command, which the new script runs itself."""
_CALL = re.compile(r'(?:/bin/sh|"\$GPUSPAWNER_PYTHON" -I) "\$GPUSPAWNER_LAUNCHER" --plan "\$GPUSPAWNER_PLAN" -- ')


@dataclass(frozen=True)
class Pair:
    """A line of both scripts; empty where one has none."""

    mark: str
    was: str
    now: str


@dataclass(frozen=True)
class Comparison:
    """The two scripts of one profile."""

    profile: str
    pairs: tuple[Pair, ...] = ()
    fault: str = ""
    """Why there are not two scripts; empty if there are."""

    @property
    def same(self) -> bool:
        """Whether they are the same job, but for what every job of this package has."""
        return not self.fault and all(pair.mark != DIFFERS for pair in self.pairs)

    def text(self) -> str:
        """The pairs in two columns, below the profile's name."""
        width = max((len(pair.was) for pair in self.pairs), default=0)
        lines = [f"{pair.mark} {pair.was:<{width}} | {pair.now}".rstrip() for pair in self.pairs]
        return "\n".join([f"# profile {self.profile}", *lines, *([self.fault] if self.fault else [])])


_NOTHING_CHOSEN = "default, with nothing chosen in the form, and without hooks"


def comparisons(migration: Migration, account: Account) -> Iterator[Comparison]:
    """Compare the job of each Slurm profile, for its default choice; one that is left out has no new script.

    Of a hub with a form of its own it is the job for which nobody chose anything, and no hook is run. Raises
    ConfigError for a hub of another package, whose form made the job.
    """
    if migration.old.system not in (System.BATCHSPAWNER, System.WRAPSPAWNER):
        raise ConfigError("only the scripts of batchspawner's and wrapspawner's hubs can be compared.")
    for row in migration.differences:
        if row.code in ("class_not_found", "job_refused", "no_profiles", "profile_refused"):
            yield Comparison(row.was, fault=f"there is no new script: {row.why}")
    for profile in migration.jobs:
        compared = _comparison(migration, profile, account)
        yield replace(compared, profile=_NOTHING_CHOSEN) if profile is migration.plain else compared


def _comparison(migration: Migration, profile: ConvertedProfile, account: Account) -> Comparison:
    try:
        was = old_script(migration.old, profile.old, account, migration.command)
    except Exception as error:  # noqa: BLE001 - a site's template and classes may raise anything
        return Comparison(profile.slug, fault=f"batchspawner makes no script of it: {type(error).__name__}: {error}")
    try:
        options, lines = _new_job(migration, profile, account)
    except GPUSpawnerError as error:
        return Comparison(profile.slug, fault=f"there is no new script: {error}")
    pairs = (*_options(was.options, options, account.home), *_lines(_site_lines(was), lines))
    return Comparison(profile.slug, pairs)


def _new_job(migration: Migration, profile: ConvertedProfile, account: Account) -> tuple[dict[str, str], list[str]]:
    """Options and the site's lines of the new script, with the server's command alone; raises GPUSpawnerError."""
    spawner = new_spawner(site_of_result(migration), profile.slug, account.name)
    setup = spawner.request.environment.setup if spawner.request is not None else ()
    script = str(spawner.batch_job(account).script)
    if spawner.batch_script:
        body = script.rpartition("\ngpuspawner_fault=script\n")[2]
        lines = [*setup, *body.splitlines()]
    else:
        server = next(line for line in script.splitlines() if _CALL.search(line))
        words = _CALL.split(server)[-1].partition(" <")[0].partition(" &")[0]
        lines = [*setup, *spawner.req_prologue.splitlines(), words, *spawner.req_epilogue.splitlines()]
    cluster = {"clusters": spawner.req_cluster} if spawner.req_cluster else {}
    return {**sbatch_options(script), **cluster}, _commands(_CALL.sub("", line) for line in lines)


def _site_lines(script: OldScript) -> list[str]:
    return _commands(line.replace(script.command, script.server) for line in script.text.splitlines())


def _commands(lines: Iterable[str]) -> list[str]:
    """The lines without those that are empty or comments."""
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _options(was: Mapping[str, str], now: Mapping[str, str], home: str) -> Iterator[Pair]:
    for name in sorted({*was, *now}):
        old, new = was.get(name), now.get(name)
        expected = name in _OURS or (name, old, new) in [
            ("nodes", None, "1"),
            ("ntasks", "1", None),
            ("chdir", None, home),
            ("gres-flags", None, "enforce-binding"),
        ]
        mark = SAME if old == new else OURS if expected else DIFFERS
        yield Pair(mark, spelled(name, old), spelled(name, new))


def _lines(was: list[str], now: list[str]) -> Iterator[Pair]:
    bare = [_STEP.sub("", line) for line in was]
    for _, first, last, start, end in SequenceMatcher(None, bare, now, autojunk=False).get_opcodes():
        for old, new in zip_longest(was[first:last], now[start:end], fillvalue=""):
            dropped = "" in (old, new) and _DROPPED.fullmatch(old or new) is not None
            step = old != new and _STEP.sub("", old) == new
            yield Pair(SAME if old == new else OURS if dropped or step else DIFFERS, old, new)
