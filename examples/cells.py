"""Counts of genes in cells: normalized to the same depth, logs, principal components, clusters.

The counts are drawn: four types of cells, 200 genes of which each type has 25 of its own, any depth. An AnnData object, or
its file, is read by `DIVA` and `diva fit` as it is.
"""

import numpy as np

from diva import DPMixture
from diva.metrics import Agreement

rng = np.random.default_rng(0)
types = np.repeat(np.arange(4), 120)
rates = np.tile(rng.gamma(1.0, 1.0, size=200), (4, 1))
for kind in range(4):
    rates[kind, 25 * kind : 25 * (kind + 1)] *= 6.0
depth = rng.lognormal(0.0, 0.5, size=(len(types), 1))
counts = rng.poisson(rates[types] * depth)

logs = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))
model = DPMixture(pca=10, min_cluster_size=10, random_state=0).fit(logs)
print(f"{model.n_clusters_} types of {len(counts)} cells, sizes {np.bincount(model.labels_).tolist()}")
print("one-to-one accuracy", round(Agreement(types, model.labels_).as_row()["acc_one_to_one"], 3))

for cluster in model.cluster_ids_:
    mine = logs[model.labels_ == cluster].mean(axis=0) - logs[model.labels_ != cluster].mean(axis=0)
    print(f"  cluster {cluster}: marker genes", ", ".join(f"g{gene}" for gene in np.argsort(-mine)[:5]))
