"""A site's own form in a hub without profiles: its values reach hook and template, as with batchspawner."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.utils import maybe_future
from tornado.web import HTTPError
from traitlets import default
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.failed_start import ending_of
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.migrate.template import sbatch_options
from jupyterhub_gpuspawner.slurm.job import Account
from tests.fixtures import batchspawners

HOME = Account("ada", "/home/ada", "/bin/bash", 1000)
SITE = {"req_partition": "cpu", "req_nprocs": "2", "req_memory": "4G"}
TEXT = '<select name="partition"><option>cpu</option><option>gpu</option></select>'
FORM = {"options_form": TEXT}


class Formed(GPUSlurmSpawner):
    """A class of the site's, with a form."""

    @default("options_form")
    def _form(self) -> str:
        return TEXT


class Asked(GPUSlurmSpawner):
    """A class of the site's that makes its form itself."""

    async def get_options_form(self) -> str:
        """One for each user."""
        return TEXT


def first(form: Mapping[str, list[str]]) -> dict[str, str]:
    """As most sites convert what their form sends."""
    return {name: values[0] for name, values in form.items()}


FORMS: dict[str, tuple[type[GPUSlurmSpawner], dict[str, Any]]] = {
    "a text for all spawners": (GPUSlurmSpawner, {"Spawner": FORM}),
    "a text for batchspawner": (GPUSlurmSpawner, {"SlurmSpawner": FORM}),
    "a text for ours": (GPUSlurmSpawner, {"GPUSlurmSpawner": FORM}),
    "a callable": (GPUSlurmSpawner, {"Spawner": {"options_form": lambda _: TEXT}}),
    "of the class": (Formed, {}),
    "made by the class": (Asked, {}),
}


