"""Records in the hub's process which callbacks block the event loop, for how long, and whose code it was.

Every callback is timed. While one lasts, a thread looks at its stack every 10 ms; a look counts for the spawner where
a function of its packages stands anywhere in the stack. What the loop's thread waited for a processor, because others
had them all, is no callback's (proc(5), schedstat). Callbacks over 20 ms go to a file, one JSON object a line, times
in milliseconds: ``wall`` less ``waited`` is ``held``; ``spawner`` is the part of ``held`` that looks gave to the
spawner, ``where`` its innermost function seen most often. ``cpu`` is the thread's processor time in the callback, and
``spawner_cpu`` the same part of it without ``collected``, the time in which Python's garbage collector visited the
objects of the whole hub: it runs in whichever callback makes one object too many.
"""

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections import Counter

SAMPLE_SECONDS = 0.010
NOTED = 0.020


class LoopWatch:
    """The current callback, and the samples of its stack."""

    def __init__(self, path, packages):
        self.path = path
        self.parts = tuple(f"/{package}/" for package in packages)
        self.thread = threading.main_thread().ident
        self.began = 0.0
        self.samples = []
        self.collected = self.collecting = 0.0
        self.schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def waited(self):
        """Seconds that this thread has waited for a processor since its start."""
        return int(os.pread(self.schedule, 64, 0).split()[1]) / 1e9

    def run(self, original, handle):
        """Run one callback."""
        if threading.get_ident() != self.thread or self.began:
            return original(handle)
        waited, cpu = self.waited(), time.thread_time()
        self.collected = 0.0
        self.samples = []
        self.began = began = time.perf_counter()
        try:
            return original(handle)
        finally:
            wall = time.perf_counter() - began
            self.began = 0.0
            if wall > NOTED:
                self.note(handle, wall, self.waited() - waited, time.thread_time() - cpu, self.samples)

    def collection(self, phase, _info):
        """Count the time of a collection, if it runs in a callback."""
        if threading.get_ident() != self.thread:
            return
        if phase == "start":
            self.collecting = time.thread_time()
        else:
            self.collected += time.thread_time() - self.collecting

    def note(self, handle, wall, waited, cpu, samples):
        """Write one line."""
        names = Counter(name for name in samples if name)
        share = sum(names.values()) / len(samples) if samples else 0.0
        where = names.most_common(1)[0][0] if names else ""
        held = max(wall - waited, 0.0)
        line = {
            "wall": round(wall * 1e3, 1),
            "waited": round(waited * 1e3, 1),
            "held": round(held * 1e3, 1),
            "spawner": round(share * held * 1e3, 1),
            "cpu": round(cpu * 1e3, 1),
            "collected": round(self.collected * 1e3, 1),
            "spawner_cpu": round(share * max(min(cpu, held) - self.collected, 0.0) * 1e3, 1),
            "looks": len(samples),
            "where": where,
            "callback": repr(handle)[:300],
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def sample(self):
        """Sample for ever."""
        while True:
            time.sleep(SAMPLE_SECONDS)
            began = self.began
            if began and time.perf_counter() - began > SAMPLE_SECONDS:
                frame = sys._current_frames().get(self.thread)
                if self.began == began:
                    self.samples.append(self.owner(frame))

    def owner(self, frame):
        """The spawner's innermost function on the stack, and its location; empty if there is none."""
        inner = f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}" if frame else ""
        while frame is not None:
            code = frame.f_code
            if any(part in code.co_filename for part in self.parts):
                return f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_name} in {inner}"
            frame = frame.f_back
        return ""


def install(path, packages):
    """Start to watch the event loop of this process."""
    watch = LoopWatch(path, packages)
    gc.callbacks.append(watch.collection)
    original = asyncio.Handle._run
    asyncio.Handle._run = lambda handle: watch.run(original, handle)
    threading.Thread(target=watch.sample, daemon=True).start()
