"""What a fitted model found, asked of the model itself: a table, a page, plots, and a word in notebooks.

The page and the plots are those of `diva.report`, which sits above the models: it is imported when it is asked for.
"""

from __future__ import annotations

import os
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state, resample
from sklearn.utils.validation import check_is_fitted

from diva.parameters import is_whole

if TYPE_CHECKING:
    from diva.report.findings import Findings

N_DRAWN = 2_000  # samples that a model draws to describe itself by, where it is shown none
MOST_LISTED = 20  # clusters in a notebook
KINDS = ("map", "sizes", "tree", "history", "lineage", "gallery", "features")


class Explained:
    """A model that can say what it found; ``cluster_ids_`` and ``labels_`` are set once it is fitted."""

    def describe(self, X: Any = None, *, y: Any = None, n_fits: int = 0) -> Any:
        """What was found, one row for each cluster, the largest first.

        Parameters
        ----------
        X : as in ``fit``, optional
            Samples to look at, for example those of the fit. Without any, the model is described by samples that it draws
            itself: sizes are those of the fit, and there are no examples.
        y : array-like of shape (n_samples,), optional
            Known classes, only to be compared with.
        n_fits : int, default=0
            How many more fits to ask whether the clusters come again, each of a part of ``X`` and with a seed of its own; they
            take as long as so many fits.

        Returns
        -------
        DataFrame, or list of dict if pandas is not installed
            cluster : permanent id
            name : given with ``rename``, else by the words or features that set the cluster apart
            size, share : samples
            confidence : mean probability of the cluster, of its samples
            stability : share of its samples' nearest neighbours, by codes, that are in it too
            repeatability : whether the cluster comes again in the other fits, with ``n_fits``, as `repeatability` says
            separation : log odds, in nats, that it is a cluster of its own beside what it would be joined with next; 0 is
            undecided, missing if it is the only one or if there is no tree
            neighbour : cluster whose samples are nearest
            mostly, purity : its largest class and the share of it, with ``y``
            apart, beside_neighbour : features, with their means here and of all samples, or of the neighbour; of texts, words
            examples : samples nearest the centre, by their numbers
        """
        from diva.report.table import cluster_rows

        rows = cluster_rows(self._findings(X, y), with_examples=X is not None)
        if n_fits:
            again = self.repeatability(X, n_fits)
            rows = [_beside(row, "stability", {"repeatability": round(again[row["cluster"]], 4)}) for row in rows]
        if find_spec("pandas") is None:
            return rows
        import pandas as pd

        return pd.DataFrame(rows).set_index("cluster")

    def repeatability(self, X: Any, n_fits: int = 5) -> dict[int, float]:
        """Whether each cluster of samples comes again in other fits.

        Copies of this model are fitted to parts of the samples, four fifths of them, each with a seed of its own, and then say
        which clusters all samples are in. What is told of a cluster is the share of samples in common with the most similar
        one, among all that are in either, averaged over fits: 1 if it always comes again, and below a half if it mostly
        dissolves (Hennig 2007). What was joined or split by hand does not come again by itself.

        Parameters
        ----------
        X : array, table, sparse matrix or list of texts
            Samples, for example those of the fit.
        n_fits : int, default=5

        Returns
        -------
        dict of int to float
            By the ids of the clusters that hold samples of ``X``.
        """
        import numpy as np

        from diva.partition.repeats import SHARE, recurrence

        check_is_fitted(self)
        if not is_whole(n_fits) or n_fits < 1:
            raise ValueError(f"n_fits should be a whole number of at least 1, got {n_fits!r}.")
        if not (hasattr(X, "shape") or isinstance(X, (list, tuple))):
            raise ValueError(
                f"Parts are drawn of an array, a table or a list of texts, not of {type(X).__name__}: load it first."
            )
        model: Any = self
        n_part = max(1, round(SHARE * (X.shape[0] if hasattr(X, "shape") else len(X))))
        seeds = check_random_state(model.get_params()["random_state"]).randint(2**31 - 1, size=n_fits).tolist()
        labels = model.predict(X)
        others = []
        for seed in seeds:
            part = resample(X, replace=False, n_samples=n_part, random_state=seed)
            others.append(_copy_of(model, seed).fit(part).predict(X))
        return dict(zip(np.unique(labels).tolist(), recurrence(labels, others).tolist(), strict=True))

    def report(
        self,
        X: Any,
        path: str | os.PathLike[str] = "report.html",
        *,
        y: Any = None,
        name: str | None = None,
        projection: str = "auto",
    ) -> Path:
        """Write what was found as one HTML file that needs no network.

        Parameters
        ----------
        X : as in ``fit``
            Samples to show, for example those of the fit.
        path : str or path-like
            The file to write; one that is there is replaced.
        y : array-like of shape (n_samples,), optional
            Known classes, only to be compared with.
        name : str, optional
            The title.
        projection : {"auto", "tsne", "umap", "pca", "codes"}
            How codes are laid out on the map. "auto" takes UMAP if umap-learn is installed, else t-SNE.

        Returns
        -------
        Path
            The file.
        """
        from diva.report import write_page

        return write_page(self._findings(X, y, name=name, projection=projection), path)

    def plot(
        self,
        X: Any = None,
        kind: str = "auto",
        *,
        y: Any = None,
        level: str = "cluster",
        backend: str = "auto",
        projection: str = "auto",
    ) -> Any:
        """Draw what was found.

        Parameters
        ----------
        X : as in ``fit``, optional
            Samples to show; a map needs them, the rest is drawn without.
        kind : {"auto", "map", "sizes", "tree", "history", "lineage", "gallery", "features"}
            "history" is the number of components over epochs or laps. "auto" is a map of samples, or sizes without any.
        y : array-like of shape (n_samples,), optional
            Known classes, for a map with ``level="class"``.
        level : {"cluster", "component", "class"}
            What the colours of a map mean.
        backend : {"auto", "matplotlib", "plotly"}
            "auto" takes matplotlib if it is installed.
        projection : {"auto", "tsne", "umap", "pca", "codes"}
            How codes are laid out on the map.

        Returns
        -------
        matplotlib.figure.Figure or plotly.graph_objects.Figure
        """
        from diva.report.figures import draw

        if isinstance(X, str) and X in KINDS:
            raise ValueError(f"Samples come first, or nothing: plot(kind={X!r}), or plot(X, kind={X!r}).")
        if kind == "auto":
            kind = "sizes" if X is None else "map"
        if kind not in KINDS:
            raise ValueError(f"kind should be one of 'auto', {', '.join(map(repr, KINDS))}, got {kind!r}.")
        if X is None and kind in ("map", "gallery"):
            raise ValueError(f"A {kind} shows samples, and the model keeps none: pass them, plot(X, kind={kind!r}).")
        found = self._findings(X, y, projection=projection if kind == "map" else None)
        return draw(found, kind, level=level, backend=backend)

    def _findings(self, X: Any, y: Any = None, *, name: str | None = None, projection: str | None = None) -> Findings:
        """All that a page or a table shows of samples; a map only if a projection is asked for."""
        from diva.report.findings import Findings
        from diva.report.projection import project
        from diva.runs.summarize import summarize_samples

        check_is_fitted(self)
        if X is None and not (hasattr(self, "sample") and hasattr(self, "mixture_")):
            raise ValueError(f"{type(self).__name__} cannot draw samples to describe itself by: pass those of the fit.")
        summary = summarize_samples(self, X, y, name=name, n_drawn=N_DRAWN)
        return Findings(summary, None if projection is None else project(summary.snapshot.codes, projection))

    def _automatic_names(self, X: Any) -> dict[int, str]:
        """Names by what sets clusters apart, by id; none for images."""
        from diva.report.table import automatic_name

        found = self._findings(X)
        return {c.number: name for c in found.filled if (name := automatic_name(found, c))}

    # --- notebooks

    def _html_repr(self) -> str:
        """What scikit-learn shows of an estimator in a notebook, after what was found."""
        whole: str = _found_html(self) + super()._html_repr()  # type: ignore[misc]  # of BaseEstimator
        return whole


