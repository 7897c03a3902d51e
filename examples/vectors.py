"""Vectors from an embedding model: clusters, the most typical vector of each, and a coarser cut.

Real ones come from a sentence encoder; these are drawn: six topics, two and two of which are close, in 48 dimensions.
"""

import numpy as np

from diva import DPMixture

rng = np.random.default_rng(0)
themes = rng.normal(size=(3, 48))
topics = np.concatenate([themes + 0.5 * rng.normal(size=themes.shape) for _ in range(2)])
vectors = np.concatenate([topic + 0.25 * rng.normal(size=(150, 48)) for topic in topics])
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)  # as most encoders give them

model = DPMixture(random_state=0).fit(vectors)
print(f"{model.n_clusters_} clusters of {len(vectors)} vectors")
sure = model.score_samples(vectors)
for cluster in model.cluster_ids_:
    members = np.flatnonzero(model.labels_ == cluster)
    typical = members[sure[members].argmax()]
    print(f"  cluster {cluster}: {len(members)} vectors, the most typical is number {typical}")
print("cut into three:", np.bincount(model.predict(vectors, level=3)).tolist(), "vectors each")
