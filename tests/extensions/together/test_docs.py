"""The documentation matches the code: links, examples, names and the reference."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from traitlets import HasTraits
from traitlets.config import Config, Configurable
from traitlets.config.loader import PyFileConfigLoader
from traitlets.utils.importstring import import_item

from docs.reference_pages import FOLDER, rendered
from docs.reference_pages.documents import EXAMPLE
from docs.reference_pages.errors import error_classes
from docs.reference_pages.settings import CONFIGURED
from docs.reference_pages.wording import anchor
from jupyterhub_gpuspawner.check.finding import CODES
from jupyterhub_gpuspawner.cli.main import main as gpuspawner
from jupyterhub_gpuspawner.extensions.courses.course import Course, read_course
from jupyterhub_gpuspawner.extensions.courses.course_profile import course_profile
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFolder
from jupyterhub_gpuspawner.hub.report.server_report import parse_placement
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.files import EVERYTHING, ProfileFolder, Rights
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.sections import profile_class
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.slurm.job import PHASES
from tests.docs.follow import PROXY, blocks, commands, section
from tests.standins.profile_files import read_profiles

ROOT = Path(__file__).parents[3]
GENERATED = {FOLDER / name: text for name, text in rendered().items()}
"""The reference as ``scripts/docs`` writes it; whether it has been written here does not matter."""
WRITTEN = sorted(
    [
        ROOT / "README.md",
        *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts and path not in GENERATED),
    ]
)
"""Pages that are written by hand, or by a script that measures."""
PAGES = sorted([*WRITTEN, *(path for path in GENERATED if path.suffix == ".md")])
TUTORIAL = ROOT / "docs" / "tutorial" / "hub-without-root.md"

_FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)\]\((?P<target>[^()\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_OURS = re.compile(r"(?:^|[ /])gpuspawner (?P<words>.*?)(?: [>|] .*| && .*)?$")
"""A command of ours, up to where its output goes."""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _text(path: Path) -> str:
    return GENERATED.get(path) or path.read_text("utf-8")


def _blocks(*kinds: str) -> list[Any]:
    """The fenced blocks of these kinds in all pages, each named by its page and line."""
    params = []
    for path in PAGES:
        text = _text(path)
        for block in _FENCE.finditer(text):
            if block["kind"] in kinds:
                line = text[: block.start()].count("\n") + 2
                params.append(pytest.param(block["text"], id=f"{_name(path)}:{line}"))
    assert params
    return params


def _prose(path: Path) -> str:
    return _FENCE.sub("", _text(path))


# --- links -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    """Relative links resolve once the reference is built, with their fragments; pictures too."""
    missing = []
    for target in _LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not (path in GENERATED or path.exists()) or (fragment and fragment not in _anchors(path)):
            missing.append(target)
    assert missing == []


def test_every_picture_is_shown_by_a_page() -> None:
    """And every picture that a page shows is there: one that no page shows is soon of an earlier layout."""
    texts = [*((page, _prose(page)) for page in PAGES), *((FOLDER / name, text) for name, text in rendered().items())]
    shown = {
        (page.parent / target).resolve()
        for page, text in texts
        for target in _LINK.findall(text)
        if "pictures/" in target and not re.match(r"[a-z]+:", target)
    }
    assert shown == {path for path in (ROOT / "docs" / "pictures").rglob("*") if path.is_file()}


@cache
def _anchors(path: Path) -> frozenset[str]:
    return frozenset(anchor(title.replace("`", "")) for title in re.findall(r"^#+ (.+)$", _prose(path), re.MULTILINE))


# --- examples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", _blocks("yaml"))
def test_every_yaml_example_is_a_file_of_profiles_or_a_course(text: str, tmp_path: Path) -> None:
    """A course has a roster."""
    path = tmp_path / "example.yaml"
    path.write_text(text, "utf-8")
    if "\nroster:" in text:
        assert [(file.fault, bool(file.course)) for file in CourseFolder(tmp_path).read().files] == [(None, True)]
    else:
        assert read_profiles(path, EVERYTHING)


@pytest.mark.parametrize("text", _blocks("python"))
def test_every_python_example_is_configuration_that_loads(text: str, tmp_path: Path) -> None:
    """Each setting in it is one of the class that it names, and its profiles parse."""
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(f"c = get_config()\n{text}", "utf-8")
    config = PyFileConfigLoader(path.name, path=str(tmp_path)).load_config()
    assert list(_unknown(config)) == []
    for name in ("GPUProfilesSpawner", "ProfilesSpawner"):
        profiles = config.get(name, {}).get("profiles", [])
        assert len(parse_profiles(profiles)) == len(profiles)


@cache
def _classes() -> dict[str, type[HasTraits]]:
    """Every configurable class that a hub's configuration may name, by its name."""
    for module in ("jupyterhub.app", "jupyterhub.auth", "jupyterhub.proxy", "batchspawner", "wrapspawner"):
        import_item(module)
    classes: dict[str, type[HasTraits]] = {}
    waiting: list[type[HasTraits]] = [Configurable]
    while waiting:
        cls = waiting.pop()
        classes.setdefault(cls.__name__, cls)
        waiting += cls.__subclasses__()
    return classes


