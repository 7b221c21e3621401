#!/usr/bin/env python3
"""mpi_wire.py LEFT RIGHT: the wire of mpi_hosts.py, a process of its own in the
namespace of both devices. Hands on each Ethernet frame that one of them gets,
by the other, after a while. Lines of standard input say how: `delay SECONDS`
(0 at the start), `drop` (all from now on, also those that wait). Each is
answered by a line `done`. Ends with its input."""

import collections
import select
import socket
import sys
import time

# linux/if_packet.h: what the kernel leaves to a device, checksums and the cutting of long segments, comes before each
# frame, as struct virtio_net_hdr, and is taken back the same way.
SOL_PACKET, PACKET_VNET_HDR, PACKET_OUTGOING = 263, 15, 4
ETH_P_ALL, SO_RCVBUFFORCE = 3, 33
LONGEST = 1 << 17


def opened(device):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)
    end.bind((device, ETH_P_ALL))
    end.setblocking(False)
    return end


class Wire:
    def __init__(self, left, right):
        self.ends = {left: right, right: left}
        self.waiting = collections.deque()  # (when, to, frame), in order of arrival
        self.delay, self.drops = 0.0, False

    def take(self, end):
        """All that has come to `end`."""
        while True:
            try:
                frame, address = end.recvfrom(LONGEST)
            except BlockingIOError:
                return
            if address[2] != PACKET_OUTGOING and not self.drops:
                self.waiting.append((time.monotonic() + self.delay, self.ends[end], frame))

    def give(self):
        """Sends what is due; seconds until the next is, or none."""
        while self.waiting:
            when, to, frame = self.waiting[0]
            if when > (now := time.monotonic()):
                return when - now
            self.waiting.popleft()
            try:
                to.send(frame)
            except OSError:  # as a wire whose queue is full
                pass
        return None

    def obey(self, line):
        word, *value = line.split()
        if word == "drop":
            self.drops = True
            self.waiting.clear()
        else:
            self.delay, self.drops = float(value[0]), False
        print("done", flush=True)

    def run(self):
        while True:
            ready, _, _ = select.select([*self.ends, sys.stdin], [], [], self.give())
            for end in ready:
                if end is not sys.stdin:
                    self.take(end)
                elif line := sys.stdin.readline():
                    self.obey(line)
                else:
                    return


if __name__ == "__main__":
    Wire(opened(sys.argv[1]), opened(sys.argv[2])).run()
