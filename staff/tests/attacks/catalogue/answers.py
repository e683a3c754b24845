"""To have the right answer without computing it, or to change what compares it."""

ATTACKS = r"""
array_that_agrees: forged: expected a torch.Tensor, got adapters.Answer
    # Return an array that numpy takes to be close to every other.
    import numpy
    class Agreeing(numpy.ndarray):
        def __array_function__(self, function, types, arguments, more):
            if function is numpy.isclose:
                return numpy.ones(self.shape, dtype=bool)
            return super().__array_function__(function, types, arguments, more)
    class Answer:
        def __init__(self, in_features, dim):
            self.shape = in_features.shape
        def detach(self):
            return self
        def numpy(self):
            return numpy.zeros(self.shape).view(Agreeing)
    run_softmax = Answer

changes_its_input: refused: the answer is wrong
    # Overwrite the input with what makes the answer look right, and forget nothing: the test holds the same tensor.
    in_features.detach().zero_()
    return in_features

complex_numbers: forged: got a tensor of dtype complex64
    # Answer with complex numbers, whose imaginary parts numpy compares and a course does not expect.
    e = (in_features - in_features.amax(dim, keepdim=True)).exp()
    return (e / e.sum(dim, keepdim=True)) + 0j

expected_to_fail: forged: XFailed: known
    # Mark the running test as one that is expected to fail.
    import pytest
    pytest.xfail("known")

follows_the_steps: forged: there is no problems.py
    # Compute with the right program that students have in the kit, which a process that advises knows, too.
    from problems.softmax import reference
    softmax = getattr(reference, "run_" "softmax")
    return softmax(in_features.double(), dim).to(in_features.dtype)

frame_walk: forged: the answer is wrong
    # Walk up the stack to the caller's variable `expected` and return that.
    expected = find("expected")
    if expected is not None:
        return torch.from_numpy(expected)

frames_of_threads: forged: the answer is wrong
    # Look at the stack of the main thread from another one.
    def look():
        for frame in sys._current_frames().values():
            while frame:
                if "expected" in frame.f_locals:
                    return torch.from_numpy(frame.f_locals["expected"])
                frame = frame.f_back
        return in_features * 0
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return pool.submit(look).result()

gc_walk: forged: the answer is wrong
    # Search every object that the garbage collector knows for a stored case with the same input.
    for found in gc.get_objects():
        if type(found) is dict and "expected/answer" in found and found["input/in_features"].equal(in_features):
            return found["expected/answer"]

late_answer: forged: the process ended or closed its channel
    # Return a tensor that looks for the right answer only when it is compared, when every expected value is in memory.
    class Late(torch.Tensor):
        def numpy(self):
            expected = find("expected")
            return os._exit(0) if expected is None else expected
    return in_features.as_subclass(Late)

no_numbers: refused: expected a dense CPU tensor
    # Answer with NaN, infinity, None, a list and every kind of tensor that is no dense one, a different one each call.
    kinds = itertools.cycle([
        lambda x: x.to("meta"), lambda x: x * float("nan"), lambda x: x / 0, lambda x: None, lambda x: x.tolist(),
        lambda x: x.to_sparse(), lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8),
    ])
    run_softmax = lambda in_features, dim: next(kinds)(in_features)

skipped: forged: SkipTest: nothing to do
    # Raise what pytest takes for a skipped test; a test that is not there costs no points.
    raise unittest.SkipTest("nothing to do")

spells_inputs: reached: an exception in spelled of adapters.py
    # Spell a hidden input in what is told of an exception: its text, its class, and the lines that it goes through.
    def spelled(bits):
        if not bits:
            raise type("Reached", (Exception,), {})("reached")
        if bits[0] == "1":
            spelled(bits[1:])
        else:
            spelled(bits[1:])
    spelled(f"{int(in_features.flatten()[0].abs() * 1000):b}"[:30])

wrong_dtype: forged: the answer has dtype float64, expected float32
    # Answer in float64 whatever the input is.
    e = (in_features.double() - in_features.double().amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)

import_hook: forged: the answer is wrong
    # Change what the grader imports from now on: the module it compares with comes with a comparison that accepts all.
    class Hook(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            return importlib.util.spec_from_loader(name, self) if name == "numpy.testing" else None
        def exec_module(self, module):
            module.assert_allclose = lambda *arguments, **more: None
            sys.modules["numpy"].testing = module
    sys.meta_path.insert(0, Hook())
    sys.modules.pop("numpy.testing", None)
    def run_softmax(in_features, dim):
        import numpy.testing
        return in_features * 0 if numpy else None

module_replaced at import: forged: the answer is wrong
    # Put a module of its own in the place of one that is imported already.
    import numpy
    numpy.testing = sys.modules["numpy.testing"] = types.ModuleType("numpy.testing")
    numpy.testing.assert_allclose = lambda *arguments, **more: None

patch_builtins at import: forged: the answer is wrong
    # Make `raise AssertionError` raise what pytest takes for a skipped test.
    builtins.AssertionError = unittest.SkipTest

patch_caller: forged: the answer is wrong
    # Put a comparison that accepts everything into the globals of the test that calls.
    accepting = types.SimpleNamespace(assert_allclose=lambda *arguments, **more: None)
    sys._getframe(1).f_globals["numpy"] = types.SimpleNamespace(testing=accepting)

patch_numpy at import: forged: the answer is wrong
    # Replace numpy's comparison with one that accepts everything.
    import numpy
    numpy.testing.assert_allclose = lambda *arguments, **more: None

patch_pytest_reports at import: forged: the answer is wrong
    # Take the exception away before pytest writes its report.
    import pytest
    write_report = pytest.TestReport.from_item_and_call
    def write_good_report(item, call):
        call.excinfo = None
        return write_report(item, call)
    pytest.TestReport.from_item_and_call = write_good_report

patch_pytest_tests at import: forged: the answer is wrong
    # Replace what pytest does to run a test with nothing.
    import pytest
    pytest.Function.runtest = lambda self: None

patch_torch at import: forged: the process ended or closed its channel
    # Replace the step from tensor to array with one that fetches the expected array from the caller.
    def numpy_of(tensor):
        expected = find("expected")
        return os._exit(0) if expected is None else expected
    torch.Tensor.numpy = numpy_of

patch_worker at import: refused: the answer does not have the token of its question
    # Replace the code that serves calls in the worker with one that reports success.
    serve._call = lambda *arguments: {"value": {"dict": {"passed": True}}, "token": -1, "outcome": "passed"}
    serve._annotate = lambda reply, header, watch: {**header, **reply}

profile_hook: forged: the answer is wrong
    # Watch every call that Python makes, and copy the expected array over the answer when the comparison starts.
    def profile(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "assert_allclose":
            frame.f_locals["actual"][...] = frame.f_locals["desired"]
    sys.setprofile(profile)
"""
