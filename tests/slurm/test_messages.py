"""Messages of Slurm and sudo, and the errors made from them, including all recorded refusals of sbatch."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.messages import Rejection, failure, rejected, rejection
from tests.slurm.recorded import VERSIONS, Recorded, all_recorded, recorded

REFUSALS = {
    ("account", "the account does not exist, or you are not allowed to use it in this partition"): {
        "account_not_mine",
        "bad_account",
    },
    ("array", "the job array is too large, or not valid"): {"array_too_big", "bad_array"},
    ("account, qos", "all jobs of this account together have reached a limit (jobs at a time)"): {
        "assoc_submit_limit",
        "assoc_submit_limit2",
    },
    ("begin", "the start time is not valid"): {"bad_begin"},
    ("clusters", "there is no such cluster"): {"bad_cluster"},
    ("constraint", "no node has such a feature"): {"bad_constraint", "bad_constraint_syntax"},
    ("dependency", "the job to wait for does not exist, or is not specified correctly"): {"bad_dep", "bad_dep_syntax"},
    ("script", "sbatch does not know the option --nosuch=1"): {"bad_directive"},
    ("gpus, cpus, memory, nodes", "no node of the partition has all the requested resources"): {
        "bad_gpus_type",
        "bad_gres_type",
        "enforce_gpu_in_cpu_partition",
        "enforce_too_many_gpus",
        "enforce_too_many_gpus_total",
        "enforce_too_many_shards",
        "exclusive_over_cpus",
        "gpu_in_cpu_partition",
        "node_not_in_partition",
        "too_many_gpus",
        "too_many_gpus_total",
        "too_many_shards",
        "too_many_tasks",
    },
    ("gpus", "the cluster has no such generic resource: the GPU type is unknown, or the count is not a number"): {
        "bad_gres_name",
        "bad_gres_syntax",
        "shard_and_gpu",
    },
    ("licenses", "there is no such licence"): {"bad_license"},
    ("script", "sbatch does not understand the value of --mail-type"): {"bad_mail"},
    ("memory", "the amount of memory is not valid"): {"bad_mem"},
    ("nodelist", "there is no such node"): {"bad_node"},
    ("nodes", "the number of nodes is not valid"): {"bad_nodes"},
    ("cpus", "the number of CPUs or tasks is not valid"): {"bad_ntasks"},
    ("script", "sbatch does not know the option --nosuch"): {"bad_option"},
    ("partition", "there is no partition nosuch"): {"bad_partition", "bad_partition_list"},
    ("qos", "the QOS does not exist, or you are not allowed to use it"): {"bad_qos", "qos_not_allowed"},
    ("reservation", "there is no such reservation"): {"bad_reservation"},
    ("script", "sbatch does not understand the value of --signal"): {"bad_signal"},
    ("time", "the time limit is not valid"): {"bad_time"},
    ("uid", "only root may submit for somebody else with --uid"): {"bad_uid"},
    ("time", "it asks for more time than the partition allows, or for no time at all"): {
        "deadline_past",
        "enforce_over_time",
    },
    ("script", "the batch script has DOS line endings"): {"dos_script"},
    ("partition", "the partition is closed (inactive or draining)"): {
        "drainp",
        "enforce_drainp",
        "enforce_inactive",
        "inactive",
    },
    ("script", "the batch script is empty"): {"empty_script"},
    ("cpus", "it asks for more CPUs than the partition or its nodes allow"): {
        "enforce_exclusive_over_cpus",
        "enforce_too_many_cpus",
        "enforce_too_many_tasks",
    },
    ("reservation", "you are not allowed to use the reservation"): {"enforce_not_in_reservation", "not_in_reservation"},
    ("nodes", "the partition does not allow this number of nodes"): {"enforce_over_nodes"},
    ("memory", "no node of the partition has that much memory"): {
        "enforce_too_much_mem",
        "enforce_too_much_mem_percpu",
        "too_much_mem",
        "too_much_mem_percpu",
    },
    ("script", "sbatch cannot read the batch script"): {"missing_file"},
    ("script", "the batch script does not begin with #! and an interpreter"): {"missing_shebang"},
    ("partition", "you are not a member of any group that may use the partition"): {"noroot_as_bob"},
    ("exec_prefix", "this account is not allowed to submit jobs here"): {"noroot_as_root"},
    ("script", "the batch script has a NUL character"): {"nul_script"},
    ("account, qos", "the job asks for more CPUs than its QOS allows for one job"): {"qos_deny"},
    ("cpus", "no node of the partition has that many CPUs"): {"too_many_cpus"},
}
"""Profile field and clause, and the recorded cases that have them in every version that refuses them."""
REFUSED = {case: reason for reason, cases in REFUSALS.items() for case in cases}
VARIES = {
    ("22.05", "bad_export"): ("script", "sbatch does not understand the value of --get-user-env"),
    ("24.11", "bad_export"): ("script", "sbatch does not understand the value of --get-user-env"),
    ("26.05", "bad_export"): ("script", "sbatch's option --get-user-env takes no value"),
}

refused = [answer for answer in all_recorded("sbatch") if answer.code != 0]


@pytest.mark.parametrize("answer", refused, ids=lambda answer: f"{answer.version}-{answer.name}")
def test_every_recorded_refusal_names_the_field_and_says_why(answer: Recorded) -> None:
    """Each job refused by a real sbatch gives the responsible profile field and one plain clause."""
    expected = VARIES.get((answer.version, answer.name)) or REFUSED[answer.name]
    assert failure("sbatch", answer.stderr) is None
    assert rejection(answer.stderr) == Rejection(*expected)


def test_the_tables_name_only_cases_that_were_recorded() -> None:
    """Every entry of the tables of refusals, trials and silences has a recording."""
    assert {answer.name for answer in refused} == {*REFUSED, *(name for _, name in VARIES)}
    assert {answer.name for answer in tried} == set(OF_A_TRIAL)
    assert {(answer.version, answer.area) for answer in silent} == {(v, a) for v in VERSIONS for a in WHY}


NO_NODE = REFUSED["too_many_gpus"]
OF_A_TRIAL = {
    **{
        case: REFUSED[case]
        for case in (
            "bad_account",
            "bad_constraint",
            "bad_gres_type",
            "bad_partition",
            "bad_qos",
            "inactive",
            "not_in_reservation",
            "too_many_gpus",
        )
    },
    "node_down": NO_NODE,
    "noroot": ("partition", "you are not a member of any group that may use the partition"),
    "reservation_future": ("reservation", "the reservation has not begun, or does not last that long"),
    "too_many_cpus": NO_NODE,
    "too_much_mem": NO_NODE,
}
tried = [answer for answer in all_recorded("test_only") if answer.code != 0]


@pytest.mark.parametrize("answer", tried, ids=lambda answer: f"{answer.version}-{answer.name}")
def test_every_recorded_refusal_of_a_trial_is_told_alike(answer: Recorded) -> None:
    """The messages of sbatch --test-only differ, but give the same clauses and the fields of a profile."""
    expected = OF_A_TRIAL[answer.name]
    assert failure("sbatch", answer.stderr) is None
    assert rejection(answer.stderr) == Rejection(*expected)
    assert rejected(answer.stderr).field == ("" if "," in expected[0] else f"slurm.{expected[0]}")


def test_refusal_becomes_an_error_with_both_words() -> None:
    """The error has our sentence, which names the field, and the complete message of sbatch."""
    answer = recorded("24.11", "sbatch", "bad_partition")
    error = rejected(answer.stderr)
    assert str(error) == "Slurm refused the job: there is no partition nosuch. Check `partition` in the profile."
    assert (error.status_code, error.field) == (400, "slurm.partition")
    assert error.stderr == (
        "sbatch: error: invalid partition specified: nosuch\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified"
    )


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (
            (
                "sbatch: error: You must name a project with --account.\n"
                "sbatch: error: Batch job submission failed: Unspecified error\n"
            ),
            Rejection("", "You must name a project with --account"),
        ),
        (
            (
                "sbatch: lua: Maintenance on Monday.\n"
                "sbatch: error: Your project p1234 has no hours left\n"
                "sbatch: error: They are renewed on the first day\n"
                "sbatch: error: of each month\n"
                "sbatch: error: Batch job submission failed: Unspecified error\n"
            ),
            Rejection("", "Your project p1234 has no hours left. They are renewed on the first day of each month"),
        ),
        (
            (
                "sbatch: lua: Maintenance on Monday.\n"
                "sbatch: error: lua: Invalid account: ask your PI.\n"
                "sbatch: error: cli_filter plugin terminated with error\n"
            ),
            Rejection("", "Invalid account: ask your PI"),
        ),
        ("sbatch: error: Batch job submission failed: Sunspots\n", Rejection("", "Sunspots")),
        ("", Rejection("", "sbatch gave no reason")),
        (
            (
                "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, "
                "user's size and/or time limits)"
            ),
            Rejection("account, qos", "a limit of the account or the QOS has been reached"),
        ),
    ],
)
def test_words_that_no_table_knows_are_passed_on(stderr: str, expected: Rejection) -> None:
    """A plugin writes for the user, so what it refuses with is passed on, as is an unknown error of sbatch."""
    assert rejection(stderr) == expected
    assert rejected(stderr).field == ""


silent = [
    answer
    for area in ("ctld_down", "ctld_stopped", "munge_down", "conf_missing", "dbd_down", "other_dbd_down", "other_gone")
    for answer in all_recorded(area)
    if answer.code != 0 and answer.stderr
]
WHY = {
    "ctld_down": "slurmctld cannot be reached",
    "ctld_stopped": "slurmctld is not responding",
    "munge_down": "munge is not responding, or refuses the request",
    "conf_missing": "Slurm's configuration was not found",
    "dbd_down": "slurmdbd cannot be reached",
    "other_dbd_down": "slurmdbd cannot be reached",
    "other_gone": "slurmdbd does not know where the cluster's slurmctld is",
}
"""``other``: with ``--clusters``. slurmdbd forgets the address of a slurmctld that has been shut down."""


@pytest.mark.parametrize("answer", silent, ids=lambda answer: f"{answer.version}-{answer.area}-{answer.name}")
def test_every_recorded_silence_is_unavailable_and_says_why(answer: Recorded) -> None:
    """Slurm down, stopped, or without munge or configuration is neither a rejection nor an answer."""
    command = answer.name.partition("_")[0]
    error = failure(command, answer.stderr)
    assert isinstance(error, SlurmUnavailable)
    assert error.message == f"{command} failed: {WHY[answer.area]}."
    assert error.hint


SITES_WORDS = (
    "Connection refused by the licence server",
    "Connection refused",
    "The project database is temporarily unavailable: try again at noon",
    "Resource temporarily unavailable",
    "Socket timed out on send/recv operation",
    "Unable to contact slurm controller (connect failure)",
    "Communication with the quota service failed: communication connection failure",
    "authentication error: your certificate has ended",
    "There was a problem talking to the database of projects",
    "Protocol version 2 of our form is needed",
    "Zero Bytes were transmitted",
    "Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "user alice does not exist in the project database",
    "You are not allowed to run here",
)


@pytest.mark.parametrize("words", SITES_WORDS)
@pytest.mark.parametrize("outcome", ["Unspecified error", "Invalid account or account/partition combination specified"])
def test_a_plugins_words_are_the_sites_and_no_silence(words: str, outcome: str) -> None:
    """If a job_submit plugin refuses with a message that contains Slurm's own phrases, the job was refused."""
    stderr = f"sbatch: error: {words}\nsbatch: error: Batch job submission failed: {outcome}\n"
    assert failure("sbatch", stderr) is None
    assert rejected(stderr).stderr == stderr.strip()


