"""State of modules and functions, and changes in place."""

import functools
import inspect

import torch
from torch import nn

STATS = {"calls": 0}
TABLE = torch.zeros(3)
KEPT: list[str] = []
COUNTER = 0


def globals_are_changed_and_rebound():
    global COUNTER
    COUNTER += 1
    STATS["calls"] += 1
    TABLE[1] += 2.0
    TABLE[0] = 1.0
    return COUNTER, STATS["calls"], TABLE.clone()


def a_global_is_made_and_deleted():
    global MADE
    MADE = 1
    MADE += 1
    del MADE
    try:
        return MADE
    except NameError as error:
        return str(error)


def a_closed_over_list_tensor_and_number_are_added_to():
    counts, total, n = [0, 0], torch.zeros(2), 0

    def add(x):
        nonlocal n
        n += 1
        counts[0] += 1
        total[...] += x
        return n, counts[0]

    return add(1.0), add(2.0), counts, total, n


def a_default_is_changed(kept=[]):
    kept.append(len(kept))
    return list(kept)


def a_function_has_attributes():
    a_function_has_attributes.calls = getattr(a_function_has_attributes, "calls", 0) + 1
    return a_function_has_attributes.calls


@functools.lru_cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def a_recursion_is_cached():
    return fibonacci(30), fibonacci.cache_info().misses


# What a statement changes in place is evaluated once.


class Pool:
    def __init__(self):
        self.layers = [nn.Linear(2, 2, bias=False) for _ in range(3)]
        self.reads = 0
        self.kept = torch.zeros(2)

    def take(self):
        self.reads += 1
        return self.layers[self.reads - 1]

    @property
    def total(self):
        self.reads += 1
        return self.kept

    @total.setter
    def total(self, value):
        self.reads += 10
        self.kept = value


def calls_are_the_base_of_changes_in_place():
    pool, stack = Pool(), [nn.Linear(2, 2) for _ in range(4)]
    pool.take().weight.data.zero_()
    pool.take().weight.data[0] = 0.0
    stack.pop().weight.data.zero_()
    layers = iter(stack)
    next(layers).weight.data.fill_(1.0)
    next(layers).bias.data[0] += 1.0
    return pool.reads, pool.layers[0].weight.detach().sum(), len(stack), len(list(layers))


def properties_and_attributes_are_changed_at_an_index_and_added_to():
    pools = [Pool() for _ in range(4)]
    pools[0].total[0] = 1.0
    pools[1].total[0] += 1.0
    pools[2].total += 1.0
    pools[3].reads += 1
    pools[3].kept += torch.ones(2)
    return [(pool.reads, pool.kept) for pool in pools]


class Logged:
    def __get__(self, owner, kind=None):
        KEPT.append("get")
        return torch.zeros(2)

    def __set__(self, owner, value):
        KEPT.append("set")


class HasLogged:
    value = Logged()


def a_descriptor_is_added_to():
    KEPT.clear()
    HasLogged().value += 1
    HasLogged().value[0] = 1
    return list(KEPT)


class Order:
    def __init__(self, log):
        self.log = log

    def __getitem__(self, key):
        self.log.append(("get", key))
        return 1

    def __setitem__(self, key, value):
        self.log.append(("set", key, value))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.log.append(("read", name))
        return self


def parts_are_evaluated_in_their_order():
    log = []

    def say(x):
        log.append(x)
        return x

    order = Order(log)
    order[say("a")] = say("b")
    order[say("c")] += say(2)
    {"d": order.inner}[say("d")][say("e")] = say("f") if False else say("g")
    return log


def an_assignment_has_several_targets():
    x = torch.zeros(3)
    kept = y = x[0:2] = torch.ones(2)
    kept[0] = y[1] = 5.0
    return x, kept, y is kept


def an_error_leaves_a_change_in_place():
    x = torch.zeros(2)
    try:
        x[5] += 1
    except IndexError as error:
        return str(error), sorted(locals())


def names_are_what_was_written():
    x = torch.zeros(2)
    a, b = 1, 2
    x[0] += a
    x.add_(b)
    of_module = sorted(name for name in globals() if name not in ("MADE",)), "__probe__" in dir()
    return of_module, sorted(locals()), sorted(inspect.currentframe().f_locals)
