"""batchspawner's command line, taken apart, runs what a shell ran of it."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from batchspawner.batchspawner import format_template
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.configuration import Site
from jupyterhub_gpuspawner.slurm.commands import command_prefix
from jupyterhub_gpuspawner.slurm.login_node import command_line
from jupyterhub_gpuspawner.slurm.submit_command import submit_command

STAND_IN = """#!/usr/bin/env python3
import os, sys
program, words = os.path.basename(sys.argv[0]), sys.argv[1:]
program = "su" if program == "runuser" and "-c" in words else program
if program == "sbatch":
    print(os.environ.get("ACCOUNT", ""), os.environ.get("X", ""), sys.argv[0], *words, sep="\\n")
    sys.exit()
account, command = {"sudo": "root", "su": "root"}.get(program, ""), None
while words and (words[0].startswith("-") or program in ("su", "ssh")):
    word = words.pop(0)
    if word == "--":
        break
    if word in ("-c", "--command"):
        command = words.pop(0)
    elif word == "--user" or (word[1:2] != "-" and word.startswith("-") and word.endswith("u")):
        account = words.pop(0)
    elif word.startswith("--user="):
        account = word.partition("=")[2]
    elif word in ("-s", "-p", "-h", "-g") and not (program == "su" and word == "-p"):
        words.pop(0)
    elif not word.startswith("-"):
        account = f"{word} by ssh" if program == "ssh" else word
        if program == "ssh":
            command = " ".join(words)
            break
os.environ["ACCOUNT"] = " ".join(filter(None, (os.environ.get("ACCOUNT"), account)))
while words and "=" in words[0] and program == "sudo":
    name, _, value = words.pop(0).partition("=")
    os.environ[name] = value
argv = ["sh", "-c", command] if command is not None else words
os.execvp(argv[0], argv)
"""
"""sudo, su, runuser and ssh as far as they say who runs a command; sbatch prints who ran it, its path and options."""
LINES = {
    "the default": ("sudo -E -u {username}", "sbatch --parsable"),
    "no other account": ("", "sbatch --parsable"),
    "in the command": ("", "sudo -E -u {username} sbatch --parsable"),
    "with a folder and options": ("", "sudo -E -u {username} BIN/sbatch --parsable --gres=gpu:1 --account=proj -p gpu"),
    "in both": ("sudo", "-u {username} BIN/sbatch --parsable"),
    "twice": ("sudo -u hub", "sudo -n -u {username} sbatch --parsable"),
    "letters of one word": ("", "sudo -nEu {username} sbatch -A proj"),
    "a long option": ("", "sudo --user={username} sbatch --mem 4G"),
    "a long option and its value": ("", "sudo -n --user {username} -- sbatch -t 1:00:00"),
    "a group": ("", "sudo -u {username} -g staff sbatch --nice"),
    "variables by env": ("", "sudo -u {username} env X=1 sbatch --parsable"),
    "variables of sudo": ("", "sudo -u {username} X=1 sbatch --parsable"),
    "variables of the shell": ("", "X=1 sbatch --parsable -p gpu"),
    "jinja": ("sudo -u {{ username }}", "BIN/sbatch --parsable"),
    "runuser": ("", "runuser -u {username} -- BIN/sbatch --parsable -C 'a100&nvlink'"),
    "ssh": ("", "ssh login sudo -u {username} BIN/sbatch --parsable -p gpu"),
    "ssh with options, quoted": ("ssh -p 22", "login 'sudo -u {username} sbatch --gres=gpu:2'"),
    "su": ("", "su {username} -c 'sbatch --parsable'"),
    "su with a login": ("", "su - {username} -c 'BIN/sbatch --parsable -p gpu'"),
    "su with a shell": ("", "su -s /bin/sh {username} -c \"sbatch -A 'a b'\""),
    "su with all in the prefix": ("su {username} --command", "'sbatch --parsable -q long'"),
    "runuser with a login": ("", "runuser -l {username} -c 'BIN/sbatch --parsable -p gpu'"),
    "runuser with all in the prefix": ("runuser - {username} -c", "'sbatch --parsable -q long'"),
    "a path of sudo": ("", "/PROGRAMS/sudo -u {username} /PROGRAMS/sbatch -Q"),
}
QUIET = ("--parsable", "-Q")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stand-ins, with another one of sbatch in ``opt``."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "opt").mkdir()
    for name in ("sudo", "su", "runuser", "ssh", "sbatch", "opt/sbatch"):
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(stat.S_IRWXU)
    return folder


def printed(argv: tuple[str, ...], programs: Path) -> tuple[str, ...]:
    """What sbatch prints; in full, without the options that change no job."""
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    text = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=30).stdout
    return tuple(line for line in text.splitlines() if line not in QUIET)


@pytest.mark.parametrize(("prefix", "command"), LINES.values(), ids=LINES.keys())
def test_what_a_shell_ran_is_run_without_one(prefix: str, command: str, programs: Path) -> None:
    """By the same account, with the same variables, the same sbatch; and its options are the job's."""
    prefix, command = (
        text.replace("/PROGRAMS", str(programs)).replace("BIN", str(programs / "opt")) for text in (prefix, command)
    )
    line = " ".join(format_template(text, username="ada") for text in (prefix, command))
    account, variable, program, *options = printed(("sh", "-c", line), programs)

    ours = submit_command(prefix, command, where="batch_submit_cmd")
    words = command_prefix(ours.prefix, "ada")
    sbatch = f"{ours.bin_dir}/sbatch" if ours.bin_dir else "sbatch"
    assert printed(command_line(words, (sbatch,)), programs) == (account, variable, program)
    assert [str(option) for option in ours.options] == [str(option) for option in as_options(options)]


