"""Profiles as an admin writes them: how they are parsed, and how faults are reported."""

from __future__ import annotations

from datetime import date, datetime

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.placement.choice import POLICIES
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Allow
from jupyterhub_gpuspawner.profiles.resources import Container, Environment, PlacementRules, Resources
from jupyterhub_gpuspawner.profiles.sections import profile_class
from jupyterhub_gpuspawner.profiles.tuples import slug_of


def test_a_full_profile_is_read_into_typed_values() -> None:
    """Memory in MiB, time in seconds, dates, a block of shell lines as a tuple."""
    (profile,) = parse_profiles(
        [
            {
                "display_name": "Two GPUs",
                "description": "For\n training.",
                "slurm": {
                    "partition": "gpu,big",
                    "gpus": "2",
                    "gpu_type": "a100",
                    "cpus": 16,
                    "memory": "64G",
                    "time": "1-00:00:00",
                    "account": 1234,
                    "constraint": "[rack1|rack2]&nvlink",
                    "exclusive": False,
                    "extra": ["--gres-flags=enforce-binding"],
                },
                "environment": {
                    "modules": ["GCC", "CUDA/12.4"],
                    "module_use": "/sw/modules",
                    "container": "/sw/images/torch.sif",
                    "variables": {"OMP_NUM_THREADS": 4},
                    "setup": "ulimit -c 0\nexport A=1\n",
                },
                "placement": {"policy": "restricted"},
                "allow": {"groups": "training", "from": "2026-03-02", "until": "2026-03-04 18:00"},
                "start_timeout": 600,
                "queue_timeout": "4:00:00",
                "command": "jupyterhub-singleuser --debug",
                "default_url": "/lab",
                "port_range": "20000-20999",
            }
        ]
    )
    assert profile == profile_class()(
        slug="two-gpus",
        display_name="Two GPUs",
        description="For training.",
        slurm=Resources(
            partition="gpu,big",
            gpus=2,
            gpu_type="a100",
            cpus=16,
            memory=65536,
            time="1-00:00:00",
            account="1234",
            constraint="[rack1|rack2]&nvlink",
            exclusive=False,
            extra=("--gres-flags=enforce-binding",),
        ),
        environment=Environment(
            modules=("GCC", "CUDA/12.4"),
            module_use=("/sw/modules",),
            container=Container(image="/sw/images/torch.sif"),
            variables={"OMP_NUM_THREADS": "4"},
            setup=("ulimit -c 0", "export A=1"),
        ),
        placement=PlacementRules(policy="restricted"),
        allow=Allow.model_validate(
            {"groups": ("training",), "from": date(2026, 3, 2), "until": datetime(2026, 3, 4, 18)}
        ),
        start_timeout=600,
        queue_timeout="4:00:00",
        command=("jupyterhub-singleuser", "--debug"),
        default_url="/lab",
        port_range=(20000, 20999),
    )
    assert profile.slurm.time == 86400
    assert profile.queue_timeout == 14400


