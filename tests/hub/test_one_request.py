"""Form, REST document, dry run and batch script are made from the same request."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traitlets.config import Config

from jupyterhub_gpuspawner.batch import script
from jupyterhub_gpuspawner.batch.job import batch_job
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.hub.choose.offer import ProfileStatus, option_fields, profile_statuses
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.resources import SBATCH_OPTIONS
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site
from jupyterhub_gpuspawner.units import format_memory, format_walltime, parse_memory, parse_walltime

VARIABLES = [
    "partition",
    "account",
    "qos",
    "reservation",
    "constraint",
    "nice",
    "runtime",
    "nprocs",
    "memory",
    "gres",
    "nnodes",
]
TEMPLATE = "#!/bin/bash\n{% for line in [options] if line %}#SBATCH {{line}}\n{% endfor %}" + "".join(
    f"# {name}=[{{{{{name}}}}}]\n" for name in VARIABLES
)


def spawner_of(site: dict[str, Any], *profiles: Any, **more: Any) -> GPUProfilesSpawner:
    """A user's spawner in a hub."""
    config = Config(
        {"GPUProfilesSpawner": {"profiles": list(profiles), **more}, "GPUSlurmSpawner": {"exec_prefix": "", **site}}
    )
    spawner: GPUProfilesSpawner = Site(config, GPUProfilesSpawner).spawner("ada")
    return spawner


def form(spawner: GPUProfilesSpawner) -> ProfileStatus:
    """The profile status from which the form and the REST document are made."""
    (status,) = profile_statuses(
        spawner.offered(),
        username="ada",
        groups=(),
        now=datetime.now().astimezone(),
        defaults=spawner.defaults(),
    )
    return status


def directives(text: str) -> list[str]:
    """The options in a script, without those that are the same in every script."""
    options = re.findall("^#SBATCH (.*)", text, re.MULTILINE)
    ours = ("--job-name", "--comment", "--output", "--chdir", "--export", "--no-requeue", "--gres-flags")
    return [line for line in options if not line.startswith(ours)]


def submitted(spawner: GPUProfilesSpawner, options: dict[str, object]) -> list[str]:
    """The options of the job that *Start* submits."""
    spawner.prepare(spawner.resolve(options))
    return directives(spawner.batch_job(SOMEBODY).script)


DISAGREED: dict[str, tuple[dict[str, str], dict[str, Any], list[str]]] = {
    "the site's GPU and a profile's shards": (
        {"req_ngpus": "1"},
        {"slurm": {"shards": 2}},
        ["--nodes=1", "--gres=shard:2"],
    ),
    "a default below the profile's range": (
        {"req_nprocs": "2"},
        {"profile_options": {"cores": {"range": {"min": 4, "max": 16, "sets": "slurm.cpus"}}}},
        ["--nodes=1", "--cpus-per-task=4"],
    ),
    "a default that the profile takes away": (
        {"req_partition": "gone", "req_reservation": "gone"},
        {"slurm": {"partition": None, "reservation": None}},
        ["--nodes=1"],
    ),
    "nodes and features of the site": (
        {"req_nnodes": "2", "req_constraint": "fast"},
        {},
        ["--nodes=2", "--constraint=fast"],
    ),
    "no GPUs where the site has some by default": (
        {"req_gres": "gpu:1,nvme:2"},
        {"slurm": {"gpus": 0}},
        ["--nodes=1", "--gres=nvme:2"],
    ),
    "another generic resource beside the profile's GPUs": (
        {"req_gres": "nvme:2"},
        {"slurm": {"gpus": 1}},
        ["--nodes=1", "--gres=gpu:1,nvme:2"],
    ),
    "two kinds of GPUs of the site": (
        {"req_gres": "gpu:a100:1,gpu:k80:1"},
        {},
        ["--nodes=1", "--gres=gpu:a100:1,gpu:k80:1"],
    ),
    "a setting among the profile's traits": (
        {"req_partition": "batch"},
        {"traits": {"req_partition": "gpu"}},
        ["--nodes=1", "--partition=gpu"],
    ),
}


