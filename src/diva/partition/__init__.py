"""From components to clusters."""
