"""Kill ``diva stream`` and ``diva fit`` at random moments, again and again, and let others than diva judge what comes of it.

    python -m tests.kills --kills 1000 --seed 0

A kill is a SIGKILL to a fork of this process, so that torch is imported once and a kill takes less than a second. A round goes
on until the command ends by itself; then its folder is judged, that of a stream by `tests.history`. Exit code 1 if anything is
wrong. ``python -m benchmarks stream_kills`` kills processes that start anew, of larger networks, and fewer of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from tests.kills.killing import Tally, round_of_kills, undisturbed_seconds
from tests.kills.scenes import SCENES
from threadpoolctl import threadpool_limits

MOST_KILLS = 12  # of one round
SHARE = 0.6  # of the time of an undisturbed run, within which a kill comes: later ones would mostly find that it has ended


def main() -> int:
    """Kill until there are enough; 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000, help="how many in all, shared evenly by the commands")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # threads of OpenMP do not live on in a fork, which would wait for them forever
    tallies = {name: Tally() for name in SCENES}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        chance = np.random.default_rng(options.seed)
        scenes = {name: scene(Path(folder, name)) for name, scene in SCENES.items()}
        seconds = {name: SHARE * undisturbed_seconds(scene) for name, scene in scenes.items()}
        while sum(tally.kills for tally in tallies.values()) < options.kills:
            name = min(tallies, key=lambda name: tallies[name].kills)
            round_of_kills(scenes[name], chance, seconds[name], MOST_KILLS, tallies[name])
            print(
                ", ".join(f"{n}: {t.kills} kills in {t.rounds} rounds, {len(t.found)} found" for n, t in tallies.items()),
                flush=True,
            )
    found = [f"{name}: {what}" for name, tally in tallies.items() for what in tally.found]
    print("\n".join(found) or "every sample was used once, and every fit ended with the same numbers")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
