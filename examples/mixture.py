"""The mixture alone: components and clusters, probabilities, wishes about clusters, outliers, files."""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import make_moons

from diva import DPMixture, load

X, _ = make_moons(300, noise=0.06, random_state=0)
model = DPMixture(random_state=0).fit(X)
print(f"{model.n_components_} Gaussians make up {model.n_clusters_} clusters: half moons are curved")
print("probabilities of a sample between them:", model.predict_proba([[0.5, 0.25]]).round(2).tolist())
print("log odds that a cluster is one of its own:", model.quality_.round(1).tolist())

print("four wished for, sizes:", np.bincount(DPMixture(n_clusters=4, random_state=0).fit_predict(X)).tolist())
print("far from all, no cluster:", model.predict([[4.0, 4.0]], reject=True).tolist())

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "moons.diva")
    same = load(Path(folder) / "moons.diva")
    print("read back, the same answers:", bool((same.predict(X) == model.labels_).all()))