def _unknown(config: Config) -> Iterator[str]:
    for class_name, settings in config.items():
        cls = _classes().get(class_name)
        for name in settings:
            if cls is None or not getattr(cls.class_traits().get(name), "metadata", {}).get("config"):
                yield f"c.{class_name}.{name}"


@pytest.mark.parametrize("page", WRITTEN, ids=_name)
def test_every_setting_named_in_the_text_exists(page: Path) -> None:
    """``c.CLASS.NAME`` in the text names an existing setting."""
    names = re.findall(r"`c\.([A-Z]\w+)\.(\w+)(?![\w*])", _prose(page))
    config = Config({cls: {} for cls, _ in names})
    for cls, name in names:
        config[cls][name] = None
    assert list(_unknown(config)) == []


@pytest.mark.parametrize("page", WRITTEN, ids=_name)
def test_every_command_of_ours_in_the_text_exists_with_its_options(page: Path) -> None:
    """``gpuspawner ...`` in a block or in the text is an existing command with existing options.

    A block has the prompt of a user or of root; the command may have a path, and run as another account.
    """
    consoles = [text for kind, text in blocks(page.read_text("utf-8")) if kind == "console"]
    lines = [line for text in consoles for line, _ in commands(text)] + _CODE.findall(_prose(page))
    for line in filter(None, map(_OURS.search, lines)):
        command: click.Command = gpuspawner
        words = shlex.split(line["words"])
        while isinstance(command, click.Group) and words:
            inner = command.get_command(click.Context(command), words[0])
            if inner is None:
                break
            command, words = inner, words[1:]
        assert command is not gpuspawner, line[0]
        options = {option for param in command.params if isinstance(param, click.Option) for option in param.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options, line[0]


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.name != "README.md"], ids=_name)
def test_no_command_installs_this_package_by_its_name_before_the_release(page: Path) -> None:
    """Anybody may take the name on PyPI until then."""
    installs = [line for line in page.read_text("utf-8").splitlines() if "pip install" in line]

    assert [line for line in installs if re.search(r"(?<![/\w-])jupyterhub-gpuspawner", line)] == []


def test_the_example_configuration_loads_with_its_profiles(tmp_path: Path) -> None:
    """The example configuration in config/ works unchanged."""
    site = load_site(ROOT / "config" / "jupyterhub_config.py")
    assert site.spawner_class is GPUProfilesSpawner
    assert list(_unknown(site.config)) == []
    spawner = site.spawner("ada")
    spawner.profiles_dir = str(ROOT / "config" / "profiles")
    assert {profile.slug for profile in spawner.offered()} >= {"gpu", "course", "test"}
    assert (spawner.port_range, spawner.hub_name, spawner.req_partition) == ("20000-20999", "jupyter", "gpu")


