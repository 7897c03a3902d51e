"""``diva stream``: learn from data that keep coming, every sample exactly once."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from diva.assignment import Assignment
from diva.cli import _console
from diva.cli._errors import UsageError, for_people, stopping_at_once
from diva.cli._options import Columns, ImageSize, Json, Key, columns_of, image_size_of, one_of
from diva.cli._runs import check_finished, open_model, recorded_image_size, recorded_names
from diva.data import FileStream, Following, LineStream, Offset, ReadOptions, StreamBatch
from diva.data.scaling import allowed_shapes
from diva.report.words import count
from diva.runs.folder import RunFolder
from diva.runs.stream_log import EVENTS, PREDICTING, STREAM, Commit, StreamLog, read_commit

STANDARD_INPUT = "-"
OTHER_SOURCE = ("new", "moved")
# No times: the same batches give the same events.
OF_A_BATCH = ("n_samples", "novel_share", "learnt", "births", "merges", "deletes", "n_components", "n_clusters")


def stream(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    source: Annotated[
        str | None,
        typer.Argument(help="Folder of files or images that may grow, a .npy, .csv or .parquet file, or - for lines of JSON."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = 1000,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Batches between two checkpoints.")] = 1,
    predict_only: Annotated[bool, typer.Option("--predict-only", help="Leave the model as it is.")] = False,
    predictions: Annotated[Path | None, typer.Option(help="File for a line of JSON about each sample: .jsonl.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more files when there are none left.")] = False,
    poll: Annotated[float, typer.Option(min=0.01, help="Seconds between two looks for files.")] = 1.0,
    idle_timeout: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds without a new file after which a followed stream has ended.")
    ] = None,
    from_offset: Annotated[
        bool, typer.Option("--from-offset", help="Lines begin after those used, not at the first of all.")
    ] = False,
    other_source: Annotated[
        str | None,
        typer.Option(help="If SOURCE is not the one of last time: it was `moved`, or is `new` and read from its beginning."),
    ] = None,
    offset: Annotated[bool, typer.Option("--offset", help="Only say how many samples of its source were used.")] = False,
    columns: Columns = None,
    image_size: ImageSize = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Go on with the model of a run as samples arrive.

    It may be killed at any time: started again, it uses no sample twice and loses none.

    \b
    Examples
      diva stream runs/sensors incoming/ --follow
      producer | diva stream runs/sensors - --batch-size 500 --predictions clusters.jsonl
      diva stream runs/sensors incoming/ --predict-only --predictions clusters.jsonl
      diva stream runs/sensors --offset
    """
    with for_people():
        if not run.is_dir():
            found = "is a file" if run.exists() else "does not exist"
            raise UsageError(f"RUN should be the folder of a run made by `diva fit`, but {str(run)!r} {found}.")
        folder = run / (PREDICTING if predict_only else STREAM)
        if offset:
            _say_offset(folder, as_json)
            return
        if not source:
            raise UsageError("Expected a SOURCE: a folder, a file, or - for lines of JSON on standard input.")
        following = Following(poll, idle_timeout) if follow else None
        _check_options(source, following, idle_timeout, from_offset, other_source, predictions)
        check_finished(run)
        taken = columns_of(columns) or recorded_names(run, "columns")
        size = image_size_of(image_size) or recorded_image_size(run, source)
        path = source if source == STANDARD_INPUT else os.path.abspath(os.path.expanduser(source))
        with stopping_at_once(lambda: _how_to_go_on(folder)), RunFolder(run).locked():
            commit = _starting_point(read_commit(folder), path, other_source, predictions)
            work = Work(open_model(run), learns=not predict_only, checkpoint_every=checkpoint_every)
            schema = work.model.schema_
            options = ReadOptions(taken, image_size=size, key=key, schema=schema)
            with StreamLog(folder, commit) as log:
                shapes = shapes_for(work.model)
                common: dict[str, Any] = {"batch_size": batch_size, "shapes": shapes, "offset": commit.offset}
                if path == STANDARD_INPUT:
                    _go_on(
                        work, log, LineStream(sys.stdin.buffer, **common, columns=taken, schema=schema, continues=from_offset)
                    )
                else:
                    used = log.used_parts()
                    _go_on(work, log, FileStream(Path(path), **common, used=used, options=options, following=following))
        _show(run, work, log, as_json)


