"""The parser: text to tree, by precedence climbing; it also checks types (Jakarta Messaging 3.1 section 3.8.1).

Precedence, from loose to tight: OR; AND; NOT; comparison, BETWEEN, LIKE, IN, IS; + and -; * and /; signs. Operators of
one level are read from left to right.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from gapless.errors import InvalidSelectorError
from gapless.selectors.headers import HEADER_KINDS
from gapless.selectors.lexer import EXACT_LITERAL_MAX, Token, TokenKind, tokens
from gapless.selectors.like import LikePattern
from gapless.selectors.syntax import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Between,
    Comparison,
    Condition,
    Identifier,
    Like,
    Literal,
    Membership,
    Node,
    Not,
    NullTest,
    Or,
    Signed,
    is_reserved,
    static_kind,
)
from gapless.selectors.values import Value, ValueKind, negative
from gapless.texts import text_problem, unwritable_at

CHARACTERS_MAX: Final = 65_536
"""The longest selector that is parsed at all: no broker can be configured to take a longer one."""

NESTING_MAX: Final = 100
"""How deep operands may be nested; low enough that no walk over a tree exhausts Python's stack."""


@dataclass(frozen=True, slots=True)
class SelectorLimits:
    """How large a selector a broker takes from a client; the `[limits]` of its configuration.

    The specification has no such limits, but every predicate costs time for every event. Only a subscription that is
    created is checked. One that exists is parsed wherever it is needed, whatever the limits there are.
    """

    characters: int = 16_384
    tokens: int = 2000
    """Words, literals and signs."""

    def check(self, expression: str) -> None:
        """Raises InvalidSelectorError if the expression is too large; it names the setting."""
        if len(expression) > self.characters:
            raise _too_large(f"{self.characters:,} characters", "selector_characters", self.characters)
        if len(expression) > self.tokens:  # otherwise it cannot have more of them
            for number, token in enumerate(tokens(expression)):
                if number == self.tokens and token.kind is not TokenKind.END:
                    raise _too_large(f"{number:,} words, literals and signs", "selector_tokens", token.position)


def _too_large(limit: str, setting: str, position: int) -> InvalidSelectorError:
    """Without the expression: nobody wants to read so much in an error text."""
    return InvalidSelectorError(
        f"the selector is too large: this broker takes {limit} ({setting} in [limits] of its configuration)",
        position=position,
    )


class Level(IntEnum):
    """Precedence: a higher level binds tighter."""

    OR = 1
    AND = 2
    NOT = 3
    COMPARISON = 4
    SUM = 5
    PRODUCT = 6
    OPERAND = 7


_SIGN_LEVELS: Final = {
    "=": Level.COMPARISON,
    "<>": Level.COMPARISON,
    "<": Level.COMPARISON,
    "<=": Level.COMPARISON,
    ">": Level.COMPARISON,
    ">=": Level.COMPARISON,
    "+": Level.SUM,
    "-": Level.SUM,
    "*": Level.PRODUCT,
    "/": Level.PRODUCT,
}

_KEYWORD_LEVELS: Final = {
    "OR": Level.OR,
    "AND": Level.AND,
    "NOT": Level.COMPARISON,  # as in NOT IN; a prefix NOT stands where an operand is expected
    "BETWEEN": Level.COMPARISON,
    "LIKE": Level.COMPARISON,
    "IN": Level.COMPARISON,
    "IS": Level.COMPARISON,
}


def parse(expression: str, *, nesting_max: int = NESTING_MAX) -> Node:
    """Returns the tree of a selector; a blank one is TRUE. Raises InvalidSelectorError, with the position.

    It also refuses expressions beyond the limits, and types that can never fit: `p > 'a'`, `TRUE = 0`.
    """
    if problem := text_problem(expression):
        given: object = expression
        shown, at = (given, unwritable_at(given)) if isinstance(given, str) else ("", None)
        raise InvalidSelectorError(f"a selector {problem}", shown, at or 0)
    if len(expression) > CHARACTERS_MAX:
        reason = f"the selector is too large: no broker takes more than {CHARACTERS_MAX:,} characters"
        raise InvalidSelectorError(reason, position=CHARACTERS_MAX)
    parser = _Parser(expression, nesting_max)
    return parser.whole()