@pytest.mark.parametrize(("site", "profile", "expected"), DISAGREED.values(), ids=DISAGREED.keys())
def test_what_the_form_judges_is_what_is_submitted(
    site: dict[str, str], profile: dict[str, Any], expected: list[str]
) -> None:
    """The request includes the site's defaults, except where the profile overrides them."""
    spawner = spawner_of(site, {"display_name": "P", "slug": "p", **profile})
    status = form(spawner)

    assert status.resources is not None, status.availability
    assert submitted(spawner, {}) == expected
    assert list(script.options(status.resources, "best-effort")) == expected


def test_a_group_override_is_in_the_request() -> None:
    """JupyterHub sets the override on the spawner before the options are applied."""
    spawner = spawner_of({"req_partition": "batch"}, {"display_name": "P", "slug": "p"})
    spawner.req_partition = "gpu"  # as JupyterHub's apply_group_overrides does

    assert form(spawner).resources == spawner.resolve({}).resources
    assert "--partition=gpu" in submitted(spawner, {})


def test_a_template_of_the_sites_own_gets_the_request() -> None:
    """A variable is empty if the profile requests nothing, and options that the template leaves out are added."""
    site = {"req_gres": "gpu:1", "req_nnodes": "2", "req_account": "site", "batch_script": "#!/bin/bash\n{cmd}\n"}
    none = {"gpus": 0, "account": None, "nodes": None}

    assert submitted(spawner_of(site, ("P", {})), {}) == ["--nodes=2", "--gres=gpu:1", "--account=site"]
    assert submitted(spawner_of(site, {"display_name": "P", "slurm": none}), {}) == ["--nodes=1"]
    assert submitted(spawner_of(site, {"display_name": "P", "slurm": {"constraint": "a&b"}}), {})[-1] == (
        "--constraint=a&b"
    )


def test_a_job_gives_way_to_others_as_its_profile_or_its_user_says() -> None:
    """And in a template that leaves the option out."""
    option = {"display_name": "Give way by", "range": {"min": 0, "max": 500, "sets": "slurm.nice"}}
    profile = {"display_name": "P", "slug": "p", "slurm": {"nice": 100}, "profile_options": {"way": option}}
    own = {"batch_script": "#!/bin/bash\n{cmd}\n"}

    assert submitted(spawner_of({}, profile), {}) == ["--nodes=1", "--nice=100"]
    assert submitted(spawner_of({}, profile), {"profile": "p", "way": 500}) == ["--nodes=1", "--nice=500"]
    assert submitted(spawner_of(own, profile), {"profile": "p", "way": 7}) == ["--nodes=1", "--nice=7"]
    assert submitted(spawner_of(own, profile), {"profile": "p", "way": 0}) == ["--nodes=1", "--nice=0"]
    with pytest.raises(RequestError, match="from 0 to 500"):
        spawner_of({}, profile).resolve({"profile": "p", "way": -1})


FIELDS: dict[str, tuple[st.SearchStrategy[Any], str]] = {
    "partition": (st.sampled_from(["gpu", "batch"]), "req_partition"),
    "nodes": (st.integers(1, 3), "req_nnodes"),
    "gpus": (st.integers(0, 4), "req_ngpus"),
    "cpus": (st.integers(1, 8), "req_nprocs"),
    "memory": (st.sampled_from([0, 1024, 4096]), "req_memory"),
    "time": (st.sampled_from([600, 3600]), "req_runtime"),
    "account": (st.sampled_from(["a", "b"]), "req_account"),
    "constraint": (st.sampled_from(["fast", "slow"]), "req_constraint"),
    "nice": (st.integers(0, 2), "req_nice"),
}


