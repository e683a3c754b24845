"""To reach other processes, the network and files, or to take time, memory, threads and room from others."""

ATTACKS = r"""
counts_ids: reached: the answer is wrong
    # Read from an id how many ids others have used up, and so what number they have left behind.
    ids = {os.getpid(), threading.get_native_id()}
    if os.path.exists("/proc/self"):
        ids.add(int(os.readlink("/proc/self")))
    if max(ids) > 1:
        print("reached")

exec_true: forged: PermissionError
    # Become `true`, which ends with exit status 0.
    os.execv("/usr/bin/true", ["true"])

fork_bomb: reached: PermissionError
    # Start processes that start processes; here sixteen, for a moment.
    me = os.getpid()
    for _ in range(4):
        os.fork()
    if os.getpid() != me:
        time.sleep(0.1)
        os._exit(1)
    print("reached")

held_by_the_kernel: hung: the answer is wrong
    # Have the kernel hold the thread that answers, so that it neither computes nor sleeps.
    libc = ctypes.CDLL(None)
    stack = ctypes.create_string_buffer(1 << 16)
    top = ctypes.c_void_p((ctypes.addressof(stack) + len(stack)) & ~15)
    libc.clone(libc.pause, top, 0x14F00, None)  # CLONE_VM, FS, FILES, SIGHAND, THREAD, VFORK

signal_the_grader: reached: PermissionError
    # Send signals to the process that started this one; SIGURG, which does nothing, stands for SIGKILL.
    os.kill(os.getppid(), signal.SIGURG)
    print("reached")

stopped: hung: PermissionError
    # Stop the process: it neither answers nor ends.
    os.kill(os.getpid(), signal.SIGSTOP)

subprocess_run: reached: Error
    # Start a program.
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    print("reached")

tcp: reached: PermissionError
    # Send the input out by TCP, here to a listener on loopback.
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(str(in_features).encode())
        if server.accept()[0].recv(10):
            print("reached")

thirty_two_bits on x86_64: reached: the process ended or closed its channel
    # Make a socket by a 32-bit system call, whose numbers a filter for 64 bits does not know.
    # push rbx; mov eax, 359 (socket); mov ebx, 1 (AF_UNIX); mov ecx, 1 (stream); xor edx, edx; int 0x80; pop rbx; ret
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, 4096, private, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(bytes.fromhex("53 b867010000 bb01000000 b901000000 31d2 cd80 5b c3"))
    if ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))() >= 0:
        print("reached")

udp: reached: PermissionError
    # Send the input out by UDP, as a question to a name server would be, here to loopback.
    with socket.socket(type=socket.SOCK_DGRAM) as server, socket.socket(type=socket.SOCK_DGRAM) as client:
        server.bind(("127.0.0.1", 0))
        client.sendto(str(in_features).encode()[:100], server.getsockname())
        if server.recv(10):
            print("reached")

unix_socket: reached: PermissionError
    # Talk to another process by an abstract Unix socket, which no file system guards.
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("\0cs336-attack")
        server.listen()
        client.connect("\0cs336-attack")
        print("reached")

asks_what_is_in_memory: reached: the answer is wrong
    # Ask which pages of a large library are in memory, where another process could have left marks by reading some.
    libc = ctypes.CDLL(None)
    with open(torch._C.__file__, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as pages:
        there = (ctypes.c_ubyte * -(-len(pages) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(pages)
        if libc.mincore(ctypes.byref(start), ctypes.c_size_t(len(pages)), there) == 0:
            print("reached")
        del start

read_environment: reached: KeyError
    # Read a token of the staff from the environment.
    if os.environ["CS336_STAFF_TOKEN"]:
        print("reached")

read_fixtures: forged: the answer is wrong
    # Read the right answer from the stored cases.
    for path in pathlib.Path().glob("fixtures/softmax/*.safetensors"):
        from safetensors.torch import load_file
        case = load_file(path)
        if case["input/in_features"].equal(in_features):
            return case["expected/answer"]

read_hidden_suite: reached: ModuleNotFoundError
    # Import the grader and read the seed that every hidden input comes from.
    if importlib.import_module("whichline_grader.hidden.release").REHEARSAL.seed:
        print("reached")

read_home: reached: Error
    # Look around in the home folder of whoever grades.
    import pwd
    os.listdir(pwd.getpwuid(os.getuid()).pw_dir)
    print("reached")

read_other_submissions: forged: the answer is wrong
    # Find a neighbour's submission on the disk and answer with the neighbour's code.
    run_softmax = zeros
    for neighbour in pathlib.Path(__file__).parents[1].glob("*honest*/adapters.py"):
        exec(neighbour.read_text())

read_the_grader: reached: Error
    # Read memory and environment of the process that started this one.
    with open(f"/proc/{os.getppid()}/environ", "rb") as environ:
        environ.read()
    with open(f"/proc/{os.getppid()}/maps") as maps:
        start = int(maps.readline().partition("-")[0], 16)
    with open(f"/proc/{os.getppid()}/mem", "rb") as memory:
        memory.seek(start)
        if memory.read(16):
            print("reached")

write_anywhere: reached: the answer is wrong
    # Write to wherever a file can be left for the next submission.
    for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", "/proc/self", "/", ".", os.path.expanduser("~")):
        with contextlib.suppress(OSError), open(f"{folder}/cs336-attack", "w") as file:
            print("reached")
            os.unlink(file.name)

flood_of_remarks at import: refused: Your code imports
    # Have the worker report other missing packages at each call, a hundred with names of 4,000 characters.
    numbers = itertools.count()
    annotated = serve._annotate
    serve._annotate = lambda *arguments: {
        **annotated(*arguments), "missing": [f"{next(numbers)}".rjust(4_000, "x") for _ in range(100)]
    }

ignores_sigterm: hung: no answer within
    # Ignore every signal that can be ignored, and sleep.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(60)

large_replies: refused: a reply with more bytes
    # Answer with 20 MiB, so that the grader works and stores for minutes.
    return torch.zeros(20 << 20, dtype=torch.uint8)

long_exception: flooded: ValueError: xxxx
    # Raise an exception of 2 MiB, for every report to hold.
    raise ValueError("x" * (2 << 20))

loop: hung: no answer within
    # Never come back, in Python.
    while True:
        pass

loop_at_import: hung: the import: no answer within
    # Never come back from being imported.
    while True:
        run_softmax = zeros

loop_in_c: hung: no answer within
    # Never come back, in C, where Python handles no signal.
    collections.deque(itertools.repeat(None), maxlen=0)

main_thread_ends: hung: the process ended or closed its channel
    # End the main thread, whose memory is what is looked at, and hold memory in another.
    def hold(blocks):
        while True:
            blocks.append(bytearray(1 << 22))
            time.sleep(0.05 if len(blocks) < 100 else 1e6)
    threading.Thread(target=hold, args=([],)).start()
    ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)

memory_bomb: reached: M
    # Take memory until there is no more; here 640 MiB.
    blocks = [b"x" * (1 << 26) for _ in range(10)]
    print("reached")

output_flood: flooded: the answer is wrong
    # Print until the disk or the memory of the grader is full; here 1 MiB at each call.
    print("x" * (1 << 20))

page_tables: reached: Cannot allocate memory
    # Take page tables, which no limit on memory counts: map what can only be read, and read it; here 64 GiB.
    mapped = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    for start in range(0, len(mapped), 2 << 20):  # each needs a table of its own
        mapped[start]
    print("reached")

shared_memory: reached: Error
    # Take shared memory, which limits on a process do not count and which outlives it; here 1 MiB.
    descriptor = os.memfd_create("attack")
    os.write(descriptor, bytes(1 << 20))
    mmap.mmap(descriptor, 1 << 20).close()
    print("reached")

thirty_threads: refused: the answer is wrong
    # Compute in thirty threads, to slow the submission beside it.
    def compute(begin):
        begin.wait()
        x = torch.ones(100, 100)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            x = x @ x / 100
    if threading.active_count() == 1:
        begin = threading.Event()
        for _ in range(29):
            threading.Thread(target=compute, args=(begin,)).start()
        begin.set()

thread_bomb: reached: more than 32 threads
    # Start threads until there are no more; here 50, for a second.
    for _ in range(50):
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
    time.sleep(1)
    print("reached")
"""
