"""Moves that change the number or order of components, all of one shape."""

from diva.mixture.moves.base import Move, MoveMemory, MoveRecord, Proposal, try_proposal
from diva.mixture.moves.birth import Birth
from diva.mixture.moves.delete import Delete
from diva.mixture.moves.expansion import Expansion
from diva.mixture.moves.merge import Merge
from diva.mixture.moves.shuffle import Shuffle

__all__ = ["Birth", "Delete", "Expansion", "Merge", "Move", "MoveMemory", "MoveRecord", "Proposal", "Shuffle", "try_proposal"]