class _Parser:
    """The tokens of one expression, and how far they are read."""

    def __init__(self, expression: str, nesting_max: int) -> None:
        self._expression = expression
        self._tokens = tokens(expression)
        self._token = next(self._tokens)
        self._nesting_left = nesting_max

    def whole(self) -> Node:
        """Parses the whole expression."""
        if self._at_end():
            return TRUE
        node = self._condition(Level.OR)
        if not self._at_end():
            raise self._error(f"unexpected {self._token}", self._token.position)
        return node

    # ---- reading tokens

    def _take(self) -> Token:
        token = self._token
        if not self._at_end():
            self._token = next(self._tokens)
        return token

    def _at_end(self) -> bool:
        return self._token.kind is TokenKind.END

    def _at(self, kind: TokenKind, *values: str) -> bool:
        return self._token.kind is kind and self._token.value in values

    def _took(self, kind: TokenKind, *values: str) -> bool:
        if not self._at(kind, *values):
            return False
        self._take()
        return True

    def _expect(self, kind: TokenKind, value: str) -> None:
        if not self._took(kind, value):
            raise self._error(f"expected {value}, found {self._token}", self._token.position)

    def _expect_string(self, where: str) -> str:
        if self._token.kind is not TokenKind.STRING:
            raise self._error(f"expected a string literal {where}, found {self._token}", self._token.position)
        return str(self._take().value)

    def _error(self, message: str, position: int) -> InvalidSelectorError:
        return InvalidSelectorError(message, self._expression, position)

    # ---- climbing

    def _parse(self, level: Level) -> Node:
        """Parses the operand at this place, with every operator that binds at least as tight as `level`."""
        if self._nesting_left == 0:
            raise self._error("nested too deep", self._token.position)
        self._nesting_left -= 1
        start = self._token.position
        node = self._operand(level)
        while (found := self._level_here()) >= level:
            node = self._infix(node, start, found)
        self._nesting_left += 1
        return node

    def _level_here(self) -> int:
        """Returns the level of the operator at this place; 0 if there is none."""
        if self._token.kind is TokenKind.SIGN:
            return _SIGN_LEVELS.get(str(self._token.value), 0)
        if self._token.kind is TokenKind.KEYWORD:
            return _KEYWORD_LEVELS.get(str(self._token.value), 0)
        return 0

    def _infix(self, left: Node, start: int, level: int) -> Node:
        if level == Level.OR:
            return Or(self._chain(left, start, "OR", Level.AND))
        if level == Level.AND:
            return And(self._chain(left, start, "AND", Level.NOT))
        if level == Level.SUM:
            return self._arithmetic(left, start, ("+", "-"), Level.PRODUCT)
        if level == Level.PRODUCT:
            return self._arithmetic(left, start, ("*", "/"), Level.OPERAND)
        if self._token.kind is TokenKind.SIGN:
            return self._comparison(left, start)
        return self._test(left, start)

    def _condition(self, level: Level) -> Node:
        start = self._token.position
        return self._checked_condition(self._parse(level), start)

    def _checked_condition(self, node: Node, start: int) -> Node:
        if static_kind(node) not in (None, ValueKind.BOOLEAN):
            raise self._error("this is no condition", start)
        return node

    def _chain(self, left: Node, start: int, keyword: str, tighter: Level) -> tuple[Node, ...]:
        operands = [self._checked_condition(left, start)]
        while self._took(TokenKind.KEYWORD, keyword):
            operands.append(self._condition(tighter))
        return tuple(operands)

    # ---- arithmetic and comparisons

    def _arithmetic(self, left: Node, start: int, signs: tuple[str, ...], tighter: Level) -> Node:
        first = self._checked_number(left, start)
        rest: list[tuple[str, Node]] = []
        while self._at(TokenKind.SIGN, *signs):
            sign = str(self._take().value)
            rest.append((sign, self._number(tighter)))
        return Arithmetic(first, tuple(rest))

    def _number(self, level: Level) -> Node:
        start = self._token.position
        return self._checked_number(self._parse(level), start)

    def _checked_number(self, node: Node, start: int) -> Node:
        if static_kind(node) not in (None, ValueKind.NUMBER):
            raise self._error("this is no number", start)
        return node

    def _comparison(self, left: Node, start: int) -> Node:
        operator = str(self._take().value)
        right_start = self._token.position
        right = self._parse(Level.SUM)
        for node, position in ((left, start), (right, right_start)):
            if isinstance(node, Condition):
                raise self._error("a condition cannot be compared", position)
            if operator not in ("=", "<>"):
                self._checked_number(node, position)
        kinds = static_kind(left), static_kind(right)
        if None not in kinds and kinds[0] is not kinds[1]:
            names = [kind.value for kind in kinds if kind]
            raise self._error(f"{names[0]} is never {operator} {names[1]}", right_start)
        return Comparison(left, operator, right)

    def _test(self, left: Node, start: int) -> Node:
        """Parses BETWEEN, LIKE, IN or IS, with or without NOT."""
        negated = self._took(TokenKind.KEYWORD, "NOT")
        if self._took(TokenKind.KEYWORD, "BETWEEN"):
            self._checked_number(left, start)
            low = self._number(Level.SUM)
            self._expect(TokenKind.KEYWORD, "AND")
            return Between(left, low, self._number(Level.SUM), negated)
        if self._took(TokenKind.KEYWORD, "IN"):
            return Membership(self._text_identifier(left, start), self._choices(), negated)
        if self._took(TokenKind.KEYWORD, "LIKE"):
            return Like(self._text_identifier(left, start), self._pattern(), negated)
        if not negated and self._took(TokenKind.KEYWORD, "IS"):
            negated = self._took(TokenKind.KEYWORD, "NOT")
            self._expect(TokenKind.KEYWORD, "NULL")
            return NullTest(self._identifier(left, start), negated)
        raise self._error(f"expected BETWEEN, IN or LIKE after NOT, found {self._token}", self._token.position)

    def _identifier(self, node: Node, start: int) -> Identifier:
        if not isinstance(node, Identifier):
            raise self._error("only a name can be asked this", start)
        return node

    def _text_identifier(self, node: Node, start: int) -> Identifier:
        identifier = self._identifier(node, start)
        if static_kind(identifier) not in (None, ValueKind.STRING):
            raise self._error(f"{identifier.name} is no string", start)
        return identifier

    def _choices(self) -> tuple[str, ...]:
        self._expect(TokenKind.SIGN, "(")
        choices = [self._expect_string("in the list")]
        while self._took(TokenKind.SIGN, ","):
            choices.append(self._expect_string("in the list"))
        self._expect(TokenKind.SIGN, ")")
        return tuple(choices)

    def _pattern(self) -> LikePattern:
        pattern = self._expect_string("after LIKE")
        if not self._took(TokenKind.KEYWORD, "ESCAPE"):
            return LikePattern.parse(pattern)
        position = self._token.position
        escape = self._expect_string("after ESCAPE")
        if len(escape) != 1:
            raise self._error("the escape is one character", position)
        return LikePattern.parse(pattern, escape)

    # ---- operands

    def _operand(self, level: Level) -> Node:
        token = self._token
        if token.kind is TokenKind.KEYWORD:
            return self._keyword_operand(level)
        if self._at(TokenKind.SIGN, "+", "-"):
            return self._signed()
        if self._took(TokenKind.SIGN, "("):
            node = self._parse(Level.OR)
            self._expect(TokenKind.SIGN, ")")
            return node
        if token.kind is TokenKind.IDENTIFIER:
            return self._name()
        if token.kind is TokenKind.STRING:
            return Literal(ValueKind.STRING, exact=False, value=self._take().value)
        if token.kind is TokenKind.NUMBER:
            return self._unsigned_number()
        raise self._error(f"expected a name, a literal or a condition, found {token}", token.position)

    def _keyword_operand(self, level: Level) -> Node:
        token = self._token
        if token.value == "NOT" and level <= Level.NOT:
            return self._negation()
        if token.value not in ("TRUE", "FALSE"):
            hint = "NULL stands behind IS alone" if token.value == "NULL" else f"unexpected {token.value}"
            raise self._error(hint, token.position)
        self._take()
        return TRUE if token.value == "TRUE" else FALSE

    def _negation(self) -> Node:
        """Parses one or more NOTs. Unknown stays unknown, so two of them cancel out."""
        count = 0
        while self._took(TokenKind.KEYWORD, "NOT"):
            count += 1
        operand = self._condition(Level.COMPARISON)
        # `NOT NOT x` is a condition, while `x` alone is a value; so one pair stays.
        return Not(operand) if count % 2 else Not(Not(operand))

    def _signed(self) -> Node:
        signs = ""
        while self._at(TokenKind.SIGN, "+", "-"):
            signs += str(self._take().value)
        token = self._token
        # The last minus belongs to the literal: -2**63 is a literal, 2**63 is not. For zero it stays outside: the
        # literals 0.0 and -0.0 would be equal, but dividing by them is not.
        if token.kind is TokenKind.NUMBER and token.value and signs.endswith("-"):
            self._take()
            literal = _number_literal(negative(token.value))
            return Signed(_product(signs[:-1]), literal) if signs[:-1] else literal
        return Signed(_product(signs), self._number(Level.OPERAND))

    def _name(self) -> Node:
        token = self._take()
        name = str(token.value)
        if is_reserved(name) and name not in HEADER_KINDS:
            allowed = ", ".join(HEADER_KINDS)
            raise self._error(f"a selector may name no header fields but {allowed}", token.position)
        return Identifier(name)

    def _unsigned_number(self) -> Node:
        token = self._take()
        if token.value == EXACT_LITERAL_MAX and isinstance(token.value, int):
            raise self._error(f"{token.value} is beyond 64 bits", token.position)
        return _number_literal(token.value)


def _number_literal(value: Value) -> Literal:
    assert isinstance(value, int | float)
    return Literal(ValueKind.NUMBER, exact=isinstance(value, int), value=value)


def _product(signs: str) -> str:
    return "-" if signs.count("-") % 2 else "+"
