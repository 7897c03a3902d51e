"""Look for known vulnerabilities in the pinned dependencies: ``python release/audit.py``, or ``make audit``.

Exit code 1 if there are some, and 2 if nothing could be looked up, as without a network.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def main() -> int:
    """Ask pip-audit, and say how much its answer is worth."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(CONSTRAINTS), "--no-deps", "--disable-pip"]
    done = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"Nothing was audited: pip-audit gave no answer. {done.stderr.strip()[-500:]}", file=sys.stderr)
        return 2
    audited = [package for package in packages if "vulns" in package]
    if not audited:
        print(f"Nothing was audited: none of {len(packages)} packages could be looked up. Is there a network?", file=sys.stderr)
        return 2
    for package in audited:
        for found in package["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version yet"
            print(f"{package['name']} {package['version']}: {found['id']}, mended in {fixed}")
    n_found = sum(len(package["vulns"]) for package in audited)
    skipped = [package["name"] for package in packages if "vulns" not in package]
    print(f"{len(audited)} of {len(packages)} packages were looked up, {n_found} known vulnerabilities.")
    if skipped:
        print(f"Not found: {', '.join(skipped)}")
    return int(n_found > 0)


if __name__ == "__main__":
    sys.exit(main())
