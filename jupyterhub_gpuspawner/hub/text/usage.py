"""A server's use of its GPUs, cores and memory, as pages say it. A page puts a time for ``{time}``."""

from __future__ import annotations

AS_OF = "Measured {time}."
SIMULATED = "Simulated, like the GPUs."
UNKNOWN = "use unknown"
NEVER_KNOWN = "use unknown for the whole time"
EXPLAINED = (
    "The share of the time in which a program ran on the GPU, and its memory. It is measured every half minute "
    "and sent every five minutes. You, your instructors and the administrators can see it."
)
TABLE = "The chart in words"
HEAD = ("Until", "Mean", "Highest", "Memory")


def percent(value: float | None) -> str:
    """``83 %``, with a space that does not break."""
    return UNKNOWN if value is None else f"{value:.0f}\N{NO-BREAK SPACE}%"


def memory(used_mib: int | None, total_mib: int | None) -> str:
    """``21 of 40 GB``; empty where it is unknown."""
    if used_mib is None:
        return ""
    used = f"{used_mib / 1024:.0f}" if used_mib >= 10240 or used_mib == 0 else f"{used_mib / 1024:.1f}"
    return f"{used} of {total_mib / 1024:.0f} GB" if total_mib else f"{used} GB"


def processes(number: int | None) -> str:
    """``2 processes``; empty where it is unknown."""
    return "" if number is None else "no process" if number == 0 else f"{number} process{'es' if number > 1 else ''}"


def cores(value: float) -> str:
    """CPU time per time."""
    return f"CPU: {value:.1f} cores"


def job_memory(mib: int) -> str:
    """The job's memory."""
    return f"memory: {mib / 1024:.1f} GiB"


def chart_title(name: str) -> str:
    """The title of a GPU's chart."""
    return f"{name}, the last hour"


def chart_said(mean: float | None, most: float | None) -> str:
    """A chart in words."""
    if mean is None or most is None:
        return f"{NEVER_KNOWN}."
    return f"used {mean:.0f} % on average, at most {most:.0f} %."
