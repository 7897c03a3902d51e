"""What baselines with networks share: each names its networks and its objective, and may go on from the fit before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from diva.data import Samples
from diva.models.base import DeepClusterer
from diva.models.config import TrainingConfig
from diva.parameters import Flag, parameter, values_of
from diva.training.state import TrainState


@dataclass(frozen=True)
class GoingOn:
    """Going on with new data."""

    warm_start: bool = parameter(
        False,
        Flag(),
        help="""Whether fit goes on from the networks and clusters of the fit before, on data that take the place of those
        before: old ones and new ones together. What comes before clusters are learnt is left out.""",
    )


class DeepBaseline(DeepClusterer):
    """A model that names its networks and its objective, and says what codes belong to."""

    network_class: ClassVar[Any]  # of the shape of the input and the config
    objective_class: ClassVar[Any]  # of the config, the samples and a device
    warm_start: bool

    @property
    def _goes_on(self) -> bool:
        return self.warm_start and self.__sklearn_is_fitted__()

    def _open(self, X: Any) -> Samples:
        return self._samples(X) if self._goes_on else super()._open(X)

    def _resolve(self, is_image: bool, n_samples: int) -> TrainingConfig:  # noqa: ARG002  # asked of every model
        return self.config_class.from_plain(values_of(self, self.config_class).to_plain())  # numbers of numpy cannot be JSON

    def _make_network(self) -> nn.Module:
        network: nn.Module = self.network_class(self.pipeline_.scaling.input_shape, self.config_)
        return network

    def _make_objective(self, samples: Samples, validation: Samples | None) -> Any:  # noqa: ARG002  # asked of every model
        return self.objective_class(self.config_, samples, self._device())

    def _make_state(self, objective: Any, seed: int) -> TrainState:
        state = self._fresh_state(seed)
        if self._goes_on:
            self._go_on(state, objective)
        else:
            self._begin(state, objective)
        return state

    def _begin(self, state: TrainState, objective: Any) -> None:
        """Prepare fresh networks; by default, they are ready."""

    def _go_on(self, state: TrainState, objective: Any) -> None:  # noqa: ARG002  # some models look at what is learnt
        """Take over networks and records of the fit before."""
        weights = self.network_.state_dict()
        try:
            self._check_shapes(weights)
        except ValueError as error:
            raise ValueError(f"warm_start=True goes on with networks as they are, but {error}. Set it to False.") from error
        state.network.load_state_dict(weights)
        state.history, state.epoch = list(self.history_), len(self.history_)
