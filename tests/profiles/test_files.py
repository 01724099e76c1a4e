"""Profiles in YAML files, and a folder that changes while the hub runs."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.files import EVERYTHING, ProfileFolder
from tests.standins.hostile_profiles import BOMB
from tests.standins.profile_files import read_profiles

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parents[1] / "data" / "profiles"


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def _slugs(folder: ProfileFolder) -> list[str]:
    return [profile.slug for profile in folder.read().profiles]


def _faults(folder: ProfileFolder) -> list[str]:
    return [str(error) for error in folder.read().errors]


def test_the_example_of_a_site_is_a_site() -> None:
    """One GPU, two GPUs with NVLink, a MIG slice, CPUs, and a test server on the hub."""
    profiles = read_profiles(ROOT / "config" / "profiles" / "site.yaml", EVERYTHING)
    assert [(p.slug, p.kind, p.slurm.gpus, p.slurm.gpu_type, p.slurm.time) for p in profiles] == [
        ("gpu", "slurm", 1, "a100", 28800),
        ("gpu2", "slurm", 2, "a100", 14400),
        ("slice", "slurm", 1, "1g.10gb", 28800),
        ("cpu", "slurm", None, None, 28800),
        ("test", "local", None, None, None),
    ]


def test_the_example_of_a_course_changes_its_reservation_daily() -> None:
    """A reservation for each day, modules, a container, a start page, for the course's group alone."""
    (course,) = read_profiles(ROOT / "config" / "profiles" / "course.yaml", EVERYTHING)
    assert course.slurm.reservation is not None
    assert course.slurm.reservation.on(date(2026, 3, 3)) == "ml-hpc-2"
    assert (course.default_url, course.allow.groups) == ("/lab/tree/start.ipynb", ("course",))
    assert course.environment.model_dump(exclude_unset=True) == {
        "modules": ("GCC", "CUDA"),
        "container": {"image": "/sw/images/course.sif"},
        "variables": {"COURSE_DATA": "/data/course"},
    }


def test_yaml_means_what_it_says(tmp_path: Path) -> None:
    """8:00:00 is eight hours, not a base-60 number; no is text, and so are digits after a leading zero."""
    path = _write(
        tmp_path,
        "p.yaml",
        "display_name: no\nslurm: {time: 8:00:00, partition: on, account: 0123, exclusive: no, memory: 32000}\n",
    )
    (profile,) = read_profiles(path)
    assert (profile.display_name, profile.slurm.model_dump(exclude_unset=True)) == (
        "no",
        {"time": 28800, "partition": "on", "account": "0123", "exclusive": False, "memory": 32000},
    )