def test_the_example_profiles_have_no_fault() -> None:
    """Each file in config/profiles is valid with the permissions in config/jupyterhub_config.py."""
    settings = load_site(ROOT / "config" / "jupyterhub_config.py").config.GPUProfilesSpawner
    folder = ProfileFolder(ROOT / "config" / "profiles", Rights(frozenset(settings.profiles_dir_allows)))
    assert folder.read().errors == ()


def test_the_example_course_has_no_fault() -> None:
    """It is offered with the example profiles, and its numbers are within theirs."""
    profiles = ProfileFolder(ROOT / "config" / "profiles", EVERYTHING).read().profiles
    (file,) = CourseFolder(ROOT / "config" / "courses").read().files

    assert (file.slug, file.fault) == ("deep-learning", None)
    profile = course_profile(file, profiles, datetime(2027, 3, 1, 10, tzinfo=ZoneInfo("Europe/Brussels"))).profile
    assert (profile.slurm.cpus, profile.slurm.memory, profile.environment.modules) == (
        6,
        24 * 1024,
        ("CUDA/12.4", "PyTorch/2.4"),
    )


def _courses() -> dict[str, str]:
    """The courses in config and in the pages, by where they are."""
    courses = {"config": (ROOT / "config" / "courses" / "deep-learning.yaml").read_text("utf-8")}
    courses |= {str(block.id): block.values[0] for block in _blocks("yaml") if "\nroster:" in block.values[0]}
    return courses


@pytest.mark.parametrize("text", _courses().values(), ids=_courses().keys())
def test_the_schema_of_courses_accepts_every_example(text: str) -> None:
    """And refuses it with a field that a course does not have, or without a roster."""
    validator = Draft202012Validator(json.loads(rendered()["course.schema.json"]))
    example = read_course(text).value
    without = {name: value for name, value in example.items() if name != "roster"}

    assert [validator.is_valid(document) for document in (example, {**example, "setup": "sh"}, without)] == [
        True,
        False,
        False,
    ]


def test_hub_and_proxy_fit_each_other(tmp_path: Path) -> None:
    """Their address, their API's and their token are those that the guide sets."""
    unit = (ROOT / "config" / "jupyterhub-proxy.service").read_text("utf-8")
    options = dict(re.findall(r"--([\w-]+) (\S+)", unit[unit.index("\nExecStart=") :]))
    guide = section(*PROXY.split("#"))
    (lines,) = (text for kind, text in blocks(guide) if kind == "python")
    file = tmp_path / "jupyterhub_config.py"
    file.write_text(lines)
    config = PyFileConfigLoader(str(file)).load_config()
    hub = (ROOT / "config" / "jupyterhub.service").read_text("utf-8")

    assert config.ConfigurableHTTPProxy == {
        "should_start": False,
        "api_url": f"http://{options['api-ip']}:{options['api-port']}",
    }
    assert f'c.JupyterHub.bind_url = "http://{options["ip"]}:{options["port"]}"' in TUTORIAL.read_text("utf-8")
    assert set(re.findall(r"(?m)^EnvironmentFile=-?(.+)$", unit + hub)) == {"/etc/jupyterhub/proxy.env"}
    assert "/etc/jupyterhub/proxy.env" in guide


# --- what the package says of guides and files ------------------------------------------------------

_OF_REPOSITORY = re.compile(rf"(?<![\w./~-])(?:{'config|docs|docker|scripts|tests|benchmarks'})/\w")
_QUOTED_TITLE = re.compile(r'\b(?:guide|tutorial|page|reference)\s+(?:#\s+)?"([A-Z][^"]*)"')


def _texts_of_the_package() -> Iterator[tuple[Path, str]]:
    """The text of each file that a wheel has; a string that is written in pieces is one."""
    for folder in (ROOT / "jupyterhub_gpuspawner", ROOT / "config"):
        for path in sorted(folder.rglob("*")):
            if (
                path.is_file()
                and "__pycache__" not in path.parts
                and path.suffix not in {".png", ".ico", ".woff2", ".pyc"}
            ):
                yield path, re.sub(r'["\']\n\s*f?["\']', "", path.read_text("utf-8", errors="replace"))


