"""Texts: tf-idf, a mixture, and the words of each cluster. The texts are docstrings of Python's own modules."""

import importlib
import inspect

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from diva import DPMixture

texts = []
for name in ("math", "random", "datetime", "os", "shutil", "string", "statistics", "socket", "itertools", "email.message"):
    for _, thing in inspect.getmembers(importlib.import_module(name)):
        text = inspect.getdoc(thing) or ""
        if callable(thing) and len(text.split()) > 8:
            texts.append(text)

words = TfidfVectorizer(stop_words="english", token_pattern=r"[a-z]{3,}", min_df=3, sublinear_tf=True)
counted = words.fit_transform(texts)
codes = TruncatedSVD(15, random_state=0).fit_transform(counted)
model = DPMixture(random_state=0).fit(codes)
print(f"{model.n_clusters_} clusters of {len(texts)} docstrings")

names, rows = words.get_feature_names_out(), counted.toarray()
for cluster in model.cluster_ids_:
    members = model.labels_ == cluster
    apart = rows[members].mean(axis=0) - rows.mean(axis=0)
    print(f"  cluster {cluster}, {members.sum()} texts:", ", ".join(names[np.argsort(-apart)[:6]]))