def _check_options(
    source: str,
    following: Following | None,
    idle_timeout: float | None,
    from_offset: bool,
    other_source: str | None,
    predictions: Path | None,
) -> None:
    if idle_timeout is not None and following is None:
        raise UsageError("--idle-timeout says when to stop waiting, so it needs --follow.")
    if source == STANDARD_INPUT and following is not None:
        raise UsageError("Standard input is read until it ends. Leave --follow out.")
    if source != STANDARD_INPUT and from_offset:
        raise UsageError("--from-offset is for lines on standard input; files are found again by their names. Leave it out.")
    if source != STANDARD_INPUT and not Path(source).expanduser().exists():
        raise UsageError(f"There is no file or folder {source!r}. A stream reads files, or - for standard input.")
    if other_source is not None:
        one_of("--other-source", other_source, OTHER_SOURCE)
    if predictions is None:
        return
    if predictions.suffix != ".jsonl":
        raise UsageError(f"--predictions should end in .jsonl, got {str(predictions)!r}.")
    if not predictions.absolute().parent.is_dir():
        raise UsageError(f"--predictions is {str(predictions)!r}, but its folder does not exist. Create it first.")


def _say_offset(folder: Path, as_json: bool) -> None:
    commit = read_commit(folder)
    if as_json:
        print(json.dumps(None if commit is None else commit.to_plain()))
    else:
        print(0 if commit is None else commit.offset.samples)


def _how_to_go_on(folder: Path) -> str:
    commit = read_commit(folder)
    return f" after {0 if commit is None else commit.samples:,} samples. Start the same command again to go on."


def _starting_point(before: Commit | None, source: str, other_source: str | None, predictions: Path | None) -> Commit:
    """Where to go on, or how to begin."""
    commit = before or Commit(source)
    if commit.source != source and other_source is None:
        raise UsageError(
            f"This stream has read {commit.source!r}, not {source!r}. Pass the same SOURCE, --other-source moved if its files "
            "are there now, or --other-source new to go on with other samples."
        )
    if other_source == "moved" and STANDARD_INPUT in (commit.source, source):
        raise UsageError("Only files can be moved, not standard input. Pass --other-source new if these are other samples.")
    if other_source == "new" and commit.source != source:  # the same command may be started again
        commit = replace(commit, offset=Offset(), files_bytes=0)
    path = None if predictions is None else str(predictions.absolute())
    if path != commit.predictions:
        if path is not None and os.path.exists(path):
            raise UsageError(f"{path!r} exists, and was not written by this stream. Choose another file for --predictions.")
        commit = replace(commit, predictions=path, predictions_bytes=0)
    return replace(commit, source=source)


class Work:
    """What is done with each batch, to learn from it or only to predict, and how much has been done since the start.

    Raises UsageError if a model should learn that cannot go on.
    """

    def __init__(self, model: Any, *, learns: bool, checkpoint_every: int) -> None:
        learner = model if hasattr(model, "partial_fit_assign") else None
        if learns and learner is None:
            name = type(model).__name__
            raise UsageError(f"A model of {name} cannot go on with new samples. Pass --predict-only to leave it as it is.")
        self.model = model
        self.n_batches = self.n_samples = self.n_novel = 0
        self.warnings: list[str] = []
        self._learner = learner if learns else None
        self._checkpoint_every = checkpoint_every
        self._pending: tuple[Offset, int, int] | None = None

    def use(self, batch: StreamBatch, log: StreamLog) -> list[dict[str, Any]]:
        """Learn or predict, note it, and commit if it is time; returns the events."""
        _, n_batches, n_samples = self._pending or (None, log.last.batches, log.last.samples)
        number, first, n = n_batches + 1, n_samples, len(batch.samples)
        where = {"batch": number, "first": first, "last": first + n - 1}
        try:
            found, events = self._predict(batch.samples, where) if self._learner is None else self._learn(batch.samples, where)
        except (ValueError, ArithmeticError) as error:
            raise ValueError(f"Batch {number} of the stream, samples {first:,} to {first + n - 1:,}: {error}") from error
        rows = [] if log.last.predictions is None else predictions(found, self.model.cluster_ids_, first)
        log.note(events, batch.finished, rows)
        self._pending = (batch.offset, number, first + n)
        self.n_batches, self.n_samples = self.n_batches + 1, self.n_samples + n
        self.n_novel += int(found.novel.sum())
        if number % self._checkpoint_every == 0:
            self.finish(log)
        return events

    def finish(self, log: StreamLog) -> None:
        """Commit what is not committed yet."""
        if self._pending is not None:
            log.commit(*self._pending, None if self._learner is None else self._learner.save)
            self._pending = None

    def _predict(self, samples: NDArray[Any], where: dict[str, int]) -> tuple[Assignment, list[dict[str, Any]]]:
        found = self.model.assign(samples)
        event = {"event": "batch"} | where | {"n_samples": len(samples), "novel_share": float(found.novel.mean())}
        return found, [event | sizes_of(self.model)]

    def _learn(self, samples: NDArray[Any], where: dict[str, int]) -> tuple[Assignment, list[dict[str, Any]]]:
        learner = self._learner
        assert learner is not None
        n_moves = len(learner.lineage_)
        with _console.keeping_limits(self.warnings):
            found = learner.partial_fit_assign(samples)
        events: list[dict[str, Any]] = [{"event": "batch"} | where | what_happened(learner, found, n_moves)]
        number = learner.batches_[-1].batch if hasattr(learner, "batches_") else learner.mixture_.naming.batch
        for change in learner.cluster_lineage_:
            if change.batch == number:
                about = {name: getattr(change, name) for name in ("parents", "children", "masses")}
                events.append({"event": change.event, "batch": where["batch"]} | about)
        return found, events


