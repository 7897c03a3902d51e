"""From components to clusters: numpy, networkx and scikit-learn only, one idea a file."""
