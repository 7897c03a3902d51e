"""How a cell is run: fit, stage by stage if classes arrive, score on test samples, and keep what tables and figures need.

All of it lies in the folder of the cell, so that a run that was killed goes on from its last checkpoint:

- ``run-0``, ``run-1``, ...: the run folder of each stage, removed at the end,
- ``curve-0.jsonl``, ...: scores after each epoch of a stage, for cells with a curve,
- ``stage-0.json``, ``stage-0.safetensors``, ...: what a stage that is done has found,
- ``row.json``: the row; when it is there, the cell is done.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diva.atomic import write_atomically
from diva.experiments.data import DATA, Labelled, load_labelled
from diva.experiments.rows import Row, circumstances, commit, peak_memory, scores
from diva.experiments.spec import Job
from diva.metrics import Agreement
from diva.models.base import Assignment, Clusterer
from diva.models.diva import DIVA
from diva.runs.archive import read_arrays, write_archive
from diva.runs.load import MODELS, load
from diva.training.state import EpochRecord

ROW = "row.json"
KIND = "DIVA cell"
N_DRAWS = 16  # of a component
MOST_DRAWN = 40  # components, the largest

commit()  # noted when the code is imported, which may change on the disk while cells run


def run_job(job: Job, folder: Path) -> Row:
    """Run a cell in its folder, or go on with it; the row is written there and returned."""
    before = time.process_time()
    whole = load_labelled(job.source, job.n_train, job.n_test, job.cell.seed)
    whole = whole.as_rows() if job.as_rows else whole
    stages = job.cell.stages or (DATA[job.cell.data].n_classes,)
    done = 0
    while (folder / f"stage-{done}.json").exists():
        done += 1
    was_begun = done > 0 or any(folder.glob("run-*"))
    trial = Trial(job, folder)
    for number in range(done, len(stages)):
        trial.run_stage(number, whole.with_classes(stages[number]))
    found = [json.loads((folder / f"stage-{number}.json").read_text()) for number in range(len(stages))]
    row = {
        **{("curve kind" if name == "curve" else name): value for name, value in asdict(job.cell).items()},
        "profile": job.profile,
        "source": job.source,
        "substitute": job.substitute,
        "fidelity": whole.fidelity,
        "training samples": len(whole.with_classes(stages[-1]).y),
        "test samples": len(whole.with_classes(stages[-1]).y_test),
        "has test split": whole.has_split,
        "model": job.model,
        "params": job.params,
        **found[-1]["scores"],
        "epochs": sum(part["epochs"] for part in found),
        "seconds": sum(part["seconds"] for part in found),
        "CPU seconds": None if was_begun else time.process_time() - before,
        "peak memory in MB": peak_memory(),
        "threads": torch.get_num_threads(),
        "was interrupted": was_begun,
        **circumstances(),
    }
    if len(stages) > 1:
        row["stage scores"] = [part["scores"] for part in found]
        row["components by id"] = [part["components by id"] for part in found]
    if job.cell.curve:
        row["curve"] = [point for part in found for point in part["curve"]]
    write_atomically(folder / ROW, (json.dumps(row) + "\n").encode())
    for leftover in [*folder.glob("run-*")]:
        shutil.rmtree(leftover)
    for leftover in [*folder.glob("curve-*.jsonl"), *folder.glob("stage-*.json")]:
        leftover.unlink()
    return row


def read_stage(folder: Path, number: int = 0) -> dict[str, NDArray[Any]]:
    """Codes, classes, clusters and draws that a cell kept after a stage; FileNotFoundError if there are none."""
    return read_arrays(folder / f"stage-{number}.safetensors", kinds=(KIND,))[2]


@dataclass(frozen=True)
class Trial:
    """A cell in its folder."""

    job: Job
    folder: Path

    def run_stage(self, number: int, data: Labelled) -> None:
        """Fit to the data of a stage, and write down what was found."""
        curve = Curve(self.folder / f"curve-{number}.jsonl", data) if self.job.cell.curve else None
        model = self.model_of(number, curve)
        n_before, started = len(getattr(model, "history_", ())), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of short fits that did not converge
            model.fit(data.x)
        seconds = time.perf_counter() - started
        said = model.assign(data.x_test)
        history = model.history_[n_before:]
        found: Row = {"scores": row_of(model, said, data), "epochs": len(history), "seconds": seconds}
        found["components by id"] = _by_id(model, said, data)
        if curve is not None and self.job.stage_epochs is not None:
            first = number * self.job.stage_epochs
            found["curve"] = [curve.point(record, i + first, data) for i, record in enumerate(history)]
        write_archive(self.folder / f"stage-{number}.safetensors", KIND, {}, self.kept(model, said, data))
        write_atomically(self.folder / f"stage-{number}.json", json.dumps(found).encode())

    def model_of(self, number: int, curve: Curve | None) -> Clusterer:
        """The model that a stage is fitted with: networks go on from the stage before, the others begin anew."""
        job, run_dir = self.job, self.folder / f"run-{number}"
        how = {"run_dir": str(run_dir), "resume": True, "checkpoint_every": job.checkpoint_every}
        how |= {"callbacks": [curve] if curve is not None else []}
        if number > 0 and job.params.get("warm_start"):
            model: Clusterer = load(self.folder / f"run-{number - 1}" / "model.diva")
            model.set_params(**how)
            return model
        made: Clusterer = MODELS[job.model](**job.params, **how, random_state=job.cell.seed)
        return made

    def kept(self, model: Clusterer, said: Assignment, data: Labelled) -> dict[str, Any]:
        """What figures need: codes of some test samples, and draws of components."""
        n = self.job.n_shown
        ids = model.component_ids_[said.components] if isinstance(model, DIVA) else said.positions
        kept: dict[str, Any] = {
            "codes": said.codes[:n],
            "classes": data.y_test[:n].astype(np.int64),
            "clusters": np.asarray(ids[:n], dtype=np.int64),
        }
        if isinstance(model, DIVA) and DATA[self.job.cell.data].is_image and model.config_.grouping is None:
            kept |= _draws(model, said, data)
        return {name: np.ascontiguousarray(values) for name, values in kept.items()}


def row_of(model: Clusterer, said: Assignment, data: Labelled) -> Row:
    """Scores of clusters, and of the components that they are made of."""
    fine = Agreement(data.y_test, said.components)
    return {
        **scores(Agreement(data.y_test, said.positions)),
        "components": model.n_components_ if isinstance(model, DIVA) else fine.n_clusters,
        "components: majority accuracy": fine.acc_majority,
    }


class Curve:
    """A callback that scores the model after every epoch and keeps the scores in a file."""

    def __init__(self, path: Path, data: Labelled) -> None:
        self.path, self.data = path, data

    def __call__(self, model: Clusterer, record: EpochRecord) -> None:
        """Score."""
        found = scores(Agreement(self.data.y_test, model.predict(self.data.x_test)))
        with self.path.open("a") as file:
            file.write(json.dumps({"epoch": record.epoch, **found}) + "\n")

    def point(self, record: EpochRecord, epoch: int, data: Labelled) -> Row:
        """What happened in an epoch; scores are missing if the run was killed between the checkpoint and the scores."""
        scored = {}
        if self.path.exists():
            scored = {said["epoch"]: said for said in map(json.loads, self.path.read_text().splitlines())}
        moves = {"births": record.births, "merges": record.merges, "deletes": record.deletes}
        mine = scored.get(record.epoch, {})
        chosen = {name: mine.get(name) for name in ("majority accuracy", "one-to-one accuracy", "NMI")}
        k = record.n_components or record.n_clusters or mine.get("K")
        return {"epoch": epoch, "classes": len(np.unique(data.y)), "K": k, **moves, **chosen}


def _by_id(model: Clusterer, said: Assignment, data: Labelled) -> list[Row]:
    """Test samples of every class in each component, by its permanent id."""
    if not isinstance(model, DIVA):
        return []
    ids = model.component_ids_[said.components]
    return [
        {"id": int(one), "classes": np.bincount(data.y_test[ids == one], minlength=int(data.y_test.max()) + 1).tolist()}
        for one in np.unique(ids)
    ]


def _draws(model: DIVA, said: Assignment, data: Labelled) -> dict[str, NDArray[Any]]:
    """Draws of the largest components, and the class that most of their test samples have."""
    counts = np.bincount(said.components, minlength=model.n_components_)
    largest = [k for k in np.argsort(-counts, kind="stable")[:MOST_DRAWN].tolist() if counts[k] > 0]
    draws = [model.sample(N_DRAWS, component=k, random_state=k)[0] for k in largest]
    classes = [np.bincount(data.y_test[said.components == k].astype(np.int64)).argmax() for k in largest]
    pixels = np.clip(np.rint(np.stack(draws) * (255 / data.x.max())), 0, 255).astype(np.uint8)
    return {"draws": pixels, "draw_classes": np.array(classes, dtype=np.int64), "draw_counts": counts[largest]}