def test_no_text_of_the_package_names_a_folder_of_the_repository() -> None:
    """Who installed a wheel has none: a hint names a command, a guide's title, or says what to do."""
    assert [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path, text in _texts_of_the_package()
        for line in text.splitlines()
        if _OF_REPOSITORY.search(line)
    ] == []


def test_every_title_that_the_package_names_is_that_of_a_page() -> None:
    """Guides, tutorials and the pages of the reference, which is made from the code."""
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    titles = {match[1] for text in (*pages, *rendered().values()) if (match := re.search(r"(?m)^# (.+)$", text))}
    named = {
        " ".join(re.sub(r"\n#? *", " ", title).split())
        for _, text in _texts_of_the_package()
        for title in _QUOTED_TITLE.findall(text)
    }

    assert len(named) > 5
    assert named - titles == set()


# --- the generated reference -----------------------------------------------------------------------


def test_the_overview_of_the_reference_names_every_page() -> None:
    """The schema of courses is named by the page of courses."""
    overview = _LINK.findall((FOLDER / "README.md").read_text("utf-8"))
    assert sorted(overview) == sorted(path.name for path in GENERATED if path.suffix == ".md")


def test_every_setting_field_and_code_has_its_line_in_the_reference() -> None:
    """By the code's own lists of them."""
    names = {
        "settings.md": {name for cls in CONFIGURED for name in cls.class_own_traits(config=True)},
        "profile.md": {field.alias or name for name, field in profile_class().model_fields.items()},
        "course.md": {field.alias or name for name, field in Course.model_fields.items()},
        "findings.md": set(CODES),
        "states.md": set(PHASES),
        "errors.md": {cls.__name__ for cls in error_classes()},
    }
    lines = {page: set(re.findall(r"^\| `(\w[\w-]*)` \|", rendered()[page], re.MULTILINE)) for page in names}
    assert {page: names[page] - lines[page] for page in names} == {page: set() for page in names}


def test_every_code_of_the_package_is_in_the_reference_of_findings() -> None:
    """Also one that a module declares which no check imports."""
    declared = {
        name
        for path in (ROOT / "jupyterhub_gpuspawner").rglob("*.py")
        for name in re.findall(r'\bCode\(\s*"([\w-]+)"', path.read_text("utf-8"))
    }
    assert len(declared) > 50
    assert declared - set(re.findall(r"(?m)^\| `(\w[\w-]*)` \|", rendered()["findings.md"])) == set()


def test_the_documented_placement_is_one_that_the_hub_reads() -> None:
    """The parser of reports accepts the example in the reference."""
    assert parse_placement(json.loads(json.dumps(EXAMPLE.to_json()))) == EXAMPLE


# --- the folders --------------------------------------------------------------------------------------


def test_how_it_works_lists_every_folder_of_the_package() -> None:
    """In the order of their names, and none that is not there; an extension's folder is its own."""
    package = ROOT / "jupyterhub_gpuspawner"
    page = (ROOT / "docs" / "explanation" / "how-it-works.md").read_text("utf-8")
    table = re.findall(r"(?m)^\| `([\w/]+)/` \|", page)
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    folders = {path.parent for path in files} - {package}
    inside = {folder for folder in folders if package / "extensions" in folder.parents}
    assert table == sorted(str(folder.relative_to(package)) for folder in folders - inside)


# --- tests that pages name ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reliability", "security", "accessibility"])
def test_every_test_that_a_page_names_is_there(name: str) -> None:
    """A test that was renamed or removed is found here."""
    page = (ROOT / "docs" / "explanation" / f"{name}.md").read_text("utf-8")
    tests = {
        f"{path.name}::{test}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for test in re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    }
    named = re.findall(r"`(\w+\.py::test_\w+)`", page)

    assert named
    assert [test for test in named if test not in tests] == []
