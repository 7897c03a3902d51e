"""Files that may not be read."""

import os
import tempfile
from pathlib import Path

import pytest

NOBODY = 65534


@pytest.fixture
def for_others():
    """A function that makes a file which this process may not read, even if it is the superuser's."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o755)

        def make(name, content):
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            path.chmod(0)
            if is_root:
                os.seteuid(NOBODY)
            return path

        try:
            yield make
        finally:
            if is_root:
                os.seteuid(0)
