"""Encoders and decoders, as in the paper's figures; nothing here knows about mixtures or training."""

from diva.networks.conv import ConvDecoder, ConvEncoder
from diva.networks.features import FeatureDecoder, FeatureEncoder
from diva.networks.likelihoods import BernoulliNLL, GaussianNLL, SquaredError
from diva.networks.mlp import MLPDecoder, MLPEncoder

__all__ = [
    "BernoulliNLL",
    "ConvDecoder",
    "ConvEncoder",
    "FeatureDecoder",
    "FeatureEncoder",
    "GaussianNLL",
    "MLPDecoder",
    "MLPEncoder",
    "SquaredError",
]
