"""Classes, decorators, coroutines and threads."""

import asyncio
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import operator
import pickle
import random
import sys
import threading
import typing
from collections import defaultdict

import torch
from torch import nn

STATS = {"calls": 0}
KEPT: list[str] = []


@dataclasses.dataclass
class Config:
    heads: int = 1
    sizes: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.width = self.heads + 1
        self.sizes += [self.width]


class Slots:
    __slots__ = ("__hidden", "x")

    def __init__(self):
        self.x = 1
        self.__hidden = 2

    def both(self):
        self.__hidden += 1
        return self.x, self.__hidden


class Lazy:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = len(self.__dict__)
        return self.__dict__[name]

    def __call__(self, x):
        return x + self.a + self.b


def names_are_mangled_and_attributes_are_made_when_read():
    return Slots().both(), Lazy()(1)


class Meta(type):
    def __new__(cls, name, bases, namespace):
        namespace["made"] = sorted(key for key in namespace if not key.startswith("__"))
        return super().__new__(cls, name, bases, namespace)


def a_class_is_made_in_a_function():
    k = 2

    class Made(metaclass=Meta):
        x = k + 1
        table = {}
        table["a"] = 1
        table["a"] += 1

        def f(self):
            return __class__.x + super().__sizeof__() * 0

    return Made.made, Made().f(), Made.table, Made.f.__qualname__


class Base:
    made = 0

    def __init_subclass__(cls, **options):
        cls.options = options

    def __init__(self):
        type(self).made += 1
        Base.made += 1

    @classmethod
    def make(cls):
        return cls()

    @staticmethod
    def add(x, y):
        return x + y


class Derived(Base, wide=True):
    def __init__(self):
        super().__init__()
        self.sum = self.add(1, 2)

    @functools.cached_property
    def squares(self):
        KEPT.append("squared")
        return [x**2 for x in range(self.sum)]


def classes_keep_state_and_instances_are_told_apart():
    Base.made = Derived.made = 0
    one, _ = Derived.make(), Base()
    kinds = isinstance(one, Base), type(one) is Derived, issubclass(Derived, Base), Derived.__mro__[1] is Base
    return Base.made, Derived.made, Derived.options, one.squares, one.squares is one.squares, kinds


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def a_dataclass_is_made_and_an_enum_is_read():
    made = Config(3).sizes, Config() == Config(), dataclasses.replace(Config(2), heads=4).heads
    return made, Colour.RED.name, Colour(2) is Colour.BLUE, [each.value for each in Colour]


def objects_are_pickled_and_copied():
    config, red, _ = pickle.loads(pickle.dumps((Config(3), Colour.RED, operator.add)))
    layer = nn.Linear(2, 2)
    again = copy.deepcopy(layer)
    pickled = config == Config(3), red is Colour.RED, pickle.loads(pickle.dumps(Derived)) is Derived
    return pickled, torch.equal(layer.weight, again.weight), again.weight is layer.weight, copy.copy(config).heads


def a_module_finds_itself():
    from staff.tests.locate.constructs import objects

    own = sys.modules[__name__]
    found = own.STATS is STATS, own.a_module_finds_itself is a_module_finds_itself, inspect.getmodule(Base) is own
    return found, objects.STATS is STATS, objects.Base is Base


def the_source_is_read():
    return inspect.getsource(Slots.both), Slots.both.__code__.co_firstlineno, str(inspect.signature(times))


def annotations_are_read():
    def typed(x: int, y: "Config" = None) -> list[int]:
        z: int = x + 1
        w: int
        return [z]

    return typing.get_type_hints(typed), typed(1), inspect.get_annotations(typed)


def times(n):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) * n

        return wrapper

    return decorate


@times(3)
def tripled(x):
    return x + 1


def a_decorator_takes_arguments():
    return tripled(1), tripled.__name__, tripled.__wrapped__(1)


async def count_slowly(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def collect(n):
    return [i async for i in count_slowly(n)]


def a_coroutine_runs():
    return asyncio.run(collect(3))


def functions_are_partial_and_iterators_are_chained():
    add = functools.partial(operator.add, 3)
    made = add(4), functools.reduce(operator.mul, range(1, 5)), list(map(add, [1, 2])), sorted([3, 1], key=lambda x: -x)
    pairs = list(itertools.product("ab", repeat=2))
    return made, pairs, list(zip("ab", range(2), strict=True)), next(itertools.islice(itertools.count(3), 2, None))


def a_thread_changes_a_list():
    done = []
    thread = threading.Thread(target=lambda: done.append(len(done) + 1))
    thread.start()
    thread.join()
    return done


def a_dictionary_makes_what_is_missing_and_numbers_are_drawn():
    random.seed(3)
    sizes = defaultdict(list)
    sizes["a"] += [1]
    sizes["b"].append(2)
    return dict(sizes), random.random(), random.choice([1, 2, 3])


def something_is_printed(n=2):
    for i in range(n):
        print("here", i, end=";")
    print(f"{n=}", file=sys.stderr)
