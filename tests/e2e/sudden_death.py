"""Ways for a process to die while it writes; tests of resuming import this in the process that is to die."""

import os
import signal


def die_at(how, number):
    """Kill this process at its n-th fsync ("torn": with the file half written), or "before" or "after" its n-th os.replace."""
    calls = iter(range(1, 10**6))
    sync, replace = os.fsync, os.replace

    def fsync(descriptor):
        if how in ("sync", "torn") and next(calls) == number:
            if how == "torn":
                os.truncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        sync(descriptor)

    def replacing(*paths):
        if how in ("before", "after") and next(calls) == number:
            if how == "after":
                replace(*paths)
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*paths)

    os.fsync, os.replace = fsync, replacing
