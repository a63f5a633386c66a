"""Selectors and filters: JMS-style conditions on events, parsed, and matched one by one or many at once.

The package is pure (no clock, no randomness, no I/O) and deterministic, whatever the hash seed is.
"""

from gapless.selectors.filters import Filter
from gapless.selectors.index import BatchMatcher
from gapless.selectors.lexer import is_identifier
from gapless.selectors.selector import Selector
from gapless.selectors.topics import check_pattern, check_topic

__all__ = ["BatchMatcher", "Filter", "Selector", "check_pattern", "check_topic", "is_identifier"]
