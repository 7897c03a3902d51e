import numpy as np

CLASSES = np.repeat(range(10), 60)
_CENTRES = np.random.default_rng(0).normal(0, 3, size=(10, 50))


def gaussians(seed, classes=CLASSES):
    """Ten well separated Gaussians in 50 dimensions."""
    return (_CENTRES[classes] + np.random.default_rng(seed).normal(size=(len(classes), 50))).astype(np.float32)


def labelled_gaussians(n_samples=1000, n_classes=10, n_features=50, seed=0):
    """Gaussians of unit variance whose means are about 10 apart, and which each sample is from."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n_samples) % n_classes
    return rng.normal(size=(n_classes, n_features))[truth] + rng.normal(size=(n_samples, n_features)), truth