@pytest.mark.parametrize(
    "text",
    ["display_name: P\n", "- display_name: P\n", "profiles:\n- display_name: P\n", "profiles: [{display_name: P}]"],
)
def test_a_file_holds_a_profile_or_a_list(tmp_path: Path, text: str) -> None:
    """Alone, as a list, or under profiles."""
    assert [p.slug for p in read_profiles(_write(tmp_path, "p.yaml", text))] == ["p"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "display_name: P\nslurm:\n  gpus: 1\n  memory: 32X\n",
            "p.yaml:4: slurm.memory: is not a valid amount of memory",
        ),
        ("- display_name: P\n- display_name: Q\n  slrum: {}\n", "p.yaml:3: no such field; did you mean slurm?"),
        ("- display_name: P\n- display_name: p\n", "p.yaml:2: slug: 'p' is already the slug of an earlier profile"),
        ("- display_name: P\n- slurm: {}\n", "p.yaml:2: display_name: is missing"),
        (
            "display_name: P\nslurm:\n  extra:\n  - --a\n  - b\n",
            "p.yaml:5: slurm.extra[1]: must be one printable line",
        ),
        ("display_name: P\nidle: {gpu: sixty}\n", "p.yaml:2: idle.gpu: is not a duration"),
        ("display_name: P\nidle:\n  keep: {times: many}\n", "p.yaml:3: idle.keep.times: must be a whole number"),
        ("display_name: P\nextend: {by: '90'}\n", "p.yaml:2: extend.by: is not a duration"),
        ("display_name: P\napp: {command: a, auth: none}\n", "p.yaml:2: app.auth: must be 'hub' or 'own'"),
        ("display_name: P\ntraits: {a b: 1}\n", "p.yaml:2: traits: this field is not allowed in a profile file"),
        ("slurm: {}\nslurm: {}\n", "p.yaml:2: duplicate key"),
        ("profiles: []\nmore: 1\n", "p.yaml:1: must contain one profile, a list of profiles, or only 'profiles:'"),
        ("display_name: [\n", "p.yaml:2: while parsing a flow node, did not find expected node content"),
        ("display_name: P\n\tslurm: {}\n", "p.yaml:2: the line is indented with a tab: use spaces"),
        (
            "display_name: !!python/object:os.system x\n",
            "p.yaml:1: unknown tag",
        ),
        ("? [a]\n: b\n", "p.yaml:1: a key must be text"),
        ("just text\n", "p.yaml:1: must be a table of fields"),
        ("", "p.yaml:1: must be a table of fields"),
        ("display_name: \x00\n", "p.yaml"),
        ("time: " + "9" * 5000 + "\n", "p.yaml:1: a number is too large"),
        (BOMB, "p.yaml:1: the file contains more than 10000 values"),
        ("a: &a [*a]\n", "p.yaml"),
        *((text * 5000, "p.yaml:1: tables and lists are nested more than 50 deep") for text in ("[", "- ", "{a: ")),
    ],
)
def test_a_fault_is_told_with_file_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    """Every fault is one sentence with its location."""
    with pytest.raises(ConfigError) as caught:
        read_profiles(_write(tmp_path, "p.yaml", text))
    assert str(caught.value).startswith(message)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Missing, too large, not UTF-8."""
    (tmp_path / "latin.yaml").write_bytes(b"display_name: \xe4\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * (1024 * 1024 + 1))
    messages = []
    for name in ("none.yaml", "latin.yaml", "large.yaml"):
        with pytest.raises(ConfigError) as caught:
            read_profiles(tmp_path / name)
        messages.append(str(caught.value))
    assert messages == [
        "none.yaml: the file cannot be read: No such file or directory",
        "latin.yaml: the file is not UTF-8",
        "large.yaml: the file is larger than 1048576 bytes",
    ]


def test_the_data_file_names_the_broken_profile_by_its_line() -> None:
    """The line of the value in a list under profiles."""
    with pytest.raises(ConfigError, match=r"^course.yaml:8: slurm.memory: is not a valid amount of memory"):
        read_profiles(DATA / "course.yaml")


def test_a_folder_follows_its_files(tmp_path: Path) -> None:
    """New, changed and removed files take effect at the next scan; other files are ignored."""
    folder = ProfileFolder(tmp_path)
    assert _slugs(folder) == []
    _write(tmp_path, "b.yaml", "display_name: B\n")
    _write(tmp_path, "a.yml", "display_name: A\n")
    _write(tmp_path, ".hidden.yaml", "display_name: H\n")
    _write(tmp_path, "notes.txt", "display_name: N\n")
    assert _slugs(folder) == ["a", "b"]
    _write(tmp_path, "b.yaml", "display_name: Bee\n")
    assert _slugs(folder) == ["a", "bee"]
    (tmp_path / "a.yml").unlink()
    assert _slugs(folder) == ["bee"]


def test_an_unchanged_folder_is_not_read_again(tmp_path: Path) -> None:
    """The same profile objects are returned."""
    _write(tmp_path, "a.yaml", "display_name: A\n")
    folder = ProfileFolder(tmp_path)
    assert folder.read().profiles is folder.read().profiles


def test_a_file_of_the_same_size_written_in_the_same_moment_is_noticed(tmp_path: Path) -> None:
    """An editor that replaces the file gives it another inode."""
    path = _write(tmp_path, "a.yaml", "display_name: A\n")
    folder = ProfileFolder(tmp_path)
    folder.read()
    status = path.stat()
    new = _write(tmp_path, "new", "display_name: B\n")
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)
    assert _slugs(folder) == ["b"]


def test_a_broken_file_goes_on_with_its_last_good_version(tmp_path: Path) -> None:
    """The fault is reported until it is fixed."""
    _write(tmp_path, "a.yaml", "display_name: A\n")
    _write(tmp_path, "b.yaml", "display_name: B\n")
    folder = ProfileFolder(tmp_path)
    assert (_slugs(folder), _faults(folder)) == (["a", "b"], [])
    _write(tmp_path, "b.yaml", "display_name: B\nslurm: {gpu: 1}\n")
    assert _slugs(folder) == ["a", "b"]
    assert _faults(folder) == ["b.yaml:2: slurm.gpu: no such field; did you mean gpus?"]
    _write(tmp_path, "b.yaml", "display_name: Bee\n")
    assert (_slugs(folder), _faults(folder)) == (["a", "bee"], [])


def test_a_slug_stays_with_its_file_when_another_process_reads_the_folder(tmp_path: Path) -> None:
    """Also if that file was written again in the meantime, or is faulty; not if it is gone."""
    for name in ("b.yaml", "a.yaml"):  # by their times, b.yaml is the older one
        _write(tmp_path, name, f"display_name: P\ndescription: {name}\n")

    def offered(owners: dict[str, str]) -> list[str]:
        folder = ProfileFolder(tmp_path)
        folder.owners = owners
        return [profile.description for profile in folder.read().profiles]

    assert (offered({}), offered({"p": "a.yaml"}), offered({"p": "gone.yaml"})) == (["b.yaml"], ["a.yaml"], ["b.yaml"])
    _write(tmp_path, "a.yaml", "display_name: [P")
    assert offered({"p": "a.yaml"}) == []


def test_a_folder_that_goes_away_keeps_its_profiles_and_says_so(tmp_path: Path) -> None:
    """A file system that is temporarily missing removes no profile."""
    path = tmp_path / "profiles"
    path.mkdir()
    _write(path, "a.yaml", "display_name: A\n")
    folder = ProfileFolder(path)
    folder.read()
    path.rename(tmp_path / "gone")
    assert _slugs(folder) == ["a"]
    assert _faults(folder) == [f"{path}: the folder cannot be read: No such file or directory"]
    (tmp_path / "gone").rename(path)
    assert (_slugs(folder), _faults(folder)) == (["a"], [])
