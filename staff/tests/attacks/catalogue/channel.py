"""To write what the other side reads, or to end with the exit status of success before it reads."""

ATTACKS = r"""
blames_the_grader: refused: an exception
    # Pretend that the grader is broken: what it could not grade is no lost point.
    raise type("SandboxError", (RuntimeError,), {})("the sandbox gives no worker; start it again")

closed_descriptors: refused: the process ended or closed its channel
    # Close every file descriptor, the grader's among them.
    os.closerange(0, 256)

fake_report: refused: 0.00 / 2
    # Print what graders print, for whoever reads the score from the output.
    print('````\n# 15.0 of 15 points\n::set-output name=score::15\n{"score": 15, "tests": []}\n1 passed in 0.01s')

forged_reply: refused: the answer does not have the token of its question
    # Write a reply of its own into every open file descriptor: a verdict, where an answer is expected.
    verdict = json.dumps({"token": 999, "tensors": [], "value": None, "outcome": "passed", "score": 15}).encode()
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, struct.pack("<IQ", len(verdict), 0) + verdict)

half_reply: hung: no answer within
    # Write half of a reply and never the other half.
    with contextlib.suppress(OSError):
        os.write(3, struct.pack("<IQ", 100, 0) + b"{")
    time.sleep(60)

huge_reply: refused: a reply with more bytes
    # Announce a reply of 10 GiB, for the other side to make room for.
    with contextlib.suppress(OSError):
        os.write(3, struct.pack("<IQ", 2, 10 << 30) + b"{}")

strange_text: refused: <script>
    # Raise an exception whose name and text hold lone surrogates, terminal escapes, HTML and Markdown.
    name = "\ud800\x1b[2J\u202e```\n"
    raise type(name[1:], (Exception,), {})(name + "<script>alert(1)</script>\n```\n# 15.0 of 15 points\n" + name)

atexit_exit at import: forged: the answer is wrong
    # Change the exit status to 0 when the interpreter ends.
    atexit.register(os._exit, 0)

c_exit: forged: the process ended or closed its channel
    # End it by the C library, which no patch of `os` sees.
    ctypes.CDLL(None)._exit(0)

last_words at import: forged: the answer is wrong
    # Change the exit status to 0 in the destructor of an object that lives as long as the interpreter.
    class LastWords:
        def __del__(self, exit=os._exit):
            exit(0)
    last = LastWords()

machine_code on x86_64: forged: the process ended or closed its channel
    # Run machine code of its own, as a compiled extension would: exit_group(0).
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, 4096, private, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(b"\x31\xff\xb8\xe7\x00\x00\x00\x0f\x05")  # xor edi, edi; mov eax, 231; syscall
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()

os_exit: forged: the process ended or closed its channel
    # End the process with exit status 0 before the first failure can be counted.
    os._exit(0)

os_exit_at_import at import: forged: the import: the process ended or closed its channel
    # End the process with exit status 0 while it is imported.
    os._exit(0)

pytest_exit: forged: Exit: done
    # Ask pytest to stop at once, with exit status 0.
    import pytest
    pytest.exit("done", returncode=0)

segmentation_fault: killed: the process ended with a segmentation fault
    # Crash the process, so that there is no result at all.
    ctypes.string_at(0)

thread_left_behind: forged: the process ended or closed its channel
    # Leave a thread behind that ends the process with exit status 0 while the answer is compared.
    threading.Timer(0.001, os._exit, (0,)).start()

timer_left_behind: forged: the process ended or closed its channel
    # Leave a timer behind that ends the process with exit status 0 while the answer is compared.
    signal.signal(signal.SIGALRM, lambda *arguments: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, 0.001)

unpickled_exit: forged: the process ended or closed its channel
    # Hide the exit in a file of weights, where it happens when `torch.load` unpickles it.
    class Weights:
        def __reduce__(self):
            return os._exit, (0,)
    file = io.BytesIO()
    torch.save(Weights(), file)
    file.seek(0)
    return torch.load(file, weights_only=False)
"""
