"""What a run found, as one HTML file and as figures."""
