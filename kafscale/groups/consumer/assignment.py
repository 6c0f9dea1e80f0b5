"""Partitions by topic id: what a member has, owns, or is to have."""

import uuid
from collections.abc import Mapping

Assignment = Mapping[uuid.UUID, frozenset[int]]