def _with(**fields: object) -> dict[str, object]:
    return {"display_name": "P", "slug": "p", **fields}


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (
            _with(slurm={"memory": "32X"}),
            "profiles[1].slurm.memory: '32X' is not a valid amount of memory",
        ),
        (_with(slurm={"memroy": "32G"}), "profiles[1].slurm.memroy: no such field; did you mean memory?"),
        (_with(slurm={"GPUs": 2}), "profiles[1].slurm.GPUs: no such field; did you mean gpus?"),
        (
            _with(slurm={"gres": "gpu:a100:2"}),
            "profiles[1].slurm.gres: no such field; did you mean gpus, with gpu_type? Other generic resources are a "
            "line of extra",
        ),
        (_with(slurm={"gpus": -1}), "profiles[1].slurm.gpus: -1 must be a whole number from 0 to 1024"),
        (_with(slurm={"cpus": True}), "profiles[1].slurm.cpus: True must be a whole number from 1 to 65536"),
        (_with(slurm={"time": "8h"}), "profiles[1].slurm.time: '8h' is not a valid time: use minutes"),
        (_with(slurm={"time": 0}), "profiles[1].slurm.time: must not be zero: write UNLIMITED"),
        (_with(slurm={"gpus": 1, "shards": 2}), "profiles[1].slurm: gpus and shards cannot be requested together"),
        (
            _with(slurm={"extra": ["--mail-type=END --comment=mine"]}),
            "profiles[1].slurm.extra: '--mail-type=END --comment=mine' must not contain --comment: by a job's comment",
        ),
        (
            _with(slurm={"extra": ["--com=mine"]}),
            "profiles[1].slurm.extra: '--com=mine' must not contain --comment: by a job's comment",
        ),
        (_with(slurm={"extra": ["exclusive"]}), "profiles[1].slurm.extra[0]: 'exclusive' must be one printable line"),
        (
            _with(slurm={"extra": ["--a\x0b--b"]}),
            "profiles[1].slurm.extra[0]: '--a\\x0b--b' must be one printable line",
        ),
        (_with(slurm={"reservation": "a b"}), "profiles[1].slurm.reservation.pattern: 'a b' gives 'a b'"),
        (_with(slurm={"exclusive": "perhaps"}), "profiles[1].slurm.exclusive: 'perhaps' must be a valid boolean"),
        (_with(slurm=["gpu"]), "profiles[1].slurm: ['gpu'] must be a table of fields"),
        (_with(slurm={"account": False}), "profiles[1].slurm.account: False must be text: put it in quotes"),
        (
            _with(kubespawner_override={}),
            "profiles[1].kubespawner_override: belongs to KubeSpawner and has no meaning for Slurm",
        ),
        (_with(placement={"policy": "strict"}), "profiles[1].placement.policy: 'strict' must be 'none', 'best-effort'"),
        (
            _with(placement={"policy": "single-numa-node"}),
            "profiles[1].placement.policy: 'single-numa-node' is the kubelet's: what Slurm has granted cannot be "
            "refused for being on several NUMA nodes. The strictest policy here is 'restricted': the GPUs wait until "
            "cores beside them are free",
        ),
        (
            _with(environment={"variables": {"A-B": 1}}),
            "profiles[1].environment.variables: 'A-B' is not a valid variable name",
        ),
        (
            _with(environment={"variables": {"CUDA_VISIBLE_DEVICES": "0"}}),
            "profiles[1].environment.variables: CUDA_VISIBLE_DEVICES cannot be set by a profile: the launcher sets it",
        ),
        (
            _with(environment={"variables": {"JUPYTERHUB_API_TOKEN": "0"}}),
            "profiles[1].environment.variables: JUPYTERHUB_API_TOKEN cannot be set by a profile",
        ),
        (_with(environment={"modules": ["a b"]}), "profiles[1].environment.modules[0]: 'a b' must be a module's name"),
        (_with(environment={"container": {}}), "profiles[1].environment.container.image: is missing"),
        (_with(allow={"from": "March"}), "profiles[1].allow.from: 'March' is not a valid date or time: use 2024-05-31"),
        (_with(allow={"group": "a"}), "profiles[1].allow.group: no such field; did you mean groups?"),
        (_with(kind="other"), "profiles[1]: kind: other requires a spawner_class"),
        (_with(port_range=[80, 90]), "profiles[1].port_range: [80, 90] must be two ports within 1024 to 65535"),
        (_with(default_url="lab"), "profiles[1].default_url: 'lab' must be a path on the server that begins with '/'"),
        (_with(default_url="/lab/{cmd}"), "profiles[1].default_url: '/lab/{cmd}' must be a path on the server that"),
        (_with(default_url="/lab/{username.x}"), "profiles[1].default_url: '/lab/{username.x}' must be a path on"),
        (_with(start_timeout="soon"), "profiles[1].start_timeout: 'soon' must be a whole number from 1 to 10000000"),
        (
            _with(queue_timeout=600),
            "profiles[1].queue_timeout: '600' could be seconds or minutes: write a time such as",
        ),
        (_with(queue_timeout="0:00:00"), "profiles[1].queue_timeout: '0:00:00' is no time at all"),
        (_with(queue_timeout="soon"), "profiles[1].queue_timeout: 'soon' is not a valid time: use minutes, minutes:s"),
        (_with(slug="a b"), "profiles[1].slug: 'a b' must be letters, digits and . _ -, at most 63"),
        (_with(slug="good"), "profiles[1].slug: 'good' is already the slug of an earlier profile."),
        ({"slug": "p"}, "profiles[1].display_name: is missing"),
        (7, "profiles[1]: 7 must be a table of fields"),
        (
            {
                "display_name": "x",
                "slurm": {"time": "8:30:00"},
                "profile_options": {"h": {"range": {"min": 1, "max": 24, "sets": "slurm.time", "unit": "hours"}}},
            },
            "profiles[1]: profile_options.h.range has no default, and the profile's value of slurm.time is outside "
            "the range: give the range a default, or change the field",
        ),
        (
            {
                "display_name": "x",
                "slurm": {"gpus": 1},
                "profile_options": {"h": {"choices": {"a": {"slurm": {"shards": 2}}}}},
            },
            "profiles[1]: GPUs and shards cannot be requested together, and the unchanged profile requests both",
        ),
        (("a", "b", "c"), "profiles[1]: a tuple of 3 is not a profile: use (display name, key, class, traits)"),
        (_with(profile_options={"profile": {}}), "profiles[1].profile_options.profile: must have either a range"),
        (
            _with(profile_options={"a--b": {"choices": {"x": {}}}}),
            "profiles[1].profile_options: 'a--b' is not a valid option name",
        ),
        (
            _with(profile_options={"n": {"choices": {1: {"slurm": {"gpu": 1}}}}}),
            "profiles[1].profile_options.n.choices.1.slurm.gpu: no such field; did you mean gpus?",
        ),
        (
            _with(profile_options={"n": {"choices": {"x": {"kubespawner_override": {}}}}}),
            "profiles[1].profile_options.n.choices.x.kubespawner_override: belongs to KubeSpawner",
        ),
    ],
)
def test_a_broken_profile_among_good_ones_is_named_with_its_field(profile: object, message: str) -> None:
    """The error has the path of the field, the fault, and what is expected."""
    with pytest.raises(ConfigError) as caught:
        parse_profiles([_with(slug="good"), profile])
    assert str(caught.value).startswith(message)