def spawner_of(
    spawner_class: type[GPUSlurmSpawner], sections: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The spawner of a user, with the site's requests."""
    monkeypatch.setattr(GPUSlurmSpawner, "get_env", lambda spawner: dict(spawner.environment))
    of_jobs = {**SITE, **sections.get("GPUSlurmSpawner", {})}
    config = Config({name: Config(values) for name, values in {**sections, "GPUSlurmSpawner": of_jobs}.items()})
    return spawner_class(config=config, user=SimpleNamespace(name="ada", groups=[], settings={}))


async def script_of(spawner: Any, options: Mapping[str, Any]) -> str:
    """The script of a start with these options, which JupyterHub has stored."""
    spawner.user_options = dict(options)
    await spawner._run_apply_user_options(spawner.user_options)
    await spawner.run_pre_spawn_hook()
    return str(spawner.batch_job(HOME).script)


@pytest.mark.parametrize(("spawner_class", "sections"), FORMS.values(), ids=FORMS.keys())
async def test_the_form_is_shown_and_taken(
    spawner_class: type[GPUSlurmSpawner], sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is set."""
    sections = {**sections, "Spawner": {**sections.get("Spawner", {}), "options_from_form": first}}
    spawner = spawner_of(spawner_class, sections, monkeypatch)

    assert await spawner.get_options_form() == TEXT
    options = await maybe_future(spawner.run_options_from_form({"partition": ["gpu"]}))
    assert sbatch_options(await script_of(spawner, options))["partition"] == "gpu"


async def test_without_a_form_options_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said what they mean."""
    with pytest.raises(HTTPError) as refused:
        await script_of(spawner_of(GPUSlurmSpawner, {}, monkeypatch), {"profile": "gpu"})

    assert refused.value.status_code == 400


PLAIN = (
    "#!/bin/bash\n#SBATCH --partition={partition} --mem={memory}\n"
    "export APP={app} FIRST={packages[0]}\necho {packages}\n{cmd}\n"
)
JINJA = (
    "#!/bin/bash\n#SBATCH --partition={{partition}}\n{% if app == 'lab' %}module load {{ app }}{% endif %}\n"
    "{% for name in packages %}\nload {{ name }}{% endfor %}\n{{cmd}}\n"
)
OPTIONS: dict[str, dict[str, Any]] = {
    "a choice": {"partition": "gpu", "app": "lab", "packages": ["numpy"]},
    "several": {"partition": "gpu", "app": "lab", "packages": ["numpy", "torch==2.1", "x"]},
    "a number": {"partition": "cpu", "app": 7, "packages": [1, 2.5]},
    "flags": {"partition": "cpu", "app": True, "packages": [None]},
    "an empty text": {"partition": "cpu", "app": "", "packages": [""]},
    "other letters": {"partition": "cpu", "app": "Übung", "packages": ["é"]},
    "a path": {"partition": "cpu", "app": "/opt/a-1.2/b_c", "packages": ["a@b"]},
    "what no template names": {"partition": "cpu", "app": "a", "packages": ["a"], "note": "It's $(rm -rf ~)\n`x`;"},
}


def without_lines_of_ours(script: str) -> list[str]:
    """The lines that the site's template has, with the server's command in batchspawner's words."""
    ours = [*script.splitlines()]
    start = max(at for at, line in enumerate(ours) if "gpuspawner_fault=script" in line)
    return ["jupyterhub-singleuser" if "GPUSPAWNER_LAUNCHER" in line else line for line in ours[start + 1 :] if line]


@pytest.mark.parametrize("template", [PLAIN, JINJA], ids=["format", "jinja"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
async def test_a_template_is_filled_in_as_batchspawner_does(
    template: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the values of the form by their names."""
    spawner = spawner_of(GPUSlurmSpawner, {"Spawner": FORM}, monkeypatch)
    spawner.batch_script = template
    script = await script_of(spawner, options)
    theirs = batchspawners.rendered(batchspawners.spawner_of(batch_script=template, **SITE), options)

    assert without_lines_of_ours(script) == [line for line in theirs.splitlines() if line and not line.startswith("#")]
    assert sbatch_options(theirs).items() <= sbatch_options(script).items()


REQUESTED: list[dict[str, Any]] = [
    {"partition": "gpu"},
    {"runtime": "8:00:00", "memory": "16G", "nprocs": 4},
    {"gres": "gpu:a100:2"},
    {"memory": ""},
    {"options": "--nice=7", "reservation": "course"},
    {"profile": "anything", "note": "It's $(id)\n#SBATCH --uid=0"},
]


@pytest.mark.parametrize("options", REQUESTED)
async def test_without_a_template_they_are_the_requests_of_batchspawners_own(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its template names the same."""
    spawner = spawner_of(GPUSlurmSpawner, {"Spawner": FORM}, monkeypatch)
    script = await script_of(spawner, options)
    names = {"partition", "time", "mem", "gres", "cpus-per-task", "nice", "reservation"}

    ours, theirs = (
        {name: value for name, value in sbatch_options(text).items() if name in names}
        for text in (script, batchspawners.rendered(batchspawners.spawner_of(**SITE), options))
    )
    assert ours == theirs
    assert "uid" not in sbatch_options(script)


@pytest.mark.parametrize("template", [PLAIN.replace("[0]", ""), JINJA], ids=["format", "jinja"])
async def test_what_nobody_has_sent_is_empty(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may start a server without a choice; batchspawner's jinja2 has it so."""
    spawner = spawner_of(GPUSlurmSpawner, {"Spawner": FORM}, monkeypatch)
    spawner.batch_script = template
    lines = without_lines_of_ours(await script_of(spawner, {}))

    assert [line for line in lines if "load" in line or "APP" in line] == (
        ["export APP= FIRST="] if template != JINJA else []
    )


async def test_a_list_of_one_is_what_it_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """As JupyterHub passes a form on if the site has no options_from_form."""
    spawner = spawner_of(GPUSlurmSpawner, {"Spawner": FORM}, monkeypatch)
    assert sbatch_options(await script_of(spawner, {"partition": ["gpu"]}))["partition"] == "gpu"


BAD: dict[str, tuple[str, Any]] = {
    "a quote": ("app", 'a"b'),
    "an apostrophe": ("app", "it's"),
    "a command": ("app", "$(id)"),
    "an old command": ("app", "`id`"),
    "a variable": ("app", "$HOME"),
    "a line": ("app", "a\n#SBATCH --uid=0"),
    "a last line": ("app", "a\n"),
    "a carriage return": ("app", "a\rb"),
    "an end of a command": ("app", "a;id"),
    "a blank": ("app", "a --uid=0"),
    "a redirection": ("app", "a>b"),
    "in a list": ("packages", ["numpy", "a;id"]),
    "in a table": ("packages", {"0": "a b"}),
    "in a name": ("packages", {"a;b": "c"}),
    "in the partition": ("partition", "gpu\n#SBATCH --uid=0"),
    "the command": ("cmd", "id"),
    "shell lines": ("prologue", "id"),
    "the step": ("srun", "id"),
    "the account": ("homedir", "/root"),
}


@pytest.mark.parametrize("template", [PLAIN, JINJA, ""], ids=["format", "jinja", "none"])
@pytest.mark.parametrize(("name", "value"), BAD.values(), ids=BAD.keys())
async def test_what_a_template_could_not_take_is_refused(
    name: str, value: Any, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the user, by the option's name; also what a hook has not looked at, which is checked for the job."""
    spawner = spawner_of(GPUSlurmSpawner, {"Spawner": FORM}, monkeypatch)
    spawner.batch_script = template
    options = {"partition": "gpu", "app": "lab", "packages": ["numpy"], name: value}
    if not template and name in ("app", "packages"):  # no hook and no template reads them
        assert "id" not in sbatch_options(await script_of(spawner, options))
        return
    with pytest.raises(HTTPError) as refused:
        await script_of(spawner, options)
    spawner.user_options = options
    with pytest.raises(RequestError) as later:
        spawner.batch_job(HOME)

    ending = ending_of(refused.value)
    assert ending is not None
    assert (refused.value.status_code, name in words_of(ending).sentence, later.value.field) == (400, True, name)


async def test_a_hook_reads_the_choice_and_maps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commonest configuration of batchspawner's hubs."""
    levels = {"cpu": ("cpu", "2G"), "gpu": ("gpu", "4G")}

    def apply(spawner: Any) -> None:
        spawner.req_partition, spawner.req_memory = levels[spawner.user_options.get("profile", "cpu")]

    sections = {"Spawner": {**FORM, "options_from_form": first, "pre_spawn_hook": apply}}
    spawner = spawner_of(GPUSlurmSpawner, sections, monkeypatch)
    options = await maybe_future(spawner.run_options_from_form({"profile": ["gpu"]}))
    asked = sbatch_options(await script_of(spawner, options))

    assert (asked["partition"], asked["mem"]) == ("gpu", "4096M")
