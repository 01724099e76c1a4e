"""Fields of a profile and of its options that extensions add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extension import Extension, Extensions
from jupyterhub_gpuspawner.profiles import document, sections
from jupyterhub_gpuspawner.profiles.files import Rights
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.schema import BadValue, Duration, Frozen, Guarded
from jupyterhub_gpuspawner.profiles.sections import ProfileField, Program, ServerCommand, profile_class, program_of
from tests.standins.profile_files import read_profiles


class Nap(Frozen):
    """When the server sleeps."""

    after: Duration


def _not_of_two(profile: Profile) -> None:
    if profile.description == "two":
        raise BadValue("nap is for one")


NAP = ProfileField[Nap | None](
    "nap", Nap | None, "When it sleeps.", None, needs_job="the others never sleep", check=_not_of_two
)
LOUD = ProfileField[bool]("loud", Annotated[bool, Guarded("command")], "Whether it is loud.", False)
PICTURE = ProfileField[str]("picture", str, "Stands beside the option.", "")
CACHED: tuple[Any, ...] = (
    *(sections.profile_fields, sections.profile_class, sections.option_fields, sections.option_class),
    document._schema_fields,
)
ONE: dict[str, Any] = {"display_name": "One", "slug": "one"}


@pytest.fixture(autouse=True)
def extensions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two extensions, each with a field, one whose fields cannot be loaded, and one with a field of options."""
    fields: dict[str, object] = {"naps": (NAP,), "noise": (LOUD,), "pictures": (PICTURE,)}
    present = (
        *(Extension(name, "", profile_fields=".rule:FIELDS", package=name) for name in ("naps", "noise", "lost")),
        Extension("pictures", "", option_fields=".rule:FIELDS", package="pictures"),
    )
    monkeypatch.setattr(Extension, "load", lambda self, _reference: fields[self.name])
    monkeypatch.setattr(sections, "installed", lambda: Extensions(present))
    for cached in CACHED:
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in CACHED:
        cached.cache_clear()


def test_a_profile_has_the_fields_of_extensions_beside_its_own() -> None:
    """Read by the field; a profile that does not set it, and a hub without profiles, have its default."""
    first, second = parse_profiles([{**ONE, "nap": {"after": "10min"}, "loud": True}, {"display_name": "Two"}])

    assert (NAP.of(first), LOUD.of(first)) == (Nap(after="10min"), True)
    assert (NAP.of(second), LOUD.of(second), NAP.of(None)) == (None, False, None)
    assert {*profile_class().model_fields} == {*Profile.model_fields, "nap", "loud"}


TEXT = {"sets": "slurm.account", "validation_regex": "[a-z]+"}


@pytest.mark.parametrize(
    "option", [{"choices": {"a": {}}}, {"unlisted_choice": TEXT}, {}], ids=["list", "text", "alone"]
)
def test_an_option_has_a_field_of_an_extension_beside_its_own(option: dict[str, Any]) -> None:
    """Whether it is the extension, or the profile's author, who says what can be chosen."""
    (profile,) = parse_profiles([{**ONE, "profile_options": {"own": {**option, "picture": "gpu.svg"}}}])

    assert PICTURE.of(profile.profile_options["own"]) == "gpu.svg"


FAULTS = {
    "a value": (
        {"nap": {"after": "soon"}},
        "profiles[0].nap.after: 'soon' is not a duration: use for example 90s, 10min or 2h",
    ),
    "a field of its own": (
        {"nap": {"before": 1}},
        "profiles[0].nap.before: no such field; fields are after",
    ),
    "a misspelt field": ({"lod": True}, "profiles[0].lod: no such field; did you mean loud?"),
    "another kind": (
        {"kind": "local", "nap": {"after": "1h"}},
        "profiles[0]: nap is for kind: slurm; the others never sleep",
    ),
    "another field": ({"description": "two", "nap": {"after": "1h"}}, "profiles[0]: nap is for one"),
}


@pytest.mark.parametrize(("fields", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_in_it_is_told_as_that_of_any_field(fields: dict[str, Any], message: str) -> None:
    """With its path."""
    with pytest.raises(ConfigError) as raised:
        parse_profiles([{**ONE, **fields}])

    assert str(raised.value) == message


LEFT_OUT = (
    "this field is of the extension naps, which this hub leaves out. Add naps to c.GPUProfilesSpawner.extensions, or "
    "remove the field."
)


def test_a_field_of_an_extension_that_the_hub_leaves_out_is_refused_by_its_name(tmp_path: Path) -> None:
    """In the configuration and in files; the others' fields may be set."""
    nap, loud = {**ONE, "nap": {"after": "1h"}}, {**ONE, "loud": True}
    file = tmp_path / "one.yaml"
    file.write_text("display_name: One\nnap: {after: 1h}\n")

    assert LOUD.of(parse_profiles([loud], extensions={"noise"})[0]) is True
    with pytest.raises(ConfigError) as configured:
        parse_profiles([nap], extensions={"noise"})
    assert str(configured.value) == f"profiles[0].nap: {LEFT_OUT}"
    with pytest.raises(ConfigError) as read:
        read_profiles(file, Rights(extensions=frozenset({"noise"})))
    assert str(read.value) == f"one.yaml:2: nap: {LEFT_OUT}"


def test_a_guarded_field_of_an_extension_is_guarded_in_files(tmp_path: Path) -> None:
    """By the same words as the core's."""
    file = tmp_path / "one.yaml"
    file.write_text("display_name: One\nloud: true\n")

    with pytest.raises(ConfigError, match=r"one\.yaml:2: loud: this field is not allowed in a profile file"):
        read_profiles(file)
    assert LOUD.of(read_profiles(file, Rights(frozenset({"command"})))[0]) is True


@pytest.mark.parametrize("error", [ValueError("no such application"), SystemExit(3)])
def test_a_field_whose_program_fails_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """The server starts, by the next field that names one, or as JupyterLab; the log names the extension."""

    def fails(_value: object) -> Program:
        raise error

    program = Program("Loud", "app", "/", lambda _command: ServerCommand(("loud",)))
    fields = {
        "nap": ("naps", replace(NAP, program=fails)),
        "loud": ("noise", replace(LOUD, program=lambda loud: program if loud else None)),
    }
    monkeypatch.setattr(sections, "profile_fields", lambda: fields)
    loud, quiet = parse_profiles([{**ONE, "loud": True}, {"display_name": "Two"}])

    assert (program_of(loud), program_of(quiet)) == (program, None)
    assert {record.getMessage() for record in caplog.records} == {
        f"The extension naps is left out: nap failed: {error!r}"
    }