def _copy_of(model: Any, seed: int) -> Any:
    """The same model, not fitted, with a seed of its own; it writes no files and says nothing."""
    quiet = {"run_dir": None, "resume": False, "callbacks": (), "verbose": False, "warm_start": False}
    own = model.get_params(deep=False)
    copy = clone(model.__class__(**(own | {name: value for name, value in quiet.items() if name in own})))
    return copy.set_params(random_state=seed)


def _beside(row: dict[str, Any], column: str, more: dict[str, Any]) -> dict[str, Any]:
    """A row with more columns after one that it has."""
    at = list(row).index(column) + 1
    items = list(row.items())
    return dict([*items[:at], *more.items(), *items[at:]])


def _found_html(model: Any) -> str:
    """A line and a small table; nothing before a fit."""
    import numpy as np

    try:
        check_is_fitted(model)
    except NotFittedError:
        return ""
    ids, sizes = np.unique(model.labels_, return_counts=True)
    order = np.argsort(-sizes, kind="stable")
    names = getattr(model, "cluster_names_", {})
    fine = f" of {model.n_components_:,} components" if hasattr(model, "n_components_") else ""
    k, n = model.n_clusters_, len(model.labels_)
    said = f"<b>{k:,} cluster{'' if k == 1 else 's'}</b>{fine} found in {n:,} samples by {type(model).__name__}"
    rows = "".join(
        f"<tr><td>{ids[i]}</td><td style='text-align:left'>{escape(names.get(int(ids[i]), ''))}</td>"
        f"<td>{sizes[i]:,}</td><td>{sizes[i] / n:.1%}</td></tr>"
        for i in order[:MOST_LISTED]
    )
    more = "" if len(ids) <= MOST_LISTED else f"<p>and {len(ids) - MOST_LISTED:,} smaller ones</p>"
    head = "<tr><th>cluster</th><th>name</th><th>size</th><th>share</th></tr>"
    hint = "<p><code>describe(X)</code> says what sets them apart, <code>report(X)</code> writes a page.</p>"
    return f"<div><p>{said}</p><table>{head}{rows}</table>{more}{hint}</div>"
