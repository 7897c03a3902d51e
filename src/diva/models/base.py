"""What every clusterer shares: data in, codes and clusters out, one file to keep; deep ones train networks in a run folder."""

from __future__ import annotations

import copy
import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from diva.assignment import Assignment as Assignment  # models import it from here
from diva.atomic import without_link
from diva.data import InputPipeline, Samples, TableSchema
from diva.data.scaling import FARTHEST, RowScale
from diva.devices import resolve_device
from diva.distributed import alone, from_main, is_main
from diva.exceptions import InterruptedFitWarning, ModelFileError, TrainingError
from diva.explain import Explained
from diva.models.config import Acceleration, Config, DataParameters, RunParameters, TrainingConfig
from diva.models.novelty import NOVEL_SHARE
from diva.parameters import Parameter, check_parameters, plain, values_of
from diva.progress import Progress, progress_of
from diva.runs.archive import Archive, parts_with, write_archive
from diva.runs.folder import RunFolder, RunIdentity, fingerprint
from diva.runs.records import record_from_plain
from diva.runs.upgrade import LATER
from diva.threads import one_thread_if_small
from diva.training.acceleration import Accelerator
from diva.training.adam import Adam
from diva.training.encode import Codes, decode, encode
from diva.training.loop import Objective, Watch, run_epochs
from diva.training.state import EpochRecord, TrainState
from diva.version import __version__

WATCHING = ("run_dir", "checkpoint_every", "resume", "callbacks", "verbose", "device", "compile", "precision")


