import numpy as np

CORNERS = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0]])


def blobs(centres=CORNERS, n=100, seed=0, width=1.0):
    """Round groups of n samples each, one after the other."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(c, width, size=(n, len(c))) for c in np.asarray(centres)])


def assert_usable(model, X):
    """Nothing a user can ask of a fitted model is NaN or infinite."""
    for name in ("means_", "covariances_", "weights_", "elbo_"):
        assert np.isfinite(getattr(model, name)).all(), name
    assert all(np.isfinite(r.elbo) for r in model.history_)
    proba = model.predict_proba(X)
    assert proba.min() >= 0
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-5)
    assert np.isfinite(model.score_samples(X)).all()
    np.testing.assert_array_equal(model.predict(X), model.labels_)
