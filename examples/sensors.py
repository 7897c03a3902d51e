"""Windows of sensors: one long recording of three channels is cut, and what was going on is found."""

import numpy as np

from diva import DIVA
from diva.data import cut_windows
from diva.metrics import Agreement

rng = np.random.default_rng(0)
WINDOW, N_EACH = 64, 150
SECONDS = np.arange(WINDOW * N_EACH)[:, None] / 50  # 50 steps a second


def movement(pace, strength):
    """Three channels, each with a phase of its own."""
    return strength * np.sin(2 * np.pi * pace * SECONDS + rng.uniform(0, 6, 3)) + rng.normal(0, 0.2, (len(SECONDS), 3))


recording = np.concatenate([movement(*kind) for kind in ((0, 0.1), (1.5, 1.0), (4.0, 2.0))])  # still, walking, running
windows = cut_windows(recording, window=WINDOW, step=WINDOW)
activity = np.repeat([0, 1, 2], N_EACH)  # known here, and not learnt from

model = DIVA(kind="series", random_state=0).fit(windows)
print(f"{model.n_clusters_} clusters of {len(windows)} windows, {WINDOW} steps of 3 channels")
for cluster in model.cluster_ids_:
    members = windows.take(np.flatnonzero(model.labels_ == cluster))
    print(f"  cluster {cluster}, {len(members)} windows: channels vary by {np.round(members.std(axis=(0, 1)), 1)}")
print("one-to-one accuracy", round(Agreement(activity, model.labels_).as_row()["acc_one_to_one"], 3))
