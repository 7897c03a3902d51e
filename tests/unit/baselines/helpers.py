import numpy as np

CLASSES = np.repeat(range(10), 60)
_CENTRES = np.random.default_rng(0).normal(0, 3, size=(10, 50))


def gaussians(seed, classes=CLASSES):
    """Ten well separated Gaussians in 50 dimensions."""
    return (_CENTRES[classes] + np.random.default_rng(seed).normal(size=(len(classes), 50))).astype(np.float32)
