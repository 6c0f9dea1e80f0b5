"""Where the project lies: for scripts and tests that read its files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