def shapes_for(model: Any) -> list[tuple[int, ...]]:
    """Shapes that samples may have."""
    if not hasattr(model, "pipeline_"):  # a mixture alone
        return [(model.n_features_in_,)]
    return allowed_shapes(model.pipeline_.item_shape, model.pipeline_.scaling)


def what_happened(model: Any, found: Assignment, n_moves: int) -> dict[str, Any]:
    """What a batch did to a model whose lineage was so long before."""
    if hasattr(model, "batches_"):
        return {name: getattr(model.batches_[-1], name) for name in OF_A_BATCH}
    moves = [record.move for record in model.lineage_[n_moves:]]
    counts = {"births": moves.count("birth"), "merges": moves.count("merge"), "deletes": moves.count("delete")}
    facts = {"n_samples": len(found.novel), "novel_share": float(found.novel.mean()), "learnt": False}
    return facts | counts | sizes_of(model)


def sizes_of(model: Any) -> dict[str, int]:
    """How many components, if it has any, and clusters a model has."""
    components = {"n_components": model.n_components_} if hasattr(model, "n_components_") else {}
    return components | {"n_clusters": model.n_clusters_}


def predictions(found: Assignment, cluster_ids: NDArray[np.int64], first: int) -> list[dict[str, Any]]:
    """Clusters as the model knows them now; whether a sample was novel when it came."""
    columns = (cluster_ids[found.positions].tolist(), found.confidence.tolist(), found.novel.tolist())
    return [
        {"sample": first + i, "cluster": cluster, "probability": probability, "novel": novel}
        for i, (cluster, probability, novel) in enumerate(zip(*columns, strict=True))
    ]


def _go_on(work: Work, log: StreamLog, source: FileStream | LineStream) -> None:
    with _console.BatchProgress(log.last.samples) as progress:
        for batch in source.batches():
            progress.say(work.use(batch, log))
        work.finish(log)
    if isinstance(source, FileStream) and source.n_others:
        _console.note(f"{source.n_others:,} files of other types were left out.")


def _show(run: Path, work: Work, log: StreamLog, as_json: bool) -> None:
    commit = log.last
    said: dict[str, Any] = {
        "run": str(run),
        "source": commit.source,
        "new_batches": work.n_batches,
        "new_samples": work.n_samples,
        "new_novel": work.n_novel,
        "batches": commit.batches,
        "samples": commit.samples,
        "offset": commit.offset.to_plain(),
        **sizes_of(work.model),
        "events": str(log.folder / EVENTS),
        "predictions": commit.predictions,
        "warnings": work.warnings,
    }
    if as_json:
        print(json.dumps(said))
        return
    novel = f", {work.n_novel:,} of them novel" if work.n_novel else ""
    batches = "batch" if work.n_batches == 1 else "batches"
    _console.say(f"{count(work.n_samples, 'new sample')} in {work.n_batches:,} {batches}{novel}; {commit.samples:,} in all")
    components = f", {said['n_components']} components" if "n_components" in said else ""
    _console.say(f"Model    {said['n_clusters']} clusters{components}")
    _console.say(f"Events   {said['events']}")
    for warning in work.warnings:
        _console.say(f"Note     {warning}", "yellow")