def as_options(words: list[str]) -> list[str]:
    """The words after sbatch, each option as one word with its long name."""
    short = {"-A": "account", "-p": "partition", "-t": "time", "-C": "constraint", "-q": "qos"}
    result: list[str] = []
    for word in words:
        if word.startswith("-"):
            result.append(f"--{short[word]}" if word in short else word)
        else:
            result[-1] += f"={word}"
    return result


REFUSED = {
    "a pipeline": ("sbatch --parsable | cut -d';' -f1", "'|' is the shell's"),
    "two commands": ("module load slurm && sbatch", "'&&' is the shell's"),
    "two commands, one after the other": ("cd /; sbatch", "';' is the shell's"),
    "another output": ("sbatch --parsable 2>/dev/null", "'>' is the shell's"),
    "a variable": ("sudo -u $USER sbatch", "'$' is the shell's or a template's"),
    "a command in it": ("sudo -u `id -un` sbatch", "'`' is the shell's or a template's"),
    "a condition": ("sbatch {% if account %}-A x{% endif %}", "'{%' is the shell's or a template's"),
    "a shell": ("sudo -u {username} bash -lc 'sbatch --parsable'", "'bash' is the shell's"),
    "a program of the site's": ("/opt/site/submit {username}", "it does not run sbatch"),
    "a script": ("sbatch --parsable job.sh", "'job.sh' is no option of sbatch"),
    "another field": ("sudo -u {account} sbatch", "{account} is not {username}"),
    "a field in an option": ("sbatch --account=p-{username}", "--account=p-{username} has a field"),
    "the account in an option": ("sbatch --uid=1000", "the hub decides --uid itself"),
    "an option without its value": ("sbatch --partition", "--partition has no value"),
    "su for nobody": ("su -c sbatch", "su needs one account, and -c with one command"),
    "ssh to nowhere": ("ssh -p 22 sbatch", "it does not run sbatch"),
    "an open quote": ("sudo -u '{username} sbatch", "No closing quotation"),
    "a place of the working folder": ("bin/sbatch", "'bin/sbatch' is not a full path"),
    "no text": (None, "None is no text"),
}


@pytest.mark.parametrize(("command", "fault"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_taken_over_is_refused(command: str | None, fault: str) -> None:
    """With the setting, the fault, and what would be right."""
    with pytest.raises(ConfigError) as refused:
        submit_command("", command, where="c.SlurmSpawner.batch_submit_cmd")

    assert str(refused.value) == (
        f"c.SlurmSpawner.batch_submit_cmd: {str(command)!r} is not run by a shell here, and cannot be taken over: "
        f"{fault}. Remove it. What runs sbatch as the user belongs to c.GPUSlurmSpawner.exec_prefix, such as "
        '"sudo -n -E -u {username}", its folder to slurm_bin_dir, and options of the job to req_options.'
    )


def test_what_the_job_requests_anyway_is_no_option() -> None:
    """A field of batchspawner's with the value of the same request; all is there as it is written."""
    words = ["--clusters={cluster}", "--partition={partition}", "--mem={memory}", "--export={keepvars}", "--parsable"]
    taken = submit_command("", f"sbatch {' '.join(words)}", where="")
    assert (taken.options, [str(option) for option in taken.arguments]) == ((), words)


SHELLS = {
    "su": ("su - {username} -c", "runuser -u {username} --"),
    "su with letters of one word": ("su -lc", None),
    "runuser with a login": ("runuser -l {username} --command ", "runuser -u {username} --"),
    "behind sudo": ("sudo -n su {username} -c", "sudo -n runuser -u {username} --"),
    "runuser without one": ("runuser -u {username} -- nice -c", "runuser -u {username} -- nice -c"),
}


@pytest.mark.parametrize(("prefix", "taken"), SHELLS.values(), ids=SHELLS)
def test_a_prefix_whose_last_word_is_for_a_shell_runs_sbatch_without_it(prefix: str, taken: str | None) -> None:
    """Though ``batch_submit_cmd`` is batchspawner's; of a cluster it is refused, with what to write."""
    spawner = Site(Config({"SlurmSpawner": {"exec_prefix": prefix}}), GPUSlurmSpawner).spawner("ada")
    if taken is None:
        with pytest.raises(ConfigError, match="su needs one account, and -c with one command"):
            spawner.check_command(spawner)
    else:
        assert spawner.exec_prefix == taken
    of_cluster = Config({"GPUSlurmSpawner": {"clusters": {"a": {"exec_prefix": prefix}}}})
    if taken != prefix:
        with pytest.raises(ConfigError, match="hands a command line to a shell") as refused:
            Site(of_cluster, GPUSlurmSpawner).spawner("ada").check()
        assert refused.value.hint == 'Write "runuser -u {username} --" in its place.'