def test_every_option_of_sbatch_has_a_default_of_the_sites() -> None:
    """A field of a profile that is one option."""
    options = {f"req_{field}" for field in SBATCH_OPTIONS.values()}

    assert options - set(GPUProfilesSpawner.class_trait_names(config=True)) == set()


SITES = st.one_of(
    st.fixed_dictionaries(
        {}, optional={f"req_{name.removeprefix('req_')}": values.map(str) for values, name in FIELDS.values()}
    ),
    st.fixed_dictionaries(
        {"req_gres": st.sampled_from(["gpu:k80:2", "shard:3", "gpu:1,nvme:1", "gpu:a:1,gpu:b:1"])},
        optional={"req_options": st.just("--mail-type=END")},
    ),
)
SLURM = st.fixed_dictionaries({}, optional={name: st.none() | values for name, (values, _) in FIELDS.items()})
SHARDS = st.fixed_dictionaries({"shards": st.integers(1, 3)}, optional={"cpus": FIELDS["cpus"][0]})
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "gpus": st.just({"range": {"min": 0, "max": 4, "sets": "slurm.gpus"}}),
        "cores": st.just({"range": {"min": 1, "max": 16, "sets": "slurm.cpus"}}),
        "size": st.just({"choices": {"s": {"slurm": {"cpus": 3}}, "l": {"slurm": {"partition": None, "gpus": 2}}}}),
    },
)


@settings(max_examples=60, deadline=None)
@given(site=SITES, slurm=SLURM | SHARDS, options=OPTIONS)
def test_form_click_and_script_agree(site: dict[str, str], slurm: dict[str, Any], options: dict[str, Any]) -> None:
    """For any settings of site, profile and options, the request is refused everywhere or is the same everywhere."""
    profile = {"display_name": "P", "slug": "p", "slurm": slurm, "profile_options": options}
    spawner = spawner_of(site, profile)
    status = form(spawner)
    fields = {field.name.rpartition("--")[2]: field.value for field in option_fields(spawner.offered()[0], {})}
    posted = {"profile": "p", **{name: str(value) for name, value in fields.items()}}
    try:
        request = spawner.resolve({})
    except RequestError as error:
        assert status.resources is None
        with pytest.raises(RequestError, match=re.escape(str(error))):
            spawner.resolve(posted)
        return

    assert status.resources == request.resources
    assert spawner.resolve(posted).resources == request.resources
    assert submitted(spawner, {}) == list(script.options(request.resources, "best-effort"))
    assert batch_job(spawner.settings_of(request), request, SOMEBODY, start_id="") == spawner.batch_job(SOMEBODY)


@settings(max_examples=40, deadline=None)
@given(site=SITES, slurm=SLURM | SHARDS)
def test_a_templates_variables_are_the_request(site: dict[str, str], slurm: dict[str, Any]) -> None:
    """Each variable means the option in the script without a template, and is empty if there is none."""
    profile = {"display_name": "P", "slug": "p", "slurm": slurm}
    spawner = spawner_of({**site, "batch_script": TEMPLATE + "{{cmd}}\n"}, profile)
    try:
        request = spawner.resolve({})
    except GPUSpawnerError:
        return
    spawner.prepare(request)
    text = spawner.batch_job(SOMEBODY).script
    variables = dict(re.findall(r"^# (\w+)=\[(.*)\]$", text, re.MULTILINE))
    if variables["memory"]:  # as it was written
        variables["memory"] = format_memory(parse_memory(variables["memory"]))
    if variables["runtime"]:
        variables["runtime"] = format_walltime(parse_walltime(variables["runtime"]))
    options = dict(
        line.removeprefix("--").partition("=")[::2] for line in script.options(request.resources, "best-effort")
    )
    names = {"runtime": "time", "nprocs": "cpus-per-task", "memory": "mem", "nnodes": "nodes"}

    assert variables == {name: options.get(names.get(name, name), "") for name in VARIABLES}
