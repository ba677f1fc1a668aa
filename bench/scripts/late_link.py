"""Carries packets between two namespaces after a delay, for kernels without `tc netem`.

    late_link.py DEVICE SPACE FIFO SPACE FIFO

Each namespace gets a TUN device; a number written to its FIFO is how many seconds pass until what
it sends arrives at the other. Packets are as large as the kernel makes them before it would cut
them for a wire, so that a gigabit a second is some thousands. Ends when its input does.
"""

import collections
import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02
MANY, LARGEST = 32, 1 << 17

device, *rest = sys.argv[1:]
spaces, fifos = rest[::2], [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in rest[1::2]]
ends, delays, lines = [], [0.0, 0.0], [collections.deque(), collections.deque()]
for space in spaces:
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    name = f"late{os.getpid()}"  # until it has moved
    flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(end, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    move = ["ip", "link", "set", name, "netns", space, "name", device]
    subprocess.run(move, check=True)
    up = ["ip", "-n", space, "link", "set", device, "up", "txqueuelen", "10000"]
    subprocess.run(up, check=True)
    ends.append(end)
with contextlib.suppress(OSError):  # else packets wait until a worker pauses
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
print("ready", flush=True)

while True:
    now = time.monotonic()
    for i, line in enumerate(lines):
        while line and line[0][0] <= now:
            with contextlib.suppress(OSError):  # lost, as on a wire
                os.write(ends[1 - i], line.popleft()[1])
    due = [line[0][0] - now for line in lines if line]
    ready, _, _ = select.select([0, *ends, *fifos], [], [], max(0, min(due)) if due else None)
    if 0 in ready and not os.read(0, 1):
        sys.exit()
    for i in range(2):
        if fifos[i] in ready:
            delays[i] = float(os.read(fifos[i], 100).split()[-1])
        if ends[i] in ready:
            with contextlib.suppress(BlockingIOError):
                for _ in range(MANY):
                    lines[i].append((time.monotonic() + delays[i], os.read(ends[i], LARGEST)))
