"""Data that keep coming: a class nobody has seen becomes a cluster, the others keep their names, old data are not needed."""

import numpy as np

from diva import DPMixture

rng = np.random.default_rng(0)
centres = {"a": (-3.0, 0.0), "b": (3.0, 0.0), "c": (0.0, 5.0)}


def arrive(names, n=200):
    """A batch of samples of some classes."""
    return np.concatenate([rng.normal(centres[name], 0.5, size=(n, 2)) for name in names])


model = DPMixture(random_state=0).fit(arrive("ab"))
print("first fit: clusters", model.cluster_ids_.tolist())
for day, names in enumerate(("ab", "abc", "c"), start=1):
    batch = arrive(names)
    novel = model.is_novel(batch).mean()
    model.partial_fit(batch)
    print(f"day {day}: {novel:.0%} novel when they came; clusters {sorted(model.cluster_ids_.tolist())}")
for record in model.cluster_lineage_:
    print(f"  {record.event}: {list(record.parents)} -> {list(record.children)}")