@pytest.mark.parametrize("words", [*SITES_WORDS[:-3], "Invalid account: ask your PI", "Invalid qos"])
def test_a_plugins_sentence_is_told_as_it_is(words: str) -> None:
    """If a plugin refuses without one of Slurm's errors, its message is not replaced by one from the tables."""
    for kind in ("sbatch: error: Batch job submission failed", "allocation failure"):
        assert rejection(f"sbatch: error: {words}\n{kind}: Unspecified error\n") == Rejection("", words)


@pytest.mark.parametrize("words", SITES_WORDS[:-3])
@pytest.mark.parametrize("before", ["", "sbatch: ", "sbatch: error: lua: ", "sbatch: error: cli_filter: site: "])
def test_a_sites_own_sbatch_or_filter_is_no_silence(words: str, before: str) -> None:
    """A message from a script in place of sbatch, or from a cli_filter plugin, is a refusal and not an outage."""
    assert failure("sbatch", f"{before}{words}\nsbatch: error: cli_filter plugin terminated with error\n") is None
    assert failure("sbatch", f"{before}{words}\n") is None


def test_a_plugin_speaks_before_slurmctld_falls_silent() -> None:
    """The last message of sbatch itself decides, whatever was printed before it."""
    stderr = (
        "sbatch: error: Your project is nearly used up\n"
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
    )
    error = failure("sbatch", stderr)
    assert isinstance(error, SlurmUnavailable)
    assert error.message == "sbatch failed: slurmctld is not responding."


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("Zero Bytes were transmitted or received", "slurmctld is not responding"),
        ("Connection refused", "slurmctld is not responding"),
        ("Controller is in standby mode, try a different controller", "slurmctld is not responding"),
        ("Unable to contact slurm controller (send failure)", "slurmctld cannot be reached"),
        ("Invalid authentication credential", "munge is not responding, or refuses the request"),
        (
            "Incompatible versions of client and server code",
            "the versions of the hub's Slurm commands and of slurmctld are incompatible",
        ),
        ("Resource temporarily unavailable", "slurmctld is not accepting jobs at the moment"),
        ("I/O error writing script/environment to file", "slurmctld is not accepting jobs at the moment"),
    ],
)
def test_errors_of_slurm_errno_that_are_silences(error: str, why: str) -> None:
    """Each error is recognized as the last message of sbatch, in a submission and in a trial."""
    for kind in ("sbatch: error: Batch job submission failed", "allocation failure"):
        exception = failure("sbatch", f"{kind}: {error}\n")
        assert isinstance(exception, SlurmUnavailable)
        assert exception.message == f"sbatch failed: {why}."


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (
            "sudo: a password is required\n",
            "exec_prefix: sbatch was not run: sudo asks for a password (sudo: a password is required).",
        ),
        (
            (
                "sudo: a terminal is required to read the password; either use the -S option to read from standard "
                "input or configure an askpass helper\nsudo: a password is required\n"
            ),
            (
                "exec_prefix: sbatch was not run: sudo asks for a password (sudo: a terminal is required to read the "
                "password; either use the -S option to read from standard input or configure an askpass helper)."
            ),
        ),
        (
            "sudo: unknown user nosuch\nsudo: error initializing audit plugin sudoers_audit\n",
            "exec_prefix: sbatch was not run: there is no such account on the hub's machine (sudo: unknown user "
            "nosuch).",
        ),
        (
            "Sorry, user hub is not allowed to execute '/usr/bin/sbatch --parsable' as alice on head.\n",
            (
                "exec_prefix: sbatch was not run: sudo does not allow it (Sorry, user hub is not allowed to execute "
                "'/usr/bin/sbatch --parsable' as alice on head.)."
            ),
        ),
        (
            "hub is not in the sudoers file.\n",
            "exec_prefix: sbatch was not run: sudo does not allow it (hub is not in the sudoers file.).",
        ),
        (
            "sudo: sbatch: command not found\n",
            "exec_prefix: sbatch was not run: sudo cannot find the command (sudo: sbatch: command not found).",
        ),
        (
            "runuser: user nosuch does not exist or the user entry does not contain all the required fields\n",
            (
                "exec_prefix: sbatch was not run: there is no such account on the hub's machine (runuser: user nosuch "
                "does not exist or the user entry does not contain all the required fields)."
            ),
        ),
        (
            "sudo: sunspots\n",
            "exec_prefix: sbatch was not run: the command of exec_prefix failed (sudo: sunspots).",
        ),
    ],
)
def test_sudo_in_the_way_is_the_admins_error(stderr: str, message: str) -> None:
    """An error from sudo names exec_prefix and quotes sudo's message."""
    error = failure("sbatch", stderr)
    assert isinstance(error, ConfigError)
    assert error.message == message
    assert error.hint


def test_warning_of_sudo_is_not_taken_for_the_failure() -> None:
    """sudo often cannot resolve its own host and continues, so the message of sbatch decides."""
    warning = "sudo: unable to resolve host head: Name or service not known\n"
    assert failure("sbatch", warning + recorded("22.05", "sbatch", "bad_qos").stderr) is None
    error = failure("sbatch", warning + recorded("22.05", "ctld_down", "sbatch").stderr)
    assert isinstance(error, SlurmUnavailable)
