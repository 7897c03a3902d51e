"""Clusters as people want them: named, merged and split by hand, on any model that has a mixture."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.validation import check_is_fitted

from diva.mixture.model import MixtureModel


class EditableClusters:
    """``rename``, ``merge`` and ``split``; all are kept by ``partial_fit``, ``save`` and ``cluster_lineage_``."""

    mixture_: MixtureModel

    if TYPE_CHECKING:  # of `Explained`

        def _automatic_names(self, X: Any) -> dict[int, str]: ...

    @abstractmethod
    def _adopt(self, mixture: MixtureModel) -> None:
        """Take the same mixture with other clusters."""

    @property
    def cluster_names_(self) -> dict[int, str]:
        """Names that were given to clusters, by id."""
        return dict(self.mixture_.naming.names)

    def rename(self, names: Mapping[int, str] | str, X: Any = None) -> Self:
        """Give clusters names.

        Parameters
        ----------
        names : mapping of int to str, or "auto"
            Id of a cluster and its name; an empty name takes it away. "auto" names those that have none by the words or
            features that set them apart, as ``describe`` does.
        X : as in ``fit``, optional
            Samples to look at for "auto".
        """
        check_is_fitted(self)
        if isinstance(names, str):
            if names != "auto":
                raise ValueError(f'names should be a mapping of ids to names, or "auto", got {names!r}.')
            names = {cluster: name for cluster, name in self._automatic_names(X).items() if cluster not in self.cluster_names_}
        if not isinstance(names, Mapping) or not all(isinstance(name, str) for name in names.values()):
            raise ValueError(f'names should be a mapping of ids to names, for example {{3: "sevens"}}, got {names!r}.')
        self._adopt(self.mixture_.renamed(names))
        return self

    def merge(self, clusters: Sequence[int]) -> Self:
        """Make one cluster of several, given by their ids; the largest keeps its id and its name."""
        check_is_fitted(self)
        self._adopt(self.mixture_.merged(clusters))
        return self

    def split(self, cluster: int, n_parts: int = 2) -> Self:
        """Part a cluster, given by its id, where its components were joined last.

        The largest part keeps id and name. A cluster that is a single component cannot be split.
        """
        check_is_fitted(self)
        self._adopt(self.mixture_.split(cluster, n_parts))
        return self
