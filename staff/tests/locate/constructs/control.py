"""Scopes, control flow and errors."""

import contextlib
import sys

import torch

KEPT: list[str] = []


def a_generator_is_sent_to():
    def double(n):
        for i in range(n):
            got = yield i * 2
            if got:
                yield got

    doubles = double(4)
    return [next(doubles), doubles.send(7), *doubles]


def a_generator_delegates():
    def inner():
        got = yield 1
        return got

    def outer():
        result = yield from inner()
        yield result

    made = outer()
    return next(made), made.send("sent")


def a_generator_is_closed():
    log = []

    def held():
        try:
            yield 1
        finally:
            log.append("closed")

    made = held()
    next(made)
    made.close()
    return log


def a_return_passes_a_finally():
    def early():
        for i in range(3):
            try:
                if i == 1:
                    return i
            finally:
                KEPT.append(str(i))

    KEPT.clear()
    return early(), list(KEPT)


def names_are_bound_in_expressions():
    values = [y := 3, y**2, *(z for x in range(3) if (z := x + y) > 3)]
    while (n := len(values)) < 7:
        values.append(n)
    return values, y, z


def a_value_is_matched():
    def what(x):
        match x:
            case {"a": [1, *rest], **more} if len(rest) > 1:
                return rest, more
            case torch.Tensor(shape=shape) if shape:
                return tuple(shape)
            case int() | float() as number:
                return -number
            case [a, b]:
                return b, a
            case _:
                return None

    return what({"a": [1, 2, 3], "b": 4}), what(torch.zeros(2)), what(3), what((1, 2)), what("no")


def comprehensions_have_scopes():
    late = [lambda: i for i in range(3)]
    early = [lambda i=i: i for i in range(3)]
    pairs = {i: j for i in range(2) for j in range(i)}
    return [f() for f in late], [f() for f in early], pairs, {i for i in range(3)}, sum(i for i in range(4))


def arguments_are_starred():
    def take(a, /, b, *args, k=1, **others):
        return a, b, args, k, others

    xs, named = [1, 2], {"k": 3, "z": 4}
    index = (0, 1)
    return take(*xs, *range(2), **named, y=5), torch.arange(6).reshape(2, 3)[*index].item(), (*xs, *xs), {**named}


def strings_are_formatted():
    x, n = torch.ones(2), 3
    return f"{x.sum():.2f} {n!r:>{n + 2}} {f'{n}'} {n=} {n and 1}"


def lambdas_have_defaults_and_stand_in_a_line():
    scale = lambda x, s=torch.ones(2): x * s
    one, other = (lambda x: x + 1), (lambda x: x + 2)
    return scale(2).sum().item(), one(1) + other(2)


def a_dead_branch_holds_a_lambda():
    if not True:
        sign = lambda x: x
    else:
        sign = lambda x: -x
    if not __debug__:
        sign = lambda x: None
    while 0:
        sign = lambda x: 0
    return sign(1), (lambda: 1)() if 1 == 1 else (lambda: 2)()


def a_name_is_unpacked():
    a, (b, *c), d = 1, (2, 3, 4), 5
    a, b = b, a
    *_, length, width = torch.zeros(2, 3, 4).shape
    kept = {"k": [1, 2, 3]}
    del kept["k"][0], d
    return a, b, c, kept, length, width, sorted(locals())


def an_iterable_is_unpacked_once():
    class Pair:
        def __iter__(self):
            KEPT.append("iter")
            return iter((1, 2))

    KEPT.clear()
    a, b = Pair()
    for x, y in [Pair(), Pair()]:
        a, b = x + a, y + b
    return a, b, len(KEPT)


def a_loop_fills_an_index_and_another_has_an_else():
    x, found = [0, 0, 0], []
    for x[1] in range(3):
        pass
    with contextlib.nullcontext(7) as x[2]:
        pass
    for n in range(2, 8):
        for k in range(2, n):
            if n % k == 0:
                break
        else:
            found.append(n)
    return x, found


def comparisons_are_chained_and_conditions_are_not_evaluated():
    def fail():
        raise AssertionError

    x = 5
    assert 1 < x < 10, f"{x}"
    chained = 0 < x == 5 != 3 in [3], not x, x and 7, x or 8
    return chained, (False and fail()), (True or fail()), (1 if True else fail())


def a_subscript_is_a_slice():
    x = torch.arange(24).reshape(2, 3, 4)
    return x[..., 1:3, None], x[:, ::2][0], x[1, (0, 2)], x[x > 20]


def a_matrix_is_multiplied_in_place():
    x, y = torch.eye(2), torch.ones(2, 2)
    z = x
    x @= y
    x //= 1
    return x, z is x


def an_error_is_raised():
    return torch.ones(2) @ torch.ones(3)


def an_error_has_a_message_of_its_own():
    raise ValueError(f"expected {2 + 1} heads")


def an_error_is_chained():
    try:
        try:
            [][1]
        except IndexError as error:
            raise KeyError("k") from error
    except KeyError as error:
        return repr(error.__cause__), error.__suppress_context__


def errors_come_in_a_group():
    n = m = 0
    try:
        raise ExceptionGroup("several", [ValueError(1), TypeError(2)])
    except* ValueError as group:
        n = len(group.exceptions)
        n += 1
    except* TypeError:
        m = 1
    return n, m


def the_name_of_an_error_is_gone():
    try:
        raise ValueError(3)
    except ValueError as error:
        kept = error.args[0]
    try:
        return error
    except UnboundLocalError:
        return kept


def a_context_manager_handles():
    @contextlib.contextmanager
    def managed(log):
        log.append("in")
        try:
            yield log
        except ValueError:
            log.append("caught")
        finally:
            log.append("out")

    log = []
    with managed(log) as same, contextlib.suppress(KeyError):
        same.append("body")
        raise ValueError
    return log


def a_name_is_misspelt():
    return GREETNG


def a_recursion_goes_deep():
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    return down(sys.getrecursionlimit() - 200)


def a_recursion_does_not_end():
    def down(n):
        return down(n + 1)

    try:
        return down(0)
    except RecursionError as error:
        return type(error).__name__


def exit_is_called():
    sys.exit("no")