class Clusterer(Explained, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Codes of samples, and clusters of the codes.

    A model names its parameters (`diva.parameters.takes`) and fills in the abstract methods; it gets data of all kinds, files
    and the scikit-learn contract for nothing.

    Attributes
    ----------
    config_ : Config
        What the parameters came to.
    pipeline_ : InputPipeline
        How raw samples become network input.
    history_ : list of EpochRecord
    n_features_in_ : int
    """

    config_: Config
    pipeline_: InputPipeline
    history_: list[EpochRecord]
    labels_: NDArray[np.int64]
    cluster_ids_: NDArray[np.int64]
    n_clusters_: int
    novelty_threshold_: float = -math.inf  # samples that score below are novel
    config_class: ClassVar[type[Config]] = Config
    declared_parameters: ClassVar[dict[str, Parameter]]  # by `takes`

    if TYPE_CHECKING:  # made by `takes`

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    # --- what a model fills in

    @abstractmethod
    def _resolve(self, is_image: bool, n_samples: int) -> Config:
        """What the parameters come to for such data."""

    @abstractmethod
    def _learn(self, samples: Samples, validation: Samples | None) -> None:
        """Learn from samples, in the folder of a run if there is one, and set all fitted attributes."""

    @abstractmethod
    def _encode(self, samples: Samples) -> Codes:
        """Codes of samples."""

    @abstractmethod
    def _assign(self, codes: Codes) -> Assignment:
        """What the model says about codes."""

    # --- what a model may do otherwise: by default, clusters are a fixed number of classes, not made of components

    def _set_answers(self, samples: Samples) -> Assignment:
        """Say of the samples that were learnt from which clusters they are in, and from which score on others are novel."""
        said = self._assign(self._encode(samples))
        self.novelty_threshold_ = float(np.quantile(said.scores, NOVEL_SHARE))
        self._set_classes(said.positions, said.probabilities.shape[1])
        return said

    def _row_scale(self) -> RowScale:
        """What the numbers of rows are divided by, all or each column, before a network sees them."""
        return "one"

    def _set_classes(self, labels: NDArray[np.int64], n_clusters: int) -> None:
        if labels.ndim != 1 or labels.dtype != np.int64 or (labels.size and not 0 <= labels.min() <= labels.max() < n_clusters):
            raise ValueError("labels name clusters that do not exist")
        self.labels_, self.n_clusters_, self.cluster_ids_ = labels, n_clusters, np.arange(n_clusters)

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What a file holds beside the common parts."""
        facts = {"novelty_threshold": self.novelty_threshold_, "n_clusters": self.n_clusters_}
        return facts, {"labels": torch.from_numpy(self.labels_)}

    def _restore(self, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Read that back; raises KeyError, TypeError or ValueError if the parts do not fit together."""
        self.novelty_threshold_ = float(document["novelty_threshold"])
        self._set_classes(tensors["labels"].numpy(), int(document["n_clusters"]))

    def _weights(self) -> dict[str, Tensor]:
        """Weights of networks, which a file holds as well."""
        return {}

    def _restore_weights(self, tensors: dict[str, Tensor]) -> None:
        """Networks with these weights."""

    def validate_parameters(self) -> None:
        """Raise ValueError, naming what was expected, at the first parameter that makes no sense."""
        check_parameters(self)
        if self.run_parameters.resume and self.run_parameters.run_dir is None:
            raise ValueError("resume=True needs a run_dir that holds the checkpoint.")

    # --- fitting

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:  # noqa: ARG002  # scikit-learn's signature
        """Learn codes and clusters of samples, forgetting any fit before.

        Parameters
        ----------
        X : array-like of shape (n, d), (n, h, w) or (n, h, w, c), or what holds one
            Also memmap, torch Tensor or Dataset, pandas, polars or Arrow table, scipy sparse matrix, Hugging Face dataset,
            AnnData; and the path of a .npy, .npz, .csv, .parquet or IDX file, or of a folder of images.
        y : ignored
        validation : like X, optional
            Samples that are not learnt from; the bound on them is in ``history_`` and decides about early stopping.
        """
        self.validate_parameters()
        with unchanged_on_failure(self):
            samples = self._open(X)
            held_out = None if validation is None else self._samples(validation)
            with learning_from(samples):
                self.config_ = self._resolve(samples.scaling.is_image, len(samples))
                self._learn(samples, held_out)
        return self

    def _ready(self) -> None:
        """Raise NotFittedError unless there is a model."""
        check_is_fitted(self)

    # --- using

    def assign(self, X: Any) -> Assignment:
        """All that the model says about samples: codes, clusters, probabilities, scores, novelty; samples are encoded once."""
        codes = self._codes(X)
        with flushed_denormals():
            return self._assign(codes)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Most probable cluster of each sample, by its permanent id, (n_samples,)."""
        positions = self.assign(X).positions
        return self.cluster_ids_[positions]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each cluster for each sample, (n_samples, n_clusters)."""
        return self.assign(X).probabilities

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Codes of samples, (n_samples, latent_dim); of a variational encoder, the means of q(z|x)."""
        codes: NDArray[np.float32] = self._codes(X).mean.numpy()
        return codes

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """How like the samples it learnt from the model finds each, (n_samples,): low means novel."""
        return self.assign(X).scores

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002  # scikit-learn's signature
        """Mean of ``score_samples``."""
        return float(self.score_samples(X).mean())

    # --- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file; ``diva.load`` reads it back.

        Networks of your own are not written, only their weights: pass them to ``load``.
        """
        self._ready()
        document, tensors = self._to_document()
        data, data_tensors = self.pipeline_.to_archive()
        document |= data | {
            "params": self._plain_params() | {"callbacks": []},
            "config": self.config_.to_plain(),
            "feature_names": [str(n) for n in getattr(self, "feature_names_in_", ())],
            "history": [asdict(r) for r in self.history_],
        }
        tensors |= self._weights()
        write_archive(path, type(self).__name__, document, tensors | data_tensors)

    @classmethod
    def from_archive(cls, archive: Archive, **own: nn.Module | None) -> Self:
        """Rebuild a model; raises KeyError, TypeError or ValueError if the contents do not fit together.

        Parameters
        ----------
        archive : Archive
        **own : nn.Module
            Networks of the user, by the name of their parameter.
        """
        document, tensors = archive.document, archive.tensors
        if not isinstance(document["params"], dict):
            raise TypeError("parameters should be an object")
        model = cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in document["params"].items()})
        if set(model.get_params(deep=False)) - set(LATER | document["params"]):
            raise ValueError("parameters are missing")
        model.set_params(**own)
        cls._rebuild(model, document, tensors)
        return model

    def _rebuild(self, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.validate_parameters()
        self.config_ = self.config_class.from_plain(document["config"])
        self.pipeline_ = InputPipeline.from_archive(document, tensors)
        self.n_features_in_ = math.prod(self.pipeline_.item_shape)
        if not all(isinstance(document[name], list) for name in ("feature_names", "history")):
            raise TypeError("names and records should be lists")
        if names := document["feature_names"]:
            if len(names) != self.n_features_in_ or not all(isinstance(n, str) for n in names):
                raise ValueError("there should be one name for each feature")
            self.feature_names_in_ = np.array(names, dtype=object)
        self.history_ = [record_from_plain(EpochRecord, r) for r in document["history"]]
        self._restore_weights(tensors)
        self._restore(document, tensors)

    # --- parts

    @property
    def schema_(self) -> TableSchema | None:
        """What the columns of a table are used as; None for all other samples."""
        return self.pipeline_.schema

    @property
    def run_parameters(self) -> RunParameters:
        """How and where it runs."""
        return values_of(self, RunParameters)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "cluster_ids_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]  # networks compute in float32
        return tags

    def _device(self) -> torch.device:
        return resolve_device(self.run_parameters.device)

    def _codes(self, X: Any) -> Codes:
        """Codes of new samples."""
        self._ready()
        with flushed_denormals():
            return self._encode(self._samples(X))

    def _open(self, X: Any) -> Samples:
        """Samples of a first fit, which decide how numbers are scaled."""
        data = values_of(self, DataParameters)
        self.pipeline_, samples = InputPipeline.fit(
            self,
            data.open_table(X),
            image_shape=data.image_shape,
            kind=data.kind,
            tfidf=bool(data.tfidf),
            n_axes=data.pca,
            scale=self._row_scale(),
        )
        return samples

    def _samples(self, X: Any) -> Samples:
        """New samples, checked against those of the fit."""
        return self.pipeline_.open(self, X)

    # --- the folder of a run

    @contextmanager
    def _locked_folder(self) -> Iterator[RunFolder | None]:
        run_dir = self.run_parameters.run_dir
        folder = None if run_dir is None or not is_main() else RunFolder(Path(run_dir))
        with folder.locked() if folder else nullcontext():
            yield folder

    def _identity(self, config: Config, samples: Samples, validation: Samples | None) -> RunIdentity:
        params = {name: value for name, value in self._plain_params().items() if name not in WATCHING}
        own = [name for name, value in params.items() if value is None and getattr(self, name) is not None]  # not plain
        about: dict[str, Any] = {"version": __version__, "model": type(self).__name__}
        about |= {"params": params, "config": config.to_plain(), "own": own}
        held_out = "" if validation is None else fingerprint(validation.source)
        return RunIdentity(about, fingerprint(samples.source) + held_out)

    def _plain_params(self) -> dict[str, Any]:
        return {name: plain(value) for name, value in self.get_params(deep=False).items()}


class DeepClusterer(Clusterer):
    """Networks that learn codes, and clusters of the codes.

    A model fills in the abstract methods; it gets training with checkpoints and callbacks beside all that a `Clusterer` has.

    Attributes
    ----------
    config_ : TrainingConfig
        What the parameters came to.
    network_ : nn.Module
        Has ``encode`` and ``decode``.
    """

    config_: TrainingConfig
    network_: Any
    config_class: ClassVar[type[TrainingConfig]] = TrainingConfig
    state_class: ClassVar[type[TrainState]] = TrainState
    _accelerator: Accelerator | None = None  # of the networks of a fit, and of those that callbacks ask

    # --- what a model fills in

    @abstractmethod
    def _make_network(self) -> nn.Module:
        """Networks with fresh weights, for ``config_`` and the input of ``pipeline_``."""

    @abstractmethod
    def _make_objective(self, samples: Samples, validation: Samples | None) -> Objective[Any]:
        """What is learnt."""

    @abstractmethod
    def _make_state(self, objective: Any, seed: int) -> TrainState:
        """Where training starts."""

    # --- what a model may do otherwise: by default, clusters are a fixed number of classes, not made of components

    def _finish(self, state: Any, objective: Any) -> None:  # noqa: ARG002  # some models look at what was learnt
        """Set all fitted attributes; ``network_`` and ``history_`` are set already."""
        self._set_answers(objective.samples)

    # --- fitting

    def _learn(self, samples: Samples, validation: Samples | None) -> None:
        objective = self._make_objective(samples, validation)
        with self._locked_folder() as folder:  # after all that can be wrong with parameters and data
            state = self._make_state(objective, seed_of(self.run_parameters.random_state))
            identity = self._identity(self.config_, samples, validation) if folder else None
            self._train(state, objective, folder, identity)
            self._end_training(state, objective)
            if folder is not None:
                self.save(without_link(folder.model))

    def _end_training(self, state: TrainState, objective: Any) -> None:
        self.network_, self.history_ = state.network.eval(), state.history
        self._finish(state, objective)

    def _train(
        self, state: TrainState, objective: Objective[Any], folder: RunFolder | None, identity: RunIdentity | None
    ) -> None:
        """Run the schedule, with checkpoints; an interrupted run keeps what it has if it can be used."""
        run = self.run_parameters
        if folder is not None and identity is not None:
            self._open_run(folder, state, identity)

        progress: Progress = Progress()

        def on_epoch(record: EpochRecord) -> bool:
            with alone():  # process 0 writes and speaks
                stops = is_main() and self._after_epoch(record, state, objective, folder, identity, progress)
            return from_main(stops)

        watchers = [callback.on_step for callback in run.callbacks if hasattr(callback, "on_step")] if is_main() else []

        def on_step(step: int, n_steps: int) -> None:
            progress.move((state.position + step / n_steps) / objective.n_epochs)
            for watcher in watchers:
                watcher(step, n_steps)

        try:
            with progress_of(run.verbose and is_main()) as progress:
                run_epochs(state, objective, self.config_.early_stopping, Watch(on_epoch, on_step))
        except TrainingError as error:
            kept = f" The last good checkpoint is {folder.checkpoint}." if folder and folder.checkpoint.exists() else ""
            raise TrainingError(f"{error}{kept}") from error
        except KeyboardInterrupt:
            if not self._is_usable(state):
                raise
            how = f"set resume=True to go on from {folder.checkpoint}" if folder else "set run_dir to be able to go on"
            warnings.warn(
                f"The fit was interrupted after {state.epoch} epochs and keeps what it had reached; {how}.",
                InterruptedFitWarning,
                stacklevel=5,
            )

    def _after_epoch(
        self,
        record: EpochRecord,
        state: TrainState,
        objective: Objective[Any],
        folder: RunFolder | None,
        identity: RunIdentity | None,
        progress: Progress,
    ) -> bool:
        """Write a checkpoint if one is due, and tell who watches; whether one of them wants to stop."""
        run = self.run_parameters
        is_due = state.epoch % run.checkpoint_every == 0 or state.position >= objective.n_epochs
        if folder is not None and identity is not None and is_due:
            folder.write_checkpoint(self._checkpoint(state), identity)
        progress.say(describe_epoch(record, objective.n_epochs), state.position / objective.n_epochs)
        self.history_ = state.history
        model = self._as_of_now(state, objective) if run.callbacks else self
        answers = [callback(model, record) for callback in run.callbacks]
        return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)

    def _is_usable(self, state: Any) -> bool:
        """Whether clusters can be made of what was learnt so far."""
        return bool(state.history)

    def _as_of_now(self, state: TrainState, objective: Objective[Any]) -> Self:
        """A model for callbacks: asked, it ends training as if this epoch were the last; training itself goes on."""
        model = copy.copy(self)
        for name in [name for name in vars(model) if name.endswith("_") and name not in KEPT_WHILE_LEARNING]:
            delattr(model, name)
        model.__dict__.update(_unfinished=(state, objective))
        return model

    def _ready(self) -> None:
        """Raise NotFittedError unless there is a model; one that a callback asks is made now."""
        if "_unfinished" in self.__dict__:
            running, objective = self.__dict__.pop("_unfinished")
            state = running.copy()
            with torch.random.fork_rng(devices=[]):
                state.network = self._network_with(running.network.state_dict())
                self._end_training(state, objective)
        check_is_fitted(self)

    # --- using

    def inverse_transform(self, Z: Any) -> NDArray[np.float32]:
        """Decode codes (n, latent_dim) to samples, in the shape and units of the data."""
        self._ready()
        Z = check_array(Z, dtype=np.float64)
        if Z.shape[1] != self.config_.latent_dim:
            raise ValueError(
                f"Z should have shape (n_samples, {self.config_.latent_dim}), but got {Z.shape}. "
                "Pass codes, for example those of transform."
            )
        if float(np.abs(Z).max()) > FARTHEST:
            raise ValueError(
                f"Z holds numbers beyond {FARTHEST:g}, too large for codes. Pass codes, for example those of transform."
            )
        return self._decode(Z)

    def reconstruct(self, X: Any) -> NDArray[np.float32]:
        """What the decoder makes of the codes of samples, in the shape and units of the data."""
        return self._decode(self._codes(X).mean.numpy())

    # --- parts

    def _weights(self) -> dict[str, Tensor]:
        return {f"network.{name}": value for name, value in self.network_.state_dict().items()}

    def _restore_weights(self, tensors: dict[str, Tensor]) -> None:
        weights = parts_with(tensors, "network.")
        self._check_shapes(weights)
        self.network_ = self._network_with(weights).eval()

    @property
    def _n_features_out(self) -> int:
        """Length of a code, for scikit-learn's feature names."""
        return self.config_.latent_dim

    def _check_shapes(self, weights: dict[str, Tensor]) -> None:
        """Raise ValueError unless weights are those of the network, before memory is taken for one that a file only claims."""
        with torch.device("meta"):  # networks of the user's own are there already
            network = self._make_network()
        growing = tuple(f"{name}." for name, part in network.named_modules() if getattr(part, "grows", False))
        for name, claimed in network.state_dict().items():
            if not claimed.is_meta:
                continue
            first = 1 if name.startswith(growing) else 0  # axis that a file may not choose
            if (
                name not in weights
                or weights[name].ndim != claimed.ndim
                or weights[name].shape[first:] != claimed.shape[first:]
            ):
                found = tuple(weights[name].shape) if name in weights else "missing"
                raise ValueError(f"network.{name} should have shape {tuple(claimed.shape)}, but is {found}")

    def _network_with(self, weights: dict[str, Tensor]) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # fresh weights draw on torch's own generator, which belongs to the user
            network = self._make_network()
        network.load_state_dict(weights)
        return self._running(network)

    def _running(self, network: nn.Module) -> nn.Module:
        """A network where and how the parameters want it to run."""
        if self._accelerator is None:
            self._accelerator = Accelerator(**vars(values_of(self, Acceleration)))
        self._accelerator.apply_to(network)
        return network.to(self._device())

    def _encode(self, samples: Samples) -> Codes:
        return encode(self.network_, samples, self._device())

    def _decode(self, codes: NDArray[Any]) -> NDArray[np.float32]:
        """Decode codes as they are, however far out."""
        Z = np.clip(codes, -FARTHEST, FARTHEST).astype(np.float32)
        with flushed_denormals():
            return decode(self.network_, torch.from_numpy(Z), self.pipeline_.to_raw, self._device())

    def _fresh_state(self, seed: int) -> TrainState:
        """Networks with fresh weights, Adam, and all chance set by a seed."""
        with torch.random.fork_rng(devices=[]):  # weights draw on torch's own generator, which belongs to the user
            torch.manual_seed(seed)
            self._accelerator = None  # what could not be compiled in a fit before is tried again
            network = self._running(self._make_network())
        config = self.config_
        optimizer = Adam(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
        generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
        return self.state_class(network, optimizer, generator, rng, seed)

    # --- the folder of a run

    def _checkpoint(self, state: TrainState) -> Archive:
        return Archive(f"{type(self).__name__} checkpoint", *state.to_archive())

    def _open_run(self, folder: RunFolder, state: TrainState, identity: RunIdentity) -> None:
        """Start the run's folder, or go on from its checkpoint."""
        if self.run_parameters.resume and folder.checkpoint.exists():
            archive = folder.read_checkpoint(f"{type(self).__name__} checkpoint", identity)
            try:
                state.restore(archive)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise ModelFileError(
                    f"{folder.checkpoint} does not fit this model ({error}). Choose another run_dir to start anew."
                ) from error
            folder.write_history(self._checkpoint(state))
        else:
            folder.start(identity.config)


KEPT_WHILE_LEARNING = (
    "config_",
    "pipeline_",
    "n_features_in_",
    "feature_names_in_",
    "history_",
    "stream_",
    "agreement_",
)


def describe_epoch(record: EpochRecord, n_epochs: int) -> str:
    """One line for people."""
    counts = {"births": record.births, "merges": record.merges, "deletions": record.deletes}
    moves = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    progress = f"epoch {record.epoch + 1:3d}/{n_epochs}  {record.phase:13s}"
    return f"{progress}  {describe_terms(record)}  {record.seconds:.1f} s  {moves}".rstrip()


def describe_terms(record: EpochRecord) -> str:
    """Terms of the loss, and how many components or clusters there are."""
    values = {"reconstruction": record.reconstruction, "kl": record.kl, "self-training": record.self_training}
    terms = [f"{name} {value:.2f}" for name, value in values.items() if value is not None]
    size = f"K {record.n_components}" if record.n_clusters is None else f"clusters {record.n_clusters}"
    return "  ".join([*terms, size])


def seed_of(random_state: Any, batch: int = 0) -> int:
    """What sets all chance of a fit, or of a later batch."""
    seed = int(check_random_state(random_state).randint(2**31))
    return int(np.random.default_rng([seed, batch]).integers(2**31)) if batch else seed


@contextmanager
def unchanged_on_failure(model: Any) -> Iterator[None]:
    """A fit that fails leaves the model as it was."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


@contextmanager
def learning_from(samples: Samples) -> Iterator[None]:
    """Denormals are flushed, torch's own generator is left as it was, and little data have one thread."""
    n_numbers = len(samples) * samples.scaling.n_numbers
    with flushed_denormals(), torch.random.fork_rng(devices=[]), one_thread_if_small(n_numbers):
        yield


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Treat denormal numbers as 0 while networks work: a trained one has many, and they make it 30 to 90 times slower."""
    tiny = torch.tensor([1e-40])
    before = bool((tiny * 1.0 == 0).item())  # torch has no way to ask
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