def test_all_faults_of_a_profile_are_named_at_once() -> None:
    """The first is described in full, the others by their path."""
    with pytest.raises(ConfigError) as caught:
        parse_profiles([_with(slurm={"gpus": -1, "cpus": 0, "memory": "x"})])
    assert str(caught.value) == (
        "profiles[0].slurm.gpus: -1 must be a whole number from 0 to 1024. Also wrong: slurm.cpus, slurm.memory."
    )


@pytest.mark.parametrize("value", ["profiles", {"display_name": "P"}, 3])
def test_profiles_are_a_list(value: object) -> None:
    """A single profile, or a text, is an error."""
    with pytest.raises(ConfigError, match="profiles: must be a list of profiles"):
        parse_profiles(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("display_name", "slug"),
    [
        ("Furiosa GPU node - 40 cores, 32 GB, 8 hours", "furiosa-gpu-node-40-cores-32-gb-8-hours"),
        ("Übung für Anfänger", "ubung-fur-anfanger"),
        ("x" * 80, "x" * 63),
    ],
)
def test_a_slug_is_made_of_the_display_name(display_name: str, slug: str) -> None:
    """Lower case, without accents, joined by dashes, at most 63 characters."""
    assert slug_of(display_name) == slug


def test_the_words_of_placement_are_those_of_the_launch_plan() -> None:
    """A profile accepts exactly the policies that the launcher knows."""
    schema = PlacementRules.model_json_schema()["properties"]
    assert tuple(schema["policy"]["anyOf"][0]["enum"]) == POLICIES
