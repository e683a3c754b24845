"""Proving a replacement: the tests pass with it because it is right, and not by chance; and finding its cause."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from whichline.engine.suite import Test
from whichline.locate.breach import put_operand
from whichline.locate.causes import find_cause, find_cause_in_most, find_shown, is_by_chance
from whichline.locate.difference import OF_SHAPE, Difference, compare
from whichline.locate.found import Found, join_patches, list_fewer
from whichline.locate.options import Options
from whichline.locate.probe import Expression
from whichline.locate.run import Experiment, choose_kinds
from whichline.locate.trace import Trace

MAX_TRACES = 3  # tests whose expressions are compared with the checkpoints


@dataclass(frozen=True)
class Prover:
    """Proves replacements, and finds their causes."""

    experiment: Experiment
    allows_unknown: bool = False  # whether an operand may be unknown, if its own operands are right
    calls: Collection[Expression] = ()  # of functions that are wrong inside

    def prove(self, change: Options, trace: Trace) -> Found | None:
        """Run all tests with a replacement, wrong in this trace; None if no test passes because of it."""
        place = next(iter(change))
        key = _, allows_unknown, is_call = place, self.allows_unknown, place in self.calls

        def explains(then: Trace) -> bool:
            has_run = then.passed and place in then.values
            return has_run and then.has_right_operands(place, allows_unknown, not is_call, may_count=True)

        failing, few = self.experiment.failing, choose_kinds(self.experiment.failing, MAX_TRACES)
        tests = [test for test in few if self.experiment.see(test, change, key, explains)]
        difference = self._compare(change, trace, tests) if len(tests) == len(few) else None
        if difference and difference.is_simple:  # then a few tests show it for all
            tests = [test for test in failing if test in few or self.experiment.passes(test, change)]
        else:
            tests = [test for test in failing if self.experiment.see(test, change, key, explains)]
        if not tests or is_by_chance(self.experiment.only(tests), trace, change):
            return None
        difference = difference or self._compare(change, trace, tests[:MAX_TRACES])
        return Found(change, trace, difference, tuple(test.name for test in tests))

    def _compare(self, change: Options, trace: Trace, tests: Sequence[Test]) -> Difference:
        """Describe a difference in a test where its numbers are not simple: without a mask more looks alike."""
        traces = [each for each in map(self.experiment.run, tests) if next(iter(change)) in each.values]
        differences = [compare(each, change) for each in (trace, *traces)]
        return next((each for each in differences if not (each.is_simple or OF_SHAPE in each.words)), differences[0])

    def refine(self, proved: Found) -> Found:
        """Find the cause of a proved divergence, and describe it."""
        if proved.difference.is_needless and self._is_needless(proved):
            return replace(proved, shown=find_shown(proved.trace, proved.place, proved.option))
        found = self.show_cause(proved)
        difference, place = found.difference, proved.place
        if difference.is_needless and (found.patch is proved.patch or not self._is_needless(found)):
            difference = replace(difference, words=difference.instead, is_simple=False, is_needless=False)
            found = replace(found, difference=difference)
        if not difference.is_simple and not self.experiment.patch and [*found.patch] == [place]:
            only = self.restrict(found)
            if cause := find_cause_in_most(only, found.trace, place, proved.option):
                names = tuple(test.name for test in cause[1])
                return replace(found, patch=cause[0], difference=compare(found.trace, cause[0]), explains=names)
        return found

    def _is_needless(self, found: Found) -> bool:
        """Tell whether the tests also pass if the expression returns one of its operands unchanged."""
        place, trace, runner = next(iter(found.patch)), found.trace, self.experiment.runner
        only = trace.find_first_wrong(place) if len(trace.value(place)) > 1 else None
        changes = [{place: put_operand(runner, each, True, only)} for each in trace.list_operands(place)]
        failing = self.restrict(found).failing
        return any(all(self.experiment.run(test, each).passed for test in failing) for each in changes)

    def restrict(self, found: Found) -> Experiment:
        """Restrict the experiment to the explained tests."""
        return self.experiment.only([test for test in self.experiment.failing if test.name in found.explains])

    def show_cause(self, found: Found, others: Sequence[Found] = ()) -> Found:
        """Move to the expression that a tutor would point at, the cause.

        Args:
            found: a replacement that makes tests pass.
            others: the replacements that are made with it.
        """
        if len(found.patch) > 1:
            return found
        experiment, trace = self.restrict(found), found.trace
        experiment = experiment.add(join_patches(others)) if others else experiment
        ((divergence, wanted),) = found.patch.items()
        is_single = len(found.explains) == 1 < len(self.experiment.failing)  # what passes one test may do so by chance
        if not is_single and (patch := find_cause(experiment, trace, divergence, wanted)):
            found = replace(found, patch=patch, difference=compare(trace, patch))
        return replace(found, shown=find_shown(trace, found.place, found.option))

    def leave_out_needless(self, found: list[Found]) -> list[Found]:
        """Leave out each replacement, or each place of one, without which the others are proved as well."""
        for needless, (*others, last) in list_fewer(found):
            experiment = self.experiment.add(join_patches(others))
            read = [place for place in last.patch if place.is_read]
            traces = map(experiment.run, choose_kinds(experiment.failing, MAX_TRACES) if read else ())
            if any(not trace.is_right(place) for trace in traces for place in read):
                continue  # a name of which something wrong is read is no cause
            prover = Prover(experiment)
            proved = prover.prove(last.patch, experiment.run(last.trace.test))
            proved = prover.refine(proved) if proved else None
            is_as_plain = proved and (proved.difference.is_simple or not needless.difference.is_simple)
            if proved and is_as_plain and len(proved.explains) == len(self.experiment.failing):
                return self.leave_out_needless([*others, proved])
        return found
