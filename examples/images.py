"""Small images: DIVA learns codes, finds the classes, and draws new images of a cluster."""

from sklearn.datasets import load_digits

from diva import DIVA
from diva.metrics import Agreement

digits = load_digits()
model = DIVA(random_state=0).fit(digits.images)  # about a minute
print(f"{model.n_clusters_} clusters of {len(digits.images):,} images, made of {model.n_components_} components")
print("one-to-one accuracy", round(Agreement(digits.target, model.labels_).as_row()["acc_one_to_one"], 3))

largest = model.cluster_ids_[0]
drawn, _ = model.sample(1, cluster=largest, random_state=0)
print(f"a new image of cluster {largest}:")
for line in drawn[0]:
    print("  " + "".join(" .:*#"[min(4, max(0, round(value / 4)))] for value in line))
