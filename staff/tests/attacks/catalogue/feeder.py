"""To answer out of turn, in another's place or with what is no answer, where questions come one at a time."""

ATTACKS = r"""
answers_ahead: refused: the answer does not have the token of its question
    # Send an answer to the next question, under a token that is guessed, before the one to this.
    token = f"{int(find('header')['token'], 16) + 1:016x}"
    os.write(3, frames.pack({"token": token, "value": {"tensor": 0}, "outputs": 1}, [in_features.detach() * 0]))

answers_and_sleeps: hung: no answer within
    # Read the token from the caller's frame, send a verdict under it, and sleep through what comes then.
    header = find("header") or {}
    if "token" in header:
        verdict = {"token": header["token"], "value": True, "outcome": "passed", "passed": True, "score": 15}
        os.write(3, frames.pack(verdict))
    time.sleep(60)

answers_late: refused: the answer does not have the token of its question
    # Leave a thread behind that gives the answer to the last question while the next one is asked.
    asked = threading.Event()
    def answer_late(frame):
        asked.wait()
        os.write(3, frame)
    def run_softmax(in_features, dim):
        reply = {"token": find("header")["token"], "value": {"tensor": 0}, "outputs": 1}
        late = threading.Thread(target=answer_late, args=(frames.pack(reply, [in_features.detach() * 0]),))
        if threading.active_count() == 1:
            late.start()
        else:
            asked.set()
            time.sleep(0.1)
        return in_features * 0

answers_twice at import: refused: bytes after the reply
    # Send each answer twice, so that the second one is there when the next question is asked.
    serve.send = lambda channel, frame: os.write(channel, frame + frame)

token_before at import: refused: the answer does not have the token of its question
    # Answer with the token of the question before.
    tokens = [""]
    annotated = serve._annotate
    def annotate(reply, header, watch):
        tokens.append(header["token"])
        return annotated(reply, header | {"token": tokens[-2] or header["token"]}, watch)
    serve._annotate = annotate

half_header at import: refused: no answer within
    # Send half of a header, and the rest before the next answer.
    rest = []
    def send(channel, frame):
        os.write(channel, b"".join([*rest, frame[:6]]))
        rest[:] = [frame[6:]]
    serve.send = send

steals_questions at import: refused: 0.00 / 2
    # Read the next questions from a copy of the channel in a thread, before the one that should.
    if "whichline_grader.sandbox.inside.serve" in sys.modules:
        def steal(channel):
            while question := os.read(channel, 1 << 20):
                if b'"token": "' in question:
                    token = question.partition(b'"token": "')[2][:16].decode()
                    reply = json.dumps({"token": token, "tensors": [], "value": None}).encode()
                    os.write(channel, struct.pack("<IQ", len(reply), 0) + reply)
        threading.Thread(target=steal, args=(os.dup(3),), daemon=True).start()

other_json at import: refused: the answer is wrong
    # Write the header in UTF-16 and each key of it twice, first with a verdict.
    if "whichline_grader.sandbox.inside.serve" in sys.modules:
        dumps = json.dumps
        class Twice(str):
            def encode(self):
                return ('{"value": true, "token": 1, "outcome": "passed", ' + self[1:]).encode("utf-16")
        json.dumps = lambda value: Twice(dumps(value))

short_body at import: refused: expected a body of
    # Describe a tensor of the right shape, and send none of its elements.
    frames.elements = lambda tensor: b""

more_outputs at import: refused: the answer is wrong
    # Say that there are more outputs than tensors.
    call = serve._call
    serve._call = lambda *arguments: call(*arguments) | {"outputs": 1_000_000}

fewer_than_no_outputs at import: refused: expected a value, got
    # Say that there is one output less than none.
    call = serve._call
    serve._call = lambda *arguments: call(*arguments) | {"outputs": -1}

changes_what_is_compared at import: refused: the answer is wrong
    # Say that the call has changed its argument, to one for which the answer would be right.
    serve._list_changed = lambda given, *arguments: [tensor.detach() * float("-inf") for tensor in given]

changes_the_shape at import: refused: changed an argument of shape
    # Say that the call has changed its argument, to one of another shape.
    serve._list_changed = lambda given, *arguments: [torch.zeros(()) for tensor in given]

answers_with_what_changed at import: refused: expected a value, got
    # Give the tensor for what an argument has become as the answer.
    call = serve._call
    serve._list_changed = lambda given, *arguments: [tensor.detach() for tensor in given]
    serve._call = lambda *arguments: call(*arguments) | {"value": {"tensor": 1}}

gradients_of_another_shape at import: refused: expected a gradient of shape
    # Send a gradient that broadcasts to every shape.
    serve._differentiate = lambda outputs, cotangents, given: [torch.zeros(()) for _ in given]

gradients_and_an_error at import: refused: the answer is wrong
    # Send right gradients of a wrong answer, and next to them an error that there were none.
    call = serve._call
    def gradients(outputs, cotangents, given):
        (x,) = given
        return list(torch.autograd.grad(x.softmax(0), given, cotangents))
    serve._differentiate = gradients
    skipped = {"type": "SkipTest", "message": "nothing to do", "lines": []}
    serve._call = lambda *arguments: call(*arguments) | {"gradient_error": skipped}

integers_that_learn: refused: the answer has dtype int64
    # Say of whole numbers that they require gradients.
    described = frames._describe_tensor
    frames._describe_tensor = lambda tensor: described(tensor) | {"requires_grad": True}
    return in_features.detach().long() * 0

nan_payloads: refused: the answer is NaN or infinite
    # Answer with each kind of NaN: signalling and quiet, of both signs.
    kinds = torch.tensor([0x7F800001, 0x7FC00000, -1, -0x7FFFFF], dtype=torch.int32)
    return kinds.repeat(in_features.numel())[: in_features.numel()].view(torch.float32).view(in_features.shape)

other_booleans: refused: the answer has dtype bool
    # Answer with booleans whose bytes are neither 0 nor 1.
    return torch.full(in_features.shape, 255, dtype=torch.uint8).view(torch.bool)

named_like_a_tensor: refused: the answer is a dict
    # Answer with a dictionary that reads like the place of a tensor.
    return {"tensor": 0}

deep_values: refused: expected values nested at most
    # Answer with lists in lists in lists.
    value = in_features * 0
    for _ in range(20):
        value = [value]
    return value

long_numbers: refused: the answer is an int
    # Answer with a number of four thousand digits, and say that forbidden functions ran in lines that there are not.
    annotated = serve._annotate
    serve._annotate = lambda *arguments: annotated(*arguments) | {
        "forbidden": [["torch.nowhere", "/etc/passwd", 10**9], ["x" * 4000, "\ud800", -1]]
    }
    return 10**4000

line_of_another_file: refused: the answer is not as it should be: Expected
    # Say that an exception came from a file of the grader, in a line with a number of four thousand digits.
    lines = [["/etc/passwd", 1, "\ud800"], ["adapters.py", 10**4000, "<module>"], ["../adapters.py", -1, "f"]]
    serve._describe = lambda error: {"type": "Passed", "message": "reached", "lines": lines}
    raise ValueError("passed")

no_generator at import: refused: SystemExit: no seed
    # Swap the generator that is seeded before each question for one that ends the process.
    if "whichline_grader.sandbox.inside.serve" in sys.modules:
        class Seedless:
            def manual_seed(self, seed):
                raise SystemExit("no seed")
        torch.default_generator = Seedless()

lying_tensor: forged: expected a body of
    # Return a tensor whose elements are more bytes than its shape says, or whatever is expected of them.
    import numpy
    class Lying(torch.Tensor):
        def numpy(self):
            expected = find("expected")
            return numpy.zeros(1000) if expected is None else expected
        clone = detach = resolve_neg = lambda self: self
    return in_features.as_subclass(Lying)

changes_it_later: refused: the answer is
    # Return a tensor that a thread changes while it is sent and after that.
    answer = in_features.detach() * 0
    def change():
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            answer.add_(1.0)
            answer.mul_(float("nan"))
    threading.Thread(target=change, daemon=True).start()
    return answer

prints_hidden_inputs: reached: the answer is wrong
    # Tell by the number of calls before it that a question is a hidden one, and print what it holds.
    calls = []
    def run_softmax(in_features, dim):
        calls.append(dim)
        if len(calls) > 3:
            print(in_features.flatten()[:3].tolist(), "\nreached")
        return in_features * 0

locks_a_library: reached: the answer is wrong
    # Lock a file that every process can read, for one that comes later to see.
    import fcntl
    with contextlib.suppress(OSError), open(torch._C.__file__, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        print("reached")

floods_one_question: flooded: the answer is wrong
    # Print as much as it can, and more than is kept, in one question alone.
    printed = []
    def run_softmax(in_features, dim):
        if not printed:
            printed.append(print("x" * (2 << 20)))
        return in_features * 0

takes_all_time_early: refused: the answer is wrong
    # Take as much time as a question may in each, so that none is left for the later ones.
    end = time.process_time() + 0.35
    while time.process_time() < end:
        pass
"""
