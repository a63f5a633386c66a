from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InvalidSelectorError
from gapless.selectors.lexer import TokenKind, canonical, is_identifier, tokens


def lexed(expression: str) -> list[tuple[TokenKind, object, int]]:
    return [(token.kind, token.value, token.position) for token in tokens(expression)]


def test_words_signs_and_literals() -> None:
    found = lexed("price>=1.5 aNd name <> 'it''s'")

    assert found == [
        (TokenKind.IDENTIFIER, "price", 0),
        (TokenKind.SIGN, ">=", 5),
        (TokenKind.NUMBER, 1.5, 7),
        (TokenKind.KEYWORD, "AND", 11),
        (TokenKind.IDENTIFIER, "name", 15),
        (TokenKind.SIGN, "<>", 20),
        (TokenKind.STRING, "it's", 23),
        (TokenKind.END, "", 30),
    ]


@pytest.mark.parametrize("space", [" ", "\t", "\f", "\n", "\r", " \r\n\t"])
def test_white_space_separates(space: str) -> None:
    assert [value for _, value, _ in lexed(f"{space}a{space}=")] == ["a", "=", ""]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("62", 62),
        ("62L", 62),
        ("62l", 62),
        ("035", 29),
        ("0x1d", 29),
        ("0X1DL", 29),
        ("0xFFFFFFFFFFFFFFFF", -1),
        ("01777777777777777777777", -1),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2**63),  # only behind a minus: the parser's business
        ("7.", 7.0),
        (".7e4", 7000.0),
        ("7E3", 7000.0),
        ("57.9e-1", 5.79),
        ("1.E1", 10.0),
        ("0.4f", 0.4),
        ("92d", 92.0),
        ("92D", 92.0),
        ("09.5", 9.5),
        ("09e1", 90.0),
        ("0.0e5", 0.0),
        ("4.9E-324", 5e-324),
        ("1.7976931348623157E308", 1.7976931348623157e308),
    ],
)
def test_numbers_as_java_writes_them(text: str, value: float) -> None:
    (kind, found, _), end = lexed(text)

    assert kind is TokenKind.NUMBER
    assert found == value
    assert type(found) is type(value)
    assert end[0] is TokenKind.END


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a = 1_000", 4),
        ("a = 0b11", 4),
        ("a = 0x", 4),
        ("a = 0x800p-3", 4),
        ("a = 09", 4),
        ("a = 9223372036854775809", 4),
        ("a = 0x10000000000000000", 4),
        ("a = 1e400", 4),
        ("a = 1e-400", 4),
        ("1a = 2", 0),
        ("a != 1", 2),
        ("a = 7 % 2", 6),
        ('a = "x"', 4),
        ("a = 'x", 4),
        ("a = 'it''s", 4),
        ("Country.name = 'x'", 7),
        ("a-b = #", 6),
        ("a\N{NO-BREAK SPACE}= 1", 1),
    ],
)
def test_what_is_no_token_is_refused_where_it_stands(text: str, position: int) -> None:
    with pytest.raises(InvalidSelectorError) as caught:
        lexed(text)

    assert caught.value.position == position
    assert caught.value.expression == text


@pytest.mark.parametrize("name", ["a", "_", "$", "$State", "_postcode_", "a1b2", "größe", "数量", "€", "JMSX", "nota"])
def test_identifiers(name: str) -> None:
    assert is_identifier(name)
    assert lexed(name)[0] == (TokenKind.IDENTIFIER, name, 0)


@pytest.mark.parametrize("name", ["", "1a", "a.b", "a-b", "a b", "²", "a\u200bb", "Not", "NULL", "true", "escape"])
def test_what_is_no_identifier(name: str) -> None:
    assert not is_identifier(name)


def test_keywords_are_ascii() -> None:
    """The capital of a dotless i is I; that makes no keyword of a name in Turkish."""
    assert is_identifier("ıs")
    assert is_identifier("lıke")


@given(st.text())
def test_any_text_is_tokens_or_an_error_within_it(text: str) -> None:
    positions: list[int] = []
    try:
        positions += [token.position for token in tokens(text)]
        end = len(text)
    except InvalidSelectorError as error:
        end = error.position

    assert 0 <= end <= len(text)
    assert positions == sorted(set(positions))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("origin='JFK'", " origin  =\n'JFK'\t"),
        ("a in('x','y')", "a IN ( 'x' , 'y' )"),
        ("not(a is null)and b>-5", "NOT (a IS NULL) AND b > - 5"),
        ("a--1>0", "a - - 1 > 0"),
        ("", " \f\r\n"),
    ],
)
def test_a_selector_with_other_blanks_is_the_same(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 'x y'", "a = 'x  y'"),
        ("a = ' x'", "a = 'x'"),
        ("a = 'and'", "a = 'AND'"),
        ("a < b", "A < b"),
        ("a = 1", "a = 1.0"),
        ("a = 16", "a = 0x10"),
        ("a = 'x''y'", "a = 'x' 'y'"),
        ("a < = b", "a <= b"),
        ("a = 1", "(a = 1)"),
    ],
)
def test_a_selector_that_differs_in_anything_else_is_another(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


WORDS = st.sampled_from(
    ["a", "and", "Or", "NOT", "'it''s  x'", "''", "1", ".5e1", "0x1F", "<>", "<", "=", "(", ",", "-", "ä_$"]
)
BLANKS = st.text(" \t\f\n\r", min_size=1, max_size=3)


@given(st.lists(st.tuples(WORDS, BLANKS)))
def test_the_canonical_text_has_the_same_words_whatever_stands_between_them(words: list[tuple[str, str]]) -> None:
    spelt = "".join(word + blank for word, blank in words)

    assert [token[:2] for token in tokens(canonical(spelt))] == [token[:2] for token in tokens(spelt)]
    assert canonical(spelt) == canonical(
        " ".join(word.swapcase() if word in {"and", "Or", "NOT"} else word for word, _ in words)
    )
    assert canonical(canonical(spelt)) == canonical(spelt)


@pytest.mark.parametrize("wrong", ["a ! b", "'x", "a = 1b"])
def test_what_is_no_selector_has_no_canonical_text(wrong: str) -> None:
    with pytest.raises(InvalidSelectorError):
        canonical(wrong)
