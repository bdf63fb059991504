"""Integer instructions beside Python's unlimited integers."""

from __future__ import annotations

import numpy as np
import pytest

from triton_dist.errors import SimulationError

pytestmark = pytest.mark.host_code

_TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
_WORDS = ("b32", "b64")


def operands(bits: int, count: int, number: int = 0) -> list[np.ndarray]:
    """Edge values and random ones, each with each."""
    top = 1 << bits
    edges = [0, 1, 2, 3, 7, bits - 1, bits, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1, top // 3]
    chance = np.random.default_rng(bits + number)
    drawn = [int.from_bytes(chance.bytes(bits // 8), "little") for _ in range(7)]
    grid = np.meshgrid(*[np.array(edges + drawn, f"u{bits // 8}")] * count) if count < 3 else None
    if grid is not None:
        return [one.reshape(-1) for one in grid]
    pool = np.array(edges + drawn, f"u{bits // 8}")
    return [chance.permutation(np.resize(pool, 400)) for _ in range(count)]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


BINARY = {
    "add": lambda a, b, bits: a + b,
    "sub": lambda a, b, bits: a - b,
    "mul.lo": lambda a, b, bits: a * b,
    "mul.hi": lambda a, b, bits: a * b >> bits,
    "min": lambda a, b, bits: min(a, b),
    "max": lambda a, b, bits: max(a, b),
    "div": lambda a, b, bits: truncated(a, b) if b else -1,
    "rem": lambda a, b, bits: a - b * truncated(a, b) if b else a,
}


def look(text, gives, arrays, expected, evaluate):
    """Compare one result with a function of Python integers."""
    (found,) = evaluate(text, [gives], *arrays)
    want = [expected(*(int(array[place]) for array in arrays)) & (1 << gives) - 1 for place in range(len(arrays[0]))]
    wrong = [place for place, value in enumerate(want) if int(found[place]) != value]
    assert not wrong, f"{text} of {[hex(int(array[wrong[0]])) for array in arrays]}: {int(found[wrong[0]]):#x}, not {want[wrong[0]]:#x}"


def numbers(kind, *values):
    return [signed(value, int(kind[1:])) if kind[0] == "s" else value for value in values]


@pytest.mark.parametrize("kind", _TYPES)
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name, kind, evaluate):
    bits = int(kind[1:])
    look(f"{name}.{kind} $0, $1, $2;", bits, operands(bits, 2), lambda a, b: BINARY[name](*numbers(kind, a, b), bits), evaluate)


@pytest.mark.parametrize("kind", _TYPES)
def test_products_and_sums(kind, evaluate):
    bits = int(kind[1:])
    three = operands(bits, 3)

    def whole(a, b):
        x, y = numbers(kind, a, b)
        return x * y

    look(f"mad.lo.{kind} $0, $1, $2, $3;", bits, three, lambda a, b, c: whole(a, b) + c, evaluate)
    look(f"mad.hi.{kind} $0, $1, $2, $3;", bits, three, lambda a, b, c: (whole(a, b) >> bits) + c, evaluate)
    look(f"sad.{kind} $0, $1, $2, $3;", bits, three, lambda a, b, c: abs(numbers(kind, a)[0] - numbers(kind, b)[0]) + c, evaluate)
    if bits < 64:
        look(f"mul.wide.{kind} $0, $1, $2;", 2 * bits, operands(bits, 2), whole, evaluate)
        wide = [*operands(bits, 3)[:2], operands(2 * bits, 3)[2]]
        look(f"mad.wide.{kind} $0, $1, $2, $3;", 2 * bits, wide, lambda a, b, c: whole(a, b) + c, evaluate)


@pytest.mark.parametrize("kind", ("s16", "s32", "s64"))
def test_signs(kind, evaluate):
    bits = int(kind[1:])
    look(f"abs.{kind} $0, $1;", bits, operands(bits, 1), lambda a: abs(signed(a, bits)), evaluate)
    look(f"neg.{kind} $0, $1;", bits, operands(bits, 1), lambda a: -a, evaluate)


def clamp(value, bits=32):
    return max(-(1 << bits - 1), min((1 << bits - 1) - 1, value))


def test_saturation_and_short_products(evaluate):
    two, three = operands(32, 2), operands(32, 3)
    look("add.sat.s32 $0, $1, $2;", 32, two, lambda a, b: clamp(signed(a, 32) + signed(b, 32)), evaluate)
    look("sub.sat.s32 $0, $1, $2;", 32, two, lambda a, b: clamp(signed(a, 32) - signed(b, 32)), evaluate)
    look(
        "mad.hi.sat.s32 $0, $1, $2, $3;", 32, three,
        lambda a, b, c: clamp((signed(a, 32) * signed(b, 32) >> 32) + signed(c, 32)), evaluate,
    )  # fmt: skip
    low = (1 << 24) - 1
    look("mul24.lo.u32 $0, $1, $2;", 32, two, lambda a, b: (a & low) * (b & low), evaluate)
    look("mul24.hi.s32 $0, $1, $2;", 32, two, lambda a, b: signed(a & low, 24) * signed(b & low, 24) >> 16, evaluate)
    look("mad24.lo.s32 $0, $1, $2, $3;", 32, three, lambda a, b, c: signed(a & low, 24) * signed(b & low, 24) + c, evaluate)


def pieces(value, size, count, sign):
    parts = [value >> 8 * size * place & (1 << 8 * size) - 1 for place in range(count)]
    return [signed(part, 8 * size) for part in parts] if sign == "s" else parts


@pytest.mark.parametrize("first", "us")
@pytest.mark.parametrize("second", "us")
def test_dot_products(first, second, evaluate):
    three = operands(32, 3)
    dot = lambda x, y: sum(a * b for a, b in zip(x, y, strict=True))  # noqa: E731
    kinds = f"{first}32.{second}32"
    look(f"dp4a.{kinds} $0, $1, $2, $3;", 32, three, lambda a, b, c: dot(pieces(a, 1, 4, first), pieces(b, 1, 4, second)) + c, evaluate)
    for half, start in (("lo", 0), ("hi", 2)):
        look(
            f"dp2a.{half}.{kinds} $0, $1, $2, $3;", 32, three,
            lambda a, b, c, start=start: dot(pieces(a, 2, 2, first), pieces(b, 1, 4, second)[start : start + 2]) + c, evaluate,
        )  # fmt: skip


@pytest.mark.parametrize("bits", (32, 64))
def test_carries(bits, evaluate):
    a, b, c = operands(bits, 3)
    two = 1 << bits
    low, high = evaluate(f"add.cc.u{bits} $0, $2, $3; addc.u{bits} $1, $3, $4;", [bits, bits], a, b, c)
    for x, y, z, found, rest in zip(a.tolist(), b.tolist(), c.tolist(), low.tolist(), high.tolist(), strict=True):
        assert (found, rest) == ((x + y) % two, (y + z + (x + y >= two)) % two)
    low, high = evaluate(f"sub.cc.u{bits} $0, $2, $3; subc.u{bits} $1, $3, $4;", [bits, bits], a, b, c)
    for x, y, z, found, rest in zip(a.tolist(), b.tolist(), c.tolist(), low.tolist(), high.tolist(), strict=True):
        assert (found, rest) == ((x - y) % two, (y - z - (x < y)) % two)
    low, high = evaluate(f"mad.lo.cc.u{bits} $0, $2, $3, $4; madc.hi.u{bits} $1, $2, $3, 0;", [bits, bits], a, b, c)
    for x, y, z, found, rest in zip(a.tolist(), b.tolist(), c.tolist(), low.tolist(), high.tolist(), strict=True):
        assert found + rest * two == x * y + z


def ones(count):
    return (1 << count) - 1


def extract(value, begin, count, bits, sign):
    begin, count = begin & 255, count & 255
    field = value >> begin & ones(count)
    if sign == "s" and count:
        last = min(begin + count - 1, bits - 1)
        if value >> last & 1:
            field |= ones(max(bits, 256)) & ~ones(min(count, max(bits - begin, 0)))
    return field


@pytest.mark.parametrize("bits", (32, 64))
def test_fields(bits, evaluate):
    chance = np.random.default_rng(bits)
    a, b = operands(bits, 2)
    begin, count = (chance.integers(0, 300, a.size).astype(np.uint32) for _ in range(2))
    for sign in "us":
        look(
            f"bfe.{sign}{bits} $0, $1, $2, $3;", bits, [a, begin, count],
            lambda value, at, size, sign=sign: extract(value, at, size, bits, sign), evaluate,
        )  # fmt: skip

    def insert(x, y, at, size):
        field = ones(size & 255) << (at & 255) & ones(bits)
        return (y & ~field) | (x << (at & 255) & field)

    look(f"bfi.b{bits} $0, $1, $2, $3, $4;", bits, [a, b, begin, count], insert, evaluate)


@pytest.mark.parametrize("bits", (32, 64))
def test_counts(bits, evaluate):
    (a,) = operands(bits, 1)
    word = f"b{bits}"
    look(f"popc.{word} $0, $1;", 32, [a], lambda x: x.bit_count(), evaluate)
    look(f"clz.{word} $0, $1;", 32, [a], lambda x: bits - x.bit_length(), evaluate)
    look(f"brev.{word} $0, $1;", bits, [a], lambda x: int(f"{x:0{bits}b}"[::-1], 2), evaluate)
    for sign in "us":
        highest = lambda x, sign=sign: (x if sign == "u" or not x >> bits - 1 else ~x & ones(bits)).bit_length() - 1  # noqa: E731
        look(f"bfind.{sign}{bits} $0, $1;", 32, [a], highest, evaluate)
        look(
            f"bfind.shiftamt.{sign}{bits} $0, $1;", 32, [a],
            lambda x, highest=highest: -1 if highest(x) < 0 else bits - 1 - highest(x), evaluate,
        )  # fmt: skip


@pytest.mark.parametrize("bits", (16, 32, 64))
def test_logic_and_shifts(bits, evaluate):
    two = operands(bits, 2)
    look(f"and.b{bits} $0, $1, $2;", bits, two, lambda a, b: a & b, evaluate)
    look(f"or.b{bits} $0, $1, $2;", bits, two, lambda a, b: a | b, evaluate)
    look(f"xor.b{bits} $0, $1, $2;", bits, two, lambda a, b: a ^ b, evaluate)
    look(f"not.b{bits} $0, $1;", bits, two[:1], lambda a: ~a, evaluate)
    look(f"cnot.b{bits} $0, $1;", bits, two[:1], lambda a: int(a == 0), evaluate)
    a = two[0]
    amount = np.resize(np.array([0, 1, 5, bits - 1, bits, bits + 1, 255, 2**31], np.uint32), a.size)
    look(f"shl.b{bits} $0, $1, $2;", bits, [a, amount], lambda x, n: x << min(n, bits), evaluate)
    look(f"shr.u{bits} $0, $1, $2;", bits, [a, amount], lambda x, n: x >> min(n, bits), evaluate)
    look(f"shr.s{bits} $0, $1, $2;", bits, [a, amount], lambda x, n: signed(x, bits) >> min(n, bits), evaluate)


def permuted(a, b, chosen):
    octets = [(a | b << 32) >> 8 * place & 255 for place in range(8)]
    picked = [octets[c & 7] if not c & 8 else 255 * (octets[c & 7] >> 7) for c in chosen]
    return sum(octet << 8 * place for place, octet in enumerate(picked))


def test_words_from_words(evaluate):
    three = operands(32, 3)
    for left, mode in (("l", "wrap"), ("l", "clamp"), ("r", "wrap"), ("r", "clamp")):
        by = (lambda n: n & 31) if mode == "wrap" else (lambda n: min(n, 32))

        def funnel(a, b, n, left=left, by=by):
            whole = b << 32 | a
            return whole << by(n) >> 32 if left == "l" else whole >> by(n)

        look(f"shf.{left}.{mode}.b32 $0, $1, $2, $3;", 32, three, funnel, evaluate)
    for table in (0x00, 0x3A, 0x96, 0xCA, 0xE8, 0xFF):

        def logic(a, b, c, table=table):
            picks = [(a >> place & 1) << 2 | (b >> place & 1) << 1 | c >> place & 1 for place in range(32)]
            return sum((table >> pick & 1) << place for place, pick in enumerate(picks))

        look(f"lop3.b32 $0, $1, $2, $3, {table:#x};", 32, three, logic, evaluate)
    look("prmt.b32 $0, $1, $2, $3;", 32, three, lambda a, b, c: permuted(a, b, [c >> 4 * place & 15 for place in range(4)]), evaluate)
    modes = {
        "f4e": ["3210", "4321", "5432", "6543"], "b4e": ["5670", "6701", "7012", "0123"], "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"], "ecr": ["0000", "1110", "2210", "3210"], "rc16": ["1010", "3232", "1010", "3232"],
    }  # fmt: skip
    for mode, rows in modes.items():
        look(
            f"prmt.b32.{mode} $0, $1, $2, $3;", 32, three,
            lambda a, b, c, rows=rows: permuted(a, b, [int(one) for one in reversed(rows[c & 3])]), evaluate,
        )  # fmt: skip
    two = [np.resize(np.array([0, 1, 5, 31, 32, 33, 200], np.uint32), 400), operands(32, 2)[0]]
    look("bmsk.clamp.b32 $0, $1, $2;", 32, two, lambda at, size: ones(min(size, 32)) << min(at, 32), evaluate)
    look("bmsk.wrap.b32 $0, $1, $2;", 32, two, lambda at, size: ones(size & 31) << (at & 31), evaluate)
    look("szext.wrap.u32 $0, $2, $1;", 32, two, lambda size, a: a & ones(size & 31), evaluate)
    look("szext.clamp.s32 $0, $2, $1;", 32, two, lambda size, a: signed(a & ones(min(size, 32)), min(size, 32)) if size else 0, evaluate)


def test_pieces_of_registers(evaluate):
    a, b = operands(32, 2)
    look("mov.b64 $0, {$1, $2};", 64, [a, b], lambda x, y: x | y << 32, evaluate)
    look("{ .reg .b32 %x, %y; mov.b64 {%x, %y}, $1; mov.b32 $0, %y; }", 32, operands(64, 1), lambda x: x >> 32, evaluate)
    look(
        "{ .reg .b8 %o<4>; mov.b32 {%o0, %o1, %o2, %o3}, $1; mov.b32 $0, {%o3, %o2, %o1, %o0}; }", 32, operands(32, 1),
        lambda x: int.from_bytes(x.to_bytes(4, "little"), "big"), evaluate,
    )  # fmt: skip


def test_vectors_of_registers(evaluate):
    look(
        "{ .reg .v4 .b32 %a, %b; mov.v4.b32 %a, 7; mov.b64 {%a.x, %a.y}, $1; mov.v4.b32 %b, %a; add.u32 %b.x, %b.x, %b.w; "
        "mov.b64 $0, {%b.x, %b.z}; }",
        64, operands(64, 1), lambda x: (x + 7) % (1 << 32) | 7 << 32, evaluate,
    )  # fmt: skip
    look("{ .reg .v2 .b32 %a; mov.v2.b32 %a, {$1, $2}; mov.b64 $0, %a; }", 64, operands(32, 2), lambda x, y: x | y << 32, evaluate)


@pytest.mark.parametrize("given", _TYPES)
@pytest.mark.parametrize("taken", _TYPES)
def test_conversions_between_integers(given, taken, evaluate):
    bits = int(given[1:])
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if given[0] == "s" else (0, (1 << bits) - 1)
    (a,) = operands(int(taken[1:]), 1)
    look(f"cvt.{given}.{taken} $0, $1;", bits, [a], lambda x: numbers(taken, x)[0], evaluate)
    if (lambda low, high: low < least or high > most)(*_range(taken)):
        look(f"cvt.sat.{given}.{taken} $0, $1;", bits, [a], lambda x: max(least, min(most, numbers(taken, x)[0])), evaluate)


def _range(kind):
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


COMPARE = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("kind", _TYPES)
@pytest.mark.parametrize("name", COMPARE)
def test_comparisons(kind, name, evaluate):
    pair = operands(int(kind[1:]), 2)
    text = f"{{ .reg .pred %p, %q; setp.{name}.{kind} %p|%q, $1, $2; selp.u32 $0, 1, 0, %p; @%q add.u32 $0, $0, 2; }}"
    look(text, 32, pair, lambda a, b: 1 if COMPARE[name](*numbers(kind, a, b)) else 2, evaluate)


@pytest.mark.parametrize("name", ["s16", "u16", "s8", "u8", "s4", "u4", "s2", "u2"])
def test_integers_that_are_packed(name, evaluate):
    bits = int(name[1:])
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "s" else (0, (1 << bits) - 1)

    def one(value):
        return min(max(signed(value, 32), least), most) & (1 << bits) - 1

    if bits == 16:
        look(f"cvt.pack.sat.{name}.s32 $0, $1, $2;", 32, operands(32, 2), lambda a, b: one(a) << 16 | one(b), evaluate)
        return
    text = f"cvt.pack.sat.{name}.s32.b32 $0, $1, $2, $3;"
    look(text, 32, operands(32, 3), lambda a, b, c: c << 2 * bits | one(a) << bits | one(b), evaluate)
    four = np.array([3, 250, 77, 9], np.uint32).reshape(4, 1)
    joined = "{ .reg .b32 %t; cvt.pack.sat.u8.s32.b32 %t, $4, $3, 0; cvt.pack.sat.u8.s32.b32 $0, $2, $1, %t; }"
    assert evaluate(joined, [32], *four)[0].view(np.uint8).tolist() == four.ravel().tolist()


def test_a_cluster_is_one_block(evaluate):
    place = np.array([64, 8], np.uint32)
    assert evaluate("mapa.shared::cluster.u32 $0, $1, 0;", [32], place)[0].tolist() == [64, 8]
    assert evaluate("getctarank.shared::cluster.u32 $0, $1;", [32], place)[0].tolist() == [0, 0]
    with pytest.raises(SimulationError, match="no block 1 in the cluster"):
        evaluate("mapa.shared::cluster.u32 $0, $1, $2;", [32], place, np.array([0, 1], np.uint32))
