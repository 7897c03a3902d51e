"""Where results and messages go."""

from rich.console import Console

output = Console(soft_wrap=False, highlight=False)
errors = Console(stderr=True, highlight=False)
