"""Data of earlier calls count in full, though only their statistics are left."""

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diva import DPMixture
from diva.mixture.bound import elbo
from diva.mixture.local import summarize

from .strategies import clumps, covariance_types

few = settings(max_examples=15)


@st.composite
def streams(draw):
    """Two to four lots of rows, the later ones perhaps from elsewhere."""
    dim = draw(st.integers(1, 3))
    lots = [draw(clumps(dim, st.integers(10, 60))) for _ in range(draw(st.integers(2, 4)))]
    lots = [lot + i * draw(st.sampled_from([0.0, 5.0])) for i, lot in enumerate(lots)]
    assume((lots[0].std(0) > 1e-2).all())
    return lots


def standardized(model, lots):
    """In the coordinates that the first lot has set."""
    return model.mixture_.standardization.points(torch.from_numpy(np.concatenate(lots)))


@few
@given(streams(), covariance_types)
def test_nothing_is_forgotten(lots, covariance_type):
    model = DPMixture(covariance_type=covariance_type, random_state=0)
    for lot in lots:
        model.partial_fit(lot)
        assert len(model.labels_) == len(lot)
    total, z = model.mixture_.state.total, standardized(model, lots)
    everything = summarize(model.mixture_.state.family, z, torch.ones(len(z), 1))
    np.testing.assert_allclose(float(total.counts.sum()), len(z), rtol=1e-9)
    np.testing.assert_allclose(total.sum_z.sum(0), everything.sum_z[0], atol=1e-7 * float(z.abs().sum()))
    np.testing.assert_allclose(total.sum_zz.sum(0), everything.sum_zz[0], atol=1e-7 * float((z**2).sum()))


@few
@given(streams(), covariance_types)
def test_without_moves_it_is_one_fit_to_all_with_the_prior_of_the_first(lots, covariance_type):
    model = DPMixture(
        covariance_type=covariance_type, births=False, merges=False, deletes=False, shuffles=False, random_state=0
    )
    family = model.partial_fit(lots[0]).mixture_.state.family
    for lot in lots[1:]:
        model.partial_fit(lot)
    z, standardization = standardized(model, lots), model.mixture_.standardization
    total = summarize(family, z, torch.ones(len(z), 1))
    origin, unit = standardization.mean.numpy(), standardization.scale.numpy()
    np.testing.assert_allclose(model.means_, family.means(total).numpy() * unit + origin, rtol=1e-7, atol=1e-9)
    square = unit**2 if covariance_type == "diag" else np.outer(unit, unit)
    np.testing.assert_allclose(model.covariances_, family.covariances(total).numpy() * square, rtol=1e-7, atol=1e-12)
    bound = float(elbo(family, 5.0, total)) - len(z) * np.log(unit).sum()
    np.testing.assert_allclose(model.elbo_, bound, rtol=1e-9, atol=1e-7)


@few
@given(streams(), covariance_types)
def test_components_keep_their_names(lots, covariance_type):
    model = DPMixture(covariance_type=covariance_type, random_state=0)
    known, ended = set(), set()
    for lot in lots:
        n_moves = len(getattr(model, "lineage_", ()))
        model.partial_fit(lot)
        now = set(model.component_ids_.tolist())
        for record in model.lineage_[n_moves:]:
            if record.move in ("merge", "delete"):
                ended.add(record.parents[-1])
        assert not now & ended
        assert known - ended <= now
        known |= now


@few
@given(streams(), covariance_types)
def test_partial_fit_alone_is_fit(lots, covariance_type):
    fitted, partly = (DPMixture(covariance_type=covariance_type, random_state=0) for _ in range(2))
    fitted.fit(lots[0])
    partly.partial_fit(lots[0])
    np.testing.assert_array_equal(fitted.labels_, partly.labels_)
    assert fitted.elbo_ == partly.elbo_
